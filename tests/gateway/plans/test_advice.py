"""Advice on seats that share what they include: who should leave a pool, enter it, or give a seat back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.plans.advice import SeatAdvice, SeatAdviser, pools_of
from gateway.plans.sums import AskedDays, SeatMonth, month_of_plan
from gateway.plans.uses import SeatUse, Uses
from gateway.reconciliation.gathering import CalendarMonth
from spool.currencies.exchange import Converter, no_rates
from spool.ledger import money
from spool.record import CURRENCY
from spool.registry.tables.plans import AssistantPlan, Seat

MONTH = CalendarMonth.of("2026-09")
ASKED = AskedDays(days=MONTH.days, begun=len(MONTH.days), converter=Converter(no_rates, CURRENCY))


def plan(name: str, *users: str, **fields: Any) -> AssistantPlan:
    seats = tuple(Seat(user=user, since="2026-01-01") for user in users)
    return AssistantPlan(name=name, id=name, view_id="v", created=0, last_updated=0, seats=seats, **fields)


def pool(*users: str, price: str) -> AssistantPlan:
    """Each seat costs 19 and brings 20 into the pool."""
    return plan("Pool", *users, fee="19", included="20", overage_price=price, is_pooled=True)


def large(*users: str) -> AssistantPlan:
    return plan("Large", *users, fee="40", included="80", overage_price="2")


def spent(plans: list[AssistantPlan], used: Mapping[str, int], unpriced: str = "") -> list[SeatMonth]:
    """The months of all seats, of whom each used so many dollars; who is not named has no call."""
    uses = Uses()
    for each in plans:
        for place, seat in enumerate(each.seats):
            amount = used.get(seat.user)
            if amount is None:
                continue
            value = amount * money.UNIT
            use = SeatUse(value=value, worth=value, calls=1, unpriced=int(seat.user == unpriced))
            for is_day in (False, True):
                uses.put(f"{each.id}:{place}", MONTH.days[3], use, is_day=is_day)
    return [month for each in plans for month in month_of_plan(each, ASKED, uses)]


def advised(
    plans: list[AssistantPlan], months: list[SeatMonth], *, shows_pools: bool = True
) -> list[SeatAdvice]:
    adviser = SeatAdviser(plans=plans, asked=ASKED, pools=pools_of(months), shows_pools=shows_pools)
    return adviser.advise(months)


def told(found: list[SeatAdvice]) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.month.seat.user, each.instead, money.text(each.saves)) for each in found]


def paid(months: list[SeatMonth]) -> int:
    return sum(each.fee + each.overage for each in months)


def test_who_leaves_a_pool_and_who_enters_it() -> None:
    """
    p1, p2 and p3 used 90 of 60: 30 beyond, at 2 each. Without p1 nothing is beyond: p1 costs 19 + 60, and in Large
    40, because 80 are included. Then s1 finds room in the pool, and has there 19 in place of 40. For s2, who used 70,
    there is none. Both moves together cost as much less as they say.
    """
    used = {"p1": 70, "p2": 10, "p3": 10, "s1": 15, "s2": 70}
    plans = [pool("p1", "p2", "p3", price="2"), large("s1", "s2")]
    before = spent(plans, used)
    found = advised(plans, before)
    assert [("other_plan", "p1", "Large", "39"), ("other_plan", "s1", "Pool", "21")] == told(found)
    assert [
        "19 of fee and 60 beyond of the pool (0 without the seat), in place of which Large has 40 and 0",
        "40 of fee and 0 beyond, in place of which Pool has 19",
    ] == [each.formula for each in found]
    after = spent([pool("s1", "p2", "p3", price="2"), large("p1", "s2")], used)
    assert sum(each.saves for each in found) == paid(before) - paid(after)


def test_who_enters_a_pool_brings_what_a_seat_includes() -> None:
    """
    The pool is 40 beyond. With e, who used 5 and brings 20, it is 25: the seat costs 19, less 15 at 1 each,
    in place of 40. Then p1 costs 19 and 25 there, and 40 in Large. f used 60, which is more than the pool has.
    """
    used = {"p1": 60, "p2": 20, "e": 5, "f": 60}
    plans = [pool("p1", "p2", price="1"), large("e", "f")]
    found = advised(plans, spent(plans, used))
    assert [("other_plan", "e", "Pool", "36"), ("other_plan", "p1", "Large", "4")] == told(found)
    assert [
        "40 of fee and 0 beyond, in place of which Pool has 19 and 25 beyond of the pool (40 without the seat)",
        "19 of fee and 25 beyond of the pool (0 without the seat), in place of which Large has 40 and 0",
    ] == [each.formula for each in found]


def test_an_idle_seat_of_a_pool_takes_along_what_it_includes() -> None:
    """
    p1 and p2 used 70 of 60. Without the seat of idle 40 are included, and 30 are beyond in place of 10. At 0.1 each
    that is 2 more, and the fee of 19 is saved; at 1 each it would be 20 more.
    """
    used = {"p1": 60, "p2": 10}
    for price, saves in (("0.1", ["17"]), ("1", [])):
        plans = [pool("p1", "p2", "idle", price=price)]
        months = spent(plans, used)
        for shows_pools in (True, False):
            found = advised(plans, months, shows_pools=shows_pools)
            assert [("idle", "idle", "", amount) for amount in saves] == told(found)
    plans = [pool("p1", "p2", "idle", price="0.1")]
    [one] = advised(plans, spent(plans, used))
    assert "19 of fee and 1 beyond of the pool (3 without the seat), and no call that worked" == one.formula


def test_nothing_is_said_of_a_pool_whose_use_is_not_known_or_not_shown() -> None:
    """A call without a price hides what is beyond; the arithmetic of a pool tells what others used."""
    used = {"p1": 70, "p2": 10, "s1": 15}
    plans = [pool("p1", "p2", "idle", price="2"), large("s1")]
    assert [] == advised(plans, spent(plans, used, unpriced="p2"))
    assert [] == advised(plans, spent(plans, used), shows_pools=False)
    others = [pool("p1", "p2", price="2"), plan("Other", "s1", fee="40", included="80", cycle_day=15)]
    assert [] == advised(others, spent(others, used)[:-1])  # the cycles of the two are not the same


def test_a_pool_that_includes_everything_costs_its_fee() -> None:
    plans = [plan("Flat", "p1", fee="25", is_pooled=True), large("s1")]
    found = advised(plans, spent(plans, {"p1": 500, "s1": 90}))
    assert [("other_plan", "s1", "Flat", "35")] == told(found)
    assert "40 of fee and 20 beyond, in place of which Flat has 25" == found[0].formula
