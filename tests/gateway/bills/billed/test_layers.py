"""
Bill lines other than usage. One arrangement shows them separately, and the other divides them over the usage
that they reduce. Refunds and later charges belong exactly to the calls of their own time.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.billed.layers import BillDivisionRules, divide_day, divide_refunds, split_by_day_of_use
from gateway.bills.reconciliation.sides import DAY_S
from spool.ledger.billed import PROVISIONAL
from spool.ledger.dimensions import BILLED, BILLED_TYPES
from spool.ledger.slices import SlicedLedger
from spool.money import UNIT
from spool.registry.roles import LedgerSlice, RoleFilter
from spool.statements import COVERED, PURCHASE, UNUSED, StatementRow, bill_name
from tests.gateway.bills.billed.test_biller import FIRST, World, line
from tests.gateway.bills.billed.worlds import DAY, Use, bill, calls, divided, paid, row

USES = [calls("a", 30), calls("b", 10)]
USAGE = {("a", "usage", "value"): 3 * UNIT, ("b", "usage", "value"): 1 * UNIT}
LATER = {"bill": bill_name(DAY + 3 * DAY_S, DAY + 4 * DAY_S), "line_type": "refund"}


def test_a_discount_is_on_all_usage_in_its_scope() -> None:
    """
    A discount is divided in proportion to the cost of usage. It does not matter on which lines the provider
    put it. Both arrangements have the same sum.
    """
    division = divided([row("cost", 4), row("discount", -2, model=None)], USES)
    assert {**USAGE, ("-", "discount", "unallocated"): -2 * UNIT} == paid(division, 1)
    shared = {("a", "discount", "shared"): -3 * UNIT // 2, ("b", "discount", "shared"): -UNIT // 2}
    assert {**USAGE, **shared} == paid(division, 2)


def test_a_discount_of_a_model_is_on_its_usage_alone() -> None:
    """A discount of one model reduces only the cost of this model: usage of another model pays its full price."""
    rows = [row("cost", 4), row("cost", 1, model="claude-opus-4"), row("discount", -2, model="claude-opus-4")]
    paid_amounts = paid(divided(rows, [*USES, calls("c", 5, model="claude-opus-4")]), 2)
    assert [("c", "discount", "shared")] == [key for key in paid_amounts if key[1] == "discount"]


def test_tax_is_divided_by_the_usage_of_the_billing_period() -> None:
    """
    Tax is divided by the usage of the whole billing period, whatever day the tax line has. Without usage, the
    tax is unallocated.
    """
    base = divided([row("cost", 4)], USES).base
    rows = [row("tax", "0.76", model=None)]
    assert {("a", "tax", "shared"): 57 * UNIT // 100, ("b", "tax", "shared"): 19 * UNIT // 100} == paid(
        divided(rows, [], month=base), 2
    )
    assert {("-", "tax", "unallocated"): 76 * UNIT // 100} == paid(divided(rows, []), 2)


def test_what_no_call_caused_is_of_nobody() -> None:
    """
    Credits, commitments, and searches without a key each have a separate charge, and a reason why
    they are unallocated.
    """
    rows = [row("credit", -3, model=None), row("throughput", 5, model=None), row("web_search", 1, model=None)]
    division = divided(rows, USES)
    assert {"credit": -3 * UNIT, "commitment": 5 * UNIT, "other": UNIT} == division.reasons
    assert {"credit", "commitment", "other"} == {charge for _, charge, _ in paid(division)}


def test_searches_of_a_key_are_paid_by_its_calls() -> None:
    """Searches of a key are divided over the key's calls by value, in both arrangements."""
    uses = [calls("a", 30, key="k"), calls("b", 10, key="k"), calls("c", 10, key="l")]
    division = divided([row("web_search", 4, key="k", model=None)], uses)
    assert (
        {("a", "other", "shared"): 3 * UNIT, ("b", "other", "shared"): UNIT}
        == paid(division)
        == paid(division, 2)
    )


