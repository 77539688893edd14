"""Two times of the same question to the ledger, and the change between them with what drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Protocol

from gateway.api.costs import check_span
from gateway.api.measures import USAGE_AMOUNT, billed_tokens, estimated, needed
from gateway.api.report_words import DEFAULT_TOP, PREVIOUS, SAME_WEEKDAYS
from gateway.api.times import parse_moment
from gateway.comparison.old_prices import KINDS, MEASURES, Row, at_old_prices, by_group
from gateway.comparison.split import Driver, Group, Spending, split, together
from gateway.intake.prices import PriceBook
from spool.errors import Invalid
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.ledger.ranges import RANGES, preceding, same_weekdays, span
from spool.ledger.sums import OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """
    `drivers` are the largest changes, the last of all others together: their parts are those of `total`.
    """

    drivers: Sequence[Driver]
    total: Driver


class AnswersCosts(Protocol):
    """A ledger, or what somebody may see of one."""

    async def costs(self, query: CostQuery) -> Sequence[CostRow]: ...


async def compare(
    ledger: AnswersCosts,
    query: CostQuery,
    baseline: CostQuery,
    *,
    top: int = DEFAULT_TOP,
    prices: PriceBook | None = None,
) -> Comparison:
    """`prices` are list prices, which tell kinds of tokens apart. NotKept if one of the times divides a sum."""
    measures = (*needed(USAGE_AMOUNT, ()), *MEASURES, "unpriced", "reported")
    beside = [name for name in KINDS if name not in query.group_by]
    by = (*query.group_by, *beside)
    before, now = [
        await ledger.costs(replace(each, group_by=by, granularity=TOTAL, measures=measures))
        for each in (baseline, query)
    ]
    width, at = len(query.group_by), query.since.timestamp()
    kinds = {name: by.index(name) for name in KINDS}
    return await asyncio.to_thread(_comparison, before, now, top, width, kinds, prices, at)


def baseline_of(query: CostQuery, against: str, now: float) -> CostQuery:
    """
    The same question of the time to compare with: SAME_WEEKDAYS, PREVIOUS, a name of RANGES, or FIRST..LAST as days or
    times.

    Invalid, or a Refusal, for anything else.
    """
    if against == PREVIOUS:
        return preceding(query)
    if against == SAME_WEEKDAYS:
        return same_weekdays(query)
    since, until = span(against, now, query.zone) if against in RANGES else _given(against, query.zone)
    baseline = replace(query, since=since, until=until)
    check_span(baseline)
    return baseline


def _given(against: str, zone: tzinfo) -> tuple[datetime, datetime]:
    first, dots, last = against.partition("..")
    if not dots:
        words = ", ".join((SAME_WEEKDAYS, PREVIOUS, *RANGES))
        raise Invalid(f"against must be one of {words}, or two days such as 2026-10-01..2026-10-31")
    return parse_moment("against", first, zone=zone), parse_moment("against", last, zone=zone, end=True)


def _comparison(
    before: Sequence[CostRow],
    now: Sequence[CostRow],
    top: int,
    width: int,
    kinds: Mapping[str, int],
    prices: PriceBook | None,
    at: float,
) -> Comparison:
    """
    The ledger itself has a group OTHER where it was given too many values: it is one of the others here, too.
    """
    old, new = by_group(before, kinds, width), by_group(now, kinds, width)
    priced = {
        group: at_old_prices(old[group], rows, prices, at) for group, rows in new.items() if group in old
    }
    drivers = split(_spent(old), _spent(new), priced)
    named = [each for each in drivers if set(each.group) != {OTHER}]
    largest = named[:top]
    rest = [*named[top:], *(each for each in drivers if set(each.group) == {OTHER})]
    if rest:
        largest.append(together(rest, group=(OTHER,) * len(rest[0].group)))
    return Comparison(drivers=largest, total=together(drivers, group=()))


def _spent(groups: Mapping[Group, Sequence[Row]]) -> dict[Group, Spending]:
    return {group: _spending(rows) for group, rows in groups.items()}


def _spending(rows: Sequence[Row]) -> Spending:
    found = [row for _, _, row, _ in rows]
    return Spending(
        cost=sum([cost for _, _, _, cost in rows]),
        tokens=sum(map(billed_tokens, found)),
        calls=sum([row.calls for row in found]),
        unpriced=sum([row.unpriced for row in found]),
        estimated=sum(map(estimated, found)),
    )
