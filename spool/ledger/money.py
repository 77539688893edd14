"""
Exact money for sums: an int in units of 10 ** -27 dollars in memory, three SQLite integers on disk.

A 64-bit integer of such units holds less than a cent. Three limbs of nine decimals hold billions of dollars,
add up within SQL column by column, and keep every digit that a source can write as the text of a binary float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

DECIMALS = 27
UNIT = 10**DECIMALS
_LIMB = 10**9


def units(text: str) -> int:
    """Plain decimal text as units; what lies beyond the 27th decimal is cut off."""
    whole, _, fraction = text.partition(".")
    return int(whole + fraction[:DECIMALS].ljust(DECIMALS, "0"))


def scaled(amount: int, digits: int) -> int:
    """Units of an amount in 10 ** -digits dollars, rounded down where it has more than 27 decimals."""
    whole: int = amount * UNIT // 10**digits
    return whole


def text(units: int) -> str:
    """Units as plain decimal text without trailing zeros."""
    digits = str(abs(units)).zfill(DECIMALS + 1)
    whole, fraction = digits[:-DECIMALS], digits[-DECIMALS:].rstrip("0")
    sign = "-" if units < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def added(rows: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Add amounts up by their currencies, exactly; those that come to nothing are left out."""
    together: Counter[str] = Counter()
    for row in rows:
        together.update({currency: units(amount) for currency, amount in row.items()})
    return {currency: text(found) for currency, found in sorted(together.items()) if found}


def unconverted_words(amounts: Mapping[str, str], currency: str) -> str:
    """Say which amounts, by their currencies, are in no sum; `currency` is that of the sums."""
    told = ", ".join(f"{amount} {code}" for code, amount in amounts.items())
    return f"{told} are not in these sums: no rate to {currency} is known (docs/currencies.md)"


def limbs(units: int) -> tuple[int, int, int]:
    """Billionths of a dollar, and twice nine decimals more; of a negative sum only the first is negative."""
    upper, low = divmod(units, _LIMB)
    high, middle = divmod(upper, _LIMB)
    return high, middle, low


def joined(high: int, middle: int, low: int) -> int:
    """The inverse of `limbs`, also of sums of limbs."""
    return (high * _LIMB + middle) * _LIMB + low
