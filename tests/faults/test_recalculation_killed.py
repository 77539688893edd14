"""
kill -9 and aborts at random moments of Recalculate and of a rebuild, while calls arrive: acknowledged calls are counted
once, and a recalculation is made for all calls or for none.
"""

from __future__ import annotations

import json
import random
import secrets
import signal
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import urllib3

from gateway.core.paths import AS, OPERATOR_API, socket_path
from tests.acceptance.conftest import ARCHIVE, Tollhouse, UnixConnection
from tests.acceptance.payloads import post, request, span
from tests.faults.gateways.counted import wait_until_counted
from tests.rounds import IS_LONG
from tests.spool.ledger.engines import ENGINES, POSTGRES
from tests.spool.postgres_cluster import Schema, storage_table

KILLS = 200 if IS_LONG else 2
ENDS = (signal.SIGKILL, signal.SIGABRT)
PRICED, UNPRICED = "acme-priced", "acme-load"
HOURS, EACH_REQUEST = 400, 50
PRICE = '[[prices.override]]\nmodel = "acme-priced"\ninput = "{price}"\noutput = "0"\n'
Change = tuple[str, dict[str, str]]
REPRICE: Change = ("/ledger/reprice", {"since": "2020-01-01"})
REBUILD: Change = ("/ledger/rebuild", {})
HOUR_NS = 3600 * 10**9
CONFIG = ARCHIVE.replace("[spool]", '[spool]\nmax_bytes = "1GiB"')


class Site:
    """A gateway, the calls that it acknowledged, and the prices that the calls of PRICED may have."""

    def __init__(self, tollhouse: Tollhouse, chance: random.Random) -> None:
        self.tollhouse, self._chance = tollhouse, chance
        self._config = tollhouse.config.read_text()
        self._key = tollhouse.key("load")
        self.acknowledged = set[str]()
        self._tokens = 0
        self._prices = {1}

    def start(self, price: int) -> None:
        self.tollhouse.config.write_text(self._config + PRICE.format(price=price))
        self.tollhouse.start()

    def fill(self) -> None:
        """Send a call of PRICED for each of many hours."""
        for first in range(0, HOURS, EACH_REQUEST):
            calls = {secrets.token_hex(8): self._chance.randrange(1, 10**6) for _ in range(EACH_REQUEST)}
            begun = time.time_ns() - first * HOUR_NS
            starts = range(begun, begun - EACH_REQUEST * HOUR_NS, -HOUR_NS)
            assert self._has_sent(PRICED, dict(zip(calls, starts, strict=True)), calls)
            self._tokens += sum(calls.values())

    def _has_sent(self, model: str, starts: dict[str, int], tokens: dict[str, int]) -> bool:
        named: Any = {"gen_ai.request.model": model, "gen_ai.response.model": model}
        spans = [span(name, tokens=tokens[name], start_ns=start, **named) for name, start in starts.items()]
        try:
            answer = post(self.tollhouse.url, request(spans), self._key)
        except urllib3.exceptions.HTTPError:
            return False
        assert answer.status in (200, 503), answer.data
        if answer.status == 200:
            self.acknowledged |= starts.keys()
        return True

    def _load(self) -> None:
        """Send calls of UNPRICED until the gateway is gone."""
        while self._has_sent(UNPRICED, {(name := secrets.token_hex(8)): time.time_ns()}, {name: 7}):
            pass

    def change(self, path: str, body: dict[str, str]) -> bool:
        """Request a change of the totals. Return False if the gateway ends before it answers."""
        connection = UnixConnection(socket_path(self.tollhouse.data))
        headers = {AS: "ann@example.com", "Content-Type": "application/json"}
        try:
            connection.request("POST", OPERATOR_API + path, json.dumps(body), headers)
            answer = connection.getresponse()
            payload = answer.read()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        assert answer.status == 200, payload
        return True

    def end_during(self, change: Change, price: int, most_s: float) -> None:
        """End the gateway at a random moment of a change."""
        with ThreadPoolExecutor() as threads:
            loading = threads.submit(self._load)
            changing: Future[bool] = threads.submit(self.change, *change)
            time.sleep(self._chance.uniform(0, most_s))
            self.tollhouse.stop(self._chance.choice(ENDS), code=None)
            is_answered = changing.result()
            loading.result()
        if change == REPRICE:
            self._prices = {price} if is_answered else {*self._prices, price}

    def check(self) -> None:
        """The totals have each acknowledged call once, at one price."""
        tollhouse = self.tollhouse
        tollhouse.wait_until_drained()
        records = tollhouse.records()
        wait_until_counted(tollhouse, len(records) + 1)
        sent = {record["request_id"]: record for record in records}
        assert len(records) == len(sent)
        assert set() == self.acknowledged - sent.keys()
        rows = tollhouse.json("report", "--by", "model", "--from", "2020-01-01")["rows"]
        assert Counter(record["request_model"] for record in records) == {
            row["model"]: row["calls"] for row in rows
        }
        [row] = [row for row in rows if row["model"] == PRICED]
        assert (HOURS, self._tokens) == (row["calls"], row["input_tokens"])
        found = [price for price in self._prices if price * self._tokens == Decimal(row["cost"]) * 10**6]
        assert found, (self._prices, self._tokens, row["cost"])
        self._prices = {*found}
        tollhouse.json("spool", "verify")  # `spool verify` fails if a total differs from the records


@pytest.mark.proof
@pytest.mark.parametrize("engine", ENGINES)
def test_kills_during_changes_of_all_totals(
    engine: str, installations: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    However a recalculation ends, the gateway continues by itself. At the end of the test, a rebuild gives the same
    totals.
    """
    tollhouse = installations(config=CONFIG.format(server="", hold="50ms", more=""))
    if engine == POSTGRES:
        schema: Schema = request.getfixturevalue("unmade_schemas")()
        storage = storage_table(tmp_path, dsn=schema.dsn, schema=schema.name)
        tollhouse.config.write_text(CONFIG.format(server="", hold="50ms", more=f"shared = true{storage}"))
        tollhouse.run("storage", "init")
    site = Site(tollhouse, random.Random(engine))
    site.start(1)
    site.fill()
    site.check()
    took = {}
    for path, body in (REPRICE, REBUILD):
        began = time.monotonic()
        assert site.change(path, body)
        took[path] = time.monotonic() - began
    site.check()
    tollhouse.stop()
    for number in range(KILLS):
        change = (REPRICE, REBUILD)[number % 2]
        site.start(number + 2)
        site.check()
        site.end_during(change, number + 2, took[change[0]])
    site.start(1)
    site.check()
    assert site.change(*REBUILD)
    site.check()
    tollhouse.stop()
