"""Cumulative counters to deltas. Pure: a state and a point give the next state and what the point added."""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from typing import NamedTuple

import msgspec

from spool import identity
from spool.identity import Identity
from spool.log.values import CounterPoint
from spool.record import UsageMetric, decimal_text

UNCHANGED = "unchanged"
LATE = "late"
BASE_LINE = "base_line"
FORGOTTEN = "forgotten"
NOT_FINITE = "not_finite"
KNOWN_SINCE = "series known since"  # the name under which engines keep that time

TOKENS = "{token}"
SMALLEST = Decimal(1).scaleb(-12)  # money below this gives nothing; it stays in the state until it has grown
_EXACT = Context(prec=400)  # more digits than a double can have: no sum is ever rounded
_NOISE = Decimal(2) ** -50  # by this share of themselves do sums of the same doubles differ in another order


class SeriesState(NamedTuple):
    """Where a counter stood at its last point."""

    start_time: int
    time: int
    value: Decimal


class Delta(NamedTuple):
    """What a counter added over [start_time, time]."""

    value: Decimal
    start_time: int
    time: int


def advance(
    state: SeriesState | None, point: CounterPoint, known_since: int = 0
) -> tuple[SeriesState | None, Delta | str]:
    """
    The state after a point, and its delta or the reason why there is none.

    The first point of a series counts whole when the sender states since when it counts; a later start or a
    fall is a restart, but not the fall by a last digit of who adds up doubles anew for each point. What is
    too small to count is left in the state, so that it is counted once it has grown.

    `known_since`: no series that began after it was forgotten for want of room. One that began earlier may have
    counted before, so its first point only gives the base for the next one.
    """
    value = Decimal(point.value)
    if not value.is_finite():
        return state, NOT_FINITE
    if state is None:
        if not point.start_time:
            return SeriesState(0, point.time, value), BASE_LINE
        if point.start_time <= known_since:
            return SeriesState(point.start_time, point.time, value), FORGOTTEN
        base = Decimal(0)
        since = point.start_time
    elif point.time <= state.time:
        return state, LATE
    elif point.start_time > state.start_time:
        base = Decimal(0)
        since = point.start_time
    elif state.value - value > SMALLEST + state.value * _NOISE:
        base = Decimal(0)
        since = state.time
    else:
        base = state.value
        since = state.time
    added = max(Decimal(0), _EXACT.subtract(value, base).quantize(_unit(point), ROUND_DOWN, _EXACT))
    after = SeriesState(point.start_time, point.time, _EXACT.add(base, added))
    if not added:
        return after, UNCHANGED
    return after, Delta(added, since, point.time)


def as_record(point: CounterPoint, delta: Delta) -> tuple[UsageMetric, Identity]:
    """The record of a delta, and its identity by rule 7."""
    known_as = Identity(identity.of_point(point.series, delta.start_time, delta.time))
    record = msgspec.structs.replace(
        point.template,
        id=known_as.id,
        value=int(delta.value) if point.template.unit == TOKENS else decimal_text(delta.value),
        start_time=delta.start_time,
        end_time=delta.time or None,
    )
    return record, known_as


def _unit(point: CounterPoint) -> Decimal:
    return Decimal(1) if point.template.unit == TOKENS else SMALLEST
