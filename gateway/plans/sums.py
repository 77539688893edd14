"""
Paid, included and beyond: what the seats of a plan came to in a calendar month. Pure, and exact.

The three never stand in one sum: paid are the fees and what was used beyond; the value of what a plan includes is no
money that anybody paid.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.billed.spreading import in_turn
from gateway.plans.coverage import is_held, seat_mark
from spool.currencies.exchange import Converter, rounded
from spool.ledger import money
from spool.registry.tables.plans import CALLS, USD, AssistantPlan, Seat
from spool.statements.rules import day_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatUse:
    """
    The calls of a seat that its plan covers: their value at list prices in dollars, the same in the currency that is
    asked for (`worth`), both in units, and how many worked.
    """

    value: int = 0
    worth: int = 0
    calls: int = 0
    unpriced: int = 0

    def plus(self, other: SeatUse) -> SeatUse:
        return SeatUse(
            value=self.value + other.value,
            worth=self.worth + other.worth,
            calls=self.calls + other.calls,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMonth:
    """The days of a month, of which the first `begun` have begun, and by what its money is converted."""

    days: Sequence[int]
    begun: int
    converter: Converter
    texts: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(map(day_text, self.days)))

    def converted(self, amounts: Mapping[int, int], currency: str, lacking: Counter[str]) -> int:
        """Return amounts by their days in the currency that is asked for, rounded once; `lacking` gets the others."""
        product = 0
        for day, units in amounts.items():
            rate = self.converter.rate(currency, day)
            if rate is None:
                lacking[currency] += units
            else:
                product += units * rate
        return rounded(product)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMonth:
    """
    A seat in a month. `fee` and `overage` are in units of the currency that is asked for, without what `lacking` has
    by currency, for want of a rate. `used` and `beyond` are in the unit of the plan.

    `included_value` is what the covered calls are worth at list prices in dollars, less those beyond.
    """

    plan: AssistantPlan
    seat: Seat
    mark: str
    held_days: int
    days: int  # of the month
    fee: int
    use: SeatUse
    used: int
    beyond: int
    overage: int
    included_value: int
    lacking: Mapping[str, int] = field(default_factory=dict)

    def included_of(self, worth: int) -> int:
        """Return how much of a part of its value is included."""
        return worth * self.included_value // self.use.value if self.use.value else 0


def month_of_plan(plan: AssistantPlan, asked: AskedMonth, uses: Mapping[str, SeatUse]) -> list[SeatMonth]:
    """
    Return the seats that are held on a day of the month, with the fees of the days that have begun.

    What is included is that of the whole month for everybody who had a seat on one of its days.
    """
    held: dict[str, list[tuple[Seat, str]]] = defaultdict(list)
    for place, seat in enumerate(plan.seats):
        if any(is_held(seat, day) for day in asked.texts):
            whose = "" if plan.is_pooled else seat.user.casefold()
            held[whose].append((seat, seat_mark(plan, place)))
    return [each for seats in held.values() for each in _together(plan, seats, asked, uses)]


def allowance(plan: AssistantPlan, seats: Sequence[Seat]) -> int | None:
    """Return what is included for these seats of a month, in units; None without a bound."""
    if not plan.included:
        return None
    return money.units(plan.included) * len({seat.user.casefold() for seat in seats})


def _together(
    plan: AssistantPlan, seats: Sequence[tuple[Seat, str]], asked: AskedMonth, uses: Mapping[str, SeatUse]
) -> list[SeatMonth]:
    """Return the months of seats that share what they include: who used more has more of what is beyond."""
    theirs = [uses.get(mark, SeatUse()) for _, mark in seats]
    used = [used_of(plan, use) for use in theirs]
    included = allowance(plan, [seat for seat, _ in seats])
    beyond = 0 if included is None else max(0, sum(used) - included)
    parts = in_turn(beyond, used)
    overages = in_turn(price_beyond(plan, beyond), used)
    months = []
    for (seat, mark), use, amount, part, overage in zip(seats, theirs, used, parts, overages, strict=True):
        lacking: Counter[str] = Counter()
        month = SeatMonth(
            plan=plan,
            seat=seat,
            mark=mark,
            held_days=sum(is_held(seat, day) for day in asked.texts),
            days=len(asked.days),
            fee=fee_of(plan, seat, asked, lacking),
            use=use,
            used=amount,
            beyond=part,
            overage=overage_of(plan, overage, asked, lacking),
            included_value=use.value - (use.value * part // amount if amount else 0),
            lacking=lacking,
        )
        months.append(month)
    return months


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


def overage_of(plan: AssistantPlan, overage: int, asked: AskedMonth, lacking: Counter[str]) -> int:
    """Return what is beyond at the rate of the last day that has begun: the whole month decides it."""
    if not overage:
        return 0
    last = asked.days[max(0, asked.begun - 1)]
    return asked.converted({last: overage}, plan.currency, lacking)


def fee_of(plan: AssistantPlan, seat: Seat | None, asked: AskedMonth, lacking: Counter[str]) -> int:
    """
    Return the fee of the days of a seat that are begun, of None all of them; each day's part is converted at its rate.
    The parts of all days of a month are the whole fee.
    """
    days = asked.days[: asked.begun]
    parts = in_turn(money.units(plan.fee or "0"), [1] * len(asked.days))
    held = {
        day: part
        for day, part, text in zip(days, parts, asked.texts, strict=False)
        if seat is None or is_held(seat, text)
    }
    return asked.converted(held, plan.currency, lacking)
