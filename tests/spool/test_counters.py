"""Cumulative counters: the increase that each point adds."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spool.log.counters import SMALLEST, TOKENS, UNCHANGED, SeriesState, advance_series, delta_record
from spool.log.values import CounterPoint
from spool.record import UsageMetric

START = 1_790_000_000_000_000_000


def counted(*values: str, unit: str = "USD") -> tuple[list[Decimal | str], SeriesState]:
    """Return the increase of each point of one series, and its final state."""
    state: SeriesState | None = None
    added: list[Decimal | str] = []
    for number, value in enumerate(values, start=1):
        state, delta = advance_series(state, point(Decimal(value), unit=unit, time=START + number))
        added.append(delta if isinstance(delta, str) else delta.value)
    assert state is not None
    return added, state


def point(value: Decimal, *, unit: str = "USD", time: int = START + 1) -> CounterPoint:
    return CounterPoint(
        b"series", START, time, value, UsageMetric(id=b"", source="otel", name="cost", unit=unit)
    )


@pytest.mark.parametrize(
    ("whole", "less"),
    [("1.1", "1.0999999999999999"), ("81234.56", "81234.55999999998"), ("0.3", "0.29999999999999993")],
)
def test_a_last_digit_is_no_restart(whole: str, less: str) -> None:
    """
    A counter that is lower only in its last digit is no restart: a collector that adds up doubles in varying order
    makes no amount count twice.
    """
    added, state = counted(whole, less, whole, less, whole)
    assert [Decimal(whole)] + 4 * [UNCHANGED] == added
    assert Decimal(whole) == state.value


@pytest.mark.parametrize(
    ("before", "after", "unit"), [("1.1", "1.09", "USD"), ("1e15", "999999999999999", TOKENS)]
)
def test_a_real_fall_is_a_restart(before: str, after: str, unit: str) -> None:
    """A counter that falls by a token or a cent or more shows that the sender restarted."""
    added, _ = counted(before, after, unit=unit)
    assert [Decimal(before), Decimal(after)] == added


def test_what_is_too_small_to_count_is_counted_once_it_has_grown() -> None:
    """
    An increase that is too small to count is counted once it has grown. A slow counter loses nothing, and nothing
    counts twice.
    """
    tenth = SMALLEST / 10
    added, _ = counted(*(str(number * tenth) for number in range(1, 21)))
    assert 2 * SMALLEST == sum((value for value in added if isinstance(value, Decimal)), Decimal())


def test_a_point_without_a_time_has_no_end() -> None:
    """A point without a time gives a record without an end. The epoch must not appear as its time."""
    counter = point(Decimal(1), time=0)
    _, delta = advance_series(None, counter)
    assert not isinstance(delta, str)
    record, _ = delta_record(counter, delta)
    assert record.start_time == START
    assert record.end_time is None
