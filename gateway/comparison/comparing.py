"""Two times of the same question to the ledger, and the change between them with what drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Protocol

from gateway.api.costs import check_span, moment
from gateway.api.measures import USAGE_AMOUNT, billed_tokens, estimated, needed
from gateway.api.report_words import DEFAULT_TOP, PREVIOUS
from gateway.comparison.split import Driver, Group, Spending, split, together
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.ledger.ranges import RANGES, preceding, span
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
    ledger: AnswersCosts, query: CostQuery, baseline: CostQuery, *, top: int = DEFAULT_TOP
) -> Comparison:
    """NotKept if one of the times divides a sum."""
    measures = (*needed(USAGE_AMOUNT, ()), "unpriced", "reported")
    before, now = [
        await ledger.costs(replace(each, granularity=TOTAL, measures=measures)) for each in (baseline, query)
    ]
    return await asyncio.to_thread(_comparison, before, now, top)


def baseline_of(query: CostQuery, against: str, now: float) -> CostQuery:
    """
    The same question of the time to compare with: PREVIOUS, a name of RANGES, or FIRST..LAST as days or
    times.

    Invalid, or a Refusal, for anything else.
    """
    if against == PREVIOUS:
        return preceding(query)
    since, until = span(against, now, query.zone) if against in RANGES else _given(against, query.zone)
    baseline = replace(query, since=since, until=until)
    check_span(baseline)
    return baseline


def _given(against: str, zone: tzinfo) -> tuple[datetime, datetime]:
    first, dots, last = against.partition("..")
    if not dots:
        words = ", ".join((PREVIOUS, *RANGES))
        raise Invalid(f"against must be one of {words}, or two days such as 2026-10-01..2026-10-31")
    return moment("against", first, zone=zone), moment("against", last, zone=zone, end=True)


def _comparison(before: Sequence[CostRow], now: Sequence[CostRow], top: int) -> Comparison:
    """
    The ledger itself has a group OTHER where it was given too many values: it is one of the others here, too.
    """
    drivers = split(_by_group(before), _by_group(now))
    named = [each for each in drivers if set(each.group) != {OTHER}]
    largest = named[:top]
    rest = [*named[top:], *(each for each in drivers if set(each.group) == {OTHER})]
    if rest:
        largest.append(together(rest, group=(OTHER,) * len(rest[0].group)))
    return Comparison(drivers=largest, total=together(drivers, group=()))


def _by_group(rows: Sequence[CostRow]) -> dict[Group, Spending]:
    return {
        row.group: Spending(
            cost=money.units(row.cost),
            tokens=billed_tokens(row),
            calls=row.calls,
            unpriced=row.unpriced,
            estimated=estimated(row),
        )
        for row in rows
    }
