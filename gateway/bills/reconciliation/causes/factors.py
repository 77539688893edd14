"""What the ratios of a bill to our prices mean: factors that price lists publish, and shapes of few kinds."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gateway.bills.reconciliation.causes.regions import REGION
from gateway.bills.reconciliation.claims import STRONG, WEAK
from gateway.bills.reconciliation.rate_series import SAME
from gateway.bills.reconciliation.sides import CACHE_READ, INPUT, OUTPUT, WHOLE, WRITE_1H, WRITE_5M

_WRITES = frozenset({WRITE_5M, WRITE_1H, "cache_write"})
# Factors that price lists publish: what the provider calls each.
_FACTORS = (
    (Decimal("0.5"), "tier", "half the price: batch or flex"),
    (Decimal("1.1"), REGION, "1.1 times the price, as for a region that is chosen"),
    (Decimal("1.75"), "tier", "1.75 times the price: priority"),
    (Decimal("1.8"), "tier", "1.8 times the price: priority"),
    (Decimal(2), "tier", "twice the price: priority or fast"),
    (Decimal("2.5"), "tier", "2.5 times the price: priority or fast"),
)
_OF_TIER, _LEAST_OF_TIER = Decimal("0.5"), Decimal("0.4")  # a discount of a fifth at most beside it


def known_factor(
    ratios: Mapping[str, Decimal], regions_told: bool, *, is_rest: bool = False
) -> tuple[str, str, str] | None:
    """
    Return cause, certainty and words of one factor of all kinds; None if there is none that is known.

    `is_rest`: claims of tokens have taken the prices of the other kinds. One kind alone then shows a tier.
    """
    factor = next(iter(ratios.values()))
    is_one = len(ratios) < 2 and WHOLE not in ratios
    if (is_one and not is_rest) or not all(is_near(each, factor) for each in ratios.values()):
        return None
    for known, cause, words in _FACTORS:
        # what is told was looked at before
        if is_near(factor, known) and not (cause == REGION and (regions_told or is_one)):
            sure = WEAK if cause == REGION or is_one else STRONG
            kinds = "every kind of token"
            if is_one:
                kinds = f"{next(iter(ratios))}, of which alone no other claim has the price,"
            return cause, sure, f"{kinds} was billed at {words}"
    if factor < 1 and not is_one:
        return "discount", STRONG, f"every kind of token was billed at {factor:.4f} of our price"
    return None


def beside_factor(cause: str, factor: Decimal) -> tuple[str, ...]:
    """A discount beside a tier at half the price is one factor, too."""
    return ("tier",) if cause == "discount" and _LEAST_OF_TIER <= factor < _OF_TIER else ()


def long_context(ratios: Mapping[str, Decimal]) -> tuple[str, str, str] | None:
    """Return the claim of large inputs, whose tokens cost 2 and 1.5 times as much; None if it is not so."""
    if INPUT not in ratios or OUTPUT not in ratios:
        return None
    given = ratios[INPUT] - 1
    made = ratios[OUTPUT] - 1
    if not 0 < given <= 1 or abs(made * 2 - given) > given / 10:
        return None
    if CACHE_READ in ratios and abs(ratios[CACHE_READ] - 1 - given) > given / 2:
        return None
    words = (
        f"input at {ratios[INPUT]:.3f} and output at {ratios[OUTPUT]:.3f} of our price: beyond a threshold "
        f"they cost 2 and 1.5 times as much, here {given:.0%} of them"
    )
    return "long_context", WEAK, words


def dear_writes(ratios: Mapping[str, Decimal]) -> tuple[str, str, str] | None:
    """Return the claim of cache writes that alone are dearer, as if kept for an hour; else None."""
    off = {meter for meter, ratio in ratios.items() if abs(ratio - 1) > SAME}
    if not off or not off <= _WRITES or not all(1 < ratios[meter] <= Decimal("1.61") for meter in off):
        return None
    ratio = max(ratios[meter] for meter in off)
    share = (ratio - 1) / Decimal("0.6")
    words = f"cache writes alone at {ratio:.3f} of our price, as if {share:.0%} were kept for an hour"
    return "cache_ttl_1h", WEAK, words


def is_near(ratio: Decimal, factor: Decimal, tolerance: Decimal = SAME) -> bool:
    """True if a ratio is this factor, but for a share of it."""
    return abs(ratio - factor) <= tolerance * factor
