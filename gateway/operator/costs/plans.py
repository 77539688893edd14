"""The call of the operator API for what plans of assistants came to in a month."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from gateway.http.holders.money import MoneyServices
from gateway.http.requests import Result
from gateway.operator.requests import OperatorRequest
from gateway.plans.advice import advise
from gateway.plans.coverage import Coverage
from gateway.plans.reading import Uses, read_uses, usable_plans
from gateway.plans.sums import SeatMonth, SeatUse, allowance, month_of_plan, used_of
from gateway.reconciliation.gathering import CalendarMonth
from gateway.resources.plans import PlanCosts, PlanMonth, PlanOfMonth, PlanTotal, SeatAdviceItem, SeatOfMonth
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.slices import SlicedLedger
from spool.record import moment
from spool.registry.tables.plans import AssistantPlan, Seat
from spool.statements.rules import day_text

ONCE = ("month",)


async def plan_costs(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    A calendar month (UTC), up to everything closed by now; the fees of the running month are those of its days until
    today. `paid` are fees, `overage` and what no plan covers (`metered`); `included_value` is what the covered calls
    are worth at list prices, and no part of it.

    Who may see some calls alone sees the seats whose user and team pass, and the value of these calls alone.
    """
    ledger, now = request.ledger, request.now()
    await ledger.catch_up(request.services.log)
    month = _month(request.http.query.get("month"), now)
    plans = usable_plans(request.registry, ledger.dimensions())
    coverage = Coverage(plans, ledger.derived())
    shown = await read_uses(ledger, coverage, month)
    used = await read_uses(request.whole_ledger, coverage, month) if request.is_limited else shown
    asked = _Asked(
        plans=[plan for plan, _ in plans],
        month=month,
        now=now,
        ledger=ledger,
        most=request.shared.answers().max_rows,
    )
    return await asyncio.to_thread(_answer, asked, used, shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What an answer is made of, beside what was used."""

    plans: Sequence[AssistantPlan]
    month: CalendarMonth
    now: float
    ledger: SlicedLedger
    most: int


def _answer(asked: _Asked, used: Uses, shown: Uses) -> Mapping[str, Any]:
    """Thousands of seats take a while: not for the event loop. `shown` is the part of `used` that the person sees."""
    month, most = asked.month, asked.most
    months = _months(asked.plans, month, used, asked.now)
    seen = [each for each in months if asked.ledger.holds(partial(_value_of, each.seat))]
    own = {each.plan.id: each.plan for each in seen}
    known = asked.plans if asked.ledger.is_whole else list(own.values())
    answer = PlanCosts(
        plan_costs=PlanMonth(
            month=month.name,
            start=moment(month.start) or "",
            end=moment(month.end) or "",
            row_count=len(seen),
            truncated=len(seen) > most,
        ),
        total=_total(months, seen, shown),
        plans=list(_plans(seen, shown)),
        advice=_advice(seen, known, month, asked.now)[:most],
        rows=_rows(seen, shown, most),
    )
    found: Mapping[str, Any] = msgspec.to_builtins(answer)
    return found


def _months(plans: Sequence[AssistantPlan], month: CalendarMonth, used: Uses, now: float) -> list[SeatMonth]:
    days = list(map(day_text, month.days))
    begun = sum(day <= now for day in month.days)
    found: list[SeatMonth] = []
    for plan in plans:
        found += month_of_plan(plan, days, used.seats, begun=begun)
    return found


def _month(given: str | None, now: float) -> CalendarMonth:
    if given is None:
        return CalendarMonth.at(now)
    try:
        return CalendarMonth.of(given)
    except (ValueError, OverflowError):
        raise Invalid("month must be written as a year and a month, such as 2026-10") from None


def _value_of(seat: Seat, name: str) -> str:
    """A fee is like a call of which the user and the team are known, and nothing else."""
    if name == "user":
        return seat.user
    return seat.team if name == "team" else ""


def _use(month: SeatMonth, shown: Uses) -> SeatUse:
    """Return the calls of a seat that the person sees."""
    return shown.seats.get(month.mark, SeatUse())


def _included(months: Iterable[SeatMonth], shown: Uses) -> str:
    values = [each.included_of(_use(each, shown).value) for each in months]
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
    )


def _plans(seen: Sequence[SeatMonth], shown: Uses) -> Iterator[PlanOfMonth]:
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
        )


def _advice(
    seen: Sequence[SeatMonth], plans: Sequence[AssistantPlan], month: CalendarMonth, now: float
) -> list[SeatAdviceItem]:
    """Return nothing for a month that is not over: its calls are still to come."""
    if month.end > now:
        return []
    found = []
    for each in advise(seen, plans, len(month.days)):
        seat = each.month.seat
        item = SeatAdviceItem(
            kind=each.kind,
            plan=each.month.plan.name,
            user=seat.user,
            team=seat.team or None,
            instead=each.instead or None,
            saves=money.text(each.saves),
            formula=each.formula,
        )
        found.append(item)
    return found


def _rows(seen: Sequence[SeatMonth], shown: Uses, most: int) -> list[SeatOfMonth]:
    plans: dict[str, set[str]] = defaultdict(set)
    for each in seen:
        plans[each.seat.user.casefold()].add(each.plan.name)
    rows = []
    for each in seen[:most]:
        others = plans[each.seat.user.casefold()] - {each.plan.name}
        rows.append(_row(each, _use(each, shown), shown, others))
    return rows


def _row(month: SeatMonth, use: SeatUse, shown: Uses, others: Collection[str]) -> SeatOfMonth:
    plan, seat = month.plan, month.seat
    return SeatOfMonth(
        plan=plan.name,
        user=seat.user,
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
