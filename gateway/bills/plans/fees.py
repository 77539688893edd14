"""
Seat fees and overage as rows of a cost query, so that they add up with the calls that no plan covers.

A day's amounts count at midnight of that date in the query's time zone, once the day has begun in UTC.
Amounts are rounded per seat and day, so all groupings and granularities have the same sum.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.contracts.paid import ContractCharges
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.charge_rows import (
    DayAmount,
    PeriodDayRange,
    PeriodPlace,
    PeriodSum,
    begun_days_in_query,
    calendar_months,
    check_query_limits,
    day_ranges_by_period,
    group_if_included,
    running_sums,
    sums_to_rows,
    value_or_empty,
)
from gateway.bills.plans.coverage import (
    LedgerLimitedByCoverage,
    SeatCoverageRule,
    is_seat_held,
    make_seat_id,
    usable_plans,
)
from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from gateway.bills.plans.seat_use import SeatUseReader
from gateway.bills.plans.sums import PlanPeriodDays, SeatMonth, SeatUsage, fees_by_day, months_of_seats
from gateway.intake.prices import PriceBook
from spool import money
from spool.currencies import CurrencyConverter, find_no_rate
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import CHARGE, OVERAGE, PAID_COST, PLAN, SEAT_FEE, Group
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.people import People
from spool.record import CURRENCY
from spool.registry.documents import replace_fields
from spool.registry.registry import Registry
from spool.registry.views import SavedView
from spool.statements import parse_day


def seat_dimension_values(plan: AssistantPlan, view: SavedView, seat: Seat, user: str) -> dict[str, str]:
    """
    Return the dimension values of a seat's charges: its user and team, the provider that bills the plan, and
    each dimension for which the plan's view includes only one value.
    """
    only = {name: values[0] for name, values in view.include.items() if len(values) == 1}
    known = {"provider": plan.billed_by} if plan.billed_by else {}
    known |= only | {"user": user, PLAN: plan.name}
    return known | {"team": seat.team} if seat.team else known


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatFees:
    """
    Adds the fees and overage of seats to a cost query. `ledger` decides which seats a person sees. Overage is
    computed from all calls (`whole`), because the seats of a pool share their included usage.

    `names` maps seat ids to users as records name them.
    """

    plans: Sequence[tuple[AssistantPlan, SavedView]]
    names: Mapping[str, str]
    coverage: SeatCoverageRule
    people: People
    ledger: SlicedLedger
    whole: Ledger
    now: float

    async def charge_rows(self, query: CostQuery) -> Sequence[CostRow]:
        days = self._charged_days(query)
        if not days:
            return []
        with_overage = [plan for plan, _ in self.plans if _has_overage(plan)]
        uses: dict[CalendarMonth, SeatUsage] = {}
        for month in calendar_months(days) if with_overage else ():
            reader = SeatUseReader(coverage=self.coverage, plans=with_overage, month=month, currency=CURRENCY)
            uses[month] = await reader.read_uses(self.whole)
        users = await self.whole.values("user")
        return await asyncio.to_thread(self._fee_rows, query, days, uses, users)

    def _charged_days(self, query: CostQuery) -> range:
        firsts = [parse_day(seat.since) for plan, _ in self.plans for seat in plan.seats]
        return begun_days_in_query(query, min(firsts), self.now) if firsts else range(0)

    def _fee_rows(
        self, query: CostQuery, days: range, uses: Mapping[CalendarMonth, SeatUsage], users: Sequence[str]
    ) -> list[CostRow]:
        derived = {
            **{dimension.name: dimension for dimension in self.ledger.derived_dimensions()},
            **query.derived,
        }
        spelled = {self.people.person_identity(user): user for user in users} | {user: user for user in users}
        starts = [start for start, _ in periods_of_query(query)]
        runs = day_ranges_by_period(days, query.zone, [start.timestamp() for start in starts])
        sums: dict[PeriodPlace, PeriodSum] = defaultdict(PeriodSum)
        for plan, view in self.plans:
            asked_days = PlanPeriodDays(
                days=days, begun=len(days), converter=self._currency_converter(query.currency)
            )
            fees = running_sums(_convert_by_day(fees_by_day(plan, asked_days), plan, asked_days))
            overages = (
                self._running_overage_by_seat(plan, days, uses, query.currency) if _has_overage(plan) else {}
            )
            # number of seats whose group and fees are equal
            counts: Counter[tuple[Group, int, int]] = Counter()
            for seat_index, seat in enumerate(plan.seats):
                mark = make_seat_id(plan, seat_index)
                name = self.names[mark]
                user = (
                    spelled.get(name)
                    or spelled.get(self.people.person_identity(name))
                    or self.people.shown_name(name)
                )
                values = seat_dimension_values(plan, view, seat, user)
                if not self.ledger.has_call(partial(value_or_empty, values)):
                    continue
                fee_group = group_if_included(query, derived, {**values, CHARGE: SEAT_FEE})
                held = _held_day_indexes(seat, asked_days.texts)
                if fee_group is not None and held:
                    counts[fee_group, held.start, held.stop] += 1
                if mark not in overages:
                    continue
                group = group_if_included(query, derived, {**values, CHARGE: OVERAGE})
                if group is not None:
                    _add_seat_amounts_to_periods(
                        sums, runs, range(len(days)), group, overages[mark], plan, query.currency, 1
                    )
                    check_query_limits(sums)
            for (group, first, end), count in counts.items():
                _add_seat_amounts_to_periods(
                    sums, runs, range(first, end), group, fees, plan, query.currency, count
                )
                check_query_limits(sums)
        return sums_to_rows(sums, starts)

    def _running_overage_by_seat(
        self, plan: AssistantPlan, days: range, uses: Mapping[CalendarMonth, SeatUsage], currency: str
    ) -> Mapping[str, Sequence[DayAmount]]:
        """
        Return running sums of overage by seat id. The overage of a month is divided evenly over the days that
        have begun and on which the seat is held.
        """
        found: dict[str, dict[int, DayAmount]] = defaultdict(dict)
        for month, used in uses.items():
            asked_days = PlanPeriodDays(
                days=month.days,
                begun=sum(day <= self.now for day in month.days),
                converter=self._currency_converter(plan.currency),
            )
            for seat_month in months_of_seats(replace_fields(plan, fee="0"), asked_days, used):
                if seat_month.overage:
                    found[seat_month.mark].update(
                        self._spread_overage_over_held_days(seat_month, asked_days, currency)
                    )
        nothing = DayAmount()
        return {
            mark: running_sums([by_day.get(day, nothing) for day in days]) for mark, by_day in found.items()
        }

    def _spread_overage_over_held_days(
        self, month: SeatMonth, period_days: PlanPeriodDays, currency: str
    ) -> Iterator[tuple[int, DayAmount]]:
        begun = range(max(1, period_days.begun))
        held = [
            period_days.days[index] for index in begun if is_seat_held(month.seat, period_days.texts[index])
        ]
        # the seat may begin later and still have use, because a sender's clock may be ahead; then use the
        # last begun day
        held = held or [period_days.days[begun[-1]]]
        lacking: Counter[str] = Counter()
        converter = self._currency_converter(currency)
        in_currency = PlanPeriodDays(days=period_days.days, begun=period_days.begun, converter=converter)
        cost = in_currency.sum_converted_and_collect_unconverted(
            {period_days.days[begun[-1]]: month.overage}, month.plan.currency, lacking
        )
        even = [1] * len(held)
        amounts = (month.overage, cost, lacking[month.plan.currency])
        parts = zip(*(divide_in_sequence(amount, even) for amount in amounts), strict=True)
        for day, part in zip(held, parts, strict=True):
            yield day, DayAmount(*part)

    def _currency_converter(self, currency: str) -> CurrencyConverter:
        return CurrencyConverter(self.whole.rates or find_no_rate, currency)


def _has_overage(plan: AssistantPlan) -> bool:
    return bool(plan.included and money.text_to_units(plan.overage_price or "0"))


def _add_seat_amounts_to_periods(
    sums: Mapping[PeriodPlace, PeriodSum],
    period_ranges: Sequence[PeriodDayRange],
    day_indexes: range,
    group: Group,
    cumulative_amounts: Sequence[DayAmount],
    plan: AssistantPlan,
    currency: str,
    seat_count: int,
) -> None:
    for run in period_ranges:
        first, end = max(run.first, day_indexes.start), min(run.end, day_indexes.stop)
        if first < end:
            parts = zip(cumulative_amounts[first], cumulative_amounts[end], strict=True)
            amount = DayAmount(*(seat_count * (through - before) for before, through in parts))
            sums[run.period, group].add_amount(amount, plan.currency, currency)


def _convert_by_day(
    amounts: Mapping[int, int], plan: AssistantPlan, period_days: PlanPeriodDays
) -> Iterator[DayAmount]:
    for day in period_days.days:
        lacking: Counter[str] = Counter()
        cost = period_days.sum_converted_and_collect_unconverted({day: amounts[day]}, plan.currency, lacking)
        yield DayAmount(amounts[day], cost, lacking[plan.currency])


def _held_day_indexes(seat: Seat, days: Sequence[str]) -> range:
    return range(bisect_left(days, seat.since), bisect_left(days, seat.until) if seat.until else len(days))


def ledger_divided_by_plans(
    ledger: SlicedLedger,
    whole: Ledger,
    registry: Registry,
    cost_type: str,
    now: float,
    *,
    prices: Callable[[], PriceBook],
) -> LedgerLimitedByCoverage:
    """
    Return the ledger, limited to the calls that today's plans cover, or to all other calls. With PAID_COST,
    contract amounts are added, and fees and overage of the seats that `ledger` shows.
    """
    plans = usable_plans(registry, ledger.dimensions())
    coverage = SeatCoverageRule(plans, ledger, registry.people)
    if cost_type != PAID_COST:
        return LedgerLimitedByCoverage(ledger, coverage, cost_type)
    fees = SeatFees(
        plans=plans,
        names=_recorded_user_by_seat(registry),
        coverage=coverage,
        people=registry.people,
        ledger=ledger,
        whole=whole,
        now=now,
    )
    contracts = ContractCharges(ledger=ledger, whole=whole, registry=registry, prices=prices, now=now)
    return LedgerLimitedByCoverage(ledger, coverage, cost_type, (fees, contracts))


def _recorded_user_by_seat(registry: Registry) -> Mapping[str, str]:
    """Return the users of seats, by seat id, as records name them. "" if records never name a person."""
    return {
        make_seat_id(plan, seat_index): registry.people.text_for_record(seat.user) or ""
        for plan in registry.declared_table(PlanTable).all()
        for seat_index, seat in enumerate(plan.seats)
    }
