"""Computing a price takes at most 1 µs per record on the reference machine."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

import pytest

from gateway.intake.prices import PriceBook
from spool.record import NS, Inference

ROUNDS, CALLS = 25, 4000


def best(*actions: Callable[[], object]) -> list[float]:
    """
    Return processor seconds per call of each action, the best of rounds in turns because noise only adds time.
    """
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS):
        for action, taken in zip(actions, times, strict=True):
            start = thread_time()
            for _ in range(CALLS):
                action()
            taken.append(thread_time() - start)
    return [min(taken) / CALLS for taken in times]


@pytest.mark.bench
def test_estimate_costs_little_more_than_arithmetic() -> None:
    """
    An estimate takes about 6 times as long as a dict lookup by four names, an integer product and its text.
    """
    book = PriceBook.load()
    record = Inference(
        id=b"\0" * 16,
        source="bench",
        provider="openai",
        request_model="gpt-4o",
        response_model="gpt-4o-2024-08-06",
        input_tokens=1200,
        output_tokens=345,
        cache_read_tokens=100,
        start_time=1_790_000_000 * NS,
        tags={"service": "search", "environment": "production"},
    )
    table = {("openai", "gpt-4o-2024-08-06", "gpt-4o", ""): 2500}

    def yardstick() -> str:
        price = table[(record.provider or "", record.response_model or "", record.request_model or "", "")]
        return str(price * (record.input_tokens or 0))

    ours, theirs = best(lambda: book.estimate_record(record), yardstick)
    print(f"\nestimate {ours * 1e6:.2f} µs, yardstick {theirs * 1e6:.2f} µs, ratio {ours / theirs:.1f}")
    assert ours <= 60 * theirs  # a generous factor, because the machine may be busy
