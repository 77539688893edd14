"""Comparison of a cost query for two times: the change and its drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

import msgspec

from gateway.intake.prices import PriceBook
from gateway.money.comparison.old_prices import (
    KINDS,
    OldPrices,
    SpentRow,
    load_price_list,
    merge_rows_by_kind,
    spent_rows_by_group,
    subtract_rows,
)
from gateway.money.comparison.split import (
    CostDriver,
    CostsAtOldPrices,
    Group,
    GroupSpending,
    add_costs_without_calls,
    add_spending,
    build_drivers,
    largest_changes,
    largest_drivers,
    merge_drivers,
    pair_groups,
    with_old_prices,
)
from gateway.money.costs.earlier_period import (
    ComparedTimes,
    CompareTimes,
    EarlierPeriodCoverage,
    find_earlier_period_coverage,
    queries_of_spans,
    read_compared_times,
)
from gateway.money.costs.measures import DEFAULT_TOP, billed_tokens
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from spool import money
from spool.errors import Invalid
from spool.ledger.dimensions import MODEL_FAMILY, TOTAL
from spool.ledger.periods import ComparedSpans, period_beginning
from spool.ledger.queries import CostQuery, CostRow, CostsLedger, narrow_query
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.ledger.usages import MEASURES, GroupUsage, UsageByGroup, row_usage
from spool.record import CURRENCY, utc_iso
from spool.registry.roles import COUNTED_TYPES

OF_MODELS: Final = ("model", MODEL_FAMILY)
MOST_APART: Final = 500  # maximum groups that are read separately, by their values


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """
    The change of costs between two times. The driver with the largest change is first. The last driver joins
    all groups that were not requested.
    """

    drivers: Sequence[CostDriver]
    total: CostDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAnswer:
    """
    The result of a comparison.

    Totals from before `whole_since` (epoch seconds) may lack records. Unless the earlier time is known
    completely, the comparison has only the costs of the later time, and `compared` is None. If the spans have
    different lengths, only the total has earlier costs.
    """

    comparison: Comparison
    query: CostQuery
    past: EarlierPeriodCoverage
    compared: ComparedTimes | None
    whole_since: float

    @property
    def has_parts(self) -> bool:
        """Return whether both times were compared group by group."""
        return self.compared is not None and self.compared.spans.is_comparable

    @property
    def incomplete_before(self) -> str | None:
        """
        Return the time before which totals may lack records deleted before they were counted, or
        None.
        """
        since = self.query.since
        if self.compared is not None:
            since = min(since, self.compared.spans.before[0])
        return utc_iso(self.whole_since) if since.timestamp() < self.whole_since else None


async def compare_costs(
    ledger: ComparedLedger,
    query: CostQuery,
    baseline: CostQuery,
    *,
    top: int = DEFAULT_TOP,
    prices: PriceBook | None = None,
) -> Comparison:
    """
    Compare the costs of `query` with those of `baseline`, an earlier time. `prices` weight the kinds of
    tokens.

    For billed money, calls and tokens are still the counted ones. If the query groups by model, the kinds of
    tokens are read in the first query. Otherwise they are read for the largest changes and in total. The
    other groups together get the total minus these. Raises NotKept if a time range begins or ends within a
    stored total.
    """
    sides = [replace(side, granularity=TOTAL) for side in (baseline, query)]
    if query.arranged:
        of_kinds = [replace(side, group_by=_group_by_with_kinds(query)) for side in sides]
        old_usages, new_usages = [await _usages_with_billed_cost(ledger, side) for side in of_kinds]
        at_prices = OldPrices.of(prices, baseline, query)
        return await asyncio.to_thread(_compare_bills, old_usages, new_usages, query, top, at_prices)
    if query.currency == CURRENCY and not set(query.group_by).isdisjoint(OF_MODELS):
        of_kinds = [replace(side, group_by=_group_by_with_kinds(query)) for side in sides]
        old_usages, new_usages = await ledger.usages_of_queries(of_kinds)
        return await asyncio.to_thread(
            _compare_fetched_usages, old_usages, new_usages, query, baseline, top, prices
        )
    before, now = await ledger.usages_of_queries(sides)
    found = await asyncio.to_thread(_find_changes, before, now, top)
    old, new = await _fetch_spent_rows(ledger, sides, found)
    return await asyncio.to_thread(found.build_comparison, old, new, OldPrices.of(prices, baseline, query))


async def rank_without_comparison(
    ledger: ComparedLedger, query: CostQuery, *, top: int = DEFAULT_TOP
) -> Comparison:
    """Return a comparison that has only the costs of the later time, with the most expensive group first."""
    side = replace(query, granularity=TOTAL)
    if query.arranged:
        usages = await _usages_with_billed_cost(ledger, replace(side, group_by=_group_by_with_kinds(query)))
        return await asyncio.to_thread(
            _compare_bills, {}, usages, query, top, OldPrices.of(None, query, query)
        )
    [usages] = await ledger.usages_of_queries([side])
    found = await asyncio.to_thread(_find_changes, {}, usages, top)
    return found.build_comparison(_SpentRows({}, []), _SpentRows({}, []), OldPrices.of(None, query, query))


async def _usages_with_billed_cost(ledger: CostsLedger, query: CostQuery) -> UsageByGroup:
    """
    Return counted usage with billed money as its cost. Groups that have billed money but no calls are last.
    """
    counted = await ledger.costs(replace(query, arranged=0, measures=MEASURES))
    billed = await ledger.costs(replace(query, measures=MEASURES))
    return await asyncio.to_thread(_replace_costs, counted, billed)


def _replace_costs(counted: Sequence[CostRow], billed: Sequence[CostRow]) -> UsageByGroup:
    amounts = {row.group: money.text_to_units(row.cost) for row in billed}
    merged = {}
    for row in counted:
        cost = amounts.pop(row.group, 0)
        merged[row.group] = msgspec.structs.replace(row_usage(row), cost=cost, reported=cost, unpriced=0)
    for group, cost in amounts.items():
        merged[group] = GroupUsage(cost=cost, reported=cost)
    return merged


async def answer_comparison(
    question: CostQuestion,
    times: CompareTimes,
    reader: CostReader,
    *,
    now: float,
    top: int = DEFAULT_TOP,
    prices: Callable[[], PriceBook],
) -> ComparedAnswer:
    """
    Compare the costs of a question with those of an earlier time. Billed money is compared up to the last
    finished day.

    Raises Invalid if the range has no finished day, and Refusal 403 for money that the roles do not
    show.
    """
    full_question = replace(question, tells=COUNTED_TYPES)
    ledger = reader.ledger_for_cost_types(full_question.cost_types)
    asked = _end_at_finished_day(full_question.query, full_question.cost_type, now)
    comparison, past, compared = await compare_times(
        ledger, asked, times(full_question.query), now, top=top, prices=prices
    )
    return ComparedAnswer(
        comparison=comparison,
        query=asked if compared is None else queries_of_spans(asked, compared.spans)[0],
        past=past,
        compared=compared,
        # whole: the start of the hourly sums, which says nothing about a call
        whole_since=await reader.whole.start_of_complete_hours(),
    )


async def compare_times(
    ledger: SlicedLedger,
    asked: CostQuery,
    spans: ComparedSpans,
    now: float,
    *,
    top: int,
    prices: Callable[[], PriceBook],
) -> tuple[Comparison, EarlierPeriodCoverage, ComparedTimes | None]:
    """
    Compare the two spans of a query if the earlier one is known completely, and the spans are comparable.
    Otherwise return the costs of the later time, with the earlier total if it is known.
    """
    past = await find_earlier_period_coverage(asked, spans, ledger, now)
    if not past.is_fully_covered:
        return await rank_without_comparison(ledger, asked, top=top), past, None
    query, before = queries_of_spans(asked, spans)
    compared = await read_compared_times(asked, spans, ledger, now)
    if spans.is_comparable:
        book = await load_price_list(prices)
        return await compare_costs(ledger, query, before, top=top, prices=book), past, compared
    comparison, earlier = [await rank_without_comparison(ledger, side, top=top) for side in (query, before)]
    total = msgspec.structs.replace(comparison.total, before=earlier.total.now)
    return replace(comparison, total=total), past, compared


def _end_at_finished_day(query: CostQuery, cost_type: str, now: float) -> CostQuery:
    """End a query with the last finished day. Raises Invalid if there is none."""
    if not query.arranged:
        return query
    today = period_beginning(datetime.fromtimestamp(now, UTC), "daily")
    until = min(query.until, today)
    if query.since >= until:
        raise Invalid(
            f"{cost_type} is compared by finished days; choose a time range that includes a finished day"
        )
    return replace(query, until=until)


class ComparedLedger(CostsLedger, Protocol):
    async def usages_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[UsageByGroup]: ...


class _SpentRows(NamedTuple):
    """
    The usage of one of the two compared times, split by kind of token: for each group that is read by itself,
    and the sum of all other groups.
    """

    separate_rows: Mapping[Group, Sequence[SpentRow]]
    other_rows: Sequence[SpentRow]


class _GroupChanges:
    """
    The changes of all groups between two times.

    The largest changes stay separate, and the smaller groups are summed. `kinds` are the smaller groups with
    tokens in both times, because other kinds of tokens may explain their change. If a dimension has too many
    values, the totals have a group OTHER, which counts as a smaller group.
    """

    def __init__(
        self, before: Mapping[Group, GroupSpending], now: Mapping[Group, GroupSpending], top: int
    ) -> None:
        pairs = pair_groups(before, now)
        self._largest = largest_changes([pair for pair in pairs if set(pair[0]) != {OTHER}], top)
        self.largest = frozenset([driver.group for driver in self._largest])
        rest = [pair for pair in pairs if pair[0] not in self.largest]
        name = (OTHER,) * len(rest[0][0] if rest else ())
        with_kinds = [pair for pair in rest if pair[1].tokens > 0 and pair[2].tokens > 0]
        without_kinds = [pair for pair in rest if not (pair[1].tokens > 0 and pair[2].tokens > 0)]
        self.kinds = frozenset([group for group, _, _ in with_kinds])
        self._with_kinds = merge_drivers(build_drivers(with_kinds), group=name)
        self._rest = [self._with_kinds, *build_drivers(without_kinds)] if rest else []
        # Other groups with tokens in both time ranges are read together: all groups minus those that are read
        # one by one. So groups without tokens are read one by one as well.
        self.apart = self.largest | {group for group, _, _ in (without_kinds if with_kinds else ())}
        self.are_few = bool(rest) and len(self.apart) <= MOST_APART

    def build_comparison(self, old: _SpentRows, new: _SpentRows, prices: OldPrices) -> Comparison:
        known = {
            group: prices.costs_at_old_prices(old.separate_rows[group], rows)
            for group, rows in new.separate_rows.items()
            if group in old.separate_rows
        }
        drivers = [with_old_prices(driver, known) for driver in self._largest]
        if self._rest:
            # `other_rows` lack the smaller groups that had no tokens in one of the periods. Old prices split
            # only groups with tokens in both.
            other_driver = merge_drivers(self._rest, group=self._with_kinds.group)
            drivers.append(
                self._split_at_old_prices(
                    other_driver, prices.costs_at_old_prices(old.other_rows, new.other_rows)
                )
            )
        return Comparison(drivers=drivers, total=merge_drivers(drivers, group=()))

    def _split_at_old_prices(self, driver: CostDriver, repriced: CostsAtOldPrices) -> CostDriver:
        if not self.kinds:
            return driver
        whole = self._with_kinds.parts.unit_cost
        cost = self._with_kinds.now.cost
        divided = repriced.cost_change_by_cause(cost - whole, cost)
        divided = {**divided, "unit_cost": driver.parts.unit_cost - whole + divided["unit_cost"]}
        return msgspec.structs.replace(driver, parts=msgspec.structs.replace(driver.parts, **divided))


async def _fetch_spent_rows(
    ledger: ComparedLedger, sides: Sequence[CostQuery], found: _GroupChanges
) -> Sequence[_SpentRows]:
    query = sides[0]
    by = _group_by_with_kinds(query)
    read = [_narrow_to_groups(side, found.apart) if found.are_few else side for side in sides]
    usages = await ledger.usages_of_queries([replace(side, group_by=by) for side in read])
    whole = [UsageByGroup()] * len(sides)
    if found.kinds:
        whole = [*await ledger.usages_of_queries([replace(side, group_by=KINDS) for side in sides])]

    def build_spent_rows(of_groups: UsageByGroup, of_all: UsageByGroup) -> _SpentRows:
        rows_by_group = spent_rows_by_group(of_groups, by, len(query.group_by))
        separate_rows = {group: rows for group, rows in rows_by_group.items() if group in found.apart}
        return _SpentRows(
            separate_rows,
            subtract_rows(spent_rows_by_group(of_all, KINDS, 0).get((), ()), separate_rows.values()),
        )

    return await asyncio.to_thread(lambda: [*map(build_spent_rows, usages, whole)])


def _compare_fetched_usages(
    before: UsageByGroup,
    now: UsageByGroup,
    query: CostQuery,
    baseline: CostQuery,
    top: int,
    prices: PriceBook | None,
) -> Comparison:
    """Compare usages that are already split by provider and model, so no further query is needed."""
    width, by = len(query.group_by), _group_by_with_kinds(query)
    found = _GroupChanges(_spending_by_group(before, width), _spending_by_group(now, width), top)
    old, new = [
        _SpentRows(
            spent_rows_by_group(_usages_with_group_prefixes(found.largest, side, width), by, width),
            merge_rows_by_kind(
                [*spent_rows_by_group(_usages_with_group_prefixes(found.kinds, side, width), by, 0).values()]
            ),
        )
        for side in (before, now)
    ]
    return found.build_comparison(old, new, OldPrices.of(prices, baseline, query))


def _group_by_with_kinds(query: CostQuery) -> Sequence[str]:
    """
    Return the query's dimensions and those on which prices depend. Bills do not state whether a cost was
    reported, so billed money lacks this dimension.
    """
    kinds = KINDS[:-1] if query.arranged else KINDS
    return (*query.group_by, *[name for name in kinds if name not in query.group_by])


def _narrow_to_groups(query: CostQuery, groups: Collection[Group]) -> CostQuery:
    """
    Return a query for some groups. It may find other groups as well, because each dimension is filtered
    separately.
    """
    values = {name: {group[index] or "" for group in groups} for index, name in enumerate(query.group_by)}
    return narrow_query(
        query,
        include={name: tuple(sorted(group_values)) for name, group_values in values.items()},
        exclude={},
    )


def _usages_with_group_prefixes(
    group_prefixes: Collection[Group], usages: UsageByGroup, prefix_length: int
) -> UsageByGroup:
    return {group: usage for group, usage in usages.items() if group[:prefix_length] in group_prefixes}


def _find_changes(before: UsageByGroup, now: UsageByGroup, top: int) -> _GroupChanges:
    width = len(next(iter({**before, **now}), ()))
    return _GroupChanges(_spending_by_group(before, width), _spending_by_group(now, width), top)


def _compare_bills(
    before: UsageByGroup, now: UsageByGroup, query: CostQuery, top: int, prices: OldPrices
) -> Comparison:
    """Compare billed money of two times. A group OTHER counts as one of the smaller groups."""
    by, width = _group_by_with_kinds(query), len(query.group_by)
    unassigned = [_costs_without_calls(usages, width) for usages in (before, now)]
    before, now = [
        {group: usage for group, usage in usages.items() if _has_calls(usage)} for usages in (before, now)
    ]
    old = spent_rows_by_group(before, by, width)
    new = spent_rows_by_group(now, by, width)
    priced = {
        group: prices.costs_at_old_prices(old[group], rows) for group, rows in new.items() if group in old
    }
    drivers = add_costs_without_calls(
        list(
            build_drivers(
                pair_groups(_spending_by_group(before, width), _spending_by_group(now, width)), priced
            )
        ),
        *unassigned,
    )
    largest = largest_drivers([driver for driver in drivers if set(driver.group) != {OTHER}], top)
    groups = {driver.group for driver in largest}
    rest = [driver for driver in drivers if driver.group not in groups]
    if rest:
        largest.append(merge_drivers(rest, group=(OTHER,) * len(rest[0].group)))
    return Comparison(drivers=largest, total=merge_drivers(drivers, group=()))


def _spending_by_group(usages: UsageByGroup, group_width: int) -> dict[Group, GroupSpending]:
    spent: dict[Group, GroupSpending] = {}
    for group, usage in usages.items():
        spending = _usage_spending(usage)
        before = spent.get(group[:group_width])
        spent[group[:group_width]] = spending if before is None else add_spending(before, spending)
    return spent


def _usage_spending(usage: GroupUsage) -> GroupSpending:
    return GroupSpending(
        cost=usage.cost,
        tokens=billed_tokens(usage),
        calls=usage.calls,
        unpriced=usage.unpriced,
        estimated=max(0, usage.cost - usage.reported),
    )


def _has_calls(usage: GroupUsage) -> bool:
    return bool(usage.calls or usage.input_tokens or usage.output_tokens)


def _costs_without_calls(usages: UsageByGroup, group_width: int) -> Mapping[Group, int]:
    amounts: dict[Group, int] = {}
    for group, usage in usages.items():
        if not _has_calls(usage):
            amounts[group[:group_width]] = amounts.get(group[:group_width], 0) + usage.cost
    return amounts
