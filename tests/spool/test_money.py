"""Exact sums of money with any number of decimals."""

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool import money

EXACT = Context(prec=60)
amounts = st.decimals(-(10**7), 10**7, places=27, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 10**27),
        ("0.000000000000000000000000001", 1),
        ("12.5", 125 * 10**26),
        ("0.00024839999999999997", 24839999999999997 * 10**7),
        ("-0.5", -5 * 10**26),
        ("0.0000000000000000000000000019", 1),
    ],
)
def test_units(text: str, expected: int) -> None:
    """Text becomes whole units. Only digits after the 27th decimal are lost."""
    assert expected == money.text_to_units(text)


@given(st.lists(amounts, max_size=20))
def test_sums_of_limbs_are_exact(values: list[Decimal]) -> None:
    """Adding up limb by limb, as SQL does, equals adding up decimals."""
    limbs = [money.split_into_limbs(money.text_to_units(f"{value:f}")) for value in values]
    columns = [sum(column) for column in zip(*limbs, strict=True)] or [0, 0, 0]
    expected = Decimal(0)
    for value in values:
        expected = EXACT.add(expected, value)
    assert expected == Decimal(money.units_to_text(money.join_limbs(*columns)))
    assert all(0 <= limb < 10**9 for _, *lower in limbs for limb in lower)
