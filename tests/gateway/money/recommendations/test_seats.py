"""Recommendations on unused seats, by plan and team, with the fee per seat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from gateway.core.visibility import VisibilityRules
from gateway.money.recommendations.adviser import realized_saving
from gateway.money.recommendations.evaluation import GRACE_S, StoredAdvice, build_savings, evaluate_types
from gateway.money.recommendations.facts import DAY_S, SavingFacts, UnusedSeat
from gateway.money.recommendations.list import TYPES
from gateway.money.recommendations.types import idle_seat
from spool import money
from spool.ledger.ledger import Ledger
from spool.registry.insights import ADDRESSED
from spool.registry.recommendations import Recommendation, Saving, TypeSettings
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.gateway.money.recommendations.examples import DIMENSIONS, NOW
from tests.spool.ledger_log import FakeClock

FIRST = 1_790_812_800  # 2026-10-01
EVERYTHING = {type.NAME: TypeSettings(least_savings="0", least_share="0") for type in TYPES}


def seat(user: str, fee: int, *, team: str = "search", plan: str = "Claude") -> UnusedSeat:
    return UnusedSeat(
        plan=plan,
        user=user,
        person=user,
        team=team,
        fee=fee * money.UNIT,
        first_day=FIRST,
        last_day=FIRST + 30 * DAY_S,
    )


SEATS = (
    seat("ann", 25),
    seat("bob", 30),
    seat("cid", 30, team="checkout"),
    seat("dan", 30, team=""),
    seat("eve", 7, plan="Cursor"),
)


def found(stored_advice: StoredAdvice, seats: Sequence[UnusedSeat] = SEATS, cost: int = 300) -> list[Saving]:
    facts = SavingFacts(now=NOW, seats=seats, seats_cost=cost * money.UNIT)
    evaluation = evaluate_types(facts, [idle_seat], stored_advice)
    assert [] == evaluation.failed
    return build_savings(facts, evaluation, dimensions=DIMENSIONS, price_book="card")


def test_seats_are_reported_by_plan_and_team() -> None:
    """
    Each finding is about one plan and team. The formula shows the fee of each seat, and the days are those of
    the billing cycle.
    """
    savings_by_title = {saving.title: saving for saving in found(StoredAdvice(settings=EVERYTHING))}
    assert {
        "2 seats of Claude (search) without use": "55",
        "1 seat of Claude (checkout) without use": "30",
        "1 seat of Claude without use": "30",
        "1 seat of Cursor (search) without use": "7",
    } == {title: saving.monthly_savings for title, saving in savings_by_title.items()}
    idle = savings_by_title["2 seats of Claude (search) without use"]
    assert idle.spent == "55"
    assert idle.gross_savings == "55"
    assert idle.first_day == "2026-10-01"
    assert idle.last_day == "2026-10-31"
    assert "seat fees, $55: bob $30; ann $25" == idle.formula
    assert {"team": ["search"], "user": ["bob", "ann"]} == idle.dimensions
    assert "bob, ann had no successful call" in idle.description and "cancel" in idle.description


def test_many_seats_are_named_in_part() -> None:
    [one] = found(StoredAdvice(settings=EVERYTHING), [seat(f"user {number:02}", 5) for number in range(30)])
    assert "and 20 more" in one.formula and "150" == one.monthly_savings


def test_who_sees_one_team_sees_its_seats() -> None:
    sees = VisibilityRules(False, lambda include, _: include == {"team": ("search",)}, lambda _: None)
    all_savings = found(StoredAdvice(settings=EVERYTHING))
    shown = [
        saving.dimensions["user"]
        for saving in all_savings
        if sees.can_see_recommendation(kept(saving, "new", 0))
    ]
    assert [["bob", "ann"], ["eve"]] == shown


def test_the_least_share_is_one_of_what_seats_cost() -> None:
    share = {idle_seat.NAME: TypeSettings(least_share="10")}
    assert ["55", "30", "30"] == [saving.monthly_savings for saving in found(StoredAdvice(settings=share))]
    assert ["55"] == [saving.monthly_savings for saving in found(StoredAdvice(settings=share), cost=301)]


def kept(saving: Saving, status: str, at: float) -> Recommendation:
    return Recommendation(
        id="r", saving=saving, status=status, status_at=at, created=0, last_updated=0, found_at=0,
        promised=saving.monthly_savings,
    )  # fmt: skip


def test_addressed_seats_are_reported_only_for_later_cycles() -> None:
    [one] = found(StoredAdvice(settings=EVERYTHING), SEATS[:2])
    for at, count in ((FIRST - GRACE_S, 1), (FIRST - GRACE_S + 1, 0), (FIRST + 5 * DAY_S, 0)):
        known = StoredAdvice(settings=EVERYTHING, recommendations={one.key: kept(one, ADDRESSED, at)})
        assert count == len(found(known, SEATS[:2]))
    later_seats = [replace(seat, first_day=FIRST + 31 * DAY_S) for seat in SEATS[:2]]
    assert one.key == found(StoredAdvice(settings=EVERYTHING), later_seats)[0].key


async def test_what_seats_save_is_not_measured_on_calls() -> None:
    [one] = found(StoredAdvice(settings=EVERYTHING), SEATS[:2])
    ledger = Ledger(new_in_memory_ledger(), clock=FakeClock(NOW))
    assert await realized_saving(ledger, kept(one, ADDRESSED, NOW - 60 * DAY_S), NOW) is None
    assert Decimal(one.monthly_savings) == 55