def test_units_other_than_tokens_are_divided_by_quantity() -> None:
    """
    Units other than tokens are divided over the calls by quantity, even if the line has no key. A line that
    names no meter is divided by its unit.
    """
    uses = [
        calls("a", 30, beside={"web_search": 1}),
        calls("b", 10, beside={"web_search": 3, "searches": 5, "images": 5}),
    ]
    lines = {"web_search": (1, 3), "hd_image_generation": (0, 4), "code_execution": None}
    for kind, shares in lines.items():
        paid_amounts = paid(divided([row(kind, 4, model=None)], uses))
        expected = {("-", "other", "unallocated"): 4 * UNIT}
        if shares is not None:
            of_teams = zip("ab", shares, strict=True)
            expected = {(team, "other", "value"): share * UNIT for team, share in of_teams if share}
        assert expected == paid_amounts, kind


def test_searches_that_are_given_back_are_of_who_paid_them() -> None:
    """Refunded searches keep their charge. A refund of an unknown service is a credit."""
    uses = [calls("a", 30, key="k")]
    credit = row("web_search", -4, key="k", model=None)
    assert {("a", "other", "shared"): -4 * UNIT} == paid(divided([credit], uses))
    lines = [row(kind, -1, model=None) for kind in ("refund", "support", "web_search", "spring_promotion")]
    assert {"refund": -UNIT, "support": -UNIT, "other": -UNIT, "credit": -UNIT} == divided(
        lines, uses
    ).reasons


def accrued(kind: str, amount: str | int, **more: Any) -> StatementRow:
    return row(kind, amount, unit="accrued_usd", **more)


def with_effective(kind: str, amount: int, effective: str, **more: Any) -> StatementRow:
    return row(kind, amount, amount_effective=Decimal(effective), **more)


