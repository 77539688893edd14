"""What is given back, or charged anew, is of the calls of its own time, to the last digit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.billed.layers import LayerRules, divide_day
from gateway.bills.billed.refunds import by_day, refunds_of, shares_of
from gateway.bills.reconciliation.sides import DAY_S
from spool.ledger.money import UNIT
from spool.ledger.queries import BILLED, BILLED_TYPES
from spool.ledger.slices import SlicedLedger
from spool.registry.roles import LedgerSlice, RoleFilter
from spool.statements import StatementRow
from tests.gateway.bills.billed.test_biller import FIRST, World, line
from tests.gateway.bills.billed.worlds import DAY, Use, bill, calls, divided, paid, row

USES = [calls("a", 30), calls("b", 10)]
LATER = {"day": 3, "line_type": "refund"}


def refund(
    amount: str | int, kind: str = "input", *, of: int = 0, days: int = 1, **more: Any
) -> StatementRow:
    times = {"corrects": DAY + of * DAY_S, "corrects_until": DAY + (of + days) * DAY_S}
    return row(kind, amount, **{**LATER, **times, **more})


def shared(rows: list[StatementRow], uses: list[Use], day: int = 0) -> dict[str, int]:
    """What each team has of the refunds of a day; nobody has "-"."""
    whole = bill(rows, uses, days=4)
    [amounts] = [refunds_of(found) for found in whole.amounts.values() if refunds_of(found)]
    found: dict[str, int] = {}
    for each in shares_of(amounts, whole, DAY + day * DAY_S, uses):
        team = "-" if each.dimensions.kind == BILLED else each.dimensions.team or ""
        found[team] = found.get(team, 0) + each.amount
    return found


def test_a_refund_takes_from_each_what_the_charge_gave() -> None:
    """Also what nobody reported of it: the charge and its refund are nothing in every row."""
    rows = [row("input", 8), row("input", 80, unit="tokens")]
    charged = paid(divided(rows, USES, days=4))
    back = shared([*rows, refund(-8)], USES)
    assert {team: -amount for (team, _, _), amount in charged.items()} == back
    assert {"a": -3 * UNIT, "b": -UNIT, "-": -4 * UNIT} == back


def test_it_is_of_the_model_that_was_overcharged() -> None:
    """And of the key, where both sides know it; one of no model is of all calls of the day, by value."""
    uses = [calls("a", 30), calls("c", 10, model="claude-opus-4"), calls("d", 10, day=1)]
    assert {"c": -UNIT} == shared([refund(-1, model="claude-opus-4")], uses[:2])
    assert {"a": -3 * UNIT, "c": -UNIT} == shared([refund(-4, "refund", model=None)], uses[:2])
    of_keys = [calls("a", 30, key="k"), calls("b", 10, key="l")]
    assert {"b": -UNIT} == shared([refund(-1, key="l"), row("input", 1, key="k")], of_keys)


def test_fees_and_searches_are_given_back_to_who_had_them() -> None:
    """A fee was of nobody, searches of the calls of their key."""
    of_keys = [calls("a", 30, key="k"), calls("b", 10, key="l")]
    assert {"-": -UNIT} == shared([refund(-1, "throughput")], of_keys)
    rows = [refund(-1, "web_search", key="l", model=None), row("input", 1, key="k")]
    assert {"b": -UNIT} == shared(rows, of_keys)
    searched = [calls("a", 30, beside={"web_search": 1}), calls("b", 10)]
    assert {"a": -UNIT} == shared([refund(-1, "web_search", model=None), row("input", 1)], searched)


def test_a_refund_of_several_days_is_divided_by_what_their_calls_are_worth() -> None:
    """Evenly where there are none, and nobody has it then; no digit is lost."""
    [line] = refunds_of(bill([refund(-10, days=3)], USES, days=4).amounts[DAY + 3 * DAY_S])
    by_worth = dict(by_day([line], {DAY: 1, DAY + DAY_S: 2, DAY - DAY_S: 7}))
    assert {DAY: -10 * UNIT // 3 + 1, DAY + DAY_S: -10 * UNIT - (-10 * UNIT // 3 + 1)} == {
        day: part.amount for day, part in by_worth.items()
    }
    assert [-10 * UNIT] == [sum(part.amount for _, part in by_day([line], {}))]
    assert {"-": -10 * UNIT} == shared([refund(-10, of=2)], [], day=2)


@given(st.integers(-(10**30), 10**30), st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_all_of_it_is_somewhere_in_both_arrangements(amount: int, tokens: list[int]) -> None:
    """It stands alone where discounts do, and is on the calls where they are."""
    uses = [calls(f"t{place}", count) for place, count in enumerate(tokens)]
    rows = [refund(f"{amount}e-27")]
    whole = bill(rows, uses, days=4)
    shares = shares_of(refunds_of(whole.amounts.get(DAY + 3 * DAY_S, ())), whole, DAY, uses)
    found = divide_day(whole, DAY + 3 * DAY_S, [], refunds=shares)
    for bit in BILLED_TYPES.values():
        assert amount == sum(paid(found, bit).values())
    assert ({("-", "refund", "unallocated"): amount} if amount else {}) == paid(found, 1)


def test_one_whose_time_is_not_told_is_of_nobody() -> None:
    """In every type, with the reason."""
    found = divided([row("refund", -3, model=None, line_type="refund")], USES)
    assert {"refund": -3 * UNIT} == found.reasons
    assert {("-", "refund", "unallocated"): -3 * UNIT} == paid(found, 1) == paid(found, 2)


@pytest.mark.parametrize(
    ("kind", "rules", "is_divided"),
    [
        ("credit", LayerRules(), False),
        ("credit", LayerRules(credits=True), True),
        ("tax", LayerRules(), True),
        ("tax", LayerRules(tax=False), False),
    ],
)
def test_credits_and_taxes_are_as_it_is_set(kind: str, rules: LayerRules, is_divided: bool) -> None:
    """On the usage of the billing period in the types that have discounts there, or of nobody with the reason."""
    rows = [row("cost", 4), row(kind, -2, model=None)]
    whole = bill(rows, USES)
    base = divide_day(whole, DAY, USES).base
    found = divide_day(whole, DAY, USES, month=base, rules=rules)
    assert is_divided == rules.of_month(whole)
    alone = {("-", kind, "unallocated"): -2 * UNIT}
    parts = {("a", kind, "shared"): -3 * UNIT // 2, ("b", kind, "shared"): -UNIT // 2}
    layers = [
        {place: amount for place, amount in paid(found, bit).items() if place[1] == kind} for bit in (1, 2)
    ]
    assert [alone, parts if is_divided else alone] == layers
    assert ({} if is_divided else {kind: -2 * UNIT}) == found.reasons


@pytest.mark.asyncio
async def test_a_refund_of_an_earlier_month_is_on_its_calls() -> None:
    """Dated on the day on which it was billed; who called on that day has nothing of it."""
    world = await World().open()
    earlier = FIRST - 40 * 86400
    world.use("search", 60, day=-40)
    world.use("ads", 20, day=-40)
    world.use("jobs", 50)
    given_back = line("input", "-0.8")
    told = {"line_type": "refund", "corrects": earlier, "corrects_until": earlier + 86400}
    world.told.kept += [line("input", "1"), msgspec.structs.replace(given_back, **told)]
    assert await world.biller.look() == 2
    assert await world.biller.look() == 0
    alone = await world.paid("billed_cost", "team", "charge")
    assert {("jobs", "usage"): "1", (None, "refund"): "-0.8"} == {
        place: str(paid) for place, paid in alone.items()
    }
    within = await world.paid("discounted_cost", "team", "charge")
    assert {"search": "-0.6", "ads": "-0.2"} == {
        str(team): str(amount) for (team, charge), amount in within.items() if charge == "refund"
    }
    sliced = SlicedLedger(
        world.ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),))
    )
    seen = []
    for shows_layers in (False, True):  # as `billed.limited` says
        world.ledger.shows_layers = shows_layers
        rows = await sliced.costs(world.asked("discounted_cost", "charge"))
        seen.append([(row.group[0], row.cost) for row in rows])
    assert [[], [("refund", "-0.6")]] == seen
