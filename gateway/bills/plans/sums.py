"""
Fees, usage and overage of a plan's seats in a month or a billing cycle. Pure and exact.

Fees and included usage apply per billing cycle. A month that contains a part of a cycle gets the fee of these days
and the overage that arose on them. So the months of a cycle add up to the cycle.

Amounts are integers in units of `spool.money`. Paid amounts and the value of included usage are never added,
because nobody paid for included usage.
"""

from __future__ import annotations

from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.plans.coverage import is_seat_held, make_seat_id
from gateway.bills.plans.declared import CALLS, USD, AssistantPlan, Seat
from spool import money
from spool.currencies import CurrencyConverter, round_product_to_units
from spool.statements import DAY_S, day_text

MarkedSeat = tuple[Seat, str]


@dataclass(frozen=True, slots=True)
class BillingCycle:
    """The days of a billing cycle, from `start` to before `end`, in epoch seconds."""

    start: int
    end: int

    @property
    def days(self) -> range:
        return range(self.start, self.end, DAY_S)


def billing_cycles(day: int, start: int, end: int) -> Iterator[BillingCycle]:
    """
    Yield the cycles that overlap the time from `start` to before `end`.

    A cycle begins on the `day` of each month, or on the last day of a shorter month. Cycles of day 31 begin
    on 31 January, 28 February, 31 March.
    """
    at = datetime.fromtimestamp(start, UTC)
    month = at.year * 12 + at.month - 1
    begin = _cycle_start(month, day)
    if begin > start:
        month -= 1
        begin = _cycle_start(month, day)
    while begin < end:
        month += 1
        next_begin = _cycle_start(month, day)
        yield BillingCycle(begin, next_begin)
        begin = next_begin


