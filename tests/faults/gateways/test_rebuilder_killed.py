"""
Two gateways on one PostgreSQL, one of which is killed while it counts the totals again, with an idle log. The other one
answers the complete sums or refuses, and finishes the count without a new record.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from gateway.core.paths import AS, OPERATOR_API, REASON, socket_path
from spool.erasing import AGAIN_AFTER_S
from tests.acceptance.conftest import ARCHIVE, Tollhouse, UnixConnection
from tests.acceptance.payloads import post, request, span
from tests.faults.gateways.counted import wait_until_counted
from tests.spool.postgres_cluster import Schema, storage_table
from tests.waiting import wait_until

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

CALLS, EACH_REQUEST = 40_000, 1000  # a rebuild of so many calls takes several transactions
HOURS, HOUR_NS = 20 * 24, 3600 * 10**9
MODELS, USERS, ERASED = ("gpt-4o", "gpt-4.1"), 10, "user-3"
OFFICER = "officer@example.com"
CONFIG = ARCHIVE.replace("[spool]", '[spool]\nmax_bytes = "1GiB"') + "[privacy]\nmin_group = 2\n"
REPORT = "/report?by=model&from=2020-01-01"
GROUPS = "/group-costs?by=model"
READERS = (REPORT, GROUPS, "/overview", "/forecast", "/comparison?by=model")


class Site:
    """Two gateways, and the calls that were sent, counted by hand."""

    def __init__(self, folder: Path, schema: Schema, installations: Any) -> None:
        self._schema = schema
        self._calls: list[tuple[int, str, int]] = []
        self.gateways: list[Tollhouse] = []
        for name in ("one", "two"):
            storage = storage_table(folder, dsn=schema.dsn, schema=schema.name, more=f'node_name = "{name}"')
            config = CONFIG.format(server="", hold="50ms", more=f"shared = true{storage}")
            self.gateways.append(installations(name, config=config))
        self.gateways[0].run("storage", "init")
        self._key = self.gateways[0].key("load")
        for gateway in self.gateways:
            gateway.start()
        self._fill()

    def _fill(self) -> None:
        now = time.time_ns()
        for first in range(0, CALLS, EACH_REQUEST):
            spans = []
            for number in range(first, min(first + EACH_REQUEST, CALLS)):
                start, model, tokens = now - number % HOURS * HOUR_NS, MODELS[number // USERS % 2], number + 1
                named: Any = {"gen_ai.request.model": model, "gen_ai.response.model": model}
                named["user.id"] = f"user-{number % USERS}"
                spans.append(span(f"call-{number}", start_ns=start, tokens=tokens, **named))
                self._calls.append((start, model, tokens))
            answer = post(self.gateways[0].url, request(spans), self._key)
            assert 200 == answer.status, answer.data
        for gateway in self.gateways:
            wait_until_counted(gateway, CALLS + 1)

    def by_hand(self, since: str = "", until: str = "") -> Counter[tuple[str, str]]:
        """Return calls and input tokens of each model in a period, from the calls that were sent."""
        found = Counter[tuple[str, str]]()
        begin, end = (
            datetime.fromisoformat(each).timestamp() * 10**9 if each else None for each in (since, until)
        )
        for start, model, tokens in self._calls:
            if (begin is None or start >= begin) and (end is None or start < end):
                found[model, "calls"] += 1
                found[model, "input_tokens"] += tokens
        return found

    def check(self, path: str, answer: Any) -> None:
        """Every sum in the answer is complete."""
        if path == REPORT:
            assert self.by_hand() == figures_of(answer["rows"])
        elif path == GROUPS:
            parts = {(row["from"], row["to"]) for row in answer["group_costs"]}
            assert parts
            for part in parts:
                rows = [row for row in answer["group_costs"] if (row["from"], row["to"]) == part]
                assert self.by_hand(*part) == figures_of(rows)

    def make_second_pass_due(self) -> None:
        """
        Move the erasure a day back, to the moment at which its second pass has renamed late records, and the totals
        are not counted again yet.
        """
        table = sql.SQL("{}.documents").format(sql.Identifier(self._schema.name))
        with psycopg.connect(self._schema.dsn, autocommit=True) as connection:
            query = sql.SQL("SELECT id, body FROM {} WHERE kind = 'erasure'").format(table)
            [(id, body)] = connection.execute(query).fetchall()
            erasure = json.loads(body)
            assert 1 == erasure["passes"]
            changed = {**erasure, "at": erasure["at"] - AGAIN_AFTER_S - 1, "totals_have_names": True}
            update = sql.SQL("UPDATE {} SET body = %s WHERE kind = 'erasure' AND id = %s").format(table)
            connection.execute(update, (json.dumps(changed), id))

    def erasure(self) -> Any:
        [(body,)] = self._rows("SELECT body FROM {}.documents WHERE kind = 'erasure'")
        return json.loads(body)

    def is_rebuilding(self) -> bool:
        rows = self._rows("SELECT value FROM {}.ledger_state WHERE name = 'rebuilding'")
        return any(value for (value,) in rows)

    def gateway_of_erasures(self) -> Tollhouse:
        """Return the gateway that continues erasures."""
        query = "SELECT n.name FROM {0}.leases l JOIN {0}.nodes n ON n.id = l.node WHERE l.name = 'erasures'"
        [(name,)] = self._rows(query)
        return self.gateways[("one", "two").index(name)]

    def _rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._schema.dsn, autocommit=True) as connection:
            return connection.execute(sql.SQL(query).format(sql.Identifier(self._schema.name))).fetchall()


def figures_of(rows: Any) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for row in rows:
        for name in ("calls", "input_tokens"):
            found[row["model"], name] += row[name]
    return found


def ask(gateway: Tollhouse, path: str, method: str = "GET") -> tuple[int, str | None, Any]:
    """Return the status, `Retry-After` and the body of an answer."""
    connection = UnixConnection(socket_path(gateway.data))
    headers = {AS: "ann@example.com", REASON: "a test", "Content-Type": "application/json"}
    try:
        connection.request(method, OPERATOR_API + path, "{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Retry-After"], json.loads(answer.read())
    finally:
        connection.close()


def is_answered(site: Site, gateway: Tollhouse, path: str) -> bool:
    """Ask one reader. Return False if it refuses with the share that is done. Any answer must be complete."""
    status, retry_after, answer = ask(gateway, path)
    if status == 200:
        site.check(path, answer)
        return True
    assert (503, "totals_incomplete") == (status, answer["error"]["type"]), answer
    assert retry_after and " % is done" in answer["error"]["message"]
    return False


def wait_until_complete(site: Site, gateway: Tollhouse) -> None:
    """Ask every reader, also while others refuse, until all answer."""

    def is_complete() -> bool:
        answered = [is_answered(site, gateway, path) for path in READERS]
        return all(answered)

    wait_until(is_complete, "the totals are complete")


@pytest.fixture
def site(request: pytest.FixtureRequest, installations: Any, tmp_path: Path) -> Site:
    schema: Schema = request.getfixturevalue("unmade_schemas")()
    return Site(tmp_path, schema, installations)


def test_kill_during_a_rebuild(site: Site) -> None:
    """No group is stored before the rebuild, so that one of partial sums would be stored for ever."""
    one, two = site.gateways
    with ThreadPoolExecutor() as threads:
        rebuild = threads.submit(ask, one, "/ledger/rebuild", "POST")
        wait_until(lambda: not is_answered(site, two, REPORT), "a rebuild runs")
        one.kill()
        wait_until_complete(site, two)
        with suppress(OSError, HTTPException):  # the gateway was killed before it answered, or after
            rebuild.result()
    two.json("spool", "verify")


def test_kill_during_the_second_pass_of_an_erasure(site: Site) -> None:
    """The gateway that is left counts the totals of the erasure, and repeats the rest of the pass."""
    one, two = site.gateways
    role = ("--name", "Privacy", "--data-access", "none", "--permission-set", "answer_privacy_requests")
    one.json("roles", "create", *role, "--member", OFFICER)
    one.json("people", "erase", ERASED, "--confirm", ERASED, "--reason", "a test", "--as", OFFICER)
    for gateway in site.gateways:
        gateway.kill()
    site.make_second_pass_due()  # while no gateway runs, because a gateway reads erasures at its start
    with ThreadPoolExecutor() as threads:
        starts = [threads.submit(gateway.start) for gateway in site.gateways]
        wait_until(site.is_rebuilding, "a rebuild runs")
        killed = site.gateway_of_erasures()
        assert killed.process is not None
        killed.process.kill()
        killed.process.wait()
        assert site.is_rebuilding()
        for gateway, start in zip(site.gateways, starts, strict=True):
            with suppress(AssertionError) if gateway is killed else nullcontext():
                start.result()  # the rebuild may begin before the gateway listens
    killed.kill()
    left = two if killed is one else one
    wait_until_complete(site, left)
    wait_until(
        lambda: (site.erasure()["passes"], site.erasure()["totals_have_names"]) == (2, False),
        "it is finished",
    )
    killed.start()
    for gateway in site.gateways:
        wait_until_complete(site, gateway)
    left.json("spool", "verify")
