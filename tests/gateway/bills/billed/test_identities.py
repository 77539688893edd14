"""
Identities I1 to I4 of the cost types, for any bill and any calls: each cost type arranges the
same amount differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spool.ledger.billed import EVERY, SLICED_CHARGES, UNALLOCATED, BilledSum
from spool.ledger.dimensions import BILLED, BILLED_TYPES
from spool.money import UNIT
from spool.statements import StatementRow
from tests.gateway.bills.billed.worlds import Use, calls, divided_month, row
from tests.rounds import examples

DAYS = 3
TEAMS = ("a", "b", "c")
LINES = ("discount", "tax", "credit", "refund", "support", "throughput", "web_search", "rounding")
_ROUNDED = 1000  # tolerance in ledger units; each of a few dozen rows may be rounded by one unit
days, models = st.integers(0, DAYS - 1), st.sampled_from(["gpt-4o", "claude-opus-4"])
tiers, keys = st.sampled_from([None, "batch"]), st.sampled_from([None, "k", "l"])
dollars, tokens = st.decimals(-1000, 1000, places=6), st.integers(0, 10**9)
use = st.tuples(
    st.sampled_from(TEAMS),
    tokens,
    tokens,
    st.sampled_from(["", "batch"]),
    st.sampled_from(["", "k"]),
    models,
    days,
)
usage = st.tuples(
    st.sampled_from(["input", "output", "cost", "input_total"]),
    dollars,
    tiers,
    keys,
    models | st.none(),
    days,
)
metered = st.tuples(st.sampled_from(["input", "output"]), tokens, tiers, keys, models, days)
line = st.tuples(st.sampled_from(LINES), dollars, keys, models | st.none(), days)
fee = st.tuples(st.integers(0, 10**9), st.integers(0, 100), models)
Uses = st.lists(use, max_size=6)


def made(drawn: Iterable[Any]) -> list[Use]:
    return [
        calls(team, input_tokens, output=output, tier=tier, key=key, model=model, day=day)
        for team, input_tokens, output, tier, key, model, day in drawn
    ]


def usage_rows(money: Iterable[Any], told: Iterable[Any] = ()) -> list[StatementRow]:
    """Create bill rows with amounts, and rows with quantities."""
    money_rows = [_usage(*fields) for fields in money]
    return money_rows + [_usage(*fields, unit="tokens") for fields in told]


def _usage(kind: str, amount: Any, tier: Any, key: Any, model: Any, day: int, **more: Any) -> StatementRow:
    return row(kind, amount, tier=tier, key=key, model=model, day=day, **more)


def line_rows(lines: Iterable[Any]) -> list[StatementRow]:
    return [row(kind, amount, key=key, model=model, day=day) for kind, amount, key, model, day in lines]


def fee_rows(micros: int, percent: int, model: str) -> list[StatementRow]:
    """Create a purchase on the first day and its daily parts. `percent` of each part covers usage."""
    whole = Decimal(micros).scaleb(-6)
    fee_lines = [row("throughput", whole, model=None)]
    fee_lines.append(row("throughput", -whole, model=None, unit="accrued_usd"))
    uncovered = whole
    for day in range(DAYS):
        of_day = uncovered if day == DAYS - 1 else round(whole / DAYS, 6)
        uncovered -= of_day
        covered = round(of_day * percent / 100, 6)
        fee_lines.append(row("cost", covered, model=model, day=day, unit="accrued_usd"))
        unused = of_day - covered
        fee_lines.append(row("unused", unused, model=None, day=day, unit="accrued_usd"))
    return [fee_line for fee_line in fee_lines if fee_line.amount]


def whole(rows: Sequence[StatementRow], unit: str = "usd") -> int:
    """Sum bill rows, in units of the ledger."""
    amount = (
        sum(
            (Fraction(statement_row.amount) for statement_row in rows if statement_row.unit == unit),
            Fraction(0),
        )
        * UNIT
    )
    assert amount.denominator == 1
    return int(amount)


def total(sums: Iterable[BilledSum], cost_type: str) -> int:
    return sum(billed_sum.amount for billed_sum in sums if billed_sum.arranged & BILLED_TYPES[cost_type])


def by(sums: Iterable[BilledSum], cost_type: str) -> dict[Any, int]:
    """Sum a cost type by row, without rows of 0."""
    amounts: Counter[Any] = Counter()
    for billed_sum in sums:
        if billed_sum.arranged & BILLED_TYPES[cost_type]:
            amounts[billed_sum.dimensions, billed_sum.charge, billed_sum.basis] += billed_sum.amount
    return {key: amount for key, amount in amounts.items() if amount}


bills = st.tuples(
    st.lists(usage, max_size=5),
    st.lists(metered, max_size=4),
    st.lists(line, max_size=5),
    st.lists(fee, max_size=1),
)


def rows_of(drawn: Any) -> list[StatementRow]:
    money, quantities, lines, fees = drawn
    all_rows = usage_rows(money, quantities) + line_rows(lines)
    for fee in fees:
        all_rows += fee_rows(*fee)
    return all_rows


@pytest.mark.proves(
    "by provider and month, `billed_cost` equals `discounted_cost`, and the two amortized types are equal"
)
@settings(max_examples=examples(120), deadline=None)
@given(Uses, bills, st.randoms(use_true_random=False))
def test_every_cost_type_is_the_bill(used: list[Any], drawn: Any, random: Random) -> None:
    """
    I1: billed and discounted costs equal the bill. I2: both amortized types equal the bill over its term.
    On closed days, invoiced costs equal discounted amortized costs in each row. The order of rows and calls
    has no effect.
    """
    uses, rows = made(used), rows_of(drawn)
    sums = divided_month(rows, uses, DAYS)
    invoice = whole(rows)
    assert 0 == whole(rows, "accrued_usd")
    assert {invoice} == {total(sums, name) for name in BILLED_TYPES}
    assert by(sums, "invoiced_amortized_cost") == by(sums, "discounted_amortized_cost")
    random.shuffle(uses)
    random.shuffle(rows)
    assert sums == divided_month(rows, uses, DAYS)


@pytest.mark.proves("over its term, the parts of a fee add up to the fee")
@settings(max_examples=examples(60), deadline=None)
@given(Uses, fee)
def test_a_fee_is_all_of_its_parts(used: list[Any], drawn: tuple[int, int, str]) -> None:
    """I3: over its term, the covered part, the unused part and rounding of a commitment add up to its fee."""
    rows = fee_rows(*drawn)
    sums = divided_month(rows, made(used), DAYS)
    for name in ("amortized_cost", "discounted_amortized_cost"):
        charges: Counter[str] = Counter()
        for key, amount in by(sums, name).items():
            charges[key[1]] += amount
        assert set(charges) <= {"commitment", "unused", "rounding"}
        assert whole(rows) == charges.total()
        assert abs(charges["rounding"]) < _ROUNDED
    alone = by(sums, "billed_cost")
    assert all(key[0].kind == BILLED and key[2] == UNALLOCATED for key in alone)


@pytest.mark.proves("without fees and discounts, all cost types are equal in every row")
@settings(max_examples=examples(60), deadline=None)
@given(Uses, st.lists(usage, max_size=5), st.lists(metered, max_size=4), st.lists(line, max_size=5))
def test_without_layers_all_cost_types_are_equal(
    used: list[Any], money: list[Any], told: list[Any], lines: list[Any]
) -> None:
    """I4: without commitments, discounts and taxes, every row is equal in all cost types."""
    plain = [drawn_line for drawn_line in lines if drawn_line[0] not in ("discount", "tax")]
    sums = divided_month(usage_rows(money, told) + line_rows(plain), made(used), DAYS)
    assert all(billed_sum.arranged == EVERY for billed_sum in sums)


@pytest.mark.proves("the same for a whole bill")
@settings(max_examples=examples(60), deadline=None)
@given(Uses, bills)
def test_a_bill_that_is_given_back_leaves_nothing(used: list[Any], drawn: Any) -> None:
    """P7: a bill plus its negative is 0 in every row of every cost type."""
    rows = rows_of(drawn)
    back = [row_of_back(statement_row) for statement_row in rows if statement_row.unit != "tokens"]
    assert [] == divided_month(rows + back, made(used), DAYS)


def row_of_back(given: StatementRow) -> StatementRow:
    edges: dict[str, Any] = {"day": 0, "start": given.start, "end": given.end}
    dimensions = {"tier": given.tier, "key": given.key, "model": given.model, "unit": given.unit}
    return row(given.kind, -given.amount, **{**edges, **dimensions})


@pytest.mark.proves("restricted access cuts every cost type in the same way")
@settings(max_examples=examples(60), deadline=None)
@given(Uses, bills)
def test_slices_cut_each_cost_type_alike(used: list[Any], drawn: Any) -> None:
    """
    For each cost type, the amounts that all teams may see plus the rest equal the bill. The same teams see
    usage in every cost type.
    """
    rows = rows_of(drawn)
    sums = divided_month(rows, made(used), DAYS)
    used_by: dict[str, dict[Any, int]] = {}
    for name in BILLED_TYPES:
        outside, slices = 0, 0
        for (dimensions, charge, basis), amount in by(sums, name).items():
            is_inside = charge in SLICED_CHARGES and basis != UNALLOCATED
            assert not is_inside or dimensions.team in TEAMS
            slices += amount * is_inside
            outside += amount * (not is_inside)
            if is_inside and charge == "usage":
                used_by.setdefault(name, {})[dimensions, basis] = amount
        assert whole(rows) == slices + outside
    cuts = list(used_by.values())
    assert all(cut == cuts[0] for cut in cuts)
