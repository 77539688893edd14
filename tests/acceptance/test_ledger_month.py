"""
The ledger compared with a brute-force recount of the record file, over a month with every kind of fault.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import urllib3

from gateway.cli.send.command import example_payload
from gateway.normalise.formats.engine.declaration import ExampleCall
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.rounds import IS_LONG
from tests.waiting import wait_until

pytestmark = pytest.mark.proof

ROUNDS = 40 if IS_LONG else 4
SENDERS = 3
DAY_S = 86400
NS = 1_000_000_000
MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "acme-large")
TEAMS = ("search", "support", "")
SHADOWS = "[sources.openrouter]\ncount = false"
TRACES = "/v1/traces"
# each round of the month has at least these counts of requests
EACH_ROUND = {"accepted": 80, "duplicates": 8, "amended": 3}

Sent = tuple[str, bytes]  # a sent request: its path and body
Group = tuple[str, ...]
Sums = tuple[int, int, int, int, Decimal, Decimal, Decimal]


class Sender:
    """
    Sends random requests of a month: late calls, repeats, two-part calls, failures, and records that do not count.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sent: list[Sent] = []
        self.answered = 0

    def load(self, url: str, key: str, stop: threading.Event) -> None:
        """Send until `stop` is set or the server is gone."""
        while not stop.is_set():
            for path, body in self._next():
                self._sent.append((path, body))
                try:
                    answer = post(url, body, key, path)
                except urllib3.exceptions.HTTPError:
                    return
                assert answer.status in (200, 503), answer.data
                self.answered += answer.status == 200

    def _next(self) -> Iterator[Sent]:
        rng = self._random
        kind = rng.choice(("traces", "traces", "amended", "litellm", "openrouter", "repeat", "repeat"))
        if kind == "repeat" and self._sent:
            yield rng.choice(self._sent)
        elif kind == "amended":
            yield from self._halves()
        elif kind in ("litellm", "openrouter"):
            yield f"/v1/ai-telemetry/{kind}", self._example(kind)
        else:
            yield TRACES, request([self._span() for _ in range(rng.choice((1, 3, 40)))])

    def _start_ns(self) -> int:
        return time.time_ns() - self._random.randrange(60 * NS, 30 * DAY_S * NS)

    def _span(self, **more: str | int) -> dict[str, Any]:
        rng = self._random
        model = rng.choice(MODELS)
        made = span(
            "chatcmpl-" + secrets.token_hex(12),
            tokens=rng.randrange(1, 300_000),
            start_ns=self._start_ns(),
            **{"gen_ai.request.model": model, "gen_ai.response.model": model, **more},
        )
        if rng.random() < 0.1:
            made["status"] = {"code": 2}
            made["attributes"].append({"key": "error.type", "value": {"stringValue": "429"}})
        return made

    def _halves(self) -> Iterator[Sent]:
        """
        Make a call whose first report has no tokens. The later report adds them while the record is open.
        """
        whole = self._span()
        known = [each for each in whole["attributes"] if not each["key"].startswith("gen_ai.usage.")]
        yield TRACES, request([{**whole, "attributes": known}])
        yield TRACES, request([whole])

    def _example(self, format: str) -> bytes:
        """Make an example whose reported cost differs from list prices for LiteLLM."""
        payload = json.loads(example_payload(format, ExampleCall(end_ns=self._start_ns())))
        if format == "litellm":
            payload[0]["response_cost"] = self._random.randrange(10**9) / 10**11
        return json.dumps(payload).encode()


def recount(records: list[dict[str, Any]], per_s: int, *dimensions: str) -> dict[Group, Sums]:
    """
    Return calls, errors, input and output tokens, cost, estimate and savings by (period, dimensions...), one
    record at a time.
    """
    groups: dict[Group, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, Decimal(0), Decimal(0), Decimal(0)])
    for record in corrected(records):
        if record["shadow"]:
            continue
        seconds = int(_epoch(record["start_time"])) // per_s * per_s
        period = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))
        sums = groups[period, *(_value(record, name) for name in dimensions)]
        estimated = Decimal(record["estimated_cost"] or 0)
        cached = record["status"] == "cached"
        counted = Decimal(record["cost"]) if record["cost"] is not None else estimated
        sums[0] += 1
        sums[1] += record["status"] == "error"
        sums[2] += record["input_tokens"] or 0
        sums[3] += record["output_tokens"] or 0
        sums[4] += 0 if cached else counted
        sums[5] += 0 if cached else estimated
        sums[6] += estimated if cached else 0
    return {group: tuple(sums) for group, sums in groups.items()}


