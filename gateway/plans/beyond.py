"""
What was used beyond, by day: what a cycle includes is used up on a day, and what comes on this day and
after it is beyond. Pure, and exact: the days of a cycle add up to what is beyond in all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.billed.spreading import in_turn
from gateway.plans.cycles import Cycle
from gateway.plans.uses import SeatUse, Uses
from spool.ledger import money
from spool.registry.tables.plans import CALLS, USD, AssistantPlan, Seat

Shared = Sequence[tuple[Seat, str]]  # seats with their marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """
    What was beyond of a seat on a day: in the unit of the plan, what it costs in units of the plan's
    currency, and its value at list prices in dollars.
    """

    quantity: int
    overage: int
    value: int


def allowance(plan: AssistantPlan, seats: Sequence[Seat]) -> int | None:
    """Return what is included for these seats of a cycle, in units; None without a bound."""
    if not plan.included:
        return None
    return money.units(plan.included) * len({seat.user.casefold() for seat in seats})


def used_of(plan: AssistantPlan, use: SeatUse) -> int:
    """Return what was used in the unit of the plan; it is not below 0, whatever was taken back."""
    used = max(0, use.calls if plan.unit == CALLS else use.value)
    if plan.unit == USD:
        return used
    one = 1 if plan.unit == CALLS else money.units(plan.credit_value)
    return int(used * money.UNIT // one)


def price_beyond(plan: AssistantPlan, beyond: int) -> int:
    """Return what so much beyond costs, in units of the plan's currency."""
    return int(beyond * money.units(plan.overage_price or "0") // money.UNIT)


def is_beyond(plan: AssistantPlan, cycle: Cycle, seats: Shared, uses: Uses, until: int) -> bool:
    """True if seats that share what they include used more than that before `until`."""
    included = allowance(plan, [seat for seat, _ in seats])
    if included is None:
        return False
    end = min(cycle.end, until)
    used = sum(used_of(plan, uses.of(mark, cycle.start, end)) for _, mark in seats)
    return used > included


def beyond_of(
    plan: AssistantPlan, cycle: Cycle, seats: Shared, uses: Uses, *, until: int
) -> dict[str, dict[int, Beyond]]:
    """
    Return what was beyond before `until`, by mark and day. What is beyond on a day is divided over the
    seats by what they used on this day.
    """
    included = allowance(plan, [seat for seat, _ in seats])
    if included is None or not is_beyond(plan, cycle, seats, uses, until):
        return {}
    found: dict[str, dict[int, Beyond]] = defaultdict(dict)
    days = range(cycle.start, min(cycle.end, until), cycle.days.step)
    used = [_by_day(plan, mark, days, uses) for _, mark in seats]
    known = 0
    for place, day in enumerate(days):
        today = [each.used[place] for each in used]
        before, known = known, known + sum(today)
        over, was_over = max(0, known - included), max(0, before - included)
        if over == was_over:
            continue
        quantities = in_turn(over - was_over, today)
        overages = in_turn(price_beyond(plan, over) - price_beyond(plan, was_over), today)
        for (_, mark), each, quantity, overage in zip(seats, used, quantities, overages, strict=True):
            if quantity or overage:
                value = each.value[place] * quantity // each.used[place]
                found[mark][day] = Beyond(quantity=quantity, overage=overage, value=value)
    return found


@dataclass(frozen=True, slots=True)
class _UseByDay:
    """What a seat used on each day of a cycle, in the unit of the plan and at list prices."""

    used: Sequence[int]
    value: Sequence[int]


def _by_day(plan: AssistantPlan, mark: str, days: range, uses: Uses) -> _UseByDay:
    """Return days that add up to what was used in all of them, whatever was taken back on one of them."""
    by_day = [uses.on(mark, day) for day in days]
    whole = uses.of(mark, days.start, days.stop)
    used = in_turn(used_of(plan, whole), [used_of(plan, use) for use in by_day])
    value = in_turn(max(0, whole.value), [max(0, use.value) for use in by_day])
    return _UseByDay(used, value)
