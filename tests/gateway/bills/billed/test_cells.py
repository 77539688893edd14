"""Billed usage is charged to the calls that it covers, and stays unallocated if there are none."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bills.billed.cells import NO_KEY, NO_MODEL, NO_TELEMETRY, UNREPORTED
from spool.money import UNIT
from tests.gateway.bills.billed.worlds import DAY, Use, bill, calls, divided, paid, row


def test_each_pays_the_billed_rate_and_nobody_what_was_not_reported() -> None:
    """Of 100 billed tokens, 80 are reported. 20 % of the cost is unallocated, with a reason."""
    rows = [row("input", 10), row("input", 100, unit="tokens")]
    division = divided(rows, [calls("a", 50), calls("b", 20), calls("b", 10, user="x")])
    expected = {
        ("a", "usage", "exact"): 5 * UNIT,
        ("b", "usage", "exact"): 3 * UNIT,
        ("-", "usage", "unallocated"): 2 * UNIT,
    }
    assert expected == paid(division)
    assert {UNREPORTED: 2 * UNIT} == division.reasons


def test_billed_amount_is_divided_when_more_tokens_were_counted() -> None:
    """If more tokens were counted than billed, the whole billed amount is divided over the calls."""
    division = divided([row("input", 10), row("input", 50, unit="tokens")], [calls("a", 75), calls("b", 25)])
    assert {("a", "usage", "exact"): 15 * UNIT // 2, ("b", "usage", "exact"): 5 * UNIT // 2} == paid(division)


def test_quantity_per_key_keeps_missing_and_double_reports_apart() -> None:
    """
    The bill states the quantity per key, so a key that did not report and a key that reported twice do not
    cancel each other.
    """
    rows = [row("input", 10)] + [row("input", 50, unit="tokens", key=key) for key in ("k1", "k2")]
    division = divided(rows, [calls("a", 100, key="k1")])
    assert {("a", "usage", "exact"): 5 * UNIT, ("-", "usage", "unallocated"): 5 * UNIT} == paid(division)
    assert {NO_KEY: 5 * UNIT} == division.reasons


def test_a_level_that_calls_do_not_know_is_given_up() -> None:
    """
    If no call states a region, the billed regions are merged and divided together. Tokens that nobody
    reported stay unallocated in each region.
    """
    rows = [row("input", 6, region=name) for name in ("eu", "us")]
    rows += [row("input", 60, unit="tokens", region=name) for name in ("eu", "us")]
    division = divided(rows, [calls("a", 90), calls("b", 10)])
    assert {
        ("a", "usage", "pooled"): 9 * UNIT, ("b", "usage", "pooled"): 1 * UNIT, ("-", "usage", "unallocated"): 2 * UNIT,
    } == paid(division)  # fmt: skip


def test_row_of_other_regions_covers_calls_without_their_own_row() -> None:
    """
    A bill row may cover all other regions, under any name. It is charged to calls in regions without a row
    of their own.
    """
    for anywhere in ("global", None):
        rows = [row("input", 11, region="eu"), row("input", 100, unit="tokens", region="eu")]
        rows += [row("input", 20, region=anywhere), row("input", 200, unit="tokens", region=anywhere)]
        division = divided(rows, [calls("a", 100, region="eu"), calls("b", 150), calls("c", 50, region="us")])
        assert {
            ("a", "usage", "exact"): 11 * UNIT, ("b", "usage", "exact"): 15 * UNIT, ("c", "usage", "exact"): 5 * UNIT,
        } == paid(division)  # fmt: skip


def test_tokens_above_a_regions_bill_pay_for_other_regions() -> None:
    """
    All calls state one region. The tokens that exceed the bill of that region pay for the other regions.
    """
    rows = [row("input", 11, region="eu"), row("input", 100, unit="tokens", region="eu")]
    rows += [row("input", 20, region="global"), row("input", 200, unit="tokens", region="global")]
    division = divided(rows, [calls("a", 250, region="eu")])
    rest = {("a", "usage", "pooled"): 15 * UNIT, ("-", "usage", "unallocated"): 5 * UNIT}
    assert {("a", "usage", "exact"): 11 * UNIT, **rest} == paid(division)


def test_nobody_pays_for_a_kind_of_tokens_that_others_used() -> None:
    """
    If calls report exactly the billed input tokens, unreported output stays unallocated. If calls report more
    tokens, without kinds, they pay for the output as well.
    """
    rows = [
        row("input", 4),
        row("input", 100, unit="tokens"),
        row("output", 3),
        row("output", 50, unit="tokens"),
    ]
    division = divided(rows, [calls("a", 100)])
    assert {("a", "usage", "exact"): 4 * UNIT, ("-", "usage", "unallocated"): 3 * UNIT} == paid(division)
    assert {UNREPORTED: 3 * UNIT} == division.reasons
    division = divided(rows, [calls("a", 150)])  # this report does not divide the tokens into kinds
    assert {("a", "usage", "exact"): 4 * UNIT, ("a", "usage", "pooled"): 3 * UNIT} == paid(division)


def test_amount_without_a_quantity_is_divided_by_value_of_calls() -> None:
    """
    An amount without a quantity is divided by the value of the calls. Output that no call reports
    still stays unallocated.
    """
    rows = [
        row("input", 4),
        row("input", 100, unit="tokens"),
        row("output", 3),
        row("output", 50, unit="tokens"),
    ]
    division = divided([*rows, row("cost", 2)], [calls("a", 100)])
    assert {
        ("a", "usage", "exact"): 4 * UNIT, ("a", "usage", "value"): 2 * UNIT, ("-", "usage", "unallocated"): 3 * UNIT,
    } == paid(division)  # fmt: skip


def test_a_tier_is_paid_by_its_own_calls() -> None:
    """Batch calls pay the batch rate, even if another team used the model at full price."""
    rows = [row("input", 4, tier="standard"), row("input", 1, batch=True)]
    division = divided(rows, [calls("a", 10, tier="batch"), calls("b", 10)])
    assert {("a", "usage", "value"): UNIT, ("b", "usage", "value"): 4 * UNIT} == paid(division)


def test_nobody_pays_for_a_tier_that_others_used() -> None:
    """
    All calls of a team are billed at the tier that they report. Unreported batch calls then cost this team nothing.
    """
    rows = [row("input", 4, tier="standard"), row("input", 100, unit="tokens", tier="standard")]
    rows += [row("input", 2, batch=True), row("input", 100, unit="tokens", batch=True)]
    division = divided(rows, [calls("a", 100)])
    assert {("a", "usage", "exact"): 4 * UNIT, ("-", "usage", "unallocated"): 2 * UNIT} == paid(division)
    division = divided(rows, [calls("a", 150)])
    assert UNIT == paid(division)["a", "usage", "pooled"]  # for 50 of the 150 tokens, the tier is unknown


@pytest.mark.parametrize(
    ("uses", "reason"),
    [([], NO_TELEMETRY), ([calls("a", 5, model="claude-opus-4")], NO_MODEL)],
    ids=["a day without calls", "another model"],
)
def test_nobody_pays_for_calls_that_nobody_counted(uses: list[Use], reason: str) -> None:
    """
    Usage is never charged to calls of another model or day. The amount stays unallocated, with the names
    on the bill.
    """
    division = divided([row("input", 3, region="us", key="k")], uses)
    assert {reason: 3 * UNIT} == division.reasons
    [billed_sum] = division.sums
    dimensions = billed_sum.dimensions
    assert dimensions.provider == "openai"
    assert dimensions.model == "gpt-4o"
    assert dimensions.api_key == "k"
    assert dimensions.region == "us"
    assert dimensions.team == ""


def test_money_without_a_quantity_is_divided_by_value() -> None:
    """An amount for all tokens of a model is divided by list prices, and its basis says so."""
    division = divided([row("cost", 6)], [calls("a", 40), calls("b", 0, output=20)])
    assert {("a", "usage", "value"): 2 * UNIT, ("b", "usage", "value"): 4 * UNIT} == paid(division)


def test_a_bucket_of_several_days_is_of_the_days_with_calls() -> None:
    """A monthly line is divided by the value of each day, or evenly without calls."""
    uses = [calls("a", 30, day=0), calls("a", 10, day=2)]
    amounts_by_day = bill([row("cost", 4, days=3)], uses, days=3).amounts
    assert [3 * UNIT, UNIT] == [
        sum(amount_row.amount for amount_row in rows) for _, rows in sorted(amounts_by_day.items())
    ]
    even = bill([row("cost", "0.02", days=4, model=None)], [], days=4).amounts
    assert [UNIT // 200] * 4 == [each.amount for _, [each] in sorted(even.items())]


def test_amounts_in_other_currencies_are_counted_and_never_converted() -> None:
    """Amounts in other currencies are not part of any sum in dollars."""
    made_bill = bill([row("input", 1), row("input", 9, unit="eur", currency="EUR")], [])
    assert {"EUR": 1} == made_bill.foreign[DAY]
    assert [UNIT] == [amount_row.amount for amount_row in made_bill.amounts[DAY]]


tokens = st.integers(0, 10**9)
cents = st.decimals(-1000, 1000, places=6)


tiers, keys = st.sampled_from([None, "batch"]), st.sampled_from([None, "k"])
kinds = st.sampled_from(["input", "output", "cost", "input_total", "web_search", "tax", "discount", "credit"])
used_by = st.tuples(
    st.sampled_from("abc"), tokens, tokens, st.sampled_from(["", "batch"]), st.sampled_from(["", "k"])
)
metered = st.tuples(st.sampled_from(["input", "output"]), tokens, tiers, keys)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(used_by, max_size=6),
    st.lists(st.tuples(kinds, cents, tiers, keys), max_size=6),
    st.lists(metered, max_size=4),
    st.randoms(use_true_random=False),
)
def test_all_of_the_bill_is_somewhere_by_every_grouping(
    used: list[Any], money: list[Any], told: list[Any], random: Random
) -> None:
    """Each arrangement adds up exactly to the bill. The order of rows and calls does not change a byte."""
    uses = [
        calls(team, input_tokens, output=output_tokens, tier=tier, key=key)
        for team, input_tokens, output_tokens, tier, key in used
    ]
    rows = [row(kind, amount, tier=tier, key=key) for kind, amount, tier, key in money]
    rows += [row(kind, count, unit="tokens", tier=tier, key=key) for kind, count, tier, key in told]
    division = divided(rows, uses)
    whole = (
        sum(
            (Fraction(statement_row.amount) for statement_row in rows if statement_row.unit == "usd"),
            Fraction(0),
        )
        * UNIT
    )
    for arranged in (1, 2):
        assert whole == sum(paid(division, arranged).values())
    random.shuffle(uses)
    random.shuffle(rows)
    again = divided(rows, uses)
    assert division.sums == again.sums
    assert division.reasons == again.reasons
