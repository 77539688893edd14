"""Single values: text, counts and amounts in any notation."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED
from gateway.normalise.reading import values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0),
        (7, 7),
        (Decimal("150.0"), 150),
        ("23", 23),
        ("150.0", 150),
        ("", None),
        ("-", None),
        ("None", None),
    ],
)
def test_counts_are_whole_numbers_or_unknown(value: Any, expected: int | None) -> None:
    """Numbers as text or float become integers. A missing value never becomes 0."""
    assert expected == values.parse_count(value, "tokens")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1, IMPLAUSIBLE),
        (Decimal("1.5"), IMPLAUSIBLE),
        (2 * 10**9, IMPLAUSIBLE),
        (Decimal("1e999"), IMPLAUSIBLE),
        ("many", MALFORMED),
        (True, MALFORMED),
        ({}, MALFORMED),
        ("1e99999999999999999999", IMPLAUSIBLE),
    ],
)
def test_counts_that_cannot_be_are_refused_by_field(value: Any, reason: str) -> None:
    """An impossible count is refused with a message that names the field but never the value."""
    with pytest.raises(values.BadValue) as refused:
        values.parse_count(value, "usage.tokens")
    assert reason == refused.value.reason
    assert refused.value.message.startswith("usage.tokens ")
    assert str(value) not in refused.value.message or value in (-1,)


@pytest.mark.parametrize("value", ["x" * 3000, Decimal("1." + "1" * 3000), 10**3000, True, ["x"], ""])
def test_what_no_name_can_be_says_nothing(value: Any) -> None:
    """A text that is empty, not a scalar, or longer than any id is no name."""
    assert values.text_or_none(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("0.00024839999999999997"), "0.00024839999999999997"),
        (Decimal("1.8e-07"), "0.00000018"),
        (0, "0"),
        (Decimal("0.0"), "0"),
        (Decimal("-0.0"), "0"),
        ("0.00001635", "0.00001635"),
        (160, "160"),
        (Decimal("1.50"), "1.5"),
        (Decimal("100"), "100"),
        (None, None),
        ("", None),
        (Decimal("2E+2"), "200"),
    ],
)
def test_money_keeps_its_digits_in_plain_notation(value: Any, expected: str | None) -> None:
    """Amounts keep every digit, and have no exponent and no trailing zeros."""
    assert expected == values.parse_amount(value, "cost")


@pytest.mark.parametrize(
    "value", [-1, Decimal("1e-99"), Decimal("1e20"), Decimal("0." + "1" * 200), "free", [1]]
)
def test_money_that_cannot_be_is_refused(value: Any) -> None:
    """Negative amounts, amounts above any price, too many digits, and words are refused."""
    with pytest.raises(values.BadValue):
        values.parse_amount(value, "cost")


@pytest.mark.parametrize("value", ["", "-", "none", "None", "undefined", "null"])
def test_words_for_nothing_are_absent(value: str) -> None:
    """Words such as "null" count as missing, for text, counts and amounts."""
    assert values.text_or_none(value) is None
    assert values.parse_count(value, "tokens") is None
    assert values.parse_amount(value, "cost") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1.50}', {"a": Decimal("1.50")}),
        ("{cut", {}),
        ("[1]", {}),
        (None, {}),
        (" " * 2**20 + '{"a": 1}', {"a": 1}),
    ],
)
def test_a_map_is_read_out_of_text(value: Any, expected: dict[str, Any]) -> None:
    """A map may also be written as text of any size. A value that is not a map gives an empty map."""
    assert expected == values.dict_or_empty(value)
