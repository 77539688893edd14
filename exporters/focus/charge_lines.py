"""
Charges by the lines of an estimate: a row for each quantity that one price holds for. Pure.

Lines are those of the price book in force, and are taken where they add up to the estimate that is on record, to the
last digit. What a source reported, what another book estimated, and corrections have no lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from spool.ledger import money
from spool.ledger.repricing import LinesOf, SumLine, token_sum
from spool.ledger.sums import COUNTS, MONEY, Dimensions, Measures
from spool.meters import METERS, quantity_of

_ESTIMATED: Final = len(COUNTS) + MONEY.index("estimated")
_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_TOTALS: Final = (
    "x_CacheReadTokens", "x_CacheWriteTokens", "x_CacheWriteOneHourTokens", "x_Calls", "x_InputTokens",
    "x_OutputTokens",
)  # fmt: skip
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


def lines_of_row(
    price_lines: LinesOf, hour: int, key: Dimensions, row: Measures, meters: Mapping[str, int]
) -> tuple[SumLine, ...]:
    """Return the lines of summed calls that are charged what was estimated; none if that is another sum."""
    if key.cost_source != "estimated" or key.status == "cached":
        return ()
    lines = price_lines(token_sum(hour, key, row, meters))
    total = sum(line.amount for line in lines)
    return tuple(lines) if total == row[_ESTIMATED] else ()


def joined(one: Sequence[SumLine], other: Sequence[SumLine]) -> tuple[SumLine, ...]:
    """Add lines up by their meters."""
    sums: dict[str, SumLine] = {}
    for line in (*one, *other):
        before = sums.get(line.meter, SumLine(line.meter, 0, 0))
        quantity = before.quantity + line.quantity
        amount = before.amount + line.amount
        sums[line.meter] = SumLine(line.meter, quantity, amount)
    return tuple(sums.values())


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
