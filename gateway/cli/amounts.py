"""
Amounts of money in tables of the command line.

A column has one number of decimals: two, or four if it has an amount under a cent, or six if it has only amounts under
a cent and four decimals would hide one. Columns that are subtracted from each other share a number. An amount that
rounds to nothing is shown as less than the last decimal.

The parts of a total are rounded so that they add up to the rounded total (largest remainder). Otherwise almost no table
of exact amounts would add up with two decimals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from spool.record import CURRENCY

CENT = Decimal("0.01")
LEAST = Decimal("0.0001")  # smallest amount in a currency that four decimals can show


def decimals_for_amounts(amounts: Iterable[Decimal]) -> int:
    sizes = [abs(amount) for amount in amounts if amount]
    if max(sizes, default=CENT) < CENT and min(sizes) < LEAST:
        return 6
    return 4 if any(LEAST <= size < CENT for size in sizes) else 2


def round_to_add_up(exact: Sequence[Decimal], places: int) -> list[Decimal]:
    """
    Round a column's amounts, of which the last is the total, so that they add up to the rounded total.

    Each differs from its exact amount by less than one unit of the last decimal. If the exact amounts do not
    add up, for example on one page of a list, each is rounded to nearest.
    """
    step = Decimal(1).scaleb(-places)
    *parts, total = exact
    *rounded, rounded_total = (amount.quantize(step) for amount in exact)
    if sum(parts) == total:
        missing = int((rounded_total - sum(rounded)) / step)
        sign = 1 if missing > 0 else -1
        remainders = [sign * (part - near) for part, near in zip(parts, rounded, strict=True)]
        by_remainder = sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)
        for index in by_remainder[: abs(missing)]:
            rounded[index] += sign * step
    return [*rounded, rounded_total]


def format_amount_column(
    exact: Sequence[Decimal | None], places: int, currency: str = CURRENCY, *, is_signed: bool = False
) -> list[str | None]:
    """Format a column's amounts, of which the last is the total. None stays None."""
    rounded = round_to_add_up([amount or Decimal() for amount in exact], places)
    return [
        None if amount is None else format_rounded_amount(amount, near, places, currency, is_signed=is_signed)
        for amount, near in zip(exact, rounded, strict=True)
    ]


def format_rounded_amount(
    exact: Decimal, rounded: Decimal, places: int, currency: str = CURRENCY, *, is_signed: bool = False
) -> str:
    """
    Format a rounded amount with its currency. `is_signed` is for changes: an increase has a plus, and a change that
    rounds to nothing is $0.00.
    """
    sign = "$" if currency == CURRENCY else f"{currency} "
    shown = rounded if is_signed else rounded or exact
    minus = "-" if shown < 0 else "+" if is_signed and shown else ""
    # an amount below half a cent is shown as <$0.01, because $0.00 would look like no cost
    if exact and not rounded and not is_signed:
        return f"{minus}<{sign}{Decimal(1).scaleb(-places)}"
    return f"{minus}{sign}{abs(rounded):,.{places}f}"


def format_single_amount(amount: Decimal, places: int, currency: str = CURRENCY) -> str:
    return format_rounded_amount(amount, amount.quantize(Decimal(1).scaleb(-places)), places, currency)


def rows_with_amount_texts(
    rows: Sequence[Mapping[str, Any]], fields: Collection[str], currency: str = CURRENCY
) -> list[dict[str, Any]]:
    """
    Return the rows of a table with the exact amounts in `fields` as people read them. Null stays null. The amounts of
    a field add up to their rounded sum.
    """
    shown = [dict(row) for row in rows]
    for field in fields:
        exact = [None if row.get(field) is None else Decimal(row[field]) for row in rows]
        known = [amount for amount in exact if amount is not None]
        *texts, _ = format_amount_column(
            [*exact, sum(known, Decimal())], decimals_for_amounts(known), currency
        )
        for row, text in zip(shown, texts, strict=True):
            row[field] = text
    return shown
