"""
Langfuse's usage: `usageDetails`, in OpenAI's shape or as free buckets that exclude one another, and
the older `usage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from gateway.normalise.outcome import MALFORMED
from gateway.normalise.reading.buckets import is_bucket, sums
from gateway.normalise.reading.meters import of_buckets
from gateway.normalise.reading.tokens import Tokens, Usage, of_usage, settle
from gateway.normalise.reading.values import BadValue, count, money, text
from spool.turns.shared_types import prepare

_OPENAI = ("prompt_tokens", "completion_tokens", "input_tokens_details", "output_tokens_details")


class NamedUsage(Usage):
    """The older `usage`, in Langfuse's names and in OpenAI's."""

    input: Any = None
    output: Any = None
    unit: Any = None
    promptTokens: Any = None
    completionTokens: Any = None
    inputCost: Any = None
    outputCost: Any = None
    totalCost: Any = None


prepare(Usage, NamedUsage)


def of_details(details: Mapping[str, Any]) -> Tokens | None:
    """The tokens of `usageDetails`; None if it counts none."""
    if any(name in details for name in _OPENAI):
        return _if_reported(of_usage(_usage(details)))
    counts = {name: _bucket(name, value) for name, value in details.items()}
    buckets = {name: number for name, number in counts.items() if number is not None}
    return _if_reported(settle(sums(buckets)._replace(meters=of_buckets(details.items()))))


def of_named(usage: NamedUsage) -> Tokens | None:
    """The tokens of the older `usage`; None if it counts none, or characters, images, seconds or requests."""
    if (text(usage.unit) or "TOKENS").upper() != "TOKENS":
        return None
    own_names = (usage.input, usage.output, usage.promptTokens, usage.completionTokens)
    if all(number is None for number in own_names):
        return _if_reported(of_usage(usage))
    return _if_reported(
        settle(
            Tokens(
                count(usage.promptTokens if usage.input is None else usage.input, "usage.input"),
                count(usage.completionTokens if usage.output is None else usage.output, "usage.output"),
            )
        )
    )


def cost_of_details(details: Mapping[str, Any]) -> str | None:
    """`total`, else the sum of the parts."""
    return _cost(details.get("total"), details.values(), "costDetails")


def cost_of_named(usage: NamedUsage) -> str | None:
    """`totalCost`, else the sum of the two parts."""
    return _cost(usage.totalCost, (usage.inputCost, usage.outputCost), "usage.totalCost")


def _cost(total: Any, parts: Iterable[Any], field: str) -> str | None:
    stated = money(total, field)
    if stated is not None:
        return stated
    costs = [money(part, field) for part in parts]
    stated_costs = [Decimal(cost) for cost in costs if cost is not None]
    return money(sum(stated_costs, Decimal(0)), field) if stated_costs else None


def _usage(details: Mapping[str, Any]) -> Usage:
    try:
        return msgspec.convert(details, Usage)
    except msgspec.ValidationError as error:
        raise BadValue(MALFORMED, "usageDetails is not readable") from error


def _bucket(name: str, value: Any) -> int | None:
    return count(value, "usageDetails") if is_bucket(name) and not isinstance(value, dict | list) else None


def _if_reported(tokens: Tokens) -> Tokens | None:
    return tokens if tokens.reported() else None
