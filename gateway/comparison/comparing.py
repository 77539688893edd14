"""Two times of the same question to the ledger, and the change between them with what drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Protocol

import msgspec

from gateway.api.costs import check_span
from gateway.api.measures import USAGE_AMOUNT, billed_tokens, estimated, needed
from gateway.api.report_words import DEFAULT_TOP, PREVIOUS, SAME_WEEKDAYS
from gateway.api.times import parse_moment
from gateway.comparison.old_prices import KINDS, MEASURES, Row, at_old_prices, by_group
from gateway.comparison.split import Driver, Group, Spending, split, together, with_nobodys
from gateway.intake.prices import PriceBook
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.costs import combined
from spool.ledger.queries import BILLED_TYPES, TOTAL, CostQuery, CostRow
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
    """
    `prices` are list prices, which tell kinds of tokens apart. Of billed money calls and tokens are counted beside it.

    NotKept if one of the times divides a sum.
    """
    asks = _with_bills if query.arranged else _counted
    measures = (*needed(USAGE_AMOUNT, ()), *MEASURES, "unpriced", "reported")
    beside = [name for name in KINDS if name not in query.group_by]
    by = (*query.group_by, *beside)
    before, now = [
        await asks(ledger, replace(each, group_by=by, granularity=TOTAL, measures=measures))
        for each in (baseline, query)
    ]
    width, at = len(query.group_by), query.since.timestamp()
    kinds = {name: by.index(name) for name in KINDS}
    of_bills = bool(query.arranged)
    return await asyncio.to_thread(_comparison, before, now, top, width, kinds, prices, at, of_bills)


async def _counted(ledger: AnswersCosts, query: CostQuery) -> Sequence[CostRow]:
    return await ledger.costs(query)


async def _with_bills(ledger: AnswersCosts, query: CostQuery) -> Sequence[CostRow]:
    """Return what was counted, with billed money in place of its cost, and what the bill has of nobody's calls."""
    counted = await ledger.costs(replace(query, arranged=0))
    amounts = {row.group: row.cost for row in await ledger.costs(query)}
    found = []
    for row in counted:
        cost = amounts.pop(row.group, "0")
        found.append(msgspec.structs.replace(row, cost=cost, reported=cost, unpriced=0))
    for group, cost in amounts.items():
        nothing = combined((), start=query.since, group=group)
        found.append(msgspec.structs.replace(nothing, cost=cost, reported=cost))
    return found


def by_whole_days(query: CostQuery, cost_type: str, now: float) -> CostQuery:
    """Return a question about billed money up to the last midnight. Invalid if there is no whole day in it."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    until = min(query.until, today)
    if query.since >= until:
        raise Invalid(f"{cost_type} is compared by days that are over: let the time end after its first day")
    return replace(query, until=until, arranged=BILLED_TYPES[cost_type])


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
    of_bills: bool,
) -> Comparison:
    """
    The ledger itself has a group OTHER where it was given too many values: it is one of the others here, too.
    """
    apart = [_nobodys(rows, width) if of_bills else {} for rows in (before, now)]
    if of_bills:
        before, now = list(filter(_has_calls, before)), list(filter(_has_calls, now))
    old, new = by_group(before, kinds, width), by_group(now, kinds, width)
    priced = {
        group: at_old_prices(old[group], rows, prices, at) for group, rows in new.items() if group in old
    }
    drivers = with_nobodys(split(_spent(old), _spent(new), priced), *apart)
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


def _has_calls(row: CostRow) -> bool:
    return bool(row.calls or row.input_tokens or row.output_tokens)


def _nobodys(rows: Sequence[CostRow], width: int) -> Mapping[Group, int]:
    """Return the money of rows without calls, by the first places of their groups."""
    found: dict[Group, int] = {}
    for row in rows:
        if not _has_calls(row):
            group = row.group[:width]
            found[group] = found.get(group, 0) + money.units(row.cost)
    return found