def _cycle_start(month: int, day: int) -> int:
    """
    Return the start of the cycle that begins on `day` of a month, or on the last day of a shorter month, in
    epoch seconds. `month` counts from the year 0.
    """
    year, before = divmod(month, 12)
    _, last = monthrange(year, before + 1)
    first = date(year, before + 1, min(day, last))
    return int(datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatUse:
    """
    Calls that a seat covers. `value` is their value at list prices in dollars, and `worth` the same in the
    requested currency. `calls` counts successful calls.
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


NOTHING = SeatUse()
_NO_SPANS: Mapping[int, SeatUse] = {}


@dataclass(slots=True)
class SeatUsage:
    """
    Usage of seats, by seat id and start of the span. A span never crosses the start or end of a month, a
    billing cycle or a seat.

    `metered` is the cost of the month's calls that no plan covers. Amounts without an exchange rate are
    listed by currency: `unpaid` for these calls, and `unvalued` for covered calls.
    """

    spans: dict[str, dict[int, SeatUse]] = field(default_factory=lambda: defaultdict(dict))
    metered: int = 0
    unpaid: Counter[str] = field(default_factory=Counter)
    unvalued: Counter[str] = field(default_factory=Counter)

    def use_between(self, seat_id: str, start: int, end: int) -> SeatUse:
        """
        Return the usage of a seat from `start` to before `end`. Both must be bounds of spans, because a
        span's usage is not divided.
        """
        total = NOTHING
        for at, use in self.spans.get(seat_id, _NO_SPANS).items():
            if start <= at < end:
                total = total.plus(use)
        return total

    def add_use(self, seat_id: str, span_start: int, use: SeatUse) -> None:
        spans = self.spans[seat_id]
        spans[span_start] = spans.get(span_start, NOTHING).plus(use)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPeriodDays:
    """The days of a month or a cycle, the number of days that have begun, and the currency converter."""

    days: Sequence[int]
    begun: int
    converter: CurrencyConverter
    texts: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(map(day_text, self.days)))

    @property
    def start(self) -> int:
        return self.days[0]

    @property
    def end(self) -> int:
        return self.days[-1] + DAY_S

    def sum_converted_and_collect_unconverted(
        self, amounts: Mapping[int, int], currency: str, unconverted_by_currency: Counter[str]
    ) -> int:
        """
        Convert amounts by day to the requested currency, and add them. Each day is rounded once. Amounts
        without a rate are added to `unconverted_by_currency`.
        """
        converted = 0
        for day, units in amounts.items():
            rate = self.converter.rate(currency, day)
            if rate is None:
                unconverted_by_currency[currency] += units
            else:
                converted += round_product_to_units(units * rate)
        return converted


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMonth:
    """
    The usage and cost of a seat on the requested days. `mark`: seat id. `fee` and `overage` are in the
    requested currency. `lacking` has amounts without an exchange rate, by currency. `used`, and `beyond` the
    included quantity, are in the plan's unit.

    `included_value` is the value of covered calls at list prices in dollars, without the overage.
    """

    plan: AssistantPlan
    seat: Seat
    mark: str
    start: int
    end: int
    held_days: int
    days: int  # number of days in the seat's month or billing cycle
    fee: int
    use: SeatUse
    used: int
    beyond: int
    overage: int
    included_value: int
    lacking: Mapping[str, int] = field(default_factory=dict)

    def value_included_in_fee(self, call_value: int) -> int:
        """Return the part of `call_value` that the plan's fee includes."""
        return call_value * self.included_value // self.use.value if self.use.value else 0


@dataclass(slots=True)
class Overage:
    """
    A seat's usage above what is included: quantity, price in the plan's currency, and value at list prices.
    """

    quantity: int = 0
    overage: int = 0
    value: int = 0


def months_of_seats(plan: AssistantPlan, period_days: PlanPeriodDays, uses: SeatUsage) -> list[SeatMonth]:
    """Return the seats that are held on a requested day, with the fees of the days that have begun."""
    beyond: dict[str, Overage] = defaultdict(Overage)
    for cycle in billing_cycles(plan.cycle_day, period_days.start, period_days.end):
        for seats in _seats_sharing_an_allowance(plan, cycle):
            _add_overage(beyond, plan, cycle, seats, period_days, uses)
    fees = fees_by_day(plan, period_days)
    months = []
    for seat_index, seat in enumerate(plan.seats):
        if any(is_seat_held(seat, day) for day in period_days.texts):
            mark = make_seat_id(plan, seat_index)
            months.append(_seat_month(plan, seat, mark, period_days, uses, fees, beyond[mark]))
    return months


def _seat_month(
    plan: AssistantPlan,
    seat: Seat,
    seat_id: str,
    period_days: PlanPeriodDays,
    uses: SeatUsage,
    fees: Mapping[int, int],
    seat_overage: Overage,
) -> SeatMonth:
    lacking: Counter[str] = Counter()
    use = uses.use_between(seat_id, period_days.start, period_days.end)
    held = [
        day for day, text in zip(period_days.days, period_days.texts, strict=True) if is_seat_held(seat, text)
    ]
    own_fees = {day: fees[day] for day in held if day in fees}
    overage = 0
    if seat_overage.overage:
        last = period_days.days[max(0, period_days.begun - 1)]
        overage = period_days.sum_converted_and_collect_unconverted(
            {last: seat_overage.overage}, plan.currency, lacking
        )
    return SeatMonth(
        plan=plan,
        seat=seat,
        mark=seat_id,
        start=period_days.start,
        end=period_days.end,
        held_days=len(held),
        days=len(period_days.days),
        fee=period_days.sum_converted_and_collect_unconverted(own_fees, plan.currency, lacking),
        use=use,
        used=usage_in_plan_unit(plan, use),
        beyond=seat_overage.quantity,
        overage=overage,
        included_value=use.value - seat_overage.value,
        lacking=lacking,
    )


def included_allowance(plan: AssistantPlan, seats: Sequence[Seat]) -> int | None:
    """Return the usage that these seats include together per cycle, or None if it is unlimited."""
    if not plan.included:
        return None
    return money.text_to_units(plan.included) * len({seat.user.casefold() for seat in seats})


def usage_in_plan_unit(plan: AssistantPlan, use: SeatUse) -> int:
    """Return usage in the plan's unit. Never below 0, even if corrections exceed the usage."""
    used = max(0, use.calls if plan.unit == CALLS else use.value)
    if plan.unit == USD:
        return used
    unit_value = 1 if plan.unit == CALLS else money.text_to_units(plan.credit_value)
    return int(used * money.UNIT // unit_value)


def _seats_sharing_an_allowance(plan: AssistantPlan, cycle: BillingCycle) -> Iterator[Sequence[MarkedSeat]]:
    first, last = day_text(cycle.start), day_text(cycle.end - DAY_S)
    groups: dict[str, list[MarkedSeat]] = defaultdict(list)
    for seat_index, seat in enumerate(plan.seats):
        if seat.since <= last and (not seat.until or first < seat.until):
            who = "" if plan.is_pooled else seat.user.casefold()
            groups[who].append((seat, make_seat_id(plan, seat_index)))
    yield from groups.values()


def _add_overage(
    overage_by_seat: dict[str, Overage],
    plan: AssistantPlan,
    cycle: BillingCycle,
    seats: Sequence[MarkedSeat],
    period_days: PlanPeriodDays,
    uses: SeatUsage,
) -> None:
    included = included_allowance(plan, [seat for seat, _ in seats])
    if included is None:
        return
    start, end = max(cycle.start, period_days.start), min(cycle.end, period_days.end)
    through = [usage_in_plan_unit(plan, uses.use_between(mark, cycle.start, end)) for _, mark in seats]
    before = [usage_in_plan_unit(plan, uses.use_between(mark, cycle.start, start)) for _, mark in seats]
    parts = [max(0, used - earlier) for used, earlier in zip(through, before, strict=True)]
    excess, was_over = max(0, sum(through) - included), max(0, sum(before) - included)
    if excess <= was_over:
        return
    quantities = divide_in_sequence(excess - was_over, parts)
    overages = divide_in_sequence(_overage_price(plan, excess) - _overage_price(plan, was_over), parts)
    for (_, mark), part, quantity, overage in zip(seats, parts, quantities, overages, strict=True):
        if part:
            value = max(0, uses.use_between(mark, start, end).value)
            beyond = overage_by_seat[mark]
            beyond.quantity += quantity
            beyond.overage += overage
            beyond.value += value * quantity // part


def _overage_price(plan: AssistantPlan, overage_quantity: int) -> int:
    return int(overage_quantity * money.text_to_units(plan.overage_price or "0") // money.UNIT)


def fees_by_day(plan: AssistantPlan, period_days: PlanPeriodDays) -> dict[int, int]:
    """
    Divide a seat's fee among the requested days that have begun, in units of the plan's currency. All days of
    a cycle together have the whole fee.
    """
    begun = set(period_days.days[: period_days.begun])
    fees: dict[int, int] = {}
    for cycle in billing_cycles(plan.cycle_day, period_days.start, period_days.end):
        parts = divide_in_sequence(money.text_to_units(plan.fee or "0"), [1] * len(cycle.days))
        fees.update((day, part) for day, part in zip(cycle.days, parts, strict=True) if day in begun)
    return fees
