"""
Seat fees and overage as rows of a cost query, so that they add up with the calls that no plan covers.

A day's amounts count at midnight of that date in the query's time zone, once the day has begun in UTC.
Amounts are rounded per seat and day, so all groupings and granularities have the same sum.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, tzinfo
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

import msgspec

from gateway.bills.billed.spreading import in_turn
from gateway.bills.plans.coverage import Coverage, DividedLedger, is_held, seat_mark, usable_plans
from gateway.bills.plans.declared import AssistantPlan, PlanTable, Seat
from gateway.bills.plans.sums import AskedDays, SeatMonth, Uses, fees_by_day, month_of_plan
from gateway.bills.plans.uses import UseReader
from gateway.bills.reconciliation.gathering import CalendarMonth
from spool.currencies import Converter, no_rates
from spool.ledger import money
from spool.ledger.costs import combined, periods
from spool.ledger.ledger import Ledger
from spool.ledger.queries import (
    CHARGE,
    OVERAGE,
    PAID_COST,
    PLAN,
    SEAT_FEE,
    CostQuery,
    CostRow,
    DerivedDimensions,
    Group,
    limit_of_question,
)
from spool.ledger.slices import SlicedLedger
from spool.people import People
from spool.record import CURRENCY
from spool.registry.registry import Registry
from spool.registry.views import View
from spool.statements import DAY_S, day_from

_Place = tuple[int, Group]  # index of the period, and group
_Values = Mapping[str, str]


def seat_values(plan: AssistantPlan, view: View, seat: Seat, user: str) -> dict[str, str]:
    """
    Return the dimension values of a seat's charges: its user and team, the provider that bills the plan, and
    each dimension of which the view of the plan includes only one value.
    """
    only = {name: values[0] for name, values in view.include.items() if len(values) == 1}
    known = {"provider": plan.billed_by} if plan.billed_by else {}
    known |= only | {"user": user, PLAN: plan.name}
    return known | {"team": seat.team} if seat.team else known


class _Amount(NamedTuple):
    """
    An amount of a day: in the plan's currency, in the query's currency, and the part of the former that has
    no exchange rate.
    """

    own: int = 0
    cost: int = 0
    lacking: int = 0


class _Run(NamedTuple):
    """The days from `first` to before `end`, as indexes, that are in one period."""

    period: int
    first: int
    end: int


@dataclass(slots=True)
class _Sum:
    """Amounts in units of money. `charges` and `lacking` are by currency, as in CostRow."""

    cost: int = 0
    converted: int = 0
    charges: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)

    def add(self, amount: _Amount, plan: AssistantPlan, currency: str) -> None:
        self.cost += amount.cost
        if plan.currency != currency:
            self.converted += amount.cost
            self.lacking[plan.currency] += amount.lacking
        if plan.currency != CURRENCY:
            self.charges[plan.currency] += amount.own

    def row(self, start: datetime, group: Group) -> CostRow:
        return msgspec.structs.replace(
            combined([], start=start, group=group),
            cost=money.text(self.cost),
            converted=money.text(self.converted),
            charges=_texts(self.charges),
            unconverted=_texts(self.lacking),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatFees:
    """
    Fees and overage of seats. `ledger` decides which seats a person sees. Overage is computed from the calls
    in `whole`, because the seats of a pool share their included usage.

    `names` are the users of seats as records name them, by seat mark.
    """

    plans: Sequence[tuple[AssistantPlan, View]]
    names: Mapping[str, str]
    coverage: Coverage
    people: People
    ledger: SlicedLedger
    whole: Ledger
    now: float

    async def rows(self, query: CostQuery) -> Sequence[CostRow]:
        days = self._days(query)
        if not days:
            return []
        with_overage = [plan for plan, _ in self.plans if _has_overage(plan)]
        uses: dict[CalendarMonth, Uses] = {}
        for month in _months(days) if with_overage else ():
            reader = UseReader(coverage=self.coverage, plans=with_overage, month=month, currency=CURRENCY)
            uses[month] = await reader.read(self.whole)
        users = await self.whole.values("user")
        return await asyncio.to_thread(self._rows, query, days, uses, users)

    def _days(self, query: CostQuery) -> range:
        """Return the days (UTC) with charges in the time of the query."""
        firsts = [day_from(seat.since) for plan, _ in self.plans for seat in plan.seats]
        if not firsts:
            return range(0)
        # without these limits, a query may begin or end at a time that has no date
        since = max(query.since.timestamp(), min(firsts) - 2 * DAY_S)
        until = min(query.until.timestamp(), self.now + 2 * DAY_S)
        begun = int(self.now) // DAY_S * DAY_S + DAY_S
        return range(
            max(_first_day(since, query.zone), min(firsts)), min(_first_day(until, query.zone), begun), DAY_S
        )

    def _rows(
        self,
        query: CostQuery,
        days: range,
        uses: Mapping[CalendarMonth, Uses],
        users: Sequence[str],
    ) -> list[CostRow]:
        derived = {**{dimension.name: dimension for dimension in self.ledger.derived()}, **query.derived}
        spelled = {self.people.identity(user): user for user in users} | {user: user for user in users}
        starts = [start for start, _ in periods(query)]
        runs = _runs(days, query.zone, [start.timestamp() for start in starts])
        sums: dict[_Place, _Sum] = defaultdict(_Sum)
        for plan, view in self.plans:
            asked_days = AskedDays(days=days, begun=len(days), converter=self._converter(query.currency))
            fees = _running(_converted(fees_by_day(plan, asked_days), plan, asked_days))
            overages = self._overages(plan, days, uses, query.currency) if _has_overage(plan) else {}
            counts: Counter[tuple[Group, int, int]] = Counter()  # seats whose fees are equal
            for seat_index, seat in enumerate(plan.seats):
                mark = seat_mark(plan, seat_index)
                name = self.names[mark]
                user = spelled.get(name) or spelled.get(self.people.identity(name)) or self.people.shown(name)
                values = seat_values(plan, view, seat, user)
                if not self.ledger.holds(partial(_value_of, values)):
                    continue
                fee_group = _group(query, derived, {**values, CHARGE: SEAT_FEE})
                held = _held(seat, asked_days.texts)
                if fee_group is not None and held:
                    counts[fee_group, held.start, held.stop] += 1
                if mark not in overages:
                    continue
                group = _group(query, derived, {**values, CHARGE: OVERAGE})
                if group is not None:
                    _add(sums, runs, range(len(days)), group, overages[mark], plan, query.currency, 1)
                    _check(sums)
            for (group, first, end), count in counts.items():
                _add(sums, runs, range(first, end), group, fees, plan, query.currency, count)
                _check(sums)
        return [
            amounts.row(starts[period], group)
            for (period, group), amounts in sums.items()
            if amounts.cost or any(amounts.lacking.values())
        ]

    def _overages(
        self, plan: AssistantPlan, days: range, uses: Mapping[CalendarMonth, Uses], currency: str
    ) -> Mapping[str, Sequence[_Amount]]:
        """
        Return running sums of overage by seat mark. The overage of a month is divided evenly over the days
        that have begun and on which the seat is held.
        """
        found: dict[str, dict[int, _Amount]] = defaultdict(dict)
        for month, used in uses.items():
            asked_days = AskedDays(
                days=month.days,
                begun=sum(day <= self.now for day in month.days),
                converter=self._converter(plan.currency),
            )
            for seat_month in month_of_plan(replace(plan, fee="0"), asked_days, used):
                if seat_month.overage:
                    found[seat_month.mark].update(self._spread(seat_month, asked_days, currency))
        nothing = _Amount()
        return {mark: _running([by_day.get(day, nothing) for day in days]) for mark, by_day in found.items()}

    def _spread(
        self, month: SeatMonth, asked_days: AskedDays, currency: str
    ) -> Iterator[tuple[int, _Amount]]:
        begun = range(max(1, asked_days.begun))
        held = [asked_days.days[index] for index in begun if is_held(month.seat, asked_days.texts[index])]
        held = held or [asked_days.days[begun[-1]]]  # the clock of a sender may be ahead
        lacking: Counter[str] = Counter()
        converter = self._converter(currency)
        in_currency = AskedDays(days=asked_days.days, begun=asked_days.begun, converter=converter)
        cost = in_currency.converted(
            {asked_days.days[begun[-1]]: month.overage}, month.plan.currency, lacking
        )
        even = [1] * len(held)
        amounts = (month.overage, cost, lacking[month.plan.currency])
        parts = zip(*(in_turn(amount, even) for amount in amounts), strict=True)
        for day, part in zip(held, parts, strict=True):
            yield day, _Amount(*part)

    def _converter(self, currency: str) -> Converter:
        return Converter(self.whole.rates or no_rates, currency)


def _check(sums: Sized) -> None:
    """Raise AskedTooMuch if the query has too many rows, or takes too long."""
    if limit := limit_of_question():
        limit.check_rows(len(sums))
        limit.check_time()


def _has_overage(plan: AssistantPlan) -> bool:
    return bool(plan.included and money.units(plan.overage_price or "0"))


def _value_of(values: _Values, name: str) -> str:
    return values.get(name, "")


def _group(query: CostQuery, derived: DerivedDimensions, values: _Values) -> Group | None:
    """Return the group of a charge, or None if it does not pass the filters of the query."""

    def value(name: str) -> str:
        if name in values or name not in derived:
            return values.get(name, "")
        return derived[name].value(tuple(values.get(source, "") for source in derived[name].sources))

    is_included = all(value(name) in wanted for name, wanted in query.include.items())
    if not is_included or any(value(name) in unwanted for name, unwanted in query.exclude.items()):
        return None
    return query.shown(tuple(value(name) or None for name in query.group_by))


def _add(
    sums: Mapping[_Place, _Sum],
    runs: Sequence[_Run],
    days: range,
    group: Group,
    running: Sequence[_Amount],
    plan: AssistantPlan,
    currency: str,
    count: int,
) -> None:
    """Add the amounts of `days`, which are indexes, to the sums of their periods, `count` times."""
    for run in runs:
        first, end = max(run.first, days.start), min(run.end, days.stop)
        if first < end:
            parts = zip(running[first], running[end], strict=True)
            amount = _Amount(*(count * (through - before) for before, through in parts))
            sums[run.period, group].add(amount, plan, currency)


def _converted(amounts: Mapping[int, int], plan: AssistantPlan, asked_days: AskedDays) -> Iterator[_Amount]:
    for day in asked_days.days:
        lacking: Counter[str] = Counter()
        cost = asked_days.converted({day: amounts[day]}, plan.currency, lacking)
        yield _Amount(amounts[day], cost, lacking[plan.currency])


def _running(amounts: Iterable[_Amount]) -> list[_Amount]:
    """Return the sums of the first amounts: of none, of one, of two, and so on."""
    return [*accumulate(amounts, _plus, initial=_Amount())]


def _plus(before: _Amount, amount: _Amount) -> _Amount:
    return _Amount(*map(sum, zip(before, amount, strict=True)))


def _runs(days: range, zone: tzinfo, starts: Sequence[float]) -> list[_Run]:
    runs = []
    indexes = range(len(days))
    for period, run in groupby(indexes, lambda index: bisect_right(starts, _midnight(days[index], zone)) - 1):
        first, *rest = run
        runs.append(_Run(period, first, (rest or [first])[-1] + 1))
    return runs


def _held(seat: Seat, days: Sequence[str]) -> range:
    """Return the indexes of the days on which a seat is held."""
    return range(bisect_left(days, seat.since), bisect_left(days, seat.until) if seat.until else len(days))


def _first_day(at: float, zone: tzinfo) -> int:
    """Return the first day whose midnight in a zone is not before a moment. The day is its start in UTC."""
    local = datetime.fromtimestamp(at, zone)
    day = int(datetime.combine(local.date(), time(), UTC).timestamp())
    return day if _midnight(day, zone) >= at else day + DAY_S


def _midnight(day: int, zone: tzinfo) -> float:
    return datetime.combine(datetime.fromtimestamp(day, UTC).date(), time(), zone).timestamp()


def _months(days: range) -> Iterator[CalendarMonth]:
    month = CalendarMonth.at(days[0])
    while month.start <= days[-1]:
        yield month
        month = CalendarMonth.at(month.end)


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {currency: money.text(units) for currency, units in sorted(amounts.items()) if units}


def divided(
    ledger: SlicedLedger, whole: Ledger, registry: Registry, cost_type: str, now: float
) -> DividedLedger:
    """
    Return the ledger, limited to the calls that today's plans cover, or to all other calls. `cost_type` is
    one of PLAN_TYPES. With PAID_COST, fees and overage of the seats that `ledger` shows are added.
    """
    plans = usable_plans(registry, ledger.dimensions())
    coverage = Coverage(plans, ledger.derived(), registry.people)
    if cost_type != PAID_COST:
        return DividedLedger(ledger, coverage, cost_type)
    fees = SeatFees(
        plans=plans,
        names=_names(registry),
        coverage=coverage,
        people=registry.people,
        ledger=ledger,
        whole=whole,
        now=now,
    )
    return DividedLedger(ledger, coverage, cost_type, fees)


def _names(registry: Registry) -> Mapping[str, str]:
    """Return the users of seats, by seat mark, as records name them. "" if records never name a person."""
    return {
        seat_mark(plan, seat_index): registry.people.carried(seat.user) or ""
        for plan in registry.table(PlanTable).all()
        for seat_index, seat in enumerate(plan.seats)
    }
