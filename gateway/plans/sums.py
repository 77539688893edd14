"""
Paid, included and beyond: what the seats of a plan came to in a calendar month. Pure, and exact.

The three never stand in one sum: paid are the fees and what was used beyond; the value of what a plan includes is no
money that anybody paid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.billed.spreading import in_turn
from gateway.plans.coverage import is_held, seat_mark
from spool.ledger import money
from spool.registry.tables.plans import CALLS, USD, AssistantPlan, Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatUse:
    """The calls of a seat that its plan covers: their value at list prices in units of money, and how many worked."""

    value: int = 0
    calls: int = 0
    unpriced: int = 0

    def plus(self, other: SeatUse) -> SeatUse:
        return SeatUse(
            value=self.value + other.value,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMonth:
    """
    A seat in a month. Money is in units; so is `used` and `beyond`, which are in the unit of the plan.

    `included_value` is what the covered calls are worth at list prices, less those beyond.
    """

    plan: AssistantPlan
    seat: Seat
    mark: str
    held_days: int
    fee: int
    use: SeatUse
    used: int
    beyond: int
    overage: int
    included_value: int

    def included_of(self, value: int) -> int:
        """Return how much of a part of its value is included."""
        return value * self.included_value // self.use.value if self.use.value else 0


def month_of_plan(
    plan: AssistantPlan, days: Sequence[str], uses: Mapping[str, SeatUse], *, begun: int
) -> list[SeatMonth]:
    """
    Return the seats that are held on a day of the month, with the fees of the first days, which are `begun`.

    What is included is that of the whole month for everybody who had a seat on one of its days.
    """
    held: dict[str, list[tuple[Seat, str]]] = defaultdict(list)
    for place, seat in enumerate(plan.seats):
        if any(is_held(seat, day) for day in days):
            whose = "" if plan.is_pooled else seat.user.casefold()
            held[whose].append((seat, seat_mark(plan, place)))
    return [each for seats in held.values() for each in _together(plan, seats, days, uses, begun)]


def allowance(plan: AssistantPlan, seats: Sequence[Seat]) -> int | None:
    """Return what is included for these seats of a month, in units; None without a bound."""
    if not plan.included:
        return None
    return money.units(plan.included) * len({seat.user.casefold() for seat in seats})


def _together(
    plan: AssistantPlan,
    seats: Sequence[tuple[Seat, str]],
    days: Sequence[str],
    uses: Mapping[str, SeatUse],
    begun: int,
) -> list[SeatMonth]:
    """Return the months of seats that share what they include: who used more has more of what is beyond."""
    theirs = [uses.get(mark, SeatUse()) for _, mark in seats]
    used = [used_of(plan, use) for use in theirs]
    included = allowance(plan, [seat for seat, _ in seats])
    beyond = 0 if included is None else max(0, sum(used) - included)
    parts = in_turn(beyond, used)
    overages = in_turn(beyond * money.units(plan.overage_price or "0") // money.UNIT, used)
    return [
        SeatMonth(
            plan=plan,
            seat=seat,
            mark=mark,
            held_days=sum(is_held(seat, day) for day in days),
            fee=_fee(plan, seat, days, begun),
            use=use,
            used=amount,
            beyond=part,
            overage=overage,
            included_value=use.value - (use.value * part // amount if amount else 0),
        )
        for (seat, mark), use, amount, part, overage in zip(seats, theirs, used, parts, overages, strict=True)
    ]


def used_of(plan: AssistantPlan, use: SeatUse) -> int:
    """Return what was used in the unit of the plan; it is not below 0, whatever was taken back."""
    used = max(0, use.calls if plan.unit == CALLS else use.value)
    if plan.unit == USD:
        return used
    one = 1 if plan.unit == CALLS else money.units(plan.credit_value)
    return int(used * money.UNIT // one)


def _fee(plan: AssistantPlan, seat: Seat, days: Sequence[str], begun: int) -> int:
    """Return the fee of the days of a seat that are begun; the parts of all days of a month are the whole fee."""
    parts = in_turn(money.units(plan.fee or "0"), [1] * len(days))
    return sum(part for day, part in list(zip(days, parts, strict=True))[:begun] if is_held(seat, day))
