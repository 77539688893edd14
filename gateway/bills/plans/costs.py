"""
What plans of assistants came to in a month, as somebody may see it: the answer of the operator API, of
tools and of recommendations.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Annotated

import msgspec

from gateway.bills.plans.bills import BillDifference, PlanBill, read_bills, with_bills
from gateway.bills.plans.coverage import NAME, AskedLedger, Coverage, place_of, usable_plans
from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from gateway.bills.plans.sums import (
    NOTHING,
    AskedDays,
    SeatMonth,
    SeatUse,
    Uses,
    allowance,
    cycles,
    month_of_plan,
    used_of,
)
from gateway.bills.reconciliation.gathering import CalendarMonth
from gateway.http.resources.declaration import words
from spool.currencies import Converter, no_rates
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TOTAL, CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.record import CURRENCY, moment
from spool.registry.registry import Registry

_MEASURES = ("cost", "estimated", "errors", "cached", "unpriced")


class PlanMonth(msgspec.Struct, kw_only=True):
    month: str
    start: Annotated[str, words("The first moment of the month, in UTC.")]
    end: str
    currency: str
    row_count: int
    truncated: bool


class PlanTotal(msgspec.Struct, kw_only=True):
    """
    Money in the currency that was asked for. `paid` is fees, overage and metered; `included_value` is no part of it.
    What no rate is known for is in no sum: it is named by its currency.
    """

    paid: str
    fees: str
    overage: str
    metered: Annotated[str, words("What calls cost that no plan covers.")]
    included_value: Annotated[str, words("What covered calls are worth at list prices, less those beyond.")]
    unconverted: Annotated[dict[str, str], words("What `paid` lacks.")]
    included_unconverted: Annotated[dict[str, str], words("What `included_value` lacks.")]


class PlanOfMonth(msgspec.Struct, kw_only=True):
    """A plan in a month, or the part of it that the person sees; quantities are in its unit."""

    id: str
    name: str
    seats: int
    paid: str
    fees: str
    overage: str
    included_value: str
    unit: str
    used: str
    included: Annotated[str | None, words("Null: everything.")]
    beyond: str
    source: Annotated[str, words("What `paid` is by: `plan`, or a `statement` of the whole month.")]


class SeatOfMonth(msgspec.Struct, kw_only=True):
    plan: str
    user: str
    team: str | None
    since: str
    until: str | None
    paid: str
    fees: str
    overage: str
    included_value: str
    unit: str
    used: str
    beyond: str
    calls: int
    unpriced_calls: int
    also_in: Annotated[list[str], words("The other plans in which the user has a seat in the month.")]


class IdleSeat(msgspec.Struct, kw_only=True):
    """A seat that was held on all days of a billing cycle that ended in the month, and had no call that worked."""

    plan: str
    user: str
    team: str | None
    fee: Annotated[str, words("The fee of the cycle, which giving the seat back would save.")]
    first_day: str
    last_day: str


class PlanDifference(msgspec.Struct, kw_only=True):
    """
    What a statement of a whole month tells beside what plans come to by themselves: `seat_count`, `fee_differs`,
    `included_differs` or `overage_differs`. Money but for `seats`, which are those of a whole month.
    """

    provider: str
    cause: str
    billed: str
    counted: str
    difference: str
    billed_seats: str | None
    counted_seats: str | None


class PlanCosts(msgspec.Struct, kw_only=True):
    plan_costs: PlanMonth
    total: PlanTotal
    plans: list[PlanOfMonth]
    idle_seats: Annotated[
        list[IdleSeat], words("Those of the cycles that end in the month, once they are over.")
    ]
    differences: Annotated[list[PlanDifference], words("None for who may see some calls alone.")]
    rows: list[SeatOfMonth]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What is asked of plans; `ledger` is what the person may see of the `whole` one."""

    ledger: SlicedLedger
    whole: Ledger
    registry: Registry
    month: CalendarMonth
    currency: str
    now: float
    most: int


