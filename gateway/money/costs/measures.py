"""
The vocabulary of cost queries: kinds of money, measures of a row, and usage with its units.

Commands also use this module, so it imports no code that runs queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from spool import money
from spool.cost_kinds import KINDS
from spool.ledger.dimensions import BILLED_TYPES, COST_TYPES, EXPLAINED_TYPES, PLAN_TYPES, TOTAL
from spool.ledger.queries import CostRow
from spool.meters import METERS, quantity_from_millionths

REAL_COST = "real_cost"
# cost types that the `cost` of a report may have
MONEY_KINDS = (REAL_COST, *PLAN_TYPES, *BILLED_TYPES)
COMPARED_KINDS = (REAL_COST, *BILLED_TYPES)
if TYPE_CHECKING:
    from spool.ledger.usages import GroupUsage

    ExplainedType: TypeAlias = str
    ComparedType: TypeAlias = str
else:
    ExplainedType = Literal[tuple(EXPLAINED_TYPES)]
    ComparedType = Literal[COMPARED_KINDS]
USAGE_AMOUNT = "usage_amount"  # published cost type that stands for usage instead of money
ANSWERED = (*COST_TYPES, *BILLED_TYPES, USAGE_AMOUNT)
USAGE_UNIT = "tokens"
CURRENCY_UNIT = "USD"
METER = "meter"  # name of the dimension that groups usage by meter

# fields of a CostRow -> names of the measures of usage
USAGE: Mapping[str, str] = {
    "calls": "calls",
    "errors": "calls",
    "cached": "calls",
    **dict.fromkeys(KINDS, "calls"),
    "input_tokens": "tokens",
    "output_tokens": "tokens",
    "cache_read_tokens": "tokens",
    "cache_write_tokens": "tokens",
    "reasoning_tokens": "tokens",
    "cache_write_1h_tokens": "tokens",
    "cached_input_tokens": "tokens",
    "cached_output_tokens": "tokens",
    "latency_ms": "ms",
}
MONEY = tuple(dict.fromkeys(COST_TYPES.values()))
SUMS = (*MONEY, *USAGE)
PERCENTILES = {"latency_p50_ms": 50, "latency_p95_ms": 95, "latency_p99_ms": 99}
LATENCY = ("timed", *PERCENTILES)
MEASURES = (*SUMS, *LATENCY, "cost_per_call", "cost_per_million_tokens")
# measures that only a query for units of work has; they concern the units that the query names
UNITS, COST_PER_UNIT, MEDIAN_PER_UNIT, P95_PER_UNIT = OF_UNITS = (
    "units", "cost_per_unit", "median_per_unit", "p95_per_unit"
)  # fmt: skip
RANKED_PER_UNIT = {MEDIAN_PER_UNIT: 50, P95_PER_UNIT: 95}  # measures of the costs of units -> percentile
SAVED_BY_CACHING = "saved_by_caching"
ASKED = (*OF_UNITS, SAVED_BY_CACHING)
# measure -> the cost type in which it is computed, if it is not that of `cost`; calls and tokens have none
MEASURED_IN = {field: name for name, field in reversed(list(COST_TYPES.items())) if name != REAL_COST}
MEASURED_IN |= {SAVED_BY_CACHING: "estimated_cost"}
_BILLED_TOKENS = ("input_tokens", "output_tokens", "cached_input_tokens", "cached_output_tokens")
_DECIMALS = 12  # decimal places of a quotient
NO_PRICE = "no price"  # shown for an unknown cost, so that it does not look like 0

MAX_TOP, DEFAULT_TOP = 1000, 10


def report_key_columns(report_fields: Mapping[str, Any]) -> list[str]:
    return [*(["period"] if report_fields["per"] != TOTAL else []), *report_fields["by"]]


def columns_of_spans(compared: Mapping[str, Any]) -> dict[str, object]:
    """Return the two times of a comparison as columns of a CSV file, the same in each row."""
    return {f"{side}_{edge}": compared[side][edge] for side in ("now", "before") for edge in ("from", "to")}


def has_no_price(amount: str | None, unpriced: int) -> bool:
    """Return whether an amount is 0 only because its calls have no price (`unpriced` is their number)."""
    return unpriced > 0 and not Decimal(amount or 0)


def unknown_cost_phrase(row: CostRow) -> str:
    """
    Describe the calls of a row that count as 0 because their cost is unknown. Return "" if there are none.
    """
    counts = {"have no price": row.unpriced, "report no usage": row.without_usage}
    words = [f"{count:,} calls {problem}" for problem, count in counts.items() if count]
    return f"{' and '.join(words)}, so they count as 0" if words else ""


def billed_tokens(row: CostRow | GroupUsage) -> int:
    """Return the tokens that a provider bills, without calls that a gateway answered from its cache."""
    return row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens


def estimated_cost(row: CostRow) -> int:
    """Return the part of the row's cost that no source reported, in units of money."""
    if row.cost == row.reported:
        return 0
    return max(0, money.text_to_units(row.cost) - money.text_to_units(row.reported))


def row_amount(row: CostRow, cost_type: str, meter: str = "") -> str:
    """
    Return the row's cost, or its usage for USAGE_AMOUNT, as decimal text. With `meter`, the usage is in its
    unit, otherwise in tokens.
    """
    if cost_type == USAGE_AMOUNT:
        return str(quantity_from_millionths(row.metered) if meter else billed_tokens(row))
    text: str = getattr(row, _cost_row_field_of_type(cost_type))
    return text


def metered_quantities(row: CostRow) -> Mapping[str, str]:
    """
    Return the quantities of a row by meter as decimal text, with plain input and output tokens first.

    A meter that is a part of another meter is counted in both. Calls that a gateway answered from its cache
    are excluded.
    """
    tokens = {
        "input_tokens": row.input_tokens - row.cached_input_tokens,
        "output_tokens": row.output_tokens - row.cached_output_tokens,
    }
    counts = {name: str(count) for name, count in tokens.items() if count}
    return counts | {
        name: str(quantity_from_millionths(row.meters[name])) for name in METERS if row.meters.get(name)
    }


def meter_unit(meter: str) -> str:
    return METERS[meter].unit if meter in METERS else USAGE_UNIT


def cost_per_count(cost: str, count: int, *, of: int = 1) -> str | None:
    """
    Return the cost per `of` counted items as decimal text with _DECIMALS places, or None if the count is 0.
    """
    if count <= 0:
        return None
    cut = 10 ** (money.DECIMALS - _DECIMALS)
    return money.units_to_text(money.text_to_units(cost) * of // count // cut * cut)


def measures_and_cost_type_measures(cost_type: str, measures: Sequence[str]) -> tuple[str, ...]:
    return (
        *measures,
        *(_BILLED_TOKENS if cost_type == USAGE_AMOUNT else (_cost_row_field_of_type(cost_type),)),
    )


def sums_needed_for_measures(measures: Sequence[str]) -> Iterator[str]:
    """Yield the sums that a query needs in addition, because measures in `measures` are computed from them."""
    if not set(measures).isdisjoint(LATENCY):
        yield "latency"
    if "cost_per_million_tokens" in measures:
        yield from ("input_tokens", "output_tokens")


def units_by_measure(cost_type: str, measures: Sequence[str], meter: str = "") -> dict[str, str]:
    main = {USAGE_AMOUNT: meter_unit(meter)} if cost_type == USAGE_AMOUNT else {"cost": CURRENCY_UNIT}
    return main | {name: USAGE[name] for name in measures}


def _cost_row_field_of_type(cost_type: str) -> str:
    return COST_TYPES.get(cost_type, "cost")
