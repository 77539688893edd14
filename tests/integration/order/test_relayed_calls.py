"""
An assistant and the gateway that it calls report the same calls, without a common id. For every assistant and gateway,
the records are those of the provider's journal.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain, product
from typing import Any
from uuid import UUID

import pytest

from tests.acceptance.conftest import installations as installations
from tests.acceptance.payloads import post
from tests.integration.order.relayed import ASSISTANTS, Made, log_of, pairs
from tests.integration.order.running import HOLD_S, SEED, Request, Row, told_in_memory, told_on_disk
from tests.integration.order.test_claude_code_behind_litellm import calls, spent
from tests.rounds import part, some

SITUATIONS = {
    "stream": [Made(1, 0, 2000)],
    "failure": [Made(1, 0, 900, "error")],
    "parallel equal calls": [Made(1, 0, 2000), Made(2, 100, 2100)],
    "parallel failures": [Made(1, 0, 900, "error"), Made(2, 50, 950, "error")],
    "cached answer": [Made(1, 0, 2000), Made(2, 2500, 2600, "cached")],
    "retry": [Made(1, 0, 900, "error"), Made(2, 1500, 3500)],
    "retry by the gateway": [Made(1, 0, 900, "error", is_reported=False), Made(2, 950, 3500)],
    "agent": [
        Made(number, number * 3000, number * 3000 + 2500, tokens=(1400 + number, 212))
        for number in range(1, 5)
    ],
}
CLOCKS_NS = (0, 3_000_000_000, -3_000_000_000)
LATE = HOLD_S + 1.0
# of each session, the assistant's requests and the gateway's
Told = list[tuple[list[Request], list[Request]]]


def _told(assistant: str, gateway: str, *, shift: int, apart: bool) -> tuple[Told, list[Made]]:
    """Return the requests about all situations, each in a session of its own, and the provider's journal."""
    reporter, log = ASSISTANTS[assistant], log_of(assistant, gateway)
    told: Told = []
    journal: list[Made] = []
    for number, made in enumerate(SITUATIONS.values(), start=1):
        if not {call.status for call in made} <= log.statuses:
            continue
        # Copilot states no session, so the counts tell its situations apart
        each = [replace(call, tokens=(call.tokens[0] + 10 * number, call.tokens[1])) for call in made]
        session = reporter.session(UUID(int=number * 2**64 + 7))
        headers = reporter.header(session) if log.sees != "metadata" else {}
        of_assistant = reporter.requests(each, session, shift, apart=apart)
        told.append((of_assistant, log.requests(each, session, headers, apart=apart)))
        journal += each
    return told, journal


def _figures(status: str, tokens: Sequence[int]) -> tuple[object, ...]:
    return (status, *((0, 0) if status == "error" else tokens))


def _assert_is_journal(rows: list[Row], journal: Sequence[Made], gateway: str) -> None:
    expected = Counter(_figures(call.status, call.tokens) for call in journal)
    found = Counter(
        _figures(row["status"], (row["input_tokens"], row["output_tokens"])) for row in _merged(rows)
    )
    assert expected == found
    if gateway not in UNPRICED:
        assert sum((call.cost for call in journal), Decimal(0)) == spent(rows)


UNPRICED = ("apisix", "envoy", "higress", "databricks")  # gateways whose logs have no cost


def _merged(rows: list[Row]) -> list[Row]:
    """Return the calls that count, with the last correction of each."""
    corrected = {row["corrects"]: row for row in rows if row["kind"] == "correction"}
    taken_back = {
        row["corrects"] for row in rows if row.get("reason") == "same_call" and row.get("counted_by")
    }
    merged = []
    for row in calls(rows):
        if row["id"] in taken_back:
            continue
        last = corrected.get(row["id"])
        merged.append(row if last is None else row | {"status": last["status"] or row["status"]})
    return merged


def _orders(told: Told, random_: random.Random) -> list[list[Request]]:
    first = [list(chain.from_iterable(reports[n] for reports in told)) for n in (0, 1)]
    mixed = [*first[0], *first[1]]
    random_.shuffle(mixed)
    return [[*first[0], *first[1]], [*first[1], *first[0]], mixed]


@pytest.mark.parametrize("pair", pairs(), ids=" behind ".join)
def test_every_call_is_one_record(pair: tuple[str, str]) -> None:
    """
    Every call of an assistant through a gateway is one record: in three orders, with two clocks, reported as a
    whole or in single requests, and repeated.
    """
    assistant, gateway = pair
    random_ = random.Random(f"{SEED} {assistant} {gateway}")
    for shift, apart in some([*product(CLOCKS_NS, (True, False))], every=5):
        told, journal = _told(assistant, gateway, shift=shift, apart=apart)
        for order in _orders(told, random_):
            rows, conflicts = told_in_memory(order * 2)
            assert conflicts == 0
            _assert_is_journal(rows, journal, gateway)


@pytest.mark.parametrize("pair", part([pytest.param(pair) for pair in pairs()], every=8), ids=" behind ".join)
@pytest.mark.parametrize("pause", [0.0, LATE], ids=["in time", "late"])
def test_over_restarts(pair: tuple[str, str], pause: float) -> None:
    """
    The two reports also become one call if the second one arrives after the record of the first was closed, also
    over restarts.
    """
    assistant, gateway = pair
    random_ = random.Random(f"{SEED} {assistant} {gateway}")
    told, journal = _told(assistant, gateway, shift=0, apart=False)
    for order in _orders(told, random_):
        rows, conflicts = told_on_disk(order * 2, [True, False, False], [0.0] * (len(order) - 1) + [pause])
        assert conflicts == 0
        _assert_is_journal(rows, journal, gateway)


@pytest.mark.parametrize("pair", [("codex", "litellm"), ("copilot", "litellm")], ids=" behind ".join)
def test_over_a_kill(installations: Any, pair: tuple[str, str]) -> None:
    """The server is killed after a part of the requests, and the senders send all of them again."""
    told, journal = _told(*pair, shift=0, apart=True)
    requests = _orders(told, random.Random(f"{SEED} {pair}"))[-1]
    tollhouse = installations()
    key = tollhouse.key("both")
    for part_of in (requests[: len(requests) // 2], requests):
        url = tollhouse.start({"TOLLHOUSE_SPOOL__HOLD": "1h"})
        for request in part_of:
            path = request.format.removeprefix("otlp/")
            path = f"/v1/{path}" if path != request.format else f"/v1/ai-telemetry/{path}"
            assert post(url, request.body, key, path).status < 300
        tollhouse.kill()
    tollhouse.start()
    tollhouse.wait_until_drained()
    _assert_is_journal(
        [row | {"kind": row.get("kind", "inference")} for row in tollhouse.records()], journal, pair[1]
    )
