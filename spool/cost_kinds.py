"""
The kinds of calls by how their cost is known. Each call has exactly one kind. Pure.

The totals store the kind in the dimension `cost_source`, so every sum has one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spool import money
from spool.meters import quantity_in_millionths
from spool.record import CORRECTED_COUNTS, Inference

OUTCOME_TAGS = "correction_status", "correction_cost_source"  # tags in the corrections of another Tollhouse
# kinds of calls by their price; also fields of CostRow, and measures of costs
KINDS = PRICED, FREE, UNPRICED, WITHOUT_USAGE = "priced", "free", "unpriced", "without_usage"
# values of the dimension `cost_source`
REPORTED, ESTIMATED, NONE = "reported", "estimated", "none"
KIND_OF_SOURCE: Final[Mapping[str, str]] = {
    REPORTED: PRICED,
    ESTIMATED: PRICED,
    NONE: UNPRICED,
    FREE: FREE,
    WITHOUT_USAGE: WITHOUT_USAGE,
}


def call_pricing_status(call: Inference) -> str:
    """
    Return the kind. `priced`: the cost is known. `free`: a gateway's cache answered, or the call failed
    without usage. `unpriced`: the usage has no known price. `without_usage`: the call succeeded, but no usage
    was reported.
    """
    return KIND_OF_SOURCE[call_cost_source(call)]


def call_cost_source(call: Inference) -> str:
    has_tokens = call.input_tokens or call.output_tokens
    return counted_cost_source(
        call.status, call.cost_source, is_empty=not has_tokens and _has_no_usage_or_cost(call)
    )


def counted_cost_source(status: str, cost_source: str, *, is_empty: bool) -> str:
    """
    Return the cost source under which the totals count calls. `is_empty`: the calls have neither usage nor a
    cost above 0.
    """
    if status == "cached":
        return FREE
    if not is_empty:
        return cost_source
    if status == "error":
        return FREE
    return REPORTED if cost_source == REPORTED else WITHOUT_USAGE


def cost_source_after_pricing(status: str, cost_source: str, estimate: int) -> str:
    is_now_estimated = cost_source == NONE or (estimate != 0 and cost_source != REPORTED)
    return ESTIMATED if is_now_estimated and status != "cached" else cost_source


def _has_no_usage_or_cost(call: Inference) -> bool:
    counts = [getattr(call, name) for name in CORRECTED_COUNTS]
    used = [quantity_in_millionths(quantity) for quantity in call.meters.values()]
    stated = [call.cost, call.estimated_cost, *call.charges.values()]
    return not any(
        (*counts, *used, *(money.text_to_units(amount) for amount in stated if amount is not None))
    )
