"""Billing cycles that begin on any day of the month, and their parts in calendar months."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from gateway.bills.months import CalendarMonth
from gateway.bills.plans.declared import AssistantPlan, Seat
from gateway.bills.plans.sums import (
    PlanPeriodDays,
    SeatMonth,
    SeatUsage,
    SeatUse,
    billing_cycles,
    months_of_seats,
)
from spool import money
from spool.currencies import CurrencyConverter, find_no_rate
from spool.record import CURRENCY
from spool.statements import DAY_S, day_text, parse_day

ONE: int = money.UNIT


def begun(day: int, start: str, end: str) -> list[str]:
    return [day_text(each.start) for each in billing_cycles(day, parse_day(start), parse_day(end))]


@pytest.mark.parametrize(
    ("day", "starts"),
    [
        (1, ["2026-01-01", "2026-02-01", "2026-03-01"]),
        (15, ["2025-12-15", "2026-01-15", "2026-02-15", "2026-03-15"]),
        (29, ["2025-12-29", "2026-01-29", "2026-02-28", "2026-03-29"]),
        (30, ["2025-12-30", "2026-01-30", "2026-02-28", "2026-03-30"]),
        (31, ["2025-12-31", "2026-01-31", "2026-02-28", "2026-03-31"]),
    ],
)
def test_a_short_month_begins_a_cycle_on_its_last_day(day: int, starts: list[str]) -> None:
    assert starts == begun(day, "2026-01-01", "2026-04-01")


def test_a_leap_year() -> None:
    assert ["2028-01-31", "2028-02-29"] == begun(31, "2028-02-01", "2028-03-01")


@pytest.mark.parametrize("day", range(1, 32))
def test_every_day_is_in_one_cycle(day: int) -> None:
    """Over three years, each billing cycle ends where the next one begins."""
    start, end = parse_day("2026-01-01"), parse_day("2029-01-01")
    all_cycles = list(billing_cycles(day, start, end))
    assert (
        all_cycles[0].start <= start < all_cycles[0].end and all_cycles[-1].start < end <= all_cycles[-1].end
    )
    assert all(one.end == other.start for one, other in pairwise(all_cycles))
    assert all(28 <= len(cycle.days) <= 31 for cycle in all_cycles)
    for at in range(start, end, 97 * DAY_S):
        [only] = billing_cycles(day, at, at + DAY_S)
        assert only in all_cycles


def plan(*seats: Seat, **fields: Any) -> AssistantPlan:
    values: dict[str, Any] = {"name": "Plan", "view": "v", "id": "p", "created": 0, "last_updated": 0}
    return AssistantPlan(**values | fields, seats=seats)


def asked(month: str) -> PlanPeriodDays:
    days = CalendarMonth.of(month).days
    return PlanPeriodDays(days=days, begun=len(days), converter=CurrencyConverter(find_no_rate, CURRENCY))


def uses_of(by_day: dict[str, dict[int, SeatUse]]) -> SeatUsage:
    """
    Create the uses of some days. In these tests spans are days, and they begin and end with cycles and months.
    """
    uses = SeatUsage()
    for mark, days in by_day.items():
        for day, use in days.items():
            uses.add_use(mark, day, use)
    return uses


def spent(day: str, dollars: int) -> dict[int, SeatUse]:
    return {parse_day(day): SeatUse(value=dollars * ONE, worth=dollars * ONE, calls=1)}


def test_what_is_beyond_is_of_the_month_in_which_it_was_used() -> None:
    """
    A cycle starts on the 20th and includes ten dollars, which the calls of two months use up on 3 November.
    Extra usage belongs to the month in which it was used.
    """
    own = plan(
        Seat(user="ann", since="2026-01-01"), cycle_day=20, fee="31", included="10", overage_price="1.5"
    )
    days = {
        **spent("2026-10-19", 9), **spent("2026-10-25", 8), **spent("2026-11-03", 5),
        **spent("2026-11-19", 2), **spent("2026-11-20", 10),
    }  # fmt: skip
    uses = uses_of({"p:0": days})
    [october], [november] = (months_of_seats(own, asked(month), uses) for month in ("2026-10", "2026-11"))
    assert october.overage == 0
    assert october.beyond == 0
    assert november.beyond == 5 * ONE
    assert november.overage == 15 * ONE // 2
    assert november.included_value == 12 * ONE
    # The October fee is 19 of the 30 days of the first cycle plus 12 of the 31 days of the second cycle. The
    # November fee is 19 of these 31 days plus 11 of the 30 days of the third cycle.
    assert abs(october.fee - ONE * Fraction(31 * 19, 30) - 12 * ONE) < 2
    assert abs(november.fee - 19 * ONE - ONE * Fraction(31 * 11, 30)) < 2


def months_from(first: str, count: int) -> Iterator[PlanPeriodDays]:
    month = CalendarMonth.of(first)
    for _ in range(count):
        yield asked(month.name)
        month = CalendarMonth.at(month.end)


@pytest.mark.parametrize("is_pooled", [False, True])
@pytest.mark.parametrize("day", [1, 17, 29, 31])
def test_months_add_up_to_cycles(day: int, is_pooled: bool) -> None:
    """
    In a random year without use at its edges, the fees of each cycle add up to the fee. Extra usage of all
    months equals that of all cycles, and no seat has more than it used.
    """
    chance = random.Random(day)
    seats = [Seat(user=user, since="2025-01-01") for user in ("ann", "bob", "cid")]
    own = plan(*seats, cycle_day=day, fee="19.99", included="40", overage_price="1.37", is_pooled=is_pooled)
    whole = list(billing_cycles(day, parse_day("2026-02-15"), parse_day("2026-11-15")))
    by_seat = {
        f"p:{seat_number}": {
            at: SeatUse(value=chance.randrange(5 * ONE), calls=1)
            for at in range(whole[0].start, whole[-1].end, DAY_S)
            if chance.random() < 0.5
        }
        for seat_number in range(3)
    }
    uses = uses_of(by_seat)
    months = [months_of_seats(own, month, uses) for month in months_from("2026-01", 12)]
    converter = asked("2026-01").converter
    of_cycles = [
        months_of_seats(
            own, PlanPeriodDays(days=cycle.days, begun=len(cycle.days), converter=converter), uses
        )
        for cycle in whole
    ]
    for cycle, seat_months in zip(whole, of_cycles, strict=True):
        assert {money.text_to_units("19.99")} == {seat.fee for seat in seat_months}
        assert beyond_by_hand(by_seat, cycle.days, is_pooled) == sum(seat.beyond for seat in seat_months)
    for seat in (seat for seat_months in (*months, *of_cycles) for seat in seat_months):
        assert 0 <= seat.beyond <= seat.used and 0 <= seat.included_value <= seat.use.value
    assert total(of_cycles) == total(months)


def total(found: Sequence[Sequence[SeatMonth]]) -> tuple[int, int]:
    """Return the extra usage and its cost."""
    seats = [seat for seat_months in found for seat in seat_months]
    return sum(seat.beyond for seat in seats), sum(seat.overage for seat in seats)


def beyond_by_hand(by_seat: dict[str, dict[int, SeatUse]], days: range, is_pooled: bool) -> int:
    used = [sum(use.value for at, use in own.items() if at in days) for own in by_seat.values()]
    if is_pooled:
        return max(0, sum(used) - 3 * 40 * ONE)
    return sum(max(0, amount - 40 * ONE) for amount in used)


def test_days_with_reversed_usage_add_up_to_the_cycle() -> None:
    """
    A correction may take back more than the use of its day. The days still add up to the total use of the cycle.
    """
    own = plan(Seat(user="ann", since="2026-01-01"), included="10", overage_price="1")
    days = {**spent("2026-10-02", 20), **spent("2026-10-05", -4), **spent("2026-10-09", 1)}
    [month] = months_of_seats(own, asked("2026-10"), uses_of({"p:0": days}))
    assert month.used == 17 * ONE
    assert month.beyond == 7 * ONE
    assert month.overage == 7 * ONE
    assert 10 * ONE == month.included_value
