"""
Currency codes, amounts in sums, and conversion. Pure.

Amounts are summed in their own currency, as meters (named integers of a sum), and converted when they are
read. An amount is three integers (limbs) of nine decimals each, as in `spool.money`, so that sums fit
64 bits.

The day of a charge decides its exchange rate, an integer in units of 10 ** -12. Each result row is rounded
once, to 27 decimals, so sums over hours and over days agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from spool import money

USD: Final = "USD"
_NO_DECIMALS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMR TND"
_TWO_DECIMALS = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP
    CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR
    JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN
    NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP
    SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VES WST XCD XCG YER ZAR ZMW ZWG"""

DECIMALS: Final[Mapping[str, int]] = {
    **dict.fromkeys(_TWO_DECIMALS.split(), 2),
    **dict.fromkeys(_NO_DECIMALS.split(), 0),
    **dict.fromkeys(_THREE_DECIMALS.split(), 3),
}


def read_currency_code(value: Any) -> str | None:
    """Return a currency code in upper case, or None if the text is no currency, such as "credits"."""
    code = value.strip().upper() if isinstance(value, str) else None
    return code if code in DECIMALS else None


# -- amounts in other currencies in sums ---------------------------------------------------------------------


# The prefix of a foreign amount's three integers (limbs) among the meters of a sum. No name in spool.meters
# has it.
BEGINNING = "charge."
_LIMBS = ("9", "18", "27")
MAX_CHARGE = 10**12 * money.UNIT  # limit of an amount, high enough for the currency with the lowest value


def charges_as_meters(charges: Mapping[str, str], *, sign: int = 1) -> dict[str, int]:
    """
    Convert amounts by currency to meters: the limbs of each amount by name, without zeros. `sign`: 1, or -1
    to subtract.
    """
    units_by_name: dict[str, int] = {}
    for currency, amount in charges.items():
        for limb, units in zip(
            _LIMBS, money.split_into_limbs(sign * money.text_to_units(amount)), strict=True
        ):
            if units:
                units_by_name[f"{BEGINNING}{currency}.{limb}"] = units
    return units_by_name


def is_charge_meter(meter_name: str) -> bool:
    return meter_name.startswith(BEGINNING)


def charge_units_by_currency(meters: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the amounts in these meters by currency, in units of `spool.money`, without zeros."""
    limbs_by_currency: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, units in meters:
        if is_charge_meter(name):
            _, currency, limb = name.split(".")
            limbs_by_currency[currency][_LIMBS.index(limb)] += units
    joined = {currency: money.join_limbs(*limbs) for currency, limbs in sorted(limbs_by_currency.items())}
    return {currency: units for currency, units in joined.items() if units}


def meters_without_charges(meters: Mapping[str, int]) -> Mapping[str, int]:
    return {name: units for name, units in meters.items() if not is_charge_meter(name)}


# -- conversion when sums are queried
# ----------------------------------------------------------------------------


RATE_DECIMALS = 12
SCALE: int = 10**RATE_DECIMALS
_EXACT = Context(prec=100)
DAY_S = 86_400  # copied, because spool.ledger.sums imports this module
# Rates return the value of one unit of the first currency in the second on a day (epoch seconds), times
# SCALE, or None.
Rates = Callable[[str, str, int], int | None]


def find_no_rate(_from: str, _to: str, _day: int) -> int | None:
    return None


def rate_as_scaled_integer(rate: Decimal) -> int:
    """Return the rate times SCALE as an integer, rounded half to even."""
    return int(
        rate.quantize(Decimal(1).scaleb(-RATE_DECIMALS), ROUND_HALF_EVEN, _EXACT).scaleb(
            RATE_DECIMALS, _EXACT
        )
    )


def round_product_to_units(product: int) -> int:
    """Return the product divided by SCALE, rounded half to even."""
    whole, rest = divmod(product, SCALE)
    return whole + int(rest * 2 > SCALE or (rest * 2 == SCALE and whole % 2 == 1))


@dataclass(slots=True)
class CurrencyConverter:
    """Exchange rates to `currency`, with a cache."""

    rates: Rates
    currency: str
    _known: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def rate(self, currency: str, start: int) -> int | None:
        """Return the rate of the day of `start` (epoch seconds), times SCALE, or None if unknown."""
        if currency == self.currency:
            return SCALE
        currency_day = (currency, start // DAY_S * DAY_S)
        if currency_day not in self._known:
            self._known[currency_day] = self.rates(currency, self.currency, currency_day[1])
        return self._known[currency_day]
