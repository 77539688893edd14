"""
Decides which thresholds of a budget are crossed and which notices follow. Pure: the state is an argument, and
the new state is returned.

Each threshold fires once per period. If several thresholds are newly crossed, only the highest causes a
notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.money.budgets.declared import ACTUAL, CLEARED, CORRECTED, FIRED, FORECAST, PENDING, Alert
from spool import money

HOUR_S = 3600.0
# seconds that a forecast must stay above a threshold, so that a single evaluation cannot cause an alert
FORECAST_HOLDS_S = 6 * HOUR_S
# seconds for which a forecast must stay below its threshold before the alert ends
CLEAR_AFTER_S = 24 * HOUR_S
CLEAR_BELOW = 5  # a forecast counts as below the threshold if it is lower by this number of percentage points


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Percentages of the amount, ascending."""

    actual: Sequence[int]
    forecast: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """
    The known figures of a budget, or of one of its owners, for a period as of now. Amounts are units
    (spool.money).

    `limit` is None if no amount is planned. `forecast` is None if it is too early for a forecast or the
    period is over. If `is_silent` is True, newly crossed thresholds are recorded without a notice. `is_whole`
    means that the sums contain all records of the period.
    """

    now: float
    actual: int
    limit: int | None
    forecast: int | None = None
    is_silent: bool = False
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertNotice:
    """
    A notice to send. It reports that a threshold was crossed, or that an earlier notice is no longer
    true (`state` CORRECTED).
    """

    kind: str
    percent: int
    state: str
    value: int
    limit: int


Alerts = dict[tuple[str, int], Alert]  # kind and percentage of an alert -> the alert


def judge_alerts(
    thresholds: Thresholds, before: Sequence[Alert], reading: Reading
) -> tuple[tuple[Alert, ...], list[AlertNotice]]:
    """
    Return the alerts after a reading, and the notices to send: at most one correction, and one for the
    highest new percentage of each kind.
    """
    if reading.limit is None:
        return tuple(before), []
    after = {(alert.kind, alert.percent): alert for alert in before}
    notices = [
        *_correct_alerts(after, reading, reading.limit),
        *_fire_actual_alerts(thresholds.actual, after, reading, reading.limit),
    ]
    if reading.forecast is not None:
        notices += _fire_forecast_alerts(thresholds.forecast, after, reading, reading.forecast, reading.limit)
    return tuple(alert for _, alert in sorted(after.items())), notices


def has_reached_percent(value: int, limit: int, percent: int) -> bool:
    """Return whether any money was spent and the value reaches this percentage of the limit."""
    return value > 0 and value * 100 >= limit * percent


def _correct_alerts(after: Alerts, reading: Reading, limit: int) -> list[AlertNotice]:
    """
    Mark alerts as corrected if the spend is now below their threshold.

    Late duplicates and new prices can lower a sum. If records are missing from the sums, nothing is corrected.
    """
    if not reading.is_whole:
        return []
    uncorrected = []
    for (kind, percent), alert in after.items():
        if kind != ACTUAL or alert.state != FIRED or has_reached_percent(reading.actual, limit, percent):
            continue
        if alert.told and alert.corrected_at is None:
            uncorrected.append(percent)
        corrected_at = reading.now if alert.corrected_at is None else alert.corrected_at
        after[kind, percent] = replace(alert, state=CORRECTED, since=reading.now, corrected_at=corrected_at)
    if not uncorrected:
        return []
    return [
        AlertNotice(kind=ACTUAL, percent=max(uncorrected), state=CORRECTED, value=reading.actual, limit=limit)
    ]


def _fire_actual_alerts(
    percents: Sequence[int], after: Alerts, reading: Reading, limit: int
) -> list[AlertNotice]:
    fresh = []
    for percent in percents:
        if not has_reached_percent(reading.actual, limit, percent):
            continue
        alert = after.get((ACTUAL, percent))
        if alert is None:
            fresh.append(percent)
        elif alert.state == CORRECTED:
            # no second notice, because an earlier notice already reported this threshold
            after[ACTUAL, percent] = replace(alert, state=FIRED, since=reading.now)
    return _record_crossings(ACTUAL, fresh, after, reading, reading.actual, limit)


def _fire_forecast_alerts(
    percents: Sequence[int], after: Alerts, reading: Reading, forecast: int, limit: int
) -> list[AlertNotice]:
    fresh = []
    for percent in percents:
        key = FORECAST, percent
        alert = after.get(key)
        is_above = has_reached_percent(forecast, limit, percent)
        if alert is None or alert.state == PENDING:
            # If the actual spend has already reached this threshold, the alert for actual spend reports it.
            if not is_above or (ACTUAL, percent) in after:
                after.pop(key, None)
            elif alert is None:
                after[key] = _new_alert(*key, PENDING, reading, forecast, limit)
            elif reading.now - alert.since >= FORECAST_HOLDS_S:
                fresh.append(percent)
        elif alert.state == FIRED:
            after[key] = _clear_after_delay(
                alert, reading.now, is_below=not has_reached_percent(forecast, limit, percent - CLEAR_BELOW)
            )
    return _record_crossings(FORECAST, fresh, after, reading, forecast, limit)


def _clear_after_delay(alert: Alert, now: float, *, is_below: bool) -> Alert:
    """Record since when a fired forecast is below its threshold, and clear the alert after CLEAR_AFTER_S."""
    if not is_below:
        return replace(alert, below_since=None)
    since = now if alert.below_since is None else alert.below_since
    if now - since < CLEAR_AFTER_S:
        return replace(alert, below_since=since)
    return replace(alert, state=CLEARED, since=now, below_since=since)


def _record_crossings(
    kind: str, fresh: Sequence[int], after: Alerts, reading: Reading, value: int, limit: int
) -> list[AlertNotice]:
    for percent in fresh:
        alert = _new_alert(kind, percent, FIRED, reading, value, limit)
        is_told = percent == max(fresh) and not reading.is_silent
        after[kind, percent] = replace(alert, fired_at=reading.now, told=is_told)
    if not fresh or reading.is_silent:
        return []
    return [AlertNotice(kind=kind, percent=max(fresh), state=FIRED, value=value, limit=limit)]


def _new_alert(kind: str, percent: int, state: str, reading: Reading, value: int, limit: int) -> Alert:
    return Alert(
        kind=kind,
        percent=percent,
        state=state,
        since=reading.now,
        value=money.units_to_text(value),
        limit=money.units_to_text(limit),
    )
