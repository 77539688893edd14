"""Amounts of money in tables: the number of decimals, and columns that add up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.amounts import (
    decimals_for_amounts,
    format_amount_column,
    format_single_amount,
    round_to_add_up,
)
from gateway.cli.operator.money.report import _format_report_rows

AMOUNTS = st.lists(st.decimals(-10_000, 10_000, places=12), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("amounts", "places"),
    [
        ([], 2),
        (["0", "0"], 2),
        (["0.01", "1234.567"], 2),
        (["-0.004", "12"], 4),
        (["0.00000012", "12"], 2),  # one tiny amount does not widen a table of dollars
        (["0.00012", "0.0004"], 4),
        (["0.000012", "0.0004"], 6),
    ],
)
def test_a_table_has_the_decimals_that_its_amounts_need(amounts: list[str], places: int) -> None:
    assert decimals_for_amounts(map(Decimal, amounts)) == places


@given(AMOUNTS, st.sampled_from((2, 4, 6)))
def test_shown_parts_add_up_to_the_shown_total(parts: list[Decimal], places: int) -> None:
    """A rounded amount differs from the exact one by less than one unit of the last decimal, and 0 stays 0."""
    step = Decimal(1).scaleb(-places)
    *shown, total = round_to_add_up([*parts, sum(parts, Decimal())], places)
    assert sum(shown) == total
    for exact, near in zip(parts, shown, strict=True):
        assert abs(exact - near) < step
        assert near == near.quantize(step)
        assert exact or not near
    assert abs(total - sum(parts)) <= step / 2


def test_a_page_of_a_list_is_rounded_to_nearest() -> None:
    """The rows of one page add up to less than the total of all pages."""
    assert round_to_add_up([Decimal("1.005001"), Decimal("9")], 2) == [Decimal("1.01"), Decimal("9.00")]


def test_amounts_are_written_with_their_currency() -> None:
    """An amount that is rounded away is marked, so that it does not look like nothing."""
    assert format_single_amount(Decimal("1234.5"), 2) == "$1,234.50"
    assert format_single_amount(Decimal("-0.001"), 2) == "-<$0.01"
    assert format_single_amount(Decimal("2"), 2, "EUR") == "EUR 2.00"
    parts = [Decimal("0.5"), None, Decimal("-0.501"), Decimal("0.001"), Decimal()]
    assert format_amount_column(parts, 2, is_signed=True) == ["+$0.50", None, "-$0.50", "$0.00", "$0.00"]
    assert format_amount_column(parts, 2)[3] == "<$0.01"


@pytest.mark.parametrize(
    ("before", "total_before", "change"),
    [
        ("10", "20", "-50.0%"),
        ("0.02", "20", ">+999%"),
        ("0.5", "0.5", None),  # a percentage of cents misleads
        ("0", "0.5", "new"),
    ],
)
def test_the_total_decides_about_percentages(before: str, total_before: str, change: str | None) -> None:
    """All rows of a table have a percentage, or none has one. None is above 999 %."""
    rows = [{"cost": "5", "previous": {"cost": before}}, {"cost": "5", "previous": {"cost": total_before}}]
    assert change == _format_report_rows(rows, [], ["cost"], "USD")[0]["change"]
