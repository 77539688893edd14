"""The earlier time range with which a cost query is compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from gateway.money.costs.measures import PREVIOUS, SAME_WEEKDAYS
from gateway.money.costs.question import check_span
from gateway.money.costs.times import parse_moment
from spool.errors import Invalid
from spool.ledger.periods import RANGES, on_whole_days, preceding, same_weekdays, span
from spool.ledger.queries import CostQuery

_NEVER = datetime.max.replace(tzinfo=UTC)  # bills have only whole days


def earlier(
    query: CostQuery,
    *,
    against: str,
    now: float,
    hours_since: datetime,
    name: str = "against",
    named: str | None = None,
) -> CostQuery:
    """
    Return the query for the time to compare with. `against` is SAME_WEEKDAYS, PREVIOUS, a name of
    RANGES, or FIRST..LAST. `named` is the name of the query's own range, if it has one.

    FIRST and LAST are days or times. Before `hours_since`, only whole days of UTC are stored, so a time that
    `against` implies moves to the nearest midnight. Raises Invalid or a Refusal that names the parameter
    `name` for anything else.
    """
    first, dots, last = against.partition("..")
    if dots:
        since = parse_moment(name, first, zone=query.zone)
        until = parse_moment(name, last, zone=query.zone, end=True)
        baseline = replace(query, since=since, until=until)
        check_span(baseline)
        return baseline
    if against in RANGES:
        since, until = span(against, now, query.zone)
        baseline = replace(query, since=since, until=until)
    elif against == PREVIOUS:
        baseline = preceding(query, named)
    elif against == SAME_WEEKDAYS:
        baseline = same_weekdays(query, named)
    else:
        choices = ", ".join((SAME_WEEKDAYS, PREVIOUS, *RANGES))
        raise Invalid(f"{name} must be one of {choices}, or two days such as 2026-10-01..2026-10-31")
    check_span(baseline)
    return on_whole_days(baseline, _NEVER if query.arranged else hours_since)
