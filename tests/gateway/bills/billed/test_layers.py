"""Lines of a bill that are no usage: alone in one arrangement, on what they reduce in the other."""

from __future__ import annotations

from typing import Any

from spool.ledger.billed import PROVISIONAL
from spool.ledger.money import UNIT
from spool.ledger.queries import BILLED_TYPES
from spool.statements import StatementRow
from tests.gateway.bills.billed.worlds import DAY, bill, calls, divided, paid, row

USES = [calls("a", 30), calls("b", 10)]
USAGE = {("a", "usage", "value"): 3 * UNIT, ("b", "usage", "value"): 1 * UNIT}


def test_a_discount_is_on_all_usage_in_its_scope() -> None:
    """In proportion to usage money, not to the lines that the provider chose; both arrangements are one sum."""
    found = divided([row("cost", 4), row("discount", -2, model=None)], USES)
    assert {**USAGE, ("-", "discount", "unallocated"): -2 * UNIT} == paid(found, 1)
    shared = {("a", "discount", "shared"): -3 * UNIT // 2, ("b", "discount", "shared"): -UNIT // 2}
    assert {**USAGE, **shared} == paid(found, 2)


def test_a_discount_of_a_model_is_on_its_usage_alone() -> None:
    """Usage of another model pays its full price."""
    rows = [row("cost", 4), row("cost", 1, model="claude-opus-4"), row("discount", -2, model="claude-opus-4")]
    found = paid(divided(rows, [*USES, calls("c", 5, model="claude-opus-4")]), 2)
    assert [("c", "discount", "shared")] == [place for place in found if place[1] == "discount"]


def test_tax_is_divided_by_the_usage_of_the_billing_period() -> None:
    """Not by that of the day on which its line stands; without usage nobody has it."""
    base = divided([row("cost", 4)], USES).base
    rows = [row("tax", "0.76", model=None)]
    assert {("a", "tax", "shared"): 57 * UNIT // 100, ("b", "tax", "shared"): 19 * UNIT // 100} == paid(
        divided(rows, [], month=base), 2
    )
    assert {("-", "tax", "unallocated"): 76 * UNIT // 100} == paid(divided(rows, []), 2)


def test_what_no_call_caused_is_of_nobody() -> None:
    """Credits, commitments and searches without a key have a charge of their own, and a reason."""
    rows = [row("credit", -3, model=None), row("throughput", 5, model=None), row("web_search", 1, model=None)]
    found = divided(rows, USES)
    assert {"credit": -3 * UNIT, "commitment": 5 * UNIT, "other": UNIT} == found.reasons
    assert {"credit", "commitment", "other"} == {charge for _, charge, _ in paid(found)}


def test_searches_of_a_key_are_paid_by_its_calls() -> None:
    """By value, in both arrangements."""
    uses = [calls("a", 30, key="k"), calls("b", 10, key="k"), calls("c", 10, key="l")]
    found = divided([row("web_search", 4, key="k", model=None)], uses)
    assert (
        {("a", "other", "shared"): 3 * UNIT, ("b", "other", "shared"): UNIT} == paid(found) == paid(found, 2)
    )


def test_what_is_beside_the_tokens_is_of_who_used_it() -> None:
    """By how much, whatever else was called, also of no key; of a unit where the line names no meter."""
    uses = [
        calls("a", 30, beside={"web_search": 1}),
        calls("b", 10, beside={"web_search": 3, "searches": 5, "images": 5}),
    ]
    lines = {"web_search": (1, 3), "hd_image_generation": (0, 4), "code_execution": None}
    for kind, shares in lines.items():
        found = paid(divided([row(kind, 4, model=None)], uses))
        expected = {("-", "other", "unallocated"): 4 * UNIT}
        if shares is not None:
            of_teams = zip("ab", shares, strict=True)
            expected = {(team, "other", "value"): share * UNIT for team, share in of_teams if share}
        assert expected == found, kind


def test_searches_that_are_given_back_are_of_who_paid_them() -> None:
    """Under the same charge; what is given back of no service is a credit."""
    uses = [calls("a", 30, key="k")]
    given = row("web_search", -4, key="k", model=None)
    assert {("a", "other", "shared"): -4 * UNIT} == paid(divided([given], uses))
    lines = [row(kind, -1, model=None) for kind in ("refund", "support", "web_search", "spring_promotion")]
    assert {"refund": -UNIT, "support": -UNIT, "other": -UNIT, "credit": -UNIT} == divided(
        lines, uses
    ).reasons


def accrued(kind: str, amount: str | int, **more: Any) -> StatementRow:
    return row(kind, amount, unit="accrued_usd", **more)


def test_a_fee_is_on_what_it_covers() -> None:
    """A purchase of 30 for 30 days covers usage of 0.8 a day: its calls pay that, the rest of the day is unused."""
    rows = [row("throughput", 30, model=None), row("cost", 4), accrued("throughput", -30, model=None)]
    rows += [accrued("cost", "0.8"), accrued("unused", "0.2", model=None), row("discount", -2, model=None)]
    found = divided(rows, USES)
    fee = {("-", "commitment", "unallocated"): 30 * UNIT}
    alone = {("-", "discount", "unallocated"): -2 * UNIT}
    within = {("a", "discount", "shared"): -3 * UNIT // 2, ("b", "discount", "shared"): -UNIT // 2}
    part = {("a", "commitment", "value"): 6 * UNIT // 10, ("b", "commitment", "value"): 2 * UNIT // 10}
    covered = {**part, ("-", "commitment", "unallocated"): 0, ("-", "unused", "unallocated"): UNIT // 5}
    assert {**USAGE, **fee, **alone} == paid(found, BILLED_TYPES["billed_cost"])
    assert {**USAGE, **fee, **within} == paid(found, BILLED_TYPES["discounted_cost"])
    assert {**USAGE, **covered, **alone} == paid(found, BILLED_TYPES["amortized_cost"])
    for name in ("discounted_amortized_cost", "invoiced_amortized_cost"):
        assert {**USAGE, **covered, **within} == paid(found, BILLED_TYPES[name])
    assert {"commitment": 30 * UNIT} == found.reasons
    assert {"commitment": -30 * UNIT, "unused": UNIT // 5} == found.accrued


def test_a_covered_day_without_an_amount_is_a_day_of_the_bill() -> None:
    """All of its usage is covered: nothing is billed on it, and its calls have cost what they used of the fee."""
    found = divided([accrued("input", 4), row("input", 80, unit="tokens")], USES)
    assert {} == paid(found, BILLED_TYPES["billed_cost"])
    part = {("a", "commitment", "exact"): 3 * UNIT // 2, ("b", "commitment", "exact"): UNIT // 2}
    assert {**part, ("-", "commitment", "unallocated"): 2 * UNIT} == paid(
        found, BILLED_TYPES["amortized_cost"]
    )
    assert found.reasons == {}
    assert found.accrued == {"unreported": 2 * UNIT}


def test_a_day_that_may_be_told_anew_is_not_invoiced() -> None:
    """It has all other types."""
    open_day: dict[str, Any] = {"unsettled": {"bill": frozenset({DAY})}}
    found = divided([row("cost", 4)], USES, **open_day)
    kinds = {name: bool(paid(found, bit)) for name, bit in BILLED_TYPES.items()}
    assert {name: name != "invoiced_amortized_cost" for name in BILLED_TYPES} == kinds
    assert PROVISIONAL == bill([row("cost", 4)], USES, **open_day).states[DAY]
