"""Comparison of a cost query for two times: the change and its drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from gateway.intake.prices import PriceBook
from gateway.money.comparison.old_prices import (
    KINDS,
    MEASURES,
    Row,
    added_up,
    at_old_prices,
    by_group,
    list_prices,
    without,
)
from gateway.money.comparison.split import (
    Driver,
    Group,
    Spending,
    first,
    together,
    unranked,
    weighed,
    with_nobodys,
)
from gateway.money.costs.answer import ledger_for
from gateway.money.costs.measures import DEFAULT_TOP, USAGE_AMOUNT, billed_tokens, estimated, needed
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.reader import CostReader
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.costs import combined
from spool.ledger.queries import MODEL_FAMILY, TOTAL, AnswersCosts, CostQuery, CostRow, within
from spool.ledger.sums import OTHER
from spool.record import CURRENCY, moment
from spool.registry.roles import COUNTED_TYPES

OF_MODELS: Final = ("model", MODEL_FAMILY)
MOST_APART: Final = 500  # maximum groups that are read separately, by their values


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """
    The total change and its drivers. The largest driver is first. If there are more groups than requested,
    the last driver joins all other groups.
    """

    drivers: Sequence[Driver]
    total: Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAnswer:
    """The comparison and its two queries. Totals from before `whole_since` may lack records."""

    comparison: Comparison
    query: CostQuery
    baseline: CostQuery
    whole_since: float

    @property
    def may_lack(self) -> str | None:
        """
        The time before which totals may lack records that were deleted before they were counted, or None.
        """
        since = min(self.query.since, self.baseline.since)
        return moment(self.whole_since) if since.timestamp() < self.whole_since else None


async def compare(
    ledger: AnswersCosts,
    query: CostQuery,
    baseline: CostQuery,
    *,
    top: int = DEFAULT_TOP,
    prices: PriceBook | None = None,
) -> Comparison:
    """
    Compare two times. `prices` are list prices. They are the weights for the kinds of tokens.

    For billed money, calls and tokens are still the counted ones. If the query groups by model, the kinds of
    tokens are read in the first query. Otherwise they are read only for the largest changes, and the other
    groups together get the remainder. Raises NotKept if a time range begins or ends within a stored total.
    """
    measures = (*needed(USAGE_AMOUNT, ()), *MEASURES, "unpriced", "reported")
    sides = [replace(side, granularity=TOTAL, measures=measures) for side in (baseline, query)]
    if query.arranged:
        old_rows, rows = [
            await _with_bills(ledger, replace(side, group_by=_with_kinds(query))) for side in sides
        ]
        return await asyncio.to_thread(_of_bills, old_rows, rows, query, top, prices)
    if query.currency == CURRENCY and not set(query.group_by).isdisjoint(OF_MODELS):
        old_rows, rows = [await ledger.costs(replace(side, group_by=_with_kinds(query))) for side in sides]
        return await asyncio.to_thread(_at_once, old_rows, rows, query, top, prices)
    before, now = [await ledger.costs(side) for side in sides]
    changes = await asyncio.to_thread(_changes, before, now, top)
    old, new = [await _kinds(ledger, side, changes) for side in sides]
    return await asyncio.to_thread(changes.compared, old, new, prices, query.since.timestamp())


async def _with_bills(ledger: AnswersCosts, query: CostQuery) -> Sequence[CostRow]:
    """
    Return counted rows in which billed money replaces the cost. Rows of billed money without calls follow.
    """
    counted = await ledger.costs(replace(query, arranged=0))
    billed = await ledger.costs(query)
    return await asyncio.to_thread(_with_amounts, counted, billed, query)


def _with_amounts(
    counted: Sequence[CostRow], billed: Sequence[CostRow], query: CostQuery
) -> Sequence[CostRow]:
    amounts = {row.group: row.cost for row in billed}
    merged = []
    for row in counted:
        cost = amounts.pop(row.group, "0")
        merged.append(msgspec.structs.replace(row, cost=cost, reported=cost, unpriced=0))
    for group, cost in amounts.items():
        nothing = combined((), start=query.since, group=group)
        merged.append(msgspec.structs.replace(nothing, cost=cost, reported=cost))
    return merged


async def compared(
    question: CostQuestion,
    baseline: Callable[[CostQuery], CostQuery],
    reader: CostReader,
    *,
    now: float,
    top: int = DEFAULT_TOP,
    prices: Callable[[], PriceBook],
) -> ComparedAnswer:
    """
    Compare the query with its baseline. Billed money is compared by finished days.

    Raises Invalid if a time has no finished day. Raises Refusal 403 for money that the roles do not show.
    """
    full_question = replace(question, tells=COUNTED_TYPES)
    ledger = await ledger_for(full_question, reader)
    query = _by_whole_days(full_question.query, full_question.cost_type, now)
    before = _by_whole_days(baseline(query), full_question.cost_type, now)
    comparison = await compare(ledger, query, before, top=top, prices=await list_prices(prices))
    return ComparedAnswer(
        comparison=comparison, query=query, baseline=before, whole_since=await reader.whole.whole_since()
    )


def _by_whole_days(query: CostQuery, cost_type: str, now: float) -> CostQuery:
    """Limit a query of billed money to finished days. Raises Invalid if there is no finished day."""
    if not query.arranged:
        return query
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    until = min(query.until, today)
    if query.since >= until:
        raise Invalid(
            f"{cost_type} is compared by finished days; choose a time range that includes a finished day"
        )
    return replace(query, until=until)


class _Kinds(NamedTuple):
    """
    The rows of one time by provider and model. Some groups have their own rows, and all other groups are summed.
    """

    separate_rows: Mapping[Group, Sequence[Row]]
    other_rows: Sequence[Row]


class _Changes:
    """
    The changes of all groups. The largest changes are separate from the rest.

    The totals may have a group OTHER for dimensions with too many values. It is treated as one of
    the smaller groups.
    """

    def __init__(self, before: Mapping[Group, Spending], now: Mapping[Group, Spending], top: int) -> None:
        self._largest, self._rest = _divided(unranked(before, now, {}), top)
        self.others = [driver for driver in self._rest if driver.has_kinds]
        # If the joined groups have kinds of tokens, they are read as the sum of all groups minus the groups
        # that are read separately. So groups without kinds are read separately as well.
        without_kinds = [driver for driver in self._rest if not driver.has_kinds] if self.others else []
        self.apart = frozenset([driver.group for driver in (*self._largest, *without_kinds)])
        self.are_few = bool(self._rest) and len(self.apart) <= MOST_APART

    def compared(self, old: _Kinds, new: _Kinds, prices: PriceBook | None, at: float) -> Comparison:
        known = {
            group: at_old_prices(old.separate_rows[group], rows, prices, at)
            for group, rows in new.separate_rows.items()
            if group in old.separate_rows
        }
        drivers = [weighed(driver, known) for driver in self._largest]
        if self._rest:
            # Of the joined groups, those that were read separately have no kinds of tokens. Old prices change
            # none of their parts, so only `other_rows` are priced.
            other_driver = together(self._rest, group=(OTHER,) * len(self._rest[0].group))
            drivers.append(
                self._priced(other_driver, at_old_prices(old.other_rows, new.other_rows, prices, at))
            )
        return Comparison(drivers=drivers, total=together(drivers, group=()))

    def _priced(self, driver: Driver, at_old_prices: int) -> Driver:
        """
        Split the change of the smaller groups into the part caused by other kinds of tokens and the part
        caused by prices. `at_old_prices` is the cost of their tokens at the earlier prices.
        """
        if not self.others:
            return driver
        costs = [driver.now.cost - driver.parts.prices for driver in self.others]
        kinds = at_old_prices - sum(costs)
        parts = driver.parts
        divided = msgspec.structs.replace(
            parts, other_kinds=parts.other_kinds + kinds, prices=parts.prices - kinds
        )
        return msgspec.structs.replace(driver, parts=divided)


async def _kinds(ledger: AnswersCosts, query: CostQuery, changes: _Changes) -> _Kinds:
    by = _with_kinds(query)
    kind_query = _only(query, changes.apart) if changes.are_few else query
    rows = await ledger.costs(replace(kind_query, group_by=by))
    whole = await ledger.costs(replace(query, group_by=KINDS)) if changes.others else ()

    def kinds() -> _Kinds:
        rows_by_group = by_group(rows, by, len(query.group_by))
        separate_rows = {group: rows for group, rows in rows_by_group.items() if group in changes.apart}
        return _Kinds(
            separate_rows, without(by_group(whole, KINDS, 0)[()] if whole else (), separate_rows.values())
        )

    return await asyncio.to_thread(kinds)


def _at_once(
    before: Sequence[CostRow], now: Sequence[CostRow], query: CostQuery, top: int, prices: PriceBook | None
) -> Comparison:
    """
    Compare rows that are already split by provider and model. For a query by model, this split adds
    only few rows.
    """
    sides = [by_group(rows, _with_kinds(query), len(query.group_by)) for rows in (before, now)]
    changes = _Changes(_spent(sides[0]), _spent(sides[1]), top)
    old, new = [
        _Kinds(
            {group: side[group] for group in changes.apart if group in side},
            added_up([side[driver.group] for driver in changes.others]),
        )
        for side in sides
    ]
    return changes.compared(old, new, prices, query.since.timestamp())


def _with_kinds(query: CostQuery) -> Sequence[str]:
    return (*query.group_by, *[name for name in KINDS if name not in query.group_by])


def _only(query: CostQuery, groups: Collection[Group]) -> CostQuery:
    """
    Return the query limited to the values of these groups. Its result may contain other groups, because each
    dimension is limited separately.
    """
    values = {name: {group[index] or "" for group in groups} for index, name in enumerate(query.group_by)}
    return within(
        query,
        include={name: tuple(sorted(group_values)) for name, group_values in values.items()},
        exclude={},
    )


def _divided(drivers: Sequence[Driver], top: int) -> tuple[list[Driver], list[Driver]]:
    """Return two lists: the largest changes in order, and the other changes."""
    largest = first([driver for driver in drivers if set(driver.group) != {OTHER}], top)
    groups = {driver.group for driver in largest}
    return largest, [driver for driver in drivers if driver.group not in groups]


def _changes(before: Sequence[CostRow], now: Sequence[CostRow], top: int) -> _Changes:
    return _Changes(_of_groups(before), _of_groups(now), top)


def _of_groups(rows: Sequence[CostRow]) -> dict[Group, Spending]:
    return {row.group: _spending([(None, None, row, money.units(row.cost))]) for row in rows}


def _of_bills(
    before: Sequence[CostRow], now: Sequence[CostRow], query: CostQuery, top: int, prices: PriceBook | None
) -> Comparison:
    """Compare billed money. If the totals have a group OTHER, it is treated as one of the smaller groups."""
    by, width = _with_kinds(query), len(query.group_by)
    unassigned = [_nobodys(rows, width) for rows in (before, now)]
    before, now = list(filter(_has_calls, before)), list(filter(_has_calls, now))
    old = by_group(before, by, width)
    new = by_group(now, by, width)
    at = query.since.timestamp()
    priced = {
        group: at_old_prices(old[group], rows, prices, at) for group, rows in new.items() if group in old
    }
    drivers = with_nobodys(unranked(_spent(old), _spent(new), priced), *unassigned)
    largest, rest = _divided(drivers, top)
    if rest:
        largest.append(together(rest, group=(OTHER,) * len(rest[0].group)))
    return Comparison(drivers=largest, total=together(drivers, group=()))


def _spent(groups: Mapping[Group, Sequence[Row]]) -> dict[Group, Spending]:
    return {group: _spending(rows) for group, rows in groups.items()}


def _spending(rows: Sequence[Row]) -> Spending:
    cost_rows = [row for _, _, row, _ in rows]
    return Spending(
        cost=sum([cost for _, _, _, cost in rows]),
        tokens=sum(map(billed_tokens, cost_rows)),
        calls=sum([row.calls for row in cost_rows]),
        unpriced=sum([row.unpriced for row in cost_rows]),
        estimated=sum(map(estimated, cost_rows)),
    )


def _has_calls(row: CostRow) -> bool:
    return bool(row.calls or row.input_tokens or row.output_tokens)


def _nobodys(rows: Sequence[CostRow], width: int) -> Mapping[Group, int]:
    """Return the money of rows without calls, by the first `width` values of their groups."""
    amounts: dict[Group, int] = {}
    for row in rows:
        if not _has_calls(row):
            group = row.group[:width]
            amounts[group] = amounts.get(group, 0) + money.units(row.cost)
    return amounts
