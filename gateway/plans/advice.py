"""
Advice on the seats of billing cycles that are over: those that nobody used, and those that another plan
serves for less. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.plans.sums import AskedDays, SeatMonth, overage_for, whole_fee
from gateway.plans.uses import SeatUse
from spool.ledger import money
from spool.registry.tables.plans import CALLS, AssistantPlan

IDLE, OTHER_PLAN = "idle", "other_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatAdvice:
    """What a seat cost in a cycle, and what it would have cost: in the plan `instead`, or given back."""

    month: SeatMonth
    kind: str
    cost: int
    instead_cost: int
    formula: str
    first_day: str
    last_day: str
    instead: str = ""

    @property
    def saves(self) -> int:
        return self.cost - self.instead_cost


def advise(months: Sequence[SeatMonth], plans: Sequence[AssistantPlan], asked: AskedDays) -> list[SeatAdvice]:
    """
    Return the best advice on each seat that was held on all days of a cycle, what saves most first.

    A seat of a pool can be idle, and no more is said of it: what it used is shared. Where calls have no
    price, nobody knows what they would cost in a plan that includes so much of value; where no rate is
    known, nobody knows what a plan costs.
    """
    held = set(_held(plans, asked))
    found: list[SeatAdvice] = []
    for month in months:
        user = month.seat.user.casefold()
        if month.held_days < len(asked.days) or month.lacking:
            continue
        if month.use == SeatUse():
            options = [_idle(month, asked)]
        else:
            others = [plan for plan in plans if (plan.id, user) not in held]
            options = list(_cheaper(month, others, asked))
        best = max(options, key=lambda each: each.saves, default=None)
        if best is not None and best.saves > 0:
            found.append(best)
    return sorted(found, key=lambda each: -each.saves)


def _needs_value(plan: AssistantPlan) -> bool:
    return bool(plan.included) and plan.unit != CALLS


def _held(plans: Sequence[AssistantPlan], asked: AskedDays) -> Iterator[tuple[str, str]]:
    """Yield the plans and users of the seats that are held on an asked day."""
    first, last = asked.texts[0], asked.texts[-1]
    for plan in plans:
        for seat in plan.seats:
            if seat.since <= last and (not seat.until or first < seat.until):
                yield plan.id, seat.user.casefold()


def _idle(month: SeatMonth, asked: AskedDays) -> SeatAdvice:
    return SeatAdvice(
        month=month,
        kind=IDLE,
        cost=month.fee,
        instead_cost=0,
        formula=f"{money.text(month.fee)} of fee, and no call that worked",
        first_day=asked.texts[0],
        last_day=asked.texts[-1],
    )


def _cheaper(month: SeatMonth, plans: Sequence[AssistantPlan], asked: AskedDays) -> Iterator[SeatAdvice]:
    """Yield what the calls of a seat would have cost in the other plans of the same view."""
    own = month.plan
    if own.is_pooled:
        return
    for plan in plans:
        if plan.is_pooled or plan.view_id != own.view_id:
            continue
        if month.use.unpriced and (_needs_value(own) or _needs_value(plan)):
            continue
        lacking: Counter[str] = Counter()
        fee = whole_fee(plan, asked, lacking)
        overage = overage_for(plan, month.use, asked, lacking)
        if lacking:
            continue
        paid = f"{money.text(month.fee)} of fee and {money.text(month.overage)} beyond"
        instead = f"{money.text(fee)} and {money.text(overage)}"
        yield SeatAdvice(
            month=month,
            kind=OTHER_PLAN,
            cost=month.fee + month.overage,
            instead_cost=fee + overage,
            formula=f"{paid}, in place of which {plan.name} has {instead}",
            first_day=asked.texts[0],
            last_day=asked.texts[-1],
            instead=plan.name,
        )
