"""Calls of lanes with the prices of Claude Sonnet 4.5: 3 input, 3.75 and 6 written, 0.30 read, 15 output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from gateway.intake.prices import PriceBook
from gateway.money.waste.judging import Judge, JudgedCall
from gateway.money.waste.lane import Lane
from spool import money
from spool.record import NS, Inference

BOOK = PriceBook.load()
START = 1_794_000_000  # 2026-11-06
MODEL = "claude-sonnet-4-5"
_numbers = count(1)


def call(at: float, size: int, read: int | None, written: int | None, **fields: Any) -> Inference:
    """Make a call that starts `at` seconds and takes 5 seconds, with 500 output tokens and its estimate as the cost."""
    start = int((START + at) * NS)
    named: dict[str, Any] = {
        "source": "claude_code", "provider": "anthropic", "request_model": MODEL, "response_model": MODEL,
        "output_tokens": 500, "session": "s", "end_time": start + 5 * NS, **fields,
    }  # fmt: skip
    made = Inference(
        id=next(_numbers).to_bytes(16, "big"),
        start_time=start,
        input_tokens=size,
        cache_read_tokens=read,
        cache_write_tokens=written,
        **named,
    )
    BOOK.price_record(made)
    return made


def judged(
    lanes: Mapping[Lane | None, Sequence[Inference]] | Sequence[Inference],
    *,
    until: float = 1e6,
    knows_all: bool = True,
    book: PriceBook = BOOK,
) -> list[JudgedCall]:
    """Judge lanes, or the calls of one lane, and check that every call's cost is divided exactly."""
    given: Mapping[Lane | None, Sequence[Inference]]
    given = lanes if isinstance(lanes, Mapping) else {("lane",): lanes}
    judge = Judge(estimate=book.estimate_record, known_until=int((START + until) * NS), knows_all=knows_all)
    calls = list(judge.judge(given))
    assert sorted(each.call.id for each in calls) == sorted(one.id for of in given.values() for one in of)
    for each in calls:
        assert each.cost == each.useful + sum(each.amounts.values()) + each.not_judged
        assert min(each.useful, each.not_judged, *each.amounts.values(), 0) == 0
    return calls


def amounts(calls: Sequence[JudgedCall]) -> dict[str, str]:
    """Return the amounts of all calls in dollars: classes, what is useful, and what is not judged."""
    sums: dict[str, int] = {}
    for each in calls:
        for name, amount in {**each.amounts, "useful": each.useful, "not_judged": each.not_judged}.items():
            sums[name] = sums.get(name, 0) + amount
    return {name: money.units_to_text(amount) for name, amount in sums.items() if amount}
