"""
Amounts in other currencies than dollars, as sums keep them: beside the meters, three limbs of each currency. Pure.

They are kept in the currency in which they came, never converted. A limb has nine decimals, as those of
`spool.ledger.money` have, so that sums of limbs stay within 64 bits and keep every digit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from spool.ledger import money

BEGINNING = "charge."  # of the names that stand for limbs; no meter of spool.meters has it
_LIMBS = ("9", "18", "27")
MAX_CHARGE = 10**12 * money.UNIT  # as MAX_MONEY, where one unit is worth the least


def limbs_of(charges: Mapping[str, str], *, sign: int = 1) -> dict[str, int]:
    """The limbs of amounts (decimal text) by currency; those of 0 are left out."""
    found: dict[str, int] = {}
    for currency, amount in charges.items():
        for limb, units in zip(_LIMBS, money.limbs(sign * money.units(amount)), strict=True):
            if units:
                found[f"{BEGINNING}{currency}.{limb}"] = units
    return found


def is_charge(name: str) -> bool:
    """True if a name among the meters of a sum stands for a limb."""
    return name.startswith(BEGINNING)


def charges_of(meters: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Units of each currency, of limbs and whatever else stands among the meters; those of 0 are left out."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, units in meters:
        if is_charge(name):
            _, currency, limb = name.split(".")
            found[currency][_LIMBS.index(limb)] += units
    joined = {currency: money.joined(*limbs) for currency, limbs in sorted(found.items())}
    return {currency: units for currency, units in joined.items() if units}


def without_charges(meters: Mapping[str, int]) -> Mapping[str, int]:
    """The meters alone."""
    return {name: units for name, units in meters.items() if not is_charge(name)}
