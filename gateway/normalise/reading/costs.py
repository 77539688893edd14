"""Reported costs: whether a 0 is a price, and amounts in units of a provider."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.normalise.reading.operations import IMAGE, RERANK, SPEECH, TRANSCRIPTION
from gateway.normalise.reading.values import BadValue, parse_amount
from spool.record import Inference

# Operations for which sources often report no usage, so that counts of 0 do not show that nothing was used.
_CHARGED_WITHOUT_COUNTS = frozenset({IMAGE, RERANK, SPEECH, TRANSCRIPTION})
_TICKS_PER_DOLLAR = 10_000_000_000  # docs.x.ai/developers/cost-tracking
_FREE_MODEL = ":free"  # ending of the names of OpenRouter's free models


def cost_of_ticks(ticks: Any) -> str | None:
    """Return the amount in dollars of xAI's `cost_in_usd_ticks`, or None if it is absent or impossible."""
    if type(ticks) not in (int, Decimal):
        return None
    try:
        return parse_amount(Decimal(ticks) / _TICKS_PER_DOLLAR, "usage.cost_in_usd_ticks")
    except BadValue:
        return None


def cost_unless_placeholder_zero(
    record: Inference, cost: str | None, operation: str | None = None
) -> str | None:
    """
    Return the cost, or None if it is a 0 that the source writes because it knows no price.

    A 0 is a price only if the call failed, came from a cache, used nothing, or names a free model. The record
    must already have its status and its counts. `operation` is needed only if the record has none.
    """
    if (
        cost != "0"
        or record.status != "ok"
        or _is_free_model(record.request_model)
        or _is_free_model(record.response_model)
    ):
        return cost
    has_used = record.input_tokens or record.output_tokens or record.meters
    return None if has_used or (operation or record.operation) in _CHARGED_WITHOUT_COUNTS else cost


def _is_free_model(model: str | None) -> bool:
    return model is not None and model.endswith(_FREE_MODEL)
