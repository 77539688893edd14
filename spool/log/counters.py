"""
Conversion of cumulative counters to increases (deltas): a state and a point give the next state and the
delta. Pure.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from typing import NamedTuple

import msgspec

from spool import identity
from spool.identity import RecordIdentity
from spool.log.values import CounterPoint
from spool.record import UsageMetric, decimal_text

UNCHANGED = "unchanged"
LATE = "late"
BASE_LINE = "base_line"
FORGOTTEN = "forgotten"
NOT_FINITE = "not_finite"
# fact in PostgreSQL: every series that was deleted for lack of space was last reported before this time
KNOWN_SINCE = "series known since"

TOKENS = "{token}"
# smaller increases of money stay in the state until enough has accumulated
SMALLEST = Decimal(1).scaleb(-12)
_EXACT = Context(prec=400)  # more digits than a double can have, so sums are never rounded
# relative difference between sums of the same doubles in different order
_NOISE = Decimal(2) ** -50


class SeriesState(NamedTuple):
    start_time: int
    time: int
    value: Decimal


class Delta(NamedTuple):
    value: Decimal
    start_time: int
    time: int


def advance_series(
    state: SeriesState | None, point: CounterPoint, dropped_series_last_reported_at_ns: int = 0
) -> tuple[SeriesState | None, Delta | str]:
    """
    Return the next state of a series, and its delta or the reason why there is none.

    If the sender states when a series started, its first point counts in full. A later start or a falling
    value means a restart. A fall in only the last digit does not, because some senders sum doubles in varying
    order. An increase that is too small stays in the state until enough has accumulated.

    `dropped_series_last_reported_at_ns`: a series that starts later is new, because none reported since then
    was dropped. One that starts earlier may have been counted, so its first point only sets the base.
    """
    value = Decimal(point.value)
    if not value.is_finite():
        return state, NOT_FINITE
    if state is None:
        if not point.start_time:
            return SeriesState(0, point.time, value), BASE_LINE
        if point.start_time <= dropped_series_last_reported_at_ns:
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
    added = max(
        Decimal(0),
        _EXACT.subtract(value, base).quantize(_smallest_countable_increase(point), ROUND_DOWN, _EXACT),
    )
    after = SeriesState(point.start_time, point.time, _EXACT.add(base, added))
    if not added:
        return after, UNCHANGED
    return after, Delta(added, since, point.time)


def delta_record(point: CounterPoint, delta: Delta) -> tuple[UsageMetric, RecordIdentity]:
    """Return the record of an increase. Its dedup key follows rule 7 of `spool.identity`."""
    known_as = RecordIdentity(identity.dedup_key_of_metric_point(point.series, delta.start_time, delta.time))
    record = msgspec.structs.replace(
        point.template,
        id=known_as.id,
        value=int(delta.value) if point.template.unit == TOKENS else decimal_text(delta.value),
        start_time=delta.start_time,
        end_time=delta.time or None,
    )
    return record, known_as


def _smallest_countable_increase(point: CounterPoint) -> Decimal:
    return Decimal(1) if point.template.unit == TOKENS else SMALLEST
