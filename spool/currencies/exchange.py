"""
Amounts in one currency, worked out when sums are asked for: nothing is converted when it is written. Pure.

The day of a charge decides its rate. A rate is a whole number of 10 ** -12, so a product of it is exact; it is rounded
once, to the 27 decimals of `spool.ledger.money`, in each row of an answer: so hours and days give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal

from spool.ledger.sums import DAY_S

DECIMALS = 12  # of a rate
SCALE: int = 10**DECIMALS
_EXACT = Context(prec=100)
# What one unit of the first currency is in the second, on a day (epoch seconds): times SCALE; None if not known.
Rates = Callable[[str, str, int], int | None]


def no_rates(_from: str, _to: str, _day: int) -> int | None:
    """Know no rate."""
    return None


def scaled(rate: Decimal) -> int:
    """A rate as a whole number, half-even."""
    return int(rate.quantize(Decimal(1).scaleb(-DECIMALS), ROUND_HALF_EVEN, _EXACT).scaleb(DECIMALS, _EXACT))


def rounded(product: int) -> int:
    """Units of a product of amounts and rates, half-even."""
    whole, rest = divmod(product, SCALE)
    return whole + int(rest * 2 > SCALE or (rest * 2 == SCALE and whole % 2 == 1))


@dataclass(slots=True)
class Converter:
    """Knows by what to multiply amounts for an answer in `currency`."""

    rates: Rates
    currency: str
    _known: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def rate(self, currency: str, start: int) -> int | None:
        """Return the rate of a moment (epoch seconds), times SCALE; None if it is not known."""
        if currency == self.currency:
            return SCALE
        place = (currency, start // DAY_S * DAY_S)
        if place not in self._known:
            self._known[place] = self.rates(currency, self.currency, place[1])
        return self._known[place]
