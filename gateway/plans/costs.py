"""What plans of assistants came to in a month, as somebody may see it: the answer of the operator API and of tools."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain

from gateway.plans.advice import SeatAdvice, SeatAdviser, pools_of
from gateway.plans.beyond import allowance, used_of
from gateway.plans.bills import BillDifference, PlanBill, read_bills, with_bills
from gateway.plans.by_day import DaySums
from gateway.plans.coverage import Coverage, place_of
from gateway.plans.cycles import Cycle, cycles
from gateway.plans.reading import UseReader, usable_plans
from gateway.plans.sums import AskedDays, SeatMonth, month_of_plan
from gateway.plans.uses import SeatUse, Uses
from gateway.reconciliation.gathering import CalendarMonth
from gateway.resources.plans import (
    PlanCosts,
    PlanDifference,
    PlanMonth,
    PlanOfMonth,
    PlanTotal,
    SeatAdviceItem,
    SeatOfMonth,
)
from spool.currencies.exchange import Converter, no_rates
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.ledger import Ledger
from spool.ledger.slices import SlicedLedger
from spool.record import moment
from spool.registry.registry import Registry
from spool.registry.tables.plans import AssistantPlan, Seat
from spool.statements.rules import day_text


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
    is_daily: bool = False


class SeatNames:
    """The people of seats as somebody stated them, by the marks of the seats."""

    def __init__(self, registry: Registry) -> None:
        self._people = registry.people
        self._plans = {plan.id: plan for plan in registry.plans.all()}

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
    reader = UseReader(coverage=coverage, plans=known, asked=days, month=month, is_daily=asking.is_daily)
    shown = used = await reader.read(asking.ledger)
    if not asking.ledger.is_whole:
        used = await reader.read(asking.whole)
    await reader.add_beyond(asking.whole, used)
    billers = [plan.billed_by for plan in known]
    asked = _Asked(
        plans=known,
        month=month,
        days=days,
        now=asking.now,
        ledger=asking.ledger,
        most=asking.most,
        bills=await read_bills(asking.registry.statements, billers, month, days),
        is_daily=asking.is_daily,
        names=names,
    )
    return await asyncio.to_thread(_answer, asked, used, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What an answer is made of, beside what was used."""

    plans: Sequence[AssistantPlan]
    month: CalendarMonth
    days: AskedDays
    now: float
    ledger: SlicedLedger
    most: int
    bills: Mapping[str, PlanBill]
    is_daily: bool
    names: SeatNames


def _answer(asked: _Asked, used: Uses, shown: Uses) -> PlanCosts:
    """Thousands of seats take a while: not for the event loop. `shown` is the part of `used` that the person sees."""
    month, most = asked.month, asked.most
    by_plans = list(chain.from_iterable(month_of_plan(plan, asked.days, used) for plan in asked.plans))
    months, apart, billed = with_bills(by_plans, asked.bills)
    seen = _seen(months, asked)
    own = {each.plan.id: each.plan for each in seen}
    known = asked.plans if asked.ledger.is_whole else list(own.values())
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
        days=list(DaySums(asked.days, used, shown).rows(seen)) if asked.is_daily else [],
        advice=_advice(months, known, asked, used)[:most],
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
            beyond_since=_beyond_since(months),
            source="statement" if plan.id in billed else "plan",
        )


def _beyond_since(months: Iterable[SeatMonth]) -> str | None:
    first = min(chain.from_iterable(each.by_day for each in months), default=None)
    return None if first is None else day_text(first)


def _advice(
    months: Sequence[SeatMonth], plans: Sequence[AssistantPlan], asked: _Asked, used: Uses
) -> list[SeatAdviceItem]:
    """Return advice on the cycles that end in the month and are over, what saves most first."""
    advised: list[SeatAdvice] = []
    for days, held in _cycles_of_seats(months, asked, used):
        adviser = SeatAdviser(
            plans=plans, asked=days, pools=pools_of(held), shows_pools=asked.ledger.is_whole
        )
        seen = _seen(held, asked)
        advised += adviser.advise([each for each in seen if not asked.names.is_dropped(each.mark)])
    advised.sort(key=lambda each: -each.saves)
    found = []
    for each in advised:
        seat = each.month.seat
        item = SeatAdviceItem(
            kind=each.kind,
            plan=each.month.plan.name,
            user=asked.names.of(each.month.mark),
            team=seat.team or None,
            instead=each.instead or None,
            cost=money.text(each.cost),
            saves=money.text(each.saves),
            formula=each.formula,
            first_day=each.first_day,
            last_day=each.last_day,
        )
        found.append(item)
    return found


def _cycles_of_seats(
    months: Sequence[SeatMonth], asked: _Asked, used: Uses
) -> Iterator[tuple[AskedDays, Sequence[SeatMonth]]]:
    """Yield the cycles that end in the month and are over, with all seats of the plans that have them."""
    by_day: dict[int, list[AssistantPlan]] = defaultdict(list)
    for plan in asked.plans:
        by_day[plan.cycle_day].append(plan)
    if by_day.pop(1, None) and asked.month.end <= asked.now:
        yield asked.days, [each for each in months if each.plan.cycle_day == 1]
    for day, plans in by_day.items():
        for cycle in _ended(day, asked):
            days = AskedDays(days=cycle.days, begun=len(cycle.days), converter=asked.days.converter)
            yield days, list(chain.from_iterable(month_of_plan(plan, days, used) for plan in plans))


def _ended(cycle_day: int, asked: _Asked) -> Iterator[Cycle]:
    """Yield the cycles that end in the month and are over."""
    last = min(asked.month.end, asked.now)
    for cycle in cycles(cycle_day, asked.month.start, asked.month.end):
        if cycle.end <= last:
            yield cycle


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
        beyond_since=_beyond_since([month]),
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
