"""
Langfuse's usage: OpenAI's shape inside `usageDetails`, free buckets that exclude one another, and the older `usage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from gateway.normalise.formats.usage import Tokens, Usage, added, of_usage, settled
from gateway.normalise.formats.values import BadValue, count, money, text
from gateway.normalise.outcome import MALFORMED

_OPENAI = ("prompt_tokens", "completion_tokens", "input_tokens_details", "output_tokens_details")
_WRITE = re.compile("creation|write|ephemeral")


class Named(Usage):
    """The older `usage`, in Langfuse's names and in OpenAI's."""

    input: Any = None
    output: Any = None
    unit: Any = None
    promptTokens: Any = None
    completionTokens: Any = None
    inputCost: Any = None
    outputCost: Any = None
    totalCost: Any = None


def of_details(details: Mapping[str, Any]) -> Tokens | None:
    """`usageDetails`; None when it says nothing."""
    if any(name in details for name in _OPENAI):
        return _said(of_usage(_usage(details)))
    buckets = {name: number for name, value in details.items() if (number := _bucket(name, value)) is not None}
    came_in, came_out, total = (_either(buckets, name, f"{name}_tokens") for name in ("input", "output", "total"))
    reasoning = added(*(number for name, number in buckets.items() if "output" in name and "reasoning" in name))
    inputs = {name: number for name, number in buckets.items() if "input" in name}
    write = added(*(number for name, number in inputs.items() if _WRITE.search(name)))
    read = added(*(number for name, number in inputs.items() if "cache" in name and not _WRITE.search(name)))
    if came_in is not None and came_out is not None and total == came_in + came_out:
        return _said(settled(came_in, came_out, read, write, reasoning))
    outputs = (number for name, number in buckets.items() if "output" in name)
    return _said(Tokens(added(*inputs.values()), added(*outputs), read, write, reasoning))


def of_named(usage: Named) -> Tokens | None:
    """The older `usage`; characters, images, seconds and requests are no tokens."""
    if (text(usage.unit) or "TOKENS").upper() != "TOKENS":
        return None
    if usage.input is None and usage.output is None and usage.promptTokens is None and usage.completionTokens is None:
        return _said(of_usage(usage))
    return _said(settled(
        count(usage.promptTokens if usage.input is None else usage.input, "usage.input"),
        count(usage.completionTokens if usage.output is None else usage.output, "usage.output"),
    ))  # fmt: skip


def cost_of_details(details: Mapping[str, Any]) -> str | None:
    """`total`, else the sum of the parts."""
    return _cost(details.get("total"), details.values(), "costDetails")


def cost_of_named(usage: Named) -> str | None:
    """`totalCost`, else the sum of the two parts."""
    return _cost(usage.totalCost, (usage.inputCost, usage.outputCost), "usage.totalCost")


def _cost(total: Any, parts: Iterable[Any], field: str) -> str | None:
    if (whole := money(total, field)) is not None:
        return whole
    said = [Decimal(part) for value in parts if (part := money(value, field)) is not None]
    return money(sum(said, Decimal(0)), field) if said else None


def _usage(details: Mapping[str, Any]) -> Usage:
    try:
        return msgspec.convert(details, Usage)
    except msgspec.ValidationError as error:
        raise BadValue(MALFORMED, "usageDetails is not readable") from error


def _bucket(name: str, value: Any) -> int | None:
    """One bucket of input, of output, or the total; other names are free for other things, and so is what is nested."""
    is_counted = "input" in name or "output" in name or name in ("total", "total_tokens")
    return count(value, "usageDetails") if is_counted and not isinstance(value, dict | list) else None


def _either(buckets: Mapping[str, int], *names: str) -> int | None:
    return next((buckets[name] for name in names if name in buckets), None)


def _said(tokens: Tokens) -> Tokens | None:
    return tokens if tokens.stated else None
