"""
Exact money for sums: an int in units of 10 ** -27 dollars in memory, three SQLite integers on disk.

A single 64-bit integer could hold less than a cent in such units. Three limbs of nine decimals hold billions
of dollars. SQL can add them column by column, and they keep every decimal digit of a float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

DECIMALS = 27
UNIT = 10**DECIMALS
_LIMB = 10**9


def units(text: str) -> int:
    """Convert plain decimal text to units. Digits after the 27th decimal are cut off."""
    whole, _, fraction = text.partition(".")
    return int(whole + fraction[:DECIMALS].ljust(DECIMALS, "0"))


def scaled(amount: int, digits: int) -> int:
    """Convert an amount in 10 ** -digits dollars to units, rounded down if it has more than 27 decimals."""
    whole: int = amount * UNIT // 10**digits
    return whole


def text(units: int) -> str:
    """Format units as plain decimal text without trailing zeros."""
    digits = str(abs(units)).zfill(DECIMALS + 1)
    whole, fraction = digits[:-DECIMALS], digits[-DECIMALS:].rstrip("0")
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def added(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Add amounts by currency, exactly. Currencies with a sum of zero are left out."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums.update({currency: units(amount) for currency, amount in row.items()})
    return {currency: text(amount) for currency, amount in sorted(sums.items()) if amount}


def unconverted_words(amounts: Mapping[str, str], currency: str) -> str:
    """
    Describe amounts, by currency, that could not be converted to `currency` and are therefore in no sum.
    """
    amounts_text = ", ".join(f"{amount} {code}" for code, amount in amounts.items())
    return f"{amounts_text} are not in these sums: no rate to {currency} is known (docs/currencies.md)"


def limbs(units: int) -> tuple[int, int, int]:
    """
    Split units into billionths of a dollar and two further limbs of nine decimals. Only the first can be negative.
    """
    upper, low = divmod(units, _LIMB)
    high, middle = divmod(upper, _LIMB)
    return high, middle, low


def joined(high: int, middle: int, low: int) -> int:
    """Return the units of three limbs. Limbs that are sums of other limbs are accepted."""
    return (high * _LIMB + middle) * _LIMB + low
