"""
Details next to billed costs: how final each day is, which amounts have no calls, and which days have no bill.

Counted costs can replace missing bills. They have the basis `counted`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain, groupby

import msgspec

from gateway.bills.reconciliation.counting import find_seller
from spool import money
from spool.currencies import CurrencyConverter, find_no_rate, round_product_to_units
from spool.ledger.billed import AMORTIZED, CLOSED, COUNTED, FROZEN, INVOICED, OPEN, PROVISIONAL, BilledDay
from spool.ledger.costs import combine_rows, periods_of_query
from spool.ledger.dimensions import BILLED_DIMENSIONS, DerivedDimension, Group
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow, CostsLedger, narrow_query
from spool.ledger.sums import DAY_S, OTHER
from spool.record import CURRENCY, utc_iso
from spool.statements import day_text
from spool.turns.threads import sort_in_short_steps

# name and value of the dimension that marks billed rows; no user's query can use this name
_BILLED, _YES = ("(billed)", "yes")
_BASIS = DerivedDimension(name="basis", label="basis", sources=(), value=lambda _: COUNTED)
_Place = tuple[int, Group]  # place of an amount in a report: index of its period, and its group


async def billed_cost_details(
    ledger: Ledger, query: CostQuery, now: float, *, only_day_states: bool = False
) -> dict[str, object]:
    """
    Return details about the billed costs of a query's days.

    Filters of the query apply only to `without_statement`, the counted cost of sellers and days without a
    bill. If a day has several bills, its state is that of the least final bill. Set `only_day_states` for people
    with restricted access, because the other fields describe the whole bill.
    """
    days = _day_starts_until_now(query, now)
    stored_days = await ledger.billed_days(days.start, days.stop)
    bill_days = [day for day in stored_days if day.source and not day.is_outside_bill]
    fields: dict[str, object] = {
        "through": day_text(max(day.day for day in bill_days)) if bill_days else None,
        "days": _count_day_states(bill_days, days),
    }
    if only_day_states:
        return fields
    reasons: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    converter = CurrencyConverter(ledger.rates or find_no_rate, query.currency)
    for day in stored_days:
        # amounts without a rate count as 0 here, because the query's rows list them
        rate = converter.rate(CURRENCY, day.day) or 0
        if query.arranged != INVOICED or (day.state in (CLOSED, FROZEN) and not day.corrected_day):
            reasons.update({name: amount * rate for name, amount in day.reasons.items()})
            if query.arranged & AMORTIZED:
                reasons.update({name: amount * rate for name, amount in day.accrued.items()})
        foreign.update(day.foreign)
    reasons = Counter({name: round_product_to_units(product) for name, product in reasons.items()})
    return {
        **fields,
        "unallocated": money.units_to_text(sum(reasons.values())),
        "by_reason": {
            reason: money.units_to_text(amount) for reason, amount in sorted(reasons.items()) if amount
        },
        "without_statement": await _counted_cost_without_bill(ledger, query, bill_days),
        "sources": _bill_sources_with_read_times(
            [day for day in stored_days if day.source and not day.corrected_day]
        ),
        "foreign": dict(sorted(foreign.items())),
    }


def _day_starts_until_now(query: CostQuery, now: float) -> range:
    first = int(query.since.timestamp()) // DAY_S * DAY_S
    return range(first, int(min(query.until.timestamp(), now)), DAY_S)


def _count_day_states(billed_days: Sequence[BilledDay], days: Sequence[int]) -> dict[str, int]:
    states: dict[int, set[str]] = defaultdict(set)
    for day in billed_days:
        states[day.day].add(day.state)
    counts = Counter(_least_final_bill_state(states[day]) if day in states else OPEN for day in days)
    shown = (CLOSED, PROVISIONAL, OPEN, *([FROZEN] if counts[FROZEN] else []))
    return {state: counts[state] for state in shown}


def _least_final_bill_state(states: set[str]) -> str:
    return next(state for state in (PROVISIONAL, CLOSED, FROZEN) if state in states)


def _bill_sources_with_read_times(billed_days: Sequence[BilledDay]) -> list[dict[str, str]]:
    newest: dict[tuple[str, str], float] = {}
    for day in billed_days:
        seller_source = (day.seller, day.source)
        newest[seller_source] = max(day.read_at, newest.get(seller_source, 0.0))
    return [
        {"provider": provider, "source": source, "read_at": utc_iso(read_at)}
        for (provider, source), read_at in sorted(newest.items())
    ]


async def _counted_cost_without_bill(
    ledger: Ledger, query: CostQuery, billed_days: Sequence[BilledDay]
) -> list[dict[str, str]]:
    billed_places = {(day.provider, day.day) for day in billed_days}
    include = {name: values for name, values in query.include.items() if name not in BILLED_DIMENSIONS}
    exclude = {name: values for name, values in query.exclude.items() if name not in BILLED_DIMENSIONS}
    counted_query = replace(
        query,
        granularity="daily",
        group_by=("source", "provider", "model"),
        include=include,
        exclude=exclude,
        measures=("cost",),
        arranged=0,
        kept=None,  # `kept` of the query does not apply here, because this query groups by its own dimensions
        top=None,
    )
    return await asyncio.to_thread(_unbilled_cost_by_seller, await ledger.costs(counted_query), billed_places)


def _unbilled_cost_by_seller(
    rows: Sequence[CostRow], billed_places: Collection[tuple[str, int]]
) -> list[dict[str, str]]:
    counted: Counter[str] = Counter()
    for row in rows:
        name = find_seller(*row.group)
        if (name, int(row.start.timestamp()) // DAY_S * DAY_S) not in billed_places:
            counted[name] += money.text_to_units(row.cost)
    return [
        {"provider": name, "real_cost": money.units_to_text(amount)}
        for name, amount in sorted(counted.items())
        if amount
    ]


class LedgerWithUnbilledDaysFilled:
    """
    A ledger, or a person's part of it, that fills days without a bill with counted costs. `counted` is the
    amount that the last query added.
    """

    def __init__(self, visible_ledger: CostsLedger, whole_ledger: Ledger) -> None:
        self._asked = visible_ledger
        self._whole = whole_ledger
        self.counted = "0"

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        if not query.arranged:
            return await self._asked.costs(query)
        plain = replace(query, top=None)
        starts = [start for start, _ in periods_of_query(plain)]
        billed = await self._asked.costs(plain)
        parts = [
            await self._asked.costs(part)
            for part in _unbilled_cost_queries(plain, await self._billed_sellers_by_day(plain))
        ]
        filled_rows, counted = await asyncio.to_thread(
            _merge_rows_and_sum_counted_cost, billed, parts, starts, query.top
        )
        self.counted = money.units_to_text(counted)
        return filled_rows

    async def _billed_sellers_by_day(self, query: CostQuery) -> Mapping[int, frozenset[str]]:
        """
        Return, by day, the sellers that have a bill. If the query is for costs of closed days, only closed
        bills count.
        """
        low, high = int(query.since.timestamp()) // DAY_S * DAY_S, int(query.until.timestamp())
        sellers_by_day: dict[int, set[str]] = {}
        for day in await self._whole.billed_days(low, high):
            is_there = day.source and not day.is_outside_bill
            if is_there and (query.arranged != INVOICED or day.state in (CLOSED, FROZEN)):
                sellers_by_day.setdefault(day.day, set()).add(day.provider)
        return {day: frozenset(sellers) for day, sellers in sellers_by_day.items()}


def _merge_rows_and_sum_counted_cost(
    billed_rows: Sequence[CostRow],
    counted_row_sets: Sequence[Sequence[CostRow]],
    period_starts: Sequence[datetime],
    top: int | None,
) -> tuple[list[CostRow], int]:
    rows_by_group: dict[_Place, list[CostRow]] = {}
    for row in billed_rows:
        rows_by_group.setdefault((period_starts.index(row.start), row.group), []).append(row)
    amount = 0
    for row in chain.from_iterable(counted_row_sets):
        rows_by_group.setdefault((bisect_right(period_starts, row.start) - 1, row.group), []).append(
            _row_with_only_money(row)
        )
        amount += money.text_to_units(row.cost)
    largest = _largest_groups(rows_by_group, top)
    shown: dict[_Place, list[CostRow]] = {}
    for (start_index, group), rows in rows_by_group.items():
        named = group if largest is None or group in largest else (OTHER,) * len(group)
        shown.setdefault((start_index, named), []).extend(rows)
    together = [
        combine_rows(rows, start=period_starts[start_index], group=group)
        for (start_index, group), rows in sort_in_short_steps(shown.items(), key=_period_and_group_sort_key)
    ]
    return together, amount


def _unbilled_cost_queries(query: CostQuery, sellers: Mapping[int, frozenset[str]]) -> Iterator[CostQuery]:
    days = range(int(query.since.timestamp()) // DAY_S * DAY_S, int(query.until.timestamp()), DAY_S)
    nobody = frozenset[str]()
    for billed, run in groupby(days, key=lambda day: sellers.get(day, nobody)):
        first, *later_days = run
        low = datetime.fromtimestamp(first, UTC)
        high = datetime.fromtimestamp((later_days or [first])[-1] + DAY_S, UTC)
        derived = {**query.derived, _BASIS.name: _BASIS, _BILLED: _dimension_marking_billed_sellers(billed)}
        span = replace(query, since=max(query.since, low), until=min(query.until, high))
        counted = replace(span, arranged=0, derived=derived, measures=("cost",))
        yield narrow_query(counted, include={}, exclude={_BILLED: (_YES,)}) if billed else counted


def _dimension_marking_billed_sellers(billed_sellers: Collection[str]) -> DerivedDimension:
    def yes_if_billed_seller(values: tuple[str, ...]) -> str:
        source, provider, model = values
        return _YES if find_seller(source, provider, model) in billed_sellers else ""

    return DerivedDimension(
        name=_BILLED, label="", sources=("source", "provider", "model"), value=yes_if_billed_seller
    )


def _row_with_only_money(row: CostRow) -> CostRow:
    """Return a row with only its money. Its calls are removed, because billed rows have no calls."""
    blank = combine_rows([], start=row.start, group=row.group)
    return msgspec.structs.replace(blank, cost=row.cost, unconverted=row.unconverted)


def _largest_groups(
    rows_by_group: Mapping[_Place, Sequence[CostRow]], limit: int | None
) -> set[Group] | None:
    if limit is None:
        return None
    sizes: Counter[Group] = Counter()
    for (_, group), rows in rows_by_group.items():
        sizes[group] += sum(money.text_to_units(row.cost) for row in rows)
    largest = nsmallest(limit, sizes, key=lambda group: (-sizes[group], [value or "" for value in group]))
    unknown = {(None,) * len(group) for group in sizes}
    return {*largest, *unknown}


def _period_and_group_sort_key(item: tuple[_Place, Sequence[CostRow]]) -> tuple[int, list[str]]:
    (start_index, group), _ = item
    return start_index, [value or "" for value in group]
