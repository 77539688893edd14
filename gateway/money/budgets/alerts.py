"""
Which thresholds of a budget a reading crosses, and what is to be told of it. Pure: the states go in and come out.

Each threshold fires once in a period, however often it is read, and only the highest that is newly
crossed is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.money.budgets.declared import ACTUAL, CLEARED, CORRECTED, FIRED, FORECAST, PENDING, Alert
from spool.ledger import money

HOUR_S = 3600.0
FORECAST_HOLDS_S = 6 * HOUR_S  # a forecast that is above for so long is not an accident of one evaluation
CLEAR_AFTER_S = 24 * HOUR_S  # below for so long
CLEAR_BELOW = 5  # percent of the amount under the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Ascending percents of the amount."""

    actual: Sequence[int]
    forecast: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """
    What is known of an owner's period now. Amounts are units (spool.ledger.money).

    `limit` None: nothing is planned. `forecast` None: too early to tell, or the period is over. `is_silent`:
    what is newly crossed is noted and not told. `is_whole`: no record of the period is missing from the sums.
    """

    now: float
    actual: int
    limit: int | None
    forecast: int | None = None
    is_silent: bool = False
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Something to tell: a threshold was crossed, or what was told (`state` CORRECTED) is not true any more."""

    kind: str
    percent: int
    state: str
    value: int
    limit: int


Alerts = dict[tuple[str, int], Alert]  # by kind and percent


def judge(
    thresholds: Thresholds, before: Sequence[Alert], reading: Reading
) -> tuple[tuple[Alert, ...], list[Told]]:
    """The alerts after a reading, and what to tell: at most one crossing of each kind, and one correction."""
    if reading.limit is None:
        return tuple(before), []
    after = {(alert.kind, alert.percent): alert for alert in before}
    told = [
        *_correct(after, reading, reading.limit),
        *_actual(thresholds.actual, after, reading, reading.limit),
    ]
    if reading.forecast is not None:
        told += _forecast(thresholds.forecast, after, reading, reading.forecast, reading.limit)
    return tuple(alert for _, alert in sorted(after.items())), told


def is_past(value: int, limit: int, percent: int) -> bool:
    """True if something was spent, and it is at least this percentage of the limit."""
    return value > 0 and value * 100 >= limit * percent


def _correct(after: Alerts, reading: Reading, limit: int) -> list[Told]:
    """Late duplicates and another price can bring a sum below what was told. One that lacks records cannot."""
    if not reading.is_whole:
        return []
    untold = []
    for (kind, percent), alert in after.items():
        if kind != ACTUAL or alert.state != FIRED or is_past(reading.actual, limit, percent):
            continue
        if alert.told and alert.corrected_at is None:
            untold.append(percent)
        corrected_at = reading.now if alert.corrected_at is None else alert.corrected_at
        after[kind, percent] = replace(alert, state=CORRECTED, since=reading.now, corrected_at=corrected_at)
    if not untold:
        return []
    return [Told(kind=ACTUAL, percent=max(untold), state=CORRECTED, value=reading.actual, limit=limit)]


def _actual(percents: Sequence[int], after: Alerts, reading: Reading, limit: int) -> list[Told]:
    fresh = []
    for percent in percents:
        if not is_past(reading.actual, limit, percent):
            continue
        alert = after.get((ACTUAL, percent))
        if alert is None:
            fresh.append(percent)
        elif alert.state == CORRECTED:  # it was told before, and is not told again
            after[ACTUAL, percent] = replace(alert, state=FIRED, since=reading.now)
    return _fire(ACTUAL, fresh, after, reading, reading.actual, limit)


def _forecast(
    percents: Sequence[int], after: Alerts, reading: Reading, forecast: int, limit: int
) -> list[Told]:
    fresh = []
    for percent in percents:
        key = FORECAST, percent
        alert = after.get(key)
        is_above = is_past(forecast, limit, percent)
        if alert is None or alert.state == PENDING:
            # What was spent already needs no forecast: the actual threshold tells it.
            if not is_above or (ACTUAL, percent) in after:
                after.pop(key, None)
            elif alert is None:
                after[key] = _noted(*key, PENDING, reading, forecast, limit)
            elif reading.now - alert.since >= FORECAST_HOLDS_S:
                fresh.append(percent)
        elif alert.state == FIRED:
            after[key] = _watched(
                alert, reading.now, is_below=not is_past(forecast, limit, percent - CLEAR_BELOW)
            )
    return _fire(FORECAST, fresh, after, reading, forecast, limit)


def _watched(alert: Alert, now: float, *, is_below: bool) -> Alert:
    """A forecast that fired, cleared once it was below for long enough."""
    if not is_below:
        return replace(alert, below_since=None)
    since = now if alert.below_since is None else alert.below_since
    if now - since < CLEAR_AFTER_S:
        return replace(alert, below_since=since)
    return replace(alert, state=CLEARED, since=now, below_since=since)


def _fire(
    kind: str,
    fresh: Sequence[int],
    after: Alerts,
    reading: Reading,
    value: int,
    limit: int,
) -> list[Told]:
    """Note all that is newly crossed, and tell the highest."""
    for percent in fresh:
        alert = _noted(kind, percent, FIRED, reading, value, limit)
        is_told = percent == max(fresh) and not reading.is_silent
        after[kind, percent] = replace(alert, fired_at=reading.now, told=is_told)
    if not fresh or reading.is_silent:
        return []
    return [Told(kind=kind, percent=max(fresh), state=FIRED, value=value, limit=limit)]


def _noted(kind: str, percent: int, state: str, reading: Reading, value: int, limit: int) -> Alert:
    return Alert(
        kind=kind,
        percent=percent,
        state=state,
        since=reading.now,
        value=money.text(value),
        limit=money.text(limit),
    )
