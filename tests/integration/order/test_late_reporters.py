"""
The reporters of one call, with pauses in which the records of earlier reports are closed and sent. Corrections
make them one call. The same sets within the waiting time are in `test_request_ids`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from tests.integration.order.running import (
    HOLD_S,
    ORDERS,
    SEED,
    Request,
    Row,
    cut,
    told_in_memory,
    told_on_disk,
)
from tests.integration.order.test_request_ids import FAILED_SETS, SETS, Piece, orders, reports_of, request
from tests.rounds import as_proof, part

LATE = [HOLD_S + 1.0]
SOME_LATE = [0.0, HOLD_S + 1.0, 300.0]


def counted(rows: Sequence[Row]) -> Counter[str]:
    """Return the number of calls by their newest status, without calls that were taken back."""
    calls = {row["id"]: row["status"] for row in rows if row["kind"] == "inference" and not row["shadow"]}
    corrections = [row for row in rows if row["kind"] == "correction"]
    for row in sorted(corrections, key=lambda row: bool(row["reason"] == "same_call")):
        if row["reason"] == "same_call":
            del calls[row["corrects"]]
        elif row["status"] != "ok":
            calls[row["corrects"]] = row["status"]
    return Counter(calls.values())


def tokens(rows: Sequence[Row]) -> int:
    return sum((row["input_tokens"] or 0) + (row["output_tokens"] or 0) for row in rows if not row["shadow"])


@pytest.mark.parametrize(
    "pauses", [pytest.param(LATE), as_proof(pytest.param(SOME_LATE))], ids=["late", "some late"]
)
@pytest.mark.parametrize("name", part([*SETS, *[f"failed {name}" for name in FAILED_SETS]], every=2))
def test_one_call_however_late_its_reporters_are(name: str, pauses: list[float]) -> None:
    """
    However late its reporters are, the result is one call, one failure or the tokens of one call: in every order,
    with stops, and also if all is repeated.
    """
    requests = FAILED_SETS[name.removeprefix("failed ")] if name.startswith("failed") else SETS[name]
    expected = {"error" if name.startswith("failed") else "ok": 1}
    for place, order in enumerate(orders(requests)):
        twice = [*order, *order]
        rows, _ = (
            told_on_disk(twice, [True, False], pauses) if place % 5 == 0 else told_in_memory(twice, pauses)
        )
        arrived = [requests.index(one) for one in order]
        assert expected == counted(rows), arrived
        assert (0 if "error" in expected else 1570) == tokens(rows), arrived


@pytest.mark.parametrize("seed", part(range(SEED, SEED + 10 * ORDERS), every=5))
def test_traces_may_be_cut_anywhere_and_arrive_late(seed: int) -> None:
    """The calls of several traces, in random requests, pauses and restarts."""
    chance = Random(seed)
    pieces: list[Piece | Request] = []
    expected: list[str] = []
    for number in range(1, 9):
        reported, statuses = reports_of(number, chance)
        pieces += reported
        expected += statuses
    chance.shuffle(pieces)
    requests: list[Request] = []
    for group in cut(pieces, [chance.random() < 0.6 for _ in pieces]):
        requests += [piece for piece in group if isinstance(piece, Request)]
        if spans := [piece for piece in group if not isinstance(piece, Request)]:
            requests.append(request(*spans))
    pauses = [chance.choice(SOME_LATE) for _ in requests]
    rows, _ = told_on_disk(requests, [chance.random() < 0.2 for _ in requests], pauses)
    assert Counter(expected) == counted(rows)
    assert 1570 * expected.count("ok") >= tokens(rows)
