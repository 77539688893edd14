"""
Conversion of cumulative counters to deltas. Pure: a function of a state and a point returns the next state
and the delta.
"""

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
KNOWN_SINCE = "series known since"  # name under which engines store the time of `known_since`

TOKENS = "{token}"
# smaller increases of money are not counted yet; they stay in the state until enough has accumulated
SMALLEST = Decimal(1).scaleb(-12)
_EXACT = Context(prec=400)  # digits of precision, more than a double can have, so sums are never rounded
# largest relative difference between two sums of the same doubles in different order
_NOISE = Decimal(2) ** -50


class SeriesState(NamedTuple):
    """Last known point of a counter: its value and times."""

    start_time: int
    time: int
    value: Decimal


class Delta(NamedTuple):
    """Increase of a counter between start_time and time."""

    value: Decimal
    start_time: int
    time: int


def advance_series(
    state: SeriesState | None, point: CounterPoint, known_since: int = 0
) -> tuple[SeriesState | None, Delta | str]:
    """
    Return the state after a point, and its delta or the reason why there is no delta.

    The first point of a series counts in full if the sender states its start time. A later start time or a
    falling value means that the counter was restarted. A fall in the last digit is not a restart, because
    some senders sum doubles in varying order. An increase that is too small to count stays in the state until
    enough has accumulated.

    `known_since`: since this time, no series was dropped for lack of space. So a series with a later start is
    new. A series with an earlier start may have been counted before, so its first point is only the base for
    the next point.
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
    added = max(Decimal(0), _EXACT.subtract(value, base).quantize(_smallest_step(point), ROUND_DOWN, _EXACT))
    after = SeriesState(point.start_time, point.time, _EXACT.add(base, added))
    if not added:
        return after, UNCHANGED
    return after, Delta(added, since, point.time)


def delta_record(point: CounterPoint, delta: Delta) -> tuple[UsageMetric, Identity]:
    """Build the record of a delta, and its dedup key by rule 7 of `spool.identity`."""
    known_as = Identity(identity.point_id(point.series, delta.start_time, delta.time))
    record = msgspec.structs.replace(
        point.template,
        id=known_as.id,
        value=int(delta.value) if point.template.unit == TOKENS else decimal_text(delta.value),
        start_time=delta.start_time,
        end_time=delta.time or None,
    )
    return record, known_as


def _smallest_step(point: CounterPoint) -> Decimal:
    return Decimal(1) if point.template.unit == TOKENS else SMALLEST
