"""
Advice on the seats of a month that is over: those that nobody used, and those that another plan serves for less. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.plans.sums import AskedMonth, SeatMonth, SeatUse, fee_of, overage_of, price_beyond, used_of
from spool.ledger import money
from spool.registry.tables.plans import AssistantPlan

IDLE, OTHER_PLAN = "idle", "other_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatAdvice:
    """What a seat cost in a month, and what it would have cost: in the plan `instead`, or given back."""

    month: SeatMonth
    kind: str
    cost: int
    instead_cost: int
    formula: str
    instead: str = ""

    @property
    def saves(self) -> int:
        return self.cost - self.instead_cost


def advise(
    months: Sequence[SeatMonth], plans: Sequence[AssistantPlan], asked: AskedMonth
) -> list[SeatAdvice]:
    """
    Return the best advice on each seat that was held on all days of a month, what saves most first.

    A seat of a pool can be idle, and no more is said of it: what it used is shared. Where calls have no price, nobody
    knows what they would cost in another plan; where no rate is known, nobody knows what a plan costs.
    """
    held = {(each.plan.id, each.seat.user.casefold()) for each in months}
    found: list[SeatAdvice] = []
    for month in months:
        user = month.seat.user.casefold()
        if month.held_days < len(asked.days) or month.lacking:
            continue
        if month.use == SeatUse():
            options = [_idle(month)]
        else:
            others = [plan for plan in plans if (plan.id, user) not in held]
            options = list(_cheaper(month, others, asked))
        best = max(options, key=lambda each: each.saves, default=None)
        if best is not None and best.saves > 0:
            found.append(best)
    return sorted(found, key=lambda each: -each.saves)


def _idle(month: SeatMonth) -> SeatAdvice:
    return SeatAdvice(
        month=month,
        kind=IDLE,
        cost=month.fee,
        instead_cost=0,
        formula=f"{money.text(month.fee)} of fee, and no call that worked",
    )


def _cheaper(month: SeatMonth, plans: Sequence[AssistantPlan], asked: AskedMonth) -> Iterator[SeatAdvice]:
    """Yield what the calls of a seat would have cost in the other plans of the same view."""
    own = month.plan
    if own.is_pooled or month.use.unpriced:
        return
    for plan in plans:
        if plan.is_pooled or plan.view_id != own.view_id:
            continue
        lacking: Counter[str] = Counter()
        fee = fee_of(plan, None, asked, lacking)
        overage = overage_of(plan, _overage(plan, month.use), asked, lacking)
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
            instead=plan.name,
        )


def _overage(plan: AssistantPlan, use: SeatUse) -> int:
    """Return what a use costs beyond what one seat includes, in units of the plan's currency."""
    if not plan.included:
        return 0
    beyond = max(0, used_of(plan, use) - money.units(plan.included))
    return price_beyond(plan, beyond)
