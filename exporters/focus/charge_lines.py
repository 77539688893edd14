"""
Charges by the lines of an estimate: a row for each quantity that one price holds for. Pure.

Lines are those of the price book in force, and are taken where they add up to the estimate that is on record, to the
last digit. What a source reported, what another book estimated, and corrections have no lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from spool.ledger import money
from spool.ledger.repricing import SumLine
from spool.meters import METERS, quantity_of

_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_TOTALS: Final = (
    "x_CacheReadTokens",
    "x_CacheWriteTokens",
    "x_CacheWriteOneHourTokens",
    "x_Calls",
    "x_InputTokens",
    "x_OutputTokens",
)
# Words of the units of meters; what is charged by the piece is a request. Counts of a record are tokens.
_UNITS: Final = {
    "tokens": "Tokens",
    "seconds": "Seconds",
    "images": "Images",
    "pixels": "Pixels",
    "characters": "Characters",
    "pages": "Pages",
    "results": "Results",
}
_REQUESTS: Final = "Requests"


def by_lines(row: Mapping[str, str], lines: Sequence[SumLine]) -> Iterator[dict[str, str]]:
    """Yield the row of a charge once for each of its lines. The totals of its calls are in the first alone."""
    totals: Mapping[str, str] = {}
    for line in lines:
        quantity, unit = str(quantity_of(line.quantity)), unit_of(line.meter)
        costs = dict.fromkeys(_COSTS, money.text(line.amount))
        of_line = {
            "ChargeDescription": f"{row['ChargeDescription']}: {line.meter}",
            "ConsumedQuantity": quantity,
            "ConsumedUnit": unit,
            "PricingQuantity": quantity,
            "PricingUnit": unit,
            "SkuMeter": line.meter if row["SkuMeter"] else "",
        }
        yield {**row, **costs, **of_line, **totals}
        totals = dict.fromkeys(_TOTALS, "0")


def unit_of(meter: str) -> str:
    """The unit of a meter in the words of FOCUS."""
    if meter in METERS:
        return _UNITS.get(METERS[meter].unit, _REQUESTS)
    return "Tokens" if meter.endswith("_tokens") else _REQUESTS