@pytest.mark.parametrize(
    "fee_rows",
    [
        pytest.param(
            [row("throughput", 30, model=None), accrued("throughput", -30, model=None), accrued("cost", "0.8"),
             accrued("unused", "0.2", model=None)], id="rows of their own",
        ),
        pytest.param(
            [with_effective("throughput", 30, "0", model=None, line_type=PURCHASE),
             with_effective("cost", 0, "0.8", line_type=COVERED),
             with_effective("cost", 0, "0.2", model=None, line_type=UNUSED)], id="effective amounts",
        ),
    ],
)  # fmt: skip
def test_a_fee_is_on_what_it_covers(fee_rows: list[StatementRow]) -> None:
    """
    A fee of 30 dollars covers 30 days, and each day uses 0.8 of its dollar. The calls of the day cost 0.8,
    and the rest is unused. Bills state this with rows of their own or with the effective amount of each row.
    """
    rows = [*fee_rows, row("cost", 4), row("discount", -2, model=None)]
    division = divided(rows, USES)
    fee = {("-", "commitment", "unallocated"): 30 * UNIT}
    alone = {("-", "discount", "unallocated"): -2 * UNIT}
    within = {("a", "discount", "shared"): -3 * UNIT // 2, ("b", "discount", "shared"): -UNIT // 2}
    part = {("a", "commitment", "value"): 6 * UNIT // 10, ("b", "commitment", "value"): 2 * UNIT // 10}
    covered = {**part, ("-", "commitment", "unallocated"): 0, ("-", "unused", "unallocated"): UNIT // 5}
    assert {**USAGE, **fee, **alone} == paid(division, BILLED_TYPES["billed_cost"])
    assert {**USAGE, **fee, **within} == paid(division, BILLED_TYPES["discounted_cost"])
    assert {**USAGE, **covered, **alone} == paid(division, BILLED_TYPES["amortized_cost"])
    for name in ("discounted_amortized_cost", "invoiced_amortized_cost"):
        assert {**USAGE, **covered, **within} == paid(division, BILLED_TYPES[name])
    assert {"commitment": 30 * UNIT} == division.reasons
    assert {"commitment": -30 * UNIT, "unused": UNIT // 5} == division.accrued


def test_a_covered_day_without_an_amount_is_a_day_of_the_bill() -> None:
    """On a covered day the bill has no amount. Its calls still cost the part of the fee that they used."""
    division = divided([accrued("input", 4), row("input", 80, unit="tokens")], USES)
    assert {} == paid(division, BILLED_TYPES["billed_cost"])
    part = {("a", "commitment", "exact"): 3 * UNIT // 2, ("b", "commitment", "exact"): UNIT // 2}
    assert {**part, ("-", "commitment", "unallocated"): 2 * UNIT} == paid(
        division, BILLED_TYPES["amortized_cost"]
    )
    assert division.reasons == {}
    assert division.accrued == {"unreported": 2 * UNIT}


def test_day_that_may_be_restated_has_no_invoiced_cost() -> None:
    """A day that the provider may restate has no invoiced cost, but all other cost types."""
    open_day: dict[str, Any] = {"unsettled": {"bill": frozenset({DAY})}}
    division = divided([row("cost", 4)], USES, **open_day)
    kinds = {name: bool(paid(division, bit)) for name, bit in BILLED_TYPES.items()}
    assert {name: name != "invoiced_amortized_cost" for name in BILLED_TYPES} == kinds
    assert PROVISIONAL == bill([row("cost", 4)], USES, **open_day).states[DAY]


def refund(
    amount: str | int, kind: str = "input", *, of: int = 0, days: int = 1, **more: Any
) -> StatementRow:
    return row(kind, amount, **{**LATER, "day": of, "days": days, **more})


def shared(rows: list[StatementRow], uses: list[Use], day: int = 0) -> dict[str, int]:
    """Return each team's part of a day's refunds. "-" is unallocated."""
    whole = bill(rows, uses, days=4)
    amounts = [line for day_rows in whole.amounts.values() for line in day_rows if line.used]
    share_by_team: dict[str, int] = {}
    for share in divide_refunds(amounts, whole, DAY + day * DAY_S, uses):
        team = "-" if share.dimensions.kind == BILLED else share.dimensions.team or ""
        share_by_team[team] = share_by_team.get(team, 0) + share.amount
    return share_by_team


def test_refund_cancels_its_charge_in_every_row() -> None:
    """The charge and its refund cancel in every row, including the unallocated one."""
    rows = [row("input", 8), row("input", 80, unit="tokens")]
    charged = paid(divided(rows, USES, days=4))
    back = shared([*rows, refund(-8)], USES)
    assert {team: -amount for (team, _, _), amount in charged.items()} == back
    assert {"a": -3 * UNIT, "b": -UNIT, "-": -4 * UNIT} == back


def test_it_is_of_the_model_that_was_overcharged() -> None:
    """
    A refund belongs to the calls of the model that was overcharged, and of its key, if both sides name keys.
    A refund without a model is divided over all calls of the day, by value.
    """
    uses = [calls("a", 30), calls("c", 10, model="claude-opus-4"), calls("d", 10, day=1)]
    assert {"c": -UNIT} == shared([refund(-1, model="claude-opus-4")], uses[:2])
    assert {"a": -3 * UNIT, "c": -UNIT} == shared([refund(-4, "refund", model=None)], uses[:2])
    of_keys = [calls("a", 30, key="k"), calls("b", 10, key="l")]
    assert {"b": -UNIT} == shared([refund(-1, key="l"), row("input", 1, key="k")], of_keys)


def test_fees_and_searches_are_given_back_to_who_had_them() -> None:
    """A refunded fee is unallocated, and refunded searches go to the calls of their key."""
    of_keys = [calls("a", 30, key="k"), calls("b", 10, key="l")]
    assert {"-": -UNIT} == shared([refund(-1, "throughput")], of_keys)
    rows = [refund(-1, "web_search", key="l", model=None), row("input", 1, key="k")]
    assert {"b": -UNIT} == shared(rows, of_keys)
    searched = [calls("a", 30, beside={"web_search": 1}), calls("b", 10)]
    assert {"a": -UNIT} == shared([refund(-1, "web_search", model=None), row("input", 1)], searched)


def test_a_refund_of_several_days_is_divided_by_what_their_calls_are_worth() -> None:
    """
    A refund of several days is divided by the value of the calls of each day. Without calls, it is divided
    evenly over the days and unallocated. The sum is exact.
    """
    [line] = bill([refund(-10, days=3)], USES, days=4).amounts[DAY + 3 * DAY_S]
    by_worth = dict(split_by_day_of_use([line], {DAY: 1, DAY + DAY_S: 2, DAY - DAY_S: 7}))
    assert {DAY: -10 * UNIT // 3 + 1, DAY + DAY_S: -10 * UNIT - (-10 * UNIT // 3 + 1)} == {
        day: part.amount for day, part in by_worth.items()
    }
    assert [-10 * UNIT] == [sum(part.amount for _, part in split_by_day_of_use([line], {}))]
    assert {"-": -10 * UNIT} == shared([refund(-10, of=2)], [], day=2)


@given(st.integers(-(10**30), 10**30), st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_all_of_it_is_somewhere_in_both_arrangements(amount: int, tokens: list[int]) -> None:
    """The whole refund appears in every cost type, either as a separate line or divided over calls."""
    uses = [calls(f"t{index}", count) for index, count in enumerate(tokens)]
    rows = [refund(f"{amount}e-27")]
    whole = bill(rows, uses, days=4)
    shares = divide_refunds(whole.amounts.get(DAY + 3 * DAY_S, ()), whole, DAY, uses)
    division = divide_day(whole, DAY + 3 * DAY_S, [], refunds=shares)
    for bit in BILLED_TYPES.values():
        assert amount == sum(paid(division, bit).values())
    assert ({("-", "refund", "unallocated"): amount} if amount else {}) == paid(division, 1)


def test_refund_without_a_time_is_unallocated() -> None:
    """A refund that states no time is unallocated in every cost type, with a reason."""
    division = divided([row("refund", -3, model=None)], USES)
    assert {"refund": -3 * UNIT} == division.reasons
    assert {("-", "refund", "unallocated"): -3 * UNIT} == paid(division, 1) == paid(division, 2)


@pytest.mark.parametrize(
    ("kind", "rules", "is_divided"),
    [
        ("credit", BillDivisionRules(), False),
        ("credit", BillDivisionRules(credits=True), True),
        ("tax", BillDivisionRules(), True),
        ("tax", BillDivisionRules(tax=False), False),
    ],
)
def test_credits_and_taxes_are_as_it_is_set(kind: str, rules: BillDivisionRules, is_divided: bool) -> None:
    """
    Credits and taxes are divided over the period's usage in discounted types, or they stay unallocated with a
    reason. The rules decide which.
    """
    rows = [row("cost", 4), row(kind, -2, model=None)]
    whole = bill(rows, USES)
    base = divide_day(whole, DAY, USES).base
    division = divide_day(whole, DAY, USES, month_usage=base, rules=rules)
    assert is_divided == rules.needs_month_usage(whole)
    alone = {("-", kind, "unallocated"): -2 * UNIT}
    parts = {("a", kind, "shared"): -3 * UNIT // 2, ("b", kind, "shared"): -UNIT // 2}
    layers = [
        {key: amount for key, amount in paid(division, bit).items() if key[1] == kind} for bit in (1, 2)
    ]
    assert [alone, parts if is_divided else alone] == layers
    assert ({} if is_divided else {kind: -2 * UNIT}) == division.reasons


async def test_a_refund_of_an_earlier_month_is_on_its_calls() -> None:
    """
    A refund of an earlier month is dated on the day of the bill, but the calls of that day get no part of it.
    """
    world = await World().open()
    world.use("search", 60, day=-40)
    world.use("ads", 20, day=-40)
    world.use("jobs", 50)
    given_back = line("input", "-0.8", day=-40)
    fields = {"line_type": "refund", "bill": bill_name(FIRST, FIRST + 86400)}
    world.told.kept += [line("input", "1"), msgspec.structs.replace(given_back, **fields)]
    assert await world.biller.recalculate_changed_months() == 2
    assert await world.biller.recalculate_changed_months() == 0
    alone = await world.paid("billed_cost", "team", "charge")
    assert {("jobs", "usage"): "1", (None, "refund"): "-0.8"} == {
        key: str(paid) for key, paid in alone.items()
    }
    within = await world.paid("discounted_cost", "team", "charge")
    assert {"search": "-0.6", "ads": "-0.2"} == {
        str(team): str(amount) for (team, charge), amount in within.items() if charge == "refund"
    }
    sliced = SlicedLedger(
        world.ledger, LedgerSlice(parts=((RoleFilter(dimension="team", values=("search",)),),))
    )
    seen = []
    for shows_layers in (False, True):  # the setting `billed.limited` decides whether layers are shown
        world.ledger.shows_layers = shows_layers
        rows = await sliced.costs(world.asked("discounted_cost", "charge"))
        seen.append([(row.group[0], row.cost) for row in rows])
    assert [[], [("refund", "-0.6")]] == seen
