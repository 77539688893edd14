"""
Advice on the seats of billing cycles that are over: those that nobody used, and those that another plan
serves for less. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gateway.plans.beyond import price_beyond, used_of
from gateway.plans.sums import AskedDays, SeatMonth, overage_for, overage_of, whole_fee
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


@dataclass(slots=True, kw_only=True)
class SharedPool:
    """What the seats of a plan share in a cycle: how many people, and what they used together."""

    plan: AssistantPlan
    people: int = 0
    used: int = 0
    unpriced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatCost:
    """What a seat costs in a plan, beside what its pool has beyond without it, in units and for people."""

    fee: int
    beyond: int
    words: str

    @property
    def units(self) -> int:
        return self.fee + self.beyond


def pools_of(months: Sequence[SeatMonth]) -> dict[str, SharedPool]:
    """Return the pools of the plans with one, by the ids of the plans; `months` are those of all seats."""
    pools: dict[str, SharedPool] = {}
    people: set[tuple[str, str]] = set()
    for month in months:
        plan, who = month.plan, month.seat.user.casefold()
        if not plan.is_pooled:
            continue
        pool = pools.setdefault(plan.id, SharedPool(plan=plan))
        pool.people += (plan.id, who) not in people
        pool.used += month.used
        pool.unpriced += month.use.unpriced
        people.add((plan.id, who))
    return pools


@dataclass(slots=True, kw_only=True)
class SeatAdviser:
    """
    Advises on seat after seat. What is advised of one is taken for done when the next one is looked at:
    who leaves a pool, or enters it, changes what the others have beyond. So savings add up.

    `shows_pools`: the person may see what others used, which the arithmetic of a pool tells.
    """

    plans: Sequence[AssistantPlan]
    asked: AskedDays
    pools: dict[str, SharedPool]
    shows_pools: bool = True
    held: set[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.held = set(_held(self.plans, self.asked))

    def advise(self, months: Sequence[SeatMonth]) -> list[SeatAdvice]:
        """
        Return the best advice on each seat that was held on all days of a cycle, what saves most first.

        Where calls have no price, nobody knows what they would cost in a plan that includes so much of
        value; where no rate is known, nobody knows what a plan costs.
        """
        alone = [(month, self._best(month)) for month in months]
        promising = [(month, best) for month, best in alone if best is not None]
        promising.sort(key=lambda each: -each[1].saves)
        found: list[SeatAdvice] = []
        for month, _ in promising:
            best = self._best(month)
            if best is not None:
                found.append(best)
                self._follow(month, best)
        return sorted(found, key=lambda each: -each.saves)

    def _best(self, month: SeatMonth) -> SeatAdvice | None:
        if month.held_days < len(self.asked.days) or month.lacking:
            return None
        options = self._given_back(month) if month.use == SeatUse() else self._moved(month)
        best = max(options, key=lambda each: each.saves, default=None)
        return best if best is not None and best.saves > 0 else None

    def _follow(self, month: SeatMonth, advice: SeatAdvice) -> None:
        left = self.pools.get(month.plan.id)
        if left is not None:
            left.people -= 1
            left.used -= month.used
        plan = next((plan for plan in self.plans if plan.name == advice.instead), None)
        if plan is not None and plan.is_pooled:
            entered = self.pools.setdefault(plan.id, SharedPool(plan=plan))
            entered.people += 1
            entered.used += used_of(plan, month.use)

    def _given_back(self, month: SeatMonth) -> Iterator[SeatAdvice]:
        """In a pool it takes along what it includes, which the others may use."""
        cost = self._own(month)
        if cost is not None and self._is_priced(month, month.plan):
            yield self._advice(month, IDLE, cost, f"{cost.words}, and no call that worked")

    def _moved(self, month: SeatMonth) -> Iterator[SeatAdvice]:
        """Yield what the calls of a seat would have cost in the other plans of the same view."""
        own, user = month.plan, month.seat.user.casefold()
        if own.is_pooled and not self.shows_pools:
            return
        cost = self._own(month)
        if cost is None or not self._is_priced(month, own):
            return
        for plan in self.plans:
            is_other = plan.view_id == own.view_id and (plan.id, user) not in self.held
            if not is_other or not self._is_priced(month, plan):
                continue
            if (own.is_pooled or plan.is_pooled) and own.cycle_day != plan.cycle_day:
                continue  # what a pool has beyond is known of its own cycles
            there = self._in(plan, month)
            if there is not None:
                paid = f"{cost.words}, in place of which {plan.name} has {there.words}"
                yield self._advice(month, OTHER_PLAN, cost, paid, plan.name, there.units)

    def _is_priced(self, month: SeatMonth, plan: AssistantPlan) -> bool:
        """False if calls without a price, its own or those of a pool, hide how much is beyond."""
        if not plan.included or plan.unit == CALLS:
            return True
        pool = self.pools.get(plan.id)
        return not (month.use.unpriced or (pool is not None and pool.unpriced))

    def _own(self, month: SeatMonth) -> SeatCost | None:
        """Return what a seat costs where it is; None for want of a rate."""
        fee, pool = month.fee, self.pools.get(month.plan.id)
        if pool is None:
            beyond = "" if month.use == SeatUse() else f" and {money.text(month.overage)} beyond"
            return SeatCost(fee=fee, beyond=month.overage, words=f"{money.text(fee)} of fee{beyond}")
        shared = self._shared(pool, pool.people - 1, pool.used - month.used, pool.people, pool.used)
        return None if shared is None else _of_pool(fee, *shared, f"{money.text(fee)} of fee")

    def _in(self, plan: AssistantPlan, month: SeatMonth) -> SeatCost | None:
        """Return what a seat would have cost in another plan; None if that is not known."""
        lacking: Counter[str] = Counter()
        fee = whole_fee(plan, self.asked, lacking)
        if not plan.is_pooled:
            beyond = overage_for(plan, month.use, self.asked, lacking)
            words = f"{money.text(fee)} and {money.text(beyond)}"
            return None if lacking else SeatCost(fee=fee, beyond=beyond, words=words)
        if lacking or not self.shows_pools:
            return None
        pool = self.pools.get(plan.id) or SharedPool(plan=plan)
        used = pool.used + used_of(plan, month.use)
        shared = self._shared(pool, pool.people, pool.used, pool.people + 1, used)
        return None if shared is None else _of_pool(fee, *shared, money.text(fee))

    def _shared(
        self, pool: SharedPool, people: int, used: int, more_people: int, more_used: int
    ) -> tuple[int, int] | None:
        """Return what a pool has beyond without a seat, and with it; None for want of a rate."""
        lacking: Counter[str] = Counter()
        without = self._beyond(pool.plan, people, used, lacking)
        beyond = self._beyond(pool.plan, more_people, more_used, lacking)
        return None if lacking else (without, beyond)

    def _beyond(self, plan: AssistantPlan, people: int, used: int, lacking: Counter[str]) -> int:
        if not plan.included:
            return 0
        beyond = max(0, used - people * money.units(plan.included))
        return overage_of(plan, price_beyond(plan, beyond), self.asked, lacking)

    def _advice(
        self, month: SeatMonth, kind: str, cost: SeatCost, formula: str, instead: str = "", there: int = 0
    ) -> SeatAdvice:
        return SeatAdvice(
            month=month,
            kind=kind,
            cost=cost.units,
            instead_cost=there,
            formula=formula,
            first_day=self.asked.texts[0],
            last_day=self.asked.texts[-1],
            instead=instead,
        )


def _of_pool(fee: int, without: int, beyond: int, words: str) -> SeatCost:
    if without or beyond:
        words += f" and {money.text(beyond)} beyond of the pool ({money.text(without)} without the seat)"
    return SeatCost(fee=fee, beyond=beyond - without, words=words)


def _held(plans: Sequence[AssistantPlan], asked: AskedDays) -> Iterator[tuple[str, str]]:
    """Yield the plans and users of the seats that are held on an asked day."""
    first, last = asked.texts[0], asked.texts[-1]
    for plan in plans:
        for seat in plan.seats:
            if seat.since <= last and (not seat.until or first < seat.until):
                yield plan.id, seat.user.casefold()