class SeatNames:
    """The people of seats as somebody stated them, by the marks of the seats."""

    def __init__(self, registry: Registry) -> None:
        self._people = registry.people
        self._plans = {plan.id: plan for plan in registry.table(PlanTable).all()}

    def of(self, mark: str) -> str:
        plan_id, place = place_of(mark)
        return self._plans[plan_id].seats[place].user

    def is_dropped(self, mark: str) -> bool:
        """True if no record names the person of a seat, so nothing is known of how it was used."""
        return self._people.is_dropped(self.of(mark))


async def asked_costs(asking: PlanQuestion) -> PlanCosts:
    """Return what plans came to in a month, as a person may see it."""
    month, currency = asking.month, asking.currency
    plans = usable_plans(asking.registry, asking.ledger.dimensions())
    names = SeatNames(asking.registry)  # at the same moment: seats are found by their places
    coverage = Coverage(plans, asking.ledger.derived(), asking.registry.people)
    days = AskedDays(
        days=month.days,
        begun=sum(day <= asking.now for day in month.days),
        converter=Converter(asking.whole.rates or no_rates, currency),
    )
    known = [plan for plan, _ in plans]
    reader = _UseReader(coverage=coverage, plans=known, month=month, currency=currency)
    shown = used = await reader.read(asking.ledger)
    if not asking.ledger.is_whole:
        used = await reader.read(asking.whole)
    billers = [plan.billed_by for plan in known]
    asked = _Asked(
        plans=known,
        month=month,
        days=days,
        now=asking.now,
        ledger=asking.ledger,
        most=asking.most,
        bills=await read_bills(asking.registry.statements, billers, month, days),
        names=names,
    )
    return await asyncio.to_thread(_answer, asked, used, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UseReader:
    """
    Reads what seats used in a month and since their billing cycles began, as the ledger has it with all
    corrections, and what no plan covers.
    """

    coverage: Coverage
    plans: Sequence[AssistantPlan]
    month: CalendarMonth
    currency: str

    async def read(self, ledger: AskedLedger) -> Uses:
        in_dollars = await self._rows(ledger, CURRENCY)
        in_currency = in_dollars
        if self.currency != CURRENCY:
            in_currency = await self._rows(ledger, self.currency)
        return await asyncio.to_thread(self._added_up, in_dollars, in_currency)

    async def _rows(self, ledger: AskedLedger, currency: str) -> Sequence[Sequence[CostRow]]:
        queries = await asyncio.to_thread(self._queries, currency)  # thousands of seats take a while
        return await ledger.costs_of(queries)

    def _queries(self, currency: str) -> list[CostQuery]:
        return [
            CostQuery(
                since=datetime.fromtimestamp(start, UTC),
                until=datetime.fromtimestamp(end, UTC),
                granularity=TOTAL,
                group_by=(NAME, "provider", "model"),
                measures=_MEASURES,
                currency=currency,
                derived={NAME: self.coverage.dimension(start)},
            )
            for start, end in self.coverage.spans(self._edges())
        ]

    def _edges(self) -> list[int]:
        """Return where a cycle or the month begins, and the end of the month."""
        edges = {self.month.start, self.month.end}
        for day in {plan.cycle_day for plan in self.plans}:
            edges.update(each.start for each in cycles(day, self.month.start, self.month.end))
        return sorted(edges)

    def _added_up(
        self, in_dollars: Sequence[Sequence[CostRow]], in_currency: Sequence[Sequence[CostRow]]
    ) -> Uses:
        uses = Uses()
        for row in chain.from_iterable(in_dollars):
            if mark := row.group[0]:
                calls = row.calls - row.errors - row.cached
                use = SeatUse(value=_list_value(row), calls=calls, unpriced=row.unpriced)
                uses.put(mark, int(row.start.timestamp()), use)
        for row in chain.from_iterable(in_currency):
            at = int(row.start.timestamp())
            if mark := row.group[0]:
                uses.put(mark, at, SeatUse(worth=_list_value(row)))
            if at >= self.month.start:
                _add_money(uses, row)
        return uses


def _list_value(row: CostRow) -> int:
    """
    Return the value at list prices. Of a model without a list price it is what the source reported,
    which is a list price if the model is paid by subscription.
    """
    return money.units(row.estimated) or money.units(row.cost)


def _add_money(uses: Uses, row: CostRow) -> None:
    """Add what calls cost that no plan covers, and the amounts that lack a rate."""
    mark = row.group[0]
    if not mark:
        uses.metered += money.units(row.cost)
    elif money.units(row.estimated):
        return  # its value is known, whatever its source charged
    lacking = uses.unvalued if mark else uses.unpaid
    for currency, amount in row.unconverted.items():
        lacking[currency] += money.units(amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What an answer is made of, apart from what was used."""

    plans: Sequence[AssistantPlan]
    month: CalendarMonth
    days: AskedDays
    now: float
    ledger: SlicedLedger
    most: int
    bills: Mapping[str, PlanBill]
    names: SeatNames


def _answer(asked: _Asked, used: Uses, shown: Uses) -> PlanCosts:
    """Thousands of seats take a while: not for the event loop. `shown` is the part of `used` that the person sees."""
    month, most = asked.month, asked.most
    by_plans = list(chain.from_iterable(month_of_plan(plan, asked.days, used) for plan in asked.plans))
    months, apart, billed = with_bills(by_plans, asked.bills)
    seen = _seen(months, asked)
    return PlanCosts(
        plan_costs=PlanMonth(
            month=month.name,
            start=moment(month.start) or "",
            end=moment(month.end) or "",
            currency=asked.days.converter.currency,
            row_count=len(seen),
            truncated=len(seen) > most,
        ),
        total=_total(months, seen, shown),
        plans=list(_plans(seen, shown, billed)),
        idle_seats=_idle_seats(asked, used)[:most],
        differences=list(map(_difference, apart)) if asked.ledger.is_whole else [],
        rows=_rows(seen, shown, most, asked.names),
    )


def _seen(months: Iterable[SeatMonth], asked: _Asked) -> list[SeatMonth]:
    return [each for each in months if asked.ledger.holds(partial(_value_of, each.seat))]


def _value_of(seat: Seat, name: str) -> str:
    """A fee is like a call of which the user and the team are known, and nothing else."""
    if name == "user":
        return seat.user
    return seat.team if name == "team" else ""


def _use(month: SeatMonth, shown: Uses) -> SeatUse:
    """Return the calls of a seat that the person sees."""
    return shown.of(month.mark, month.start, month.end)


def _included(months: Iterable[SeatMonth], shown: Uses) -> str:
    values = [each.included_of(_use(each, shown).worth) for each in months]
    return money.text(sum(values))


def _total(months: Sequence[SeatMonth], seen: Sequence[SeatMonth], shown: Uses) -> PlanTotal:
    """Also the value of calls that are seen, of seats that are not."""
    fees = sum(each.fee for each in seen)
    overage = sum(each.overage for each in seen)
    return PlanTotal(
        paid=money.text(fees + overage + shown.metered),
        fees=money.text(fees),
        overage=money.text(overage),
        metered=money.text(shown.metered),
        included_value=_included(months, shown),
        unconverted=_texts([shown.unpaid, *(each.lacking for each in seen)]),
        included_unconverted=_texts([shown.unvalued]),
    )


def _texts(amounts: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """Return amounts by currency, added up."""
    together: Counter[str] = Counter()
    for each in amounts:
        together.update(each)
    return {currency: money.text(units) for currency, units in sorted(together.items()) if units}


def _difference(each: BillDifference) -> PlanDifference:
    return PlanDifference(
        provider=each.provider,
        cause=each.cause,
        billed=money.text(each.billed),
        counted=money.text(each.counted),
        difference=money.text(each.billed - each.counted),
        billed_seats=_seats(each.billed_seats),
        counted_seats=_seats(each.counted_seats),
    )


def _seats(count: Fraction | None) -> str | None:
    """Return seats with four decimals at most, for people."""
    return None if count is None else f"{float(count):.4f}".rstrip("0").rstrip(".")


def _plans(seen: Sequence[SeatMonth], shown: Uses, billed: Collection[str]) -> Iterator[PlanOfMonth]:
    by_plan: dict[str, list[SeatMonth]] = defaultdict(list)
    for each in seen:
        by_plan[each.plan.id].append(each)
    for months in by_plan.values():
        plan = months[0].plan
        fees = sum(each.fee for each in months)
        overage = sum(each.overage for each in months)
        included = allowance(plan, [each.seat for each in months])
        used = [used_of(plan, _use(each, shown)) for each in months]
        yield PlanOfMonth(
            id=plan.id,
            name=plan.name,
            seats=len(months),
            paid=money.text(fees + overage),
            fees=money.text(fees),
            overage=money.text(overage),
            included_value=_included(months, shown),
            unit=plan.unit,
            used=money.text(sum(used)),
            included=None if included is None else money.text(included),
            beyond=money.text(sum(each.beyond for each in months)),
            source="statement" if plan.id in billed else "plan",
        )


def _idle_seats(asked: _Asked, used: Uses) -> list[IdleSeat]:
    """
    Return the seats that were held on all days of a cycle that ended in the month, and had no call. Those
    with the highest fee come first.

    A seat of a pool that went beyond is left out, because others used what this seat includes.
    """
    found: list[tuple[int, IdleSeat]] = []
    for plan in asked.plans:
        for days in _ended_cycles(plan, asked):
            months = month_of_plan(plan, days, used)
            if plan.is_pooled and any(each.beyond for each in months):
                continue
            idle = (each for each in _seen(months, asked) if _is_idle(each, asked))
            found += [(each.fee, _idle_seat(each, days, asked.names)) for each in idle]
    found.sort(key=lambda each: -each[0])
    return [seat for _, seat in found]


def _ended_cycles(plan: AssistantPlan, asked: _Asked) -> Iterator[AskedDays]:
    last = min(asked.month.end, asked.now)
    for cycle in cycles(plan.cycle_day, asked.month.start, asked.month.end):
        if cycle.end <= last:
            yield AskedDays(days=cycle.days, begun=len(cycle.days), converter=asked.days.converter)


def _is_idle(month: SeatMonth, asked: _Asked) -> bool:
    is_whole = month.held_days == month.days and not month.lacking
    return is_whole and month.use == NOTHING and month.fee > 0 and not asked.names.is_dropped(month.mark)


def _idle_seat(month: SeatMonth, days: AskedDays, names: SeatNames) -> IdleSeat:
    return IdleSeat(
        plan=month.plan.name,
        user=names.of(month.mark),
        team=month.seat.team or None,
        fee=money.text(month.fee),
        first_day=days.texts[0],
        last_day=days.texts[-1],
    )


def _rows(seen: Sequence[SeatMonth], shown: Uses, most: int, names: SeatNames) -> list[SeatOfMonth]:
    plans: dict[str, set[str]] = defaultdict(set)
    for each in seen:
        plans[each.seat.user.casefold()].add(each.plan.name)
    rows = []
    for each in seen[:most]:
        others = plans[each.seat.user.casefold()] - {each.plan.name}
        rows.append(_row(each, _use(each, shown), shown, others, names.of(each.mark)))
    return rows


def _row(month: SeatMonth, use: SeatUse, shown: Uses, others: Collection[str], user: str) -> SeatOfMonth:
    plan, seat = month.plan, month.seat
    return SeatOfMonth(
        plan=plan.name,
        user=user,
        team=seat.team or None,
        since=seat.since,
        until=seat.until or None,
        paid=money.text(month.fee + month.overage),
        fees=money.text(month.fee),
        overage=money.text(month.overage),
        included_value=_included([month], shown),
        unit=plan.unit,
        used=money.text(used_of(plan, use)),
        beyond=money.text(month.beyond),
        calls=use.calls,
        unpriced_calls=use.unpriced,
        also_in=sorted(others),
    )


def month_of(given: str | None, now: float) -> CalendarMonth:
    if given is None:
        return CalendarMonth.at(now)
    try:
        return CalendarMonth.of(given)
    except (ValueError, OverflowError):
        raise Invalid("month must be written as a year and a month, such as 2026-10") from None
