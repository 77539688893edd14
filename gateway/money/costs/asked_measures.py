"""
Measures that a report contains only on request: units, the cost per unit with its median and 95th percentile, and
the savings by prompt caches of providers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from gateway.intake.prices import PriceBook
from gateway.money.comparison.old_prices import cache_saving, load_price_list
from gateway.money.costs.answer import CostAnswer
from gateway.money.costs.measures import (
    ASKED,
    COST_PER_UNIT,
    OF_UNITS,
    RANKED_PER_UNIT,
    SAVED_BY_CACHING,
    UNITS,
)
from spool import money
from spool.errors import Invalid
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import TAG, Group
from spool.ledger.queries import CostQuery, CostRow, CostsLedger, narrow_query
from spool.ledger.sums import OTHER
from spool.record import NS
from spool.registry.texts import known_dimensions_text
from spool.streams import StreamReader

STREAM = "stream:"  # prefix of a unit-cost stream, whose values count the units
_OF_CACHE = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_KINDS = ("provider", "model")
_CENTS = Decimal(10) ** -12

ReportRowKey = tuple[int, Group]  # place of an amount in a report: index of its period, and its group


@dataclass(slots=True)
class RowMeasures:
    """
    The measures of one row. `costs` maps each distinct unit, such as a user or session, to its cost. `amount`
    is the sum of a unit-cost stream, or None if unknown. Money is in units of money.

    `other_calls` and `other_cost` are those of units that the totals no longer list separately. No other
    field includes them.
    """

    costs: Counter[str] = field(default_factory=Counter)
    amount: Decimal | None = None
    cost: int = 0  # cost of the calls whose unit of work is known
    saved: int | None = None
    other_calls: int = 0
    other_cost: int = 0

    def add_measures(self, other: RowMeasures) -> None:
        for unit, cost in other.costs.items():
            self.costs[unit] += cost
        self.cost += other.cost
        self.other_calls += other.other_calls
        self.other_cost += other.other_cost
        if other.amount is not None:
            self.amount = (self.amount or Decimal()) + other.amount
        if other.saved is not None:
            self.saved = (self.saved or 0) + other.saved

    def to_fields(self) -> dict[str, object]:
        units = self.amount if self.amount is not None else Decimal(len(self.costs))
        ranked = sorted(self.costs.values())
        unit_cost = Decimal(money.units_to_text(self.cost)) / units if units > 0 else None
        return {
            UNITS: f"{units.normalize():f}" if units else None,
            COST_PER_UNIT: None if unit_cost is None else f"{unit_cost.quantize(_CENTS).normalize():f}",
            **{
                # nearest-rank percentile: the cost that at least `percent` of 100 units do not exceed
                name: money.units_to_text(ranked[-(-len(ranked) * percent // 100) - 1]) if ranked else None
                for name, percent in RANKED_PER_UNIT.items()
            },
            SAVED_BY_CACHING: None if self.saved is None else money.units_to_text(self.saved),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMeasures:
    """The measures of each row of a report, by its period and group. `total` is over all rows."""

    rows: Mapping[ReportRowKey, RowMeasures]
    total: RowMeasures

    def measures_at(self, place: ReportRowKey) -> RowMeasures:
        return self.rows.get(place, RowMeasures())


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMeasures:
    """
    The measures that a report requested, `by_place` in its rows. `merge_groups` sums those of groups that are
    shown as one.
    """

    by_place: Mapping[ReportRowKey, RowMeasures]
    whole: Decimal | None = None  # value of a stream for the whole time of the query

    def merge_groups(self, shown: Callable[[Group], Group]) -> PlacedMeasures:
        rows: dict[ReportRowKey, RowMeasures] = defaultdict(RowMeasures)
        total = RowMeasures()
        for (index, group), measures in self.by_place.items():
            rows[index, shown(group)].add_measures(measures)
            total.add_measures(measures)
        if self.whole is not None:
            total.amount = self.whole
        return PlacedMeasures(rows=rows, total=total)


def check_unit(unit: str, known_names: Sequence[str], show: Sequence[str]) -> None:
    """
    Check the unit by which costs are divided. Raises Invalid if `unit` cannot be counted, or if it is empty
    and a measure in `show` needs a unit.
    """
    if not unit and not set(OF_UNITS).isdisjoint(show):
        raise Invalid("unit is required; use a dimension such as user, or stream:NAME for a unit-cost stream")
    if unit.startswith(STREAM) and not RANKED_PER_UNIT.keys().isdisjoint(show):
        raise Invalid(f"{' and '.join(RANKED_PER_UNIT)} need single units, so use a dimension as unit")
    if unit and unit not in known_names and not unit.startswith(STREAM):
        raise Invalid(
            f"unit {unit!r} is neither a dimension nor stream:NAME; dimensions are "
            f"{known_dimensions_text(unit, known_names)}"
        )


async def measure_now_and_previous(
    answer: CostAnswer,
    show: Sequence[str],
    *,
    unit: str,
    streams: StreamReader | None,
    prices: Callable[[], PriceBook],
) -> Sequence[AskedMeasures | None]:
    """
    Measure the query and the period before it. Each is None if the report does not show it.

    `streams` is None for people who may not see unit-cost streams. Raises NotKept and AskedTooMuch as a cost
    query does.
    """
    if set(ASKED).isdisjoint(show):
        return (None, None)
    book = await load_price_list(prices) if SAVED_BY_CACHING in show else None
    return [
        None if query is None else await _read_measures_of_query(answer.ledger, query, unit, streams, book)
        for query in (answer.query, answer.previous)
    ]


async def _read_measures_of_query(
    ledger: CostsLedger, query: CostQuery, unit: str, streams: StreamReader | None, prices: PriceBook | None
) -> AskedMeasures:
    plain = replace(query, kept=None)
    measures_of_place: dict[ReportRowKey, RowMeasures] = defaultdict(RowMeasures)
    starts = [start for start, _ in periods_of_query(query)]
    whole = None
    if unit.startswith(STREAM):
        rows = await ledger.costs(replace(plain, measures=("calls",)))
        await asyncio.to_thread(_add_costs, rows, starts, measures_of_place)
        whole = await _add_stream_values_and_sum(
            streams, unit.removeprefix(STREAM), query, starts, measures_of_place
        )
    elif unit:
        part_query = replace(plain, group_by=(*query.group_by, unit), measures=("calls",))
        rows = await ledger.costs(part_query)
        await asyncio.to_thread(_count_values, rows, starts, measures_of_place)
    if prices is not None:
        by_day = plain if query.granularity == "hourly" else replace(plain, granularity="daily")
        part_query = replace(by_day, group_by=(*query.group_by, *_KINDS), measures=_OF_CACHE)
        # without cached calls, because `saved` already includes responses from the gateway's own cache
        part_query = narrow_query(part_query, include={}, exclude={"status": ("cached",)})
        rows = await ledger.costs(part_query)
        await asyncio.to_thread(_add_savings, rows, starts, measures_of_place, prices)
    return AskedMeasures(by_place=dict(measures_of_place), whole=whole)


def _add_costs(
    rows: Sequence[CostRow], starts: Sequence[datetime], measures: dict[ReportRowKey, RowMeasures]
) -> None:
    for row in rows:
        measures[starts.index(row.start), row.group].cost += money.text_to_units(row.cost)


def _count_values(
    rows: Sequence[CostRow], starts: Sequence[datetime], measures: dict[ReportRowKey, RowMeasures]
) -> None:
    """Add the distinct units and their costs to `measures`, without calls whose unit is unknown."""
    for row in rows:
        *group, value = row.group
        if value is None:
            continue
        row_measures = measures[bisect_right(starts, row.start) - 1, tuple(group)]
        cost = money.text_to_units(row.cost)
        if value == OTHER:
            row_measures.other_calls += row.calls
            row_measures.other_cost += cost
        else:
            row_measures.costs[value] += cost
            row_measures.cost += cost


def _add_savings(
    rows: Sequence[CostRow],
    starts: Sequence[datetime],
    measures: dict[ReportRowKey, RowMeasures],
    prices: PriceBook,
) -> None:
    for row in rows:
        *group, provider, model = row.group
        saved = cache_saving(provider, model, row, prices)
        if saved is not None:
            row_measures = measures[bisect_right(starts, row.start) - 1, tuple(group)]
            row_measures.saved = (row_measures.saved or 0) + saved


async def _add_stream_values_and_sum(
    streams: StreamReader | None,
    name: str,
    query: CostQuery,
    starts: Sequence[datetime],
    measures: dict[ReportRowKey, RowMeasures],
) -> Decimal:
    """
    Add the values of a unit-cost stream to `measures`, by period and by a dimension that the query and the
    stream share.

    Return the sum over the time of the query. Raises Invalid if the stream is unknown.
    """
    known = [] if streams is None else [stream.name for stream in await streams.streams()]
    if streams is None or name not in known:
        raise Invalid(
            f"there is no unit-cost stream {name!r}" + (f"; streams are {', '.join(known)}" if known else "")
        )
    since = query.since.timestamp() * NS
    until = query.until.timestamp() * NS
    by = query.group_by[0].removeprefix(TAG) if len(query.group_by) == 1 else None
    seconds = [start.timestamp() for start in starts]
    whole = Decimal()
    for total in await streams.stream_totals(name):
        if not since <= total.start_time < until:
            continue
        value = Decimal(total.value)
        whole += value
        index = bisect_right(seconds, total.start_time / NS) - 1
        group: Group = ()
        if query.group_by:
            values = total.dimensions.get(by, ()) if by is not None else ()
            if len(values) != 1:
                continue
            group = (values[0],)
        at = measures[index, group]
        at.amount = (at.amount or Decimal()) + value
    return whole
