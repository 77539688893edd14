"""
Costs of plans in a month, limited to what a person may see. The operator API, the MCP tools and
recommendations use them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Annotated

import msgspec

from gateway.bills.contracts.paid import ContractCharges
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.bills import BillDifference, PlanBill, apply_bills_to_seat_months, read_bills
from gateway.bills.plans.coverage import SeatCoverageRule, split_seat_id, usable_plans
from gateway.bills.plans.declared import AssistantPlan, PlanTable
from gateway.bills.plans.fees import seat_dimension_values
from gateway.bills.plans.name_mismatches import seat_name_mismatch_sentences_by_plan
from gateway.bills.plans.seat_use import SeatUseReader
from gateway.bills.plans.sums import (
    NOTHING,
    PlanPeriodDays,
    SeatMonth,
    SeatUsage,
    SeatUse,
    billing_cycles,
    included_allowance,
    months_of_seats,
    usage_in_plan_unit,
)
from gateway.intake.prices import PriceBook
from spool import money
from spool.currencies import CurrencyConverter, find_no_rate
from spool.errors import Invalid
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.people import USER
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.registry import Registry
from spool.registry.views import SavedView
from spool.viewed_people import note_viewed_people


class PlanCostsQuery(msgspec.Struct, kw_only=True):
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-11")]
    start: Annotated[str, words("The start of the month."), example("2026-11-01T00:00:00.000Z")]
    end: Annotated[str, words("The end of the month."), example("2026-12-01T00:00:00.000Z")]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]
    row_count: Annotated[int, words("The number of all seats."), example(3)]
    truncated: Annotated[bool, words("Whether rows are missing because there are too many."), example(False)]


# The sums over all plans in the requested currency. Amounts without an exchange rate are in no sum. `paid` does not
# include `included_value`.
class PlanCostsTotal(msgspec.Struct, kw_only=True):
    paid: Annotated[
        str,
        words("The fees, the charges for extra usage, the metered cost and the amounts of contracts."),
        example("783.570585512634408602150537634"),
    ]
    fees: Annotated[str, words("The fees of the seats."), example("70.602150537634408602150537634")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    metered: Annotated[str, words("The cost of calls that no plan covers."), example("712.968434975")]
    contracts: Annotated[str, words("The amounts of contracts."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.4374607")
    ]
    unconverted: Annotated[
        dict[str, str], words("Amounts in currencies without a rate, by currency."), example({})
    ]
    included_unconverted: Annotated[
        dict[str, str], words("The value in currencies without a rate, by currency."), example({})
    ]


# A plan's costs in a month, as far as the person may see them. `beyond` is the usage above `included`.
class PlanCostsOfPlan(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the plan."), example("362e68d5e2a5ddc76e06b68b917371ba")]
    name: Annotated[str, words("The name of the plan."), example("Claude Team")]
    seats: Annotated[int, words("The number of seats."), example(2)]
    paid: Annotated[
        str, words("The fees plus the charges for extra usage."), example("43.602150537634408602150537634")
    ]
    fees: Annotated[str, words("The fees of the seats."), example("43.602150537634408602150537634")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.3954607")
    ]
    unit: Annotated[str, words("The unit of the included usage."), example("usd")]
    used: Annotated[str, words("The quantity of usage."), example("5.3954607")]
    included: Annotated[
        str | None,
        words(
            "The usage that the seats of the plan include together per billing cycle, in `unit`, or null "
            "if unlimited."
        ),
        example("80"),
    ]
    beyond: Annotated[str, words("The quantity of extra usage."), example("0")]
    source: Annotated[
        str, words("The origin of `paid`: `plan`, or `statement` for a provider's bill."), example("plan")
    ]
    unmet: Annotated[
        str | None,
        words(
            "A sentence if nobody with a seat made a call, but calls of the view have no "
            "seat. Null otherwise."
        ),
        example(None),
    ]


class SeatCosts(msgspec.Struct, kw_only=True):
    plan: Annotated[str, words("The name of the plan."), example("Claude Team")]
    user: Annotated[str, words("The person who has the seat."), example("ada")]
    team: Annotated[str | None, words("The team that pays for the seat, or null."), example("engineering")]
    since: Annotated[str, words("The first day of the seat."), example("2026-09-28")]
    until: Annotated[str | None, words("The first day without the seat, or null."), example(None)]
    paid: Annotated[
        str, words("The fees plus the charges for extra usage."), example("21.801075268817204301075268817")
    ]
    fees: Annotated[str, words("The fees of the seats."), example("21.801075268817204301075268817")]
    overage: Annotated[str, words("The charges for extra usage."), example("0")]
    included_value: Annotated[
        str, words("The value of the included usage at list prices."), example("5.3954607")
    ]
    unit: Annotated[str, words("The unit of the quantity."), example("usd")]
    used: Annotated[str, words("The quantity of usage."), example("5.3954607")]
    beyond: Annotated[str, words("The quantity of extra usage."), example("0")]
    calls: Annotated[int, words("The number of calls."), example(412)]
    unpriced_calls: Annotated[int, words("Calls that used something without a known price."), example(7)]
    also_in: Annotated[
        list[str], words("Other plans in which the person has a seat in the month."), example([])
    ]


# A seat that was held for a whole billing cycle that ended in the month, without any successful call.
class IdleSeatItem(msgspec.Struct, kw_only=True):
    plan: Annotated[str, words("The name of the plan."), example("Claude Team")]
    user: Annotated[str, words("The person who has the seat."), example("mara")]
    team: Annotated[str | None, words("The team that pays for the seat, or null."), example("engineering")]
    fee: Annotated[str, words("The fee of the seat from `first_day` to `last_day`."), example("25")]
    first_day: Annotated[str, words("The first day of the billing cycle without use."), example("2026-10-27")]
    last_day: Annotated[str, words("The last day of the billing cycle without use."), example("2026-11-26")]


class PlanDifference(msgspec.Struct, kw_only=True):
    """
    A difference between a provider's bill for a whole month and the calculated plan costs. The cause is
    `seat_count`, `fee_differs`, `included_differs` or `overage_differs`. Amounts are money; the seat fields
    count full months of seats.
    """

    provider: str
    cause: str
    billed: str
    counted: str
    difference: str
    billed_seats: str | None
    counted_seats: str | None


class PlanCosts(msgspec.Struct, kw_only=True):
    plan_costs: PlanCostsQuery
    total: PlanCostsTotal
    plans: list[PlanCostsOfPlan]
    idle_seats: Annotated[
        list[IdleSeatItem], words("Seats without calls in billing cycles that ended in the month.")
    ]
    differences: Annotated[list[PlanDifference], words("Empty for people with restricted access.")]
    rows: list[SeatCosts]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """
    A query for plan costs. `ledger` is the part of the totals that the person may see; `whole` has all totals.
    """

    ledger: SlicedLedger
    whole: Ledger
    registry: Registry
    month: CalendarMonth
    currency: str
    now: float
    limit: int
    # None leaves the amounts of contracts out, for callers that need only seats
    prices: Callable[[], PriceBook] | None = None


class SeatNames:
    """The names of the people who hold seats, as operators entered them, by seat id (`make_seat_id`)."""

    def __init__(self, registry: Registry) -> None:
        self._people = registry.people
        self._plans = {plan.id: plan for plan in registry.declared_table(PlanTable).all()}

    def user_of_seat(self, seat_id: str) -> str:
        plan_id, seat_index = split_seat_id(seat_id)
        return self._plans[plan_id].seats[seat_index].user

    def is_user_name_dropped(self, seat_id: str) -> bool:
        """
        Return whether records never contain the seat's user, because the name is dropped. The seat's usage is
        then unknown.
        """
        return self._people.is_left_out_of_new_records(self.user_of_seat(seat_id))


async def read_plan_costs(question: PlanQuestion) -> PlanCosts:
    """Return the costs of plans in a month, limited to what a person may see."""
    month, currency = question.month, question.currency
    note_viewed_people({}, (USER,))
    plans = usable_plans(question.registry, question.ledger.dimensions())
    # read names and plans at the same time, because a seat's mark is its position in its plan
    names = SeatNames(question.registry)
    coverage = SeatCoverageRule(plans, question.ledger, question.registry.people)
    days = PlanPeriodDays(
        days=month.days,
        begun=sum(day <= question.now for day in month.days),
        converter=CurrencyConverter(question.whole.rates or find_no_rate, currency),
    )
    known = [plan for plan, _ in plans]
    reader = SeatUseReader(coverage=coverage, plans=known, month=month, currency=currency)
    shown = used = await reader.read_uses(question.ledger)
    if not question.ledger.is_whole:
        used = await reader.read_uses(question.whole)
    billers = [plan.billed_by for plan in known]
    unmet = await seat_name_mismatch_sentences_by_plan(
        question.ledger, coverage, plans, used, month, question.registry.people
    )
    inputs = _PlanCostInputs(
        plans=known,
        unmet=unmet,
        views={plan.id: view for plan, view in plans},
        month=month,
        days=days,
        now=question.now,
        ledger=question.ledger,
        limit=question.limit,
        bills=await read_bills(question.registry.statements, billers, month, days),
        names=names,
        contract_rows=await _contract_rows(question),
    )
    return await asyncio.to_thread(_build_plan_costs, inputs, used, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanCostInputs:
    """The inputs for the costs of plans, except usage."""

    plans: Sequence[AssistantPlan]
    unmet: Mapping[str, str]  # plan id -> why no cost is known
    views: Mapping[str, SavedView]  # plan id -> the view with the calls that the plan covers
    month: CalendarMonth
    days: PlanPeriodDays
    now: float
    ledger: SlicedLedger
    limit: int
    bills: Mapping[str, PlanBill]
    names: SeatNames
    contract_rows: Sequence[CostRow]


async def _contract_rows(question: PlanQuestion) -> Sequence[CostRow]:
    """Return the amounts of contracts in the month, as reports of paid cost add them."""
    if question.prices is None:
        return []
    since, until = (datetime.fromtimestamp(edge, UTC) for edge in (question.month.start, question.month.end))
    charges = ContractCharges(
        ledger=question.ledger,
        whole=question.whole,
        registry=question.registry,
        prices=question.prices,
        now=question.now,
    )
    query = CostQuery(since=since, until=until, granularity=TOTAL, currency=question.currency)
    return await charges.charge_rows(query)


def _build_plan_costs(inputs: _PlanCostInputs, seat_usage: SeatUsage, shown_usage: SeatUsage) -> PlanCosts:
    """
    Build the costs of plans. `shown_usage` is the part of `seat_usage` that the person sees. This is slow with
    thousands of seats, so call it in a thread.
    """
    month, limit = inputs.month, inputs.limit
    by_plans = list(
        chain.from_iterable(months_of_seats(plan, inputs.days, seat_usage) for plan in inputs.plans)
    )
    months, differing, billed = apply_bills_to_seat_months(by_plans, inputs.bills)
    seen = _visible_seat_months(months, inputs)
    return PlanCosts(
        plan_costs=PlanCostsQuery(
            month=month.name,
            start=utc_iso(month.start) or "",
            end=utc_iso(month.end) or "",
            currency=inputs.days.converter.currency,
            row_count=len(seen),
            truncated=len(seen) > limit,
        ),
        total=_total_of_visible_seats(months, seen, shown_usage, inputs.contract_rows),
        plans=list(_plan_rows(seen, shown_usage, billed, inputs.unmet)),
        idle_seats=_idle_seats(inputs, seat_usage)[:limit],
        differences=list(map(_difference_fields, differing)) if inputs.ledger.is_whole else [],
        rows=_seat_rows(seen, shown_usage, limit, inputs.names),
    )


def _visible_seat_months(months: Iterable[SeatMonth], inputs: _PlanCostInputs) -> list[SeatMonth]:
    return [month for month in months if inputs.ledger.has_call(partial(_seat_dimension, month, inputs))]


def _seat_dimension(month: SeatMonth, inputs: _PlanCostInputs, name: str) -> str:
    view = inputs.views[month.plan.id]
    return seat_dimension_values(month.plan, view, month.seat, month.seat.user).get(name, "")


def _shown_use_of_seat(month: SeatMonth, shown_usage: SeatUsage) -> SeatUse:
    return shown_usage.use_between(month.mark, month.start, month.end)


def _usage_value_included_in_fees(months: Iterable[SeatMonth], shown_usage: SeatUsage) -> str:
    values = [
        seat_month.value_included_in_fee(_shown_use_of_seat(seat_month, shown_usage).worth)
        for seat_month in months
    ]
    return money.units_to_text(sum(values))


def _total_of_visible_seats(
    all_seat_months: Sequence[SeatMonth],
    visible_seat_months: Sequence[SeatMonth],
    shown_usage: SeatUsage,
    contract_rows: Sequence[CostRow],
) -> PlanCostsTotal:
    """
    Sum the seats that the person sees. The value of visible calls counts even if their seat is not visible.
    """
    fees = sum(seat_month.fee for seat_month in visible_seat_months)
    overage = sum(seat_month.overage for seat_month in visible_seat_months)
    contracts = sum(money.text_to_units(row.cost) for row in contract_rows)
    lacking = (
        {currency: money.text_to_units(text) for currency, text in row.unconverted.items()}
        for row in contract_rows
    )
    return PlanCostsTotal(
        paid=money.units_to_text(fees + overage + shown_usage.metered + contracts),
        fees=money.units_to_text(fees),
        overage=money.units_to_text(overage),
        metered=money.units_to_text(shown_usage.metered),
        contracts=money.units_to_text(contracts),
        included_value=_usage_value_included_in_fees(all_seat_months, shown_usage),
        unconverted=_sum_by_currency(
            [shown_usage.unpaid, *(seat_month.lacking for seat_month in visible_seat_months), *lacking]
        ),
        included_unconverted=_sum_by_currency([shown_usage.unvalued]),
    )


def _sum_by_currency(amounts: Iterable[Mapping[str, int]]) -> dict[str, str]:
    together: Counter[str] = Counter()
    for counts in amounts:
        together.update(counts)
    return {currency: money.units_to_text(units) for currency, units in sorted(together.items()) if units}


def _difference_fields(bill_difference: BillDifference) -> PlanDifference:
    return PlanDifference(
        provider=bill_difference.provider,
        cause=bill_difference.cause,
        billed=money.units_to_text(bill_difference.billed),
        counted=money.units_to_text(bill_difference.counted),
        difference=money.units_to_text(bill_difference.billed - bill_difference.counted),
        billed_seats=_format_seat_count(bill_difference.billed_seats),
        counted_seats=_format_seat_count(bill_difference.counted_seats),
    )


def _format_seat_count(count: Fraction | None) -> str | None:
    return None if count is None else f"{float(count):.4f}".rstrip("0").rstrip(".")


def _plan_rows(
    visible_seat_months: Sequence[SeatMonth],
    shown_usage: SeatUsage,
    billed_plan_ids: Collection[str],
    reason_without_cost_by_plan: Mapping[str, str],
) -> Iterator[PlanCostsOfPlan]:
    by_plan: dict[str, list[SeatMonth]] = defaultdict(list)
    for seat_month in visible_seat_months:
        by_plan[seat_month.plan.id].append(seat_month)
    for months in by_plan.values():
        plan = months[0].plan
        fees = sum(seat_month.fee for seat_month in months)
        overage = sum(seat_month.overage for seat_month in months)
        included = included_allowance(plan, [seat_month.seat for seat_month in months])
        used = [
            usage_in_plan_unit(plan, _shown_use_of_seat(seat_month, shown_usage)) for seat_month in months
        ]
        yield PlanCostsOfPlan(
            id=plan.id,
            name=plan.name,
            seats=len(months),
            paid=money.units_to_text(fees + overage),
            fees=money.units_to_text(fees),
            overage=money.units_to_text(overage),
            included_value=_usage_value_included_in_fees(months, shown_usage),
            unit=plan.unit,
            used=money.units_to_text(sum(used)),
            included=None if included is None else money.units_to_text(included),
            beyond=money.units_to_text(sum(seat_month.beyond for seat_month in months)),
            source="statement" if plan.id in billed_plan_ids else "plan",
            unmet=reason_without_cost_by_plan.get(plan.id),
        )


def _idle_seats(inputs: _PlanCostInputs, seat_usage: SeatUsage) -> list[IdleSeatItem]:
    """
    Return seats that were held for a whole cycle that ended in the month, without any call, highest fee first.

    If a pool has overage, its idle seats are not listed, because other seats used their allowance.
    """
    idle_seats: list[tuple[int, IdleSeatItem]] = []
    for plan in inputs.plans:
        for days in _ended_cycles(plan, inputs):
            months = months_of_seats(plan, days, seat_usage)
            if plan.is_pooled and any(seat_month.beyond for seat_month in months):
                continue
            idle = (
                seat_month
                for seat_month in _visible_seat_months(months, inputs)
                if _is_idle(seat_month, inputs)
            )
            idle_seats += [
                (seat_month.fee, _idle_seat(seat_month, days, inputs.names)) for seat_month in idle
            ]
    idle_seats.sort(key=lambda item: -item[0])
    return [seat for _, seat in idle_seats]


def _ended_cycles(plan: AssistantPlan, inputs: _PlanCostInputs) -> Iterator[PlanPeriodDays]:
    last = min(inputs.month.end, inputs.now)
    for cycle in billing_cycles(plan.cycle_day, inputs.month.start, inputs.month.end):
        if cycle.end <= last:
            yield PlanPeriodDays(days=cycle.days, begun=len(cycle.days), converter=inputs.days.converter)


def _is_idle(month: SeatMonth, inputs: _PlanCostInputs) -> bool:
    is_whole = month.held_days == month.days and not month.lacking
    return (
        is_whole
        and month.use == NOTHING
        and month.fee > 0
        and not inputs.names.is_user_name_dropped(month.mark)
    )


def _idle_seat(month: SeatMonth, period_days: PlanPeriodDays, names: SeatNames) -> IdleSeatItem:
    return IdleSeatItem(
        plan=month.plan.name,
        user=names.user_of_seat(month.mark),
        team=month.seat.team or None,
        fee=money.units_to_text(month.fee),
        first_day=period_days.texts[0],
        last_day=period_days.texts[-1],
    )


def _seat_rows(
    visible_seat_months: Sequence[SeatMonth], shown_usage: SeatUsage, limit: int, names: SeatNames
) -> list[SeatCosts]:
    plans: dict[str, set[str]] = defaultdict(set)
    for seat_month in visible_seat_months:
        plans[seat_month.seat.user.casefold()].add(seat_month.plan.name)
    rows = []
    for seat_month in visible_seat_months[:limit]:
        other_plans = plans[seat_month.seat.user.casefold()] - {seat_month.plan.name}
        rows.append(
            _seat_row(
                seat_month,
                _shown_use_of_seat(seat_month, shown_usage),
                shown_usage,
                other_plans,
                names.user_of_seat(seat_month.mark),
            )
        )
    return rows


def _seat_row(
    month: SeatMonth, use: SeatUse, shown_usage: SeatUsage, other_plans: Collection[str], user: str
) -> SeatCosts:
    plan, seat = month.plan, month.seat
    return SeatCosts(
        plan=plan.name,
        user=user,
        team=seat.team or None,
        since=seat.since,
        until=seat.until or None,
        paid=money.units_to_text(month.fee + month.overage),
        fees=money.units_to_text(month.fee),
        overage=money.units_to_text(month.overage),
        included_value=_usage_value_included_in_fees([month], shown_usage),
        unit=plan.unit,
        used=money.units_to_text(usage_in_plan_unit(plan, use)),
        beyond=money.units_to_text(month.beyond),
        calls=use.calls,
        unpriced_calls=use.unpriced,
        also_in=sorted(other_plans),
    )


def parse_month(month_name: str | None, now: float) -> CalendarMonth:
    if month_name is None:
        return CalendarMonth.at(now)
    try:
        return CalendarMonth.of(month_name)
    except (ValueError, OverflowError):
        raise Invalid("month must be written as a year and a month, such as 2026-10") from None
