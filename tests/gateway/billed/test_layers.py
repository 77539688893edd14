"""Lines of a bill that are no usage: alone in one arrangement, on what they reduce in the other."""

from __future__ import annotations

from spool.ledger.money import UNIT
from tests.gateway.billed.worlds import calls, divided, paid, row

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
