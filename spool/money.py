"""
Exact money for sums: an int in units of 10 ** -27 dollars in memory, three 64-bit integers (limbs) on disk.

One 64-bit integer in these units could hold less than a cent. Three limbs of nine decimals hold billions of
dollars and every decimal digit of a float, and SQL can add them up column by column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

DECIMALS = 27
UNIT = 10**DECIMALS
_LIMB = 10**9


def text_to_units(text: str) -> int:
    """Convert decimal text to units. Digits after the 27th decimal are cut off."""
    whole, _, fraction = text.partition(".")
    return int(whole + fraction[:DECIMALS].ljust(DECIMALS, "0"))


def scaled_amount_to_units(amount: int, decimal_places: int) -> int:
    """Convert `amount` times 10 ** -digits dollars to units, rounded down after 27 decimals."""
    whole: int = amount * UNIT // 10**decimal_places
    return whole


def units_to_text(units: int) -> str:
    digits = str(abs(units)).zfill(DECIMALS + 1)
    whole, fraction = digits[:-DECIMALS], digits[-DECIMALS:].rstrip("0")
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def add_by_currency(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Add up amounts by currency. A currency with a sum of zero is left out."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums.update({currency: text_to_units(amount) for currency, amount in row.items()})
    return {currency: units_to_text(amount) for currency, amount in sorted(sums.items()) if amount}


def unconverted_amounts_sentence(amounts: Mapping[str, str], currency: str) -> str:
    amounts_text = ", ".join(f"{amount} {code}" for code, amount in amounts.items())
    return f"{amounts_text} are not in these sums: no rate to {currency} is known (docs/money/currencies.md)"


def split_into_limbs(units: int) -> tuple[int, int, int]:
    """Return three limbs: billionths of a dollar (may be negative), then nine further decimals each."""
    upper, low = divmod(units, _LIMB)
    high, middle = divmod(upper, _LIMB)
    return high, middle, low


def join_limbs(high: int, middle: int, low: int) -> int:
    """Return the amount that three integers of `split_into_limbs`, or sums of such integers, represent."""
    return (high * _LIMB + middle) * _LIMB + low
