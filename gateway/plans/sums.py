"""
Paid, included and beyond: what the seats of a plan came to on the days that are asked for. Pure, and exact.

The three never stand in one sum: paid are the fees and what was used beyond; the value of what a plan
includes is no money that anybody paid. A fee, and what it includes, is of a billing cycle; days that
are a part of one have a part of the fee, and what was beyond on these days.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.billed.spreading import in_turn
from gateway.plans.beyond import Beyond, beyond_of, price_beyond, used_of
from gateway.plans.coverage import is_held, seat_mark
from gateway.plans.cycles import Cycle, cycles
from gateway.plans.uses import SeatUse, Uses
from spool.currencies.exchange import Converter, rounded
from spool.ledger import money
from spool.registry.tables.plans import AssistantPlan, Seat
from spool.statements.rules import day_text
from spool.statements.values import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDays:
    """Days of a month or a cycle, of which the first `begun` have begun, and what converts money."""

    days: Sequence[int]
    begun: int
    converter: Converter
    texts: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(map(day_text, self.days)))

    @property
    def start(self) -> int:
        return self.days[0]

    @property
    def end(self) -> int:
        return self.days[-1] + DAY_S

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
    A seat on the asked days. `fee` and `overage` are in units of the currency that is asked for,
    without what `lacking` has by currency, for want of a rate. `used` and `beyond` are in the unit of
    the plan; `by_day` has the days on which something was beyond.

    `included_value` is what the covered calls are worth at list prices in dollars, less those beyond.
    """

    plan: AssistantPlan
    seat: Seat
    mark: str
    start: int
    end: int
    held_days: int
    days: int  # that are asked for
    fee: int
    use: SeatUse
    used: int
    beyond: int
    overage: int
    included_value: int
    by_day: Mapping[int, Beyond] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)

    def included_of(self, worth: int) -> int:
        """Return how much of a part of its value is included."""
        return worth * self.included_value // self.use.value if self.use.value else 0


def month_of_plan(plan: AssistantPlan, asked: AskedDays, uses: Uses) -> list[SeatMonth]:
    """
    Return the seats that are held on an asked day, with the fees of the days that have begun.

    What is included is that of a whole cycle for everybody who had a seat on one of its days.
    """
    by_mark: dict[str, dict[int, Beyond]] = defaultdict(dict)
    for cycle, seats in shared(plan, asked):
        for mark, days in beyond_of(plan, cycle, seats, uses, until=asked.end).items():
            by_mark[mark].update(days)
    fees = fees_of(plan, asked)
    months = []
    for place, seat in enumerate(plan.seats):
        if any(is_held(seat, day) for day in asked.texts):
            mark = seat_mark(plan, place)
            days = {day: each for day, each in by_mark[mark].items() if asked.start <= day < asked.end}
            months.append(_month(plan, seat, mark, asked, uses, fees, days))
    return months


def _month(
    plan: AssistantPlan,
    seat: Seat,
    mark: str,
    asked: AskedDays,
    uses: Uses,
    fees: Mapping[int, int],
    days: Mapping[int, Beyond],
) -> SeatMonth:
    lacking: Counter[str] = Counter()
    use = uses.of(mark, asked.start, asked.end)
    held = {day: text for day, text in zip(asked.days, asked.texts, strict=True) if is_held(seat, text)}
    own = {day: fees[day] for day in held if day in fees}
    overage = sum(each.overage for each in days.values())
    return SeatMonth(
        plan=plan,
        seat=seat,
        mark=mark,
        start=asked.start,
        end=asked.end,
        held_days=len(held),
        days=len(asked.days),
        fee=asked.converted(own, plan.currency, lacking),
        use=use,
        used=used_of(plan, use),
        beyond=sum(each.quantity for each in days.values()),
        overage=overage_of(plan, overage, asked, lacking),
        included_value=use.value - sum(each.value for each in days.values()),
        by_day=days,
        lacking=lacking,
    )


def shared(plan: AssistantPlan, asked: AskedDays) -> Iterator[tuple[Cycle, Sequence[tuple[Seat, str]]]]:
    """Yield the cycles of the asked days, with the seats and marks that share what they include in one."""
    for cycle in cycles(plan.cycle_day, asked.start, asked.end):
        last = day_text(cycle.end - DAY_S)
        first = day_text(cycle.start)
        groups: dict[str, list[tuple[Seat, str]]] = defaultdict(list)
        for place, seat in enumerate(plan.seats):
            if seat.since <= last and (not seat.until or first < seat.until):
                whose = "" if plan.is_pooled else seat.user.casefold()
                groups[whose].append((seat, seat_mark(plan, place)))
        for seats in groups.values():
            yield cycle, seats


def overage_of(plan: AssistantPlan, overage: int, asked: AskedDays, lacking: Counter[str]) -> int:
    """Return what is beyond at the rate of the last day that has begun."""
    if not overage:
        return 0
    last = asked.days[max(0, asked.begun - 1)]
    return asked.converted({last: overage}, plan.currency, lacking)


def whole_fee(plan: AssistantPlan, asked: AskedDays, lacking: Counter[str]) -> int:
    """Return the fee of a seat that is held on all asked days."""
    return asked.converted(fees_of(plan, asked), plan.currency, lacking)


def overage_for(plan: AssistantPlan, use: SeatUse, asked: AskedDays, lacking: Counter[str]) -> int:
    """Return what a use costs beyond what one seat includes in a cycle."""
    if not plan.included:
        return 0
    beyond = max(0, used_of(plan, use) - money.units(plan.included))
    return overage_of(plan, price_beyond(plan, beyond), asked, lacking)


def fees_of(plan: AssistantPlan, asked: AskedDays) -> dict[int, int]:
    """
    Return the parts of the fee of a seat by the asked days that have begun, in units of the plan's
    currency. Those of all days of a cycle are the whole fee.
    """
    begun = set(asked.days[: asked.begun])
    found: dict[int, int] = {}
    for cycle in cycles(plan.cycle_day, asked.start, asked.end):
        parts = in_turn(money.units(plan.fee or "0"), [1] * len(cycle.days))
        found.update((day, part) for day, part in zip(cycle.days, parts, strict=True) if day in begun)
    return found