def corrected(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """
    Return the calls with their corrections, which exist if the later report arrived after the record closed.
    """
    calls = {one["id"]: dict(one) for one in records if one["kind"] == "inference"}
    for late in (one for one in records if one["kind"] == "correction"):
        call = calls[late["corrects"]]
        for name in ("input_tokens", "output_tokens"):
            call[name] = (call[name] or 0) + late[name]
        call["estimated_cost"] = Decimal(call["estimated_cost"] or 0) + Decimal(late["cost"])
        call["cost_source"] = late["cost_source"]
    return list(calls.values())


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _value(record: dict[str, Any], name: str) -> str:
    if name == "cost_source":
        return _counted_source(record)
    value = record["response_model"] or record["request_model"] if name == "model" else record[name]
    return value or ""


def _counted_source(record: dict[str, Any]) -> str:
    """Return what totals state instead of the own source of cached calls and of calls that used nothing."""
    if record["status"] == "cached":
        return "free"
    if record["input_tokens"] or record["output_tokens"] or Decimal(record["cost"] or 0):
        return str(record["cost_source"])
    return "free" if record["status"] == "error" else "without_usage"


def reported(tollhouse: Any, per: str, *dimensions: str) -> dict[Group, Sums]:
    """
    Return the same sums from `tollhouse report`. Skip rows without calls, which a correction leaves behind.
    """
    since = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 32 * DAY_S))
    rows = tollhouse.json("report", "--from", since, "--per", per, "--by", ",".join(dimensions))["rows"]
    return {
        (row["period"], *(row[name] or "" for name in dimensions)): (
            row["calls"], row["errors"], row["input_tokens"], row["output_tokens"],
            Decimal(row["cost"]), Decimal(row["estimated"]), Decimal(row["saved"]),
        )
        for row in rows if row["calls"]
    }  # fmt: skip


QUESTIONS = (
    ("hourly", 3600, ("source", "model")),
    ("daily", DAY_S, ("model", "status", "cost_source")),
    ("daily", DAY_S, ("team", "user", "provider", "source")),
)


def check(tollhouse: Any, questions: Sequence[tuple[str, int, tuple[str, ...]]] = QUESTIONS[:1]) -> None:
    records = tollhouse.records()
    for per, per_s, dimensions in questions:
        assert recount(records, per_s, *dimensions) == reported(tollhouse, per, *dimensions)


def test_sums_equal_a_recount_of_the_record_file(installations: Any) -> None:
    """
    After kills, restarts, repeats, two-part, late and shadowed calls, all sums match exactly, before and
    after a rebuild.
    """
    tollhouse = installations(hold="2s", more=SHADOWS)
    keys = [tollhouse.key(f"team {team or 'none'}", *_grant(team)) for team in TEAMS]
    senders = [Sender(seed) for seed in range(SENDERS)]
    for turn in range(ROUNDS):
        url = tollhouse.start()
        stop = threading.Event()
        threads = [
            threading.Thread(target=sender.load, args=(url, key, stop))
            for sender, key in zip(senders, keys, strict=True)
        ]
        for thread in threads:
            thread.start()
        wait_until(partial(has_had, tollhouse, turn + 1), f"what round {turn} has to bring")
        # kill after a random time, so that the server is doing different work each time
        time.sleep(random.Random(turn).uniform(0.0, 0.5))
        tollhouse.kill()
        stop.set()
        for thread in threads:
            thread.join()
    tollhouse.start()
    tollhouse.wait_until_drained()
    books = tollhouse.json("spool", "verify")["topics"]["ai-telemetry"]
    records = tollhouse.records()
    assert books["accepted"] == len(records)
    assert all(books[term] >= ROUNDS * count for term, count in EACH_ROUND.items())
    assert any(record["shadow"] for record in records)
    check(tollhouse, QUESTIONS)
    tollhouse.run("ledger", "rebuild")
    check(tollhouse)
    tollhouse.stop()
    check(tollhouse)


def has_had(tollhouse: Tollhouse, rounds: int) -> bool:
    """
    Return whether enough duplicates and added reports have arrived for `rounds` rounds, on a machine of any speed.
    """
    books = tollhouse.asked("/books")["topics"].get("ai-telemetry", {})
    return all(books.get(term, 0) >= rounds * count for term, count in EACH_ROUND.items())


def _grant(team: str) -> tuple[str, ...]:
    return ("--use-case", "Send AI Telemetry", *(("--label", f"team={team}") if team else ()))
