"""
Langfuse's usage: OpenAI's shape inside `usageDetails`, free buckets that exclude one another, and the older `usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from gateway.normalise.formats.usage import Tokens, Usage, added, of_usage, settled
from gateway.normalise.formats.values import BadValue, count, money, text
from gateway.normalise.outcome import MALFORMED

_OPENAI = ("prompt_tokens", "completion_tokens", "input_tokens_details", "output_tokens_details")
_READ = ("cache_read_input_tokens", "input_cached_tokens", "input_cache_read", "input_cache_read_tokens")
_WRITE = (
    "cache_creation_input_tokens", "input_cache_creation", "input_cache_creation_5m", "input_cache_creation_1h",
    "input_cache_write", "input_cache_write_tokens",
)  # fmt: skip
_REASONING = ("output_reasoning_tokens", "output_reasoning")


class Named(Usage):
    """The older `usage`, in Langfuse's names and in OpenAI's."""

    input: Any = None
    output: Any = None
    unit: Any = None
    promptTokens: Any = None
    completionTokens: Any = None
    totalCost: Any = None


def of_details(details: Mapping[str, Any]) -> Tokens | None:
    """`usageDetails`; None when it says nothing."""
    if any(name in details for name in _OPENAI):
        return _said(of_usage(_usage(details)))
    buckets = {name: number for name, value in details.items() if (number := _bucket(value)) is not None}
    if not buckets:
        return None
    read, write = _sum(buckets, _READ), _sum(buckets, _WRITE)
    reasoning = _sum(buckets, _REASONING)
    came_in, came_out = buckets.get("input"), buckets.get("output")
    if came_in is not None and came_out is not None and buckets.get("total") == came_in + came_out:
        return _said(settled(came_in, came_out, read, write, reasoning))
    inputs = [n for name, n in buckets.items() if name.startswith("input") or name in _READ or name in _WRITE]
    outputs = [n for name, n in buckets.items() if name.startswith("output")]
    return _said(Tokens(added(*inputs), added(*outputs), read, write, reasoning))


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
    if (total := money(details.get("total"), "costDetails.total")) is not None:
        return total
    parts = [part for value in details.values() if (part := money(value, "costDetails")) is not None]
    return money(sum(map(Decimal, parts), Decimal(0)), "costDetails") if parts else None


def _usage(details: Mapping[str, Any]) -> Usage:
    try:
        return msgspec.convert(details, Usage)
    except msgspec.ValidationError as error:
        raise BadValue(MALFORMED, "usageDetails is not readable") from error


def _bucket(value: Any) -> int | None:
    """One bucket; what is nested in it is no bucket."""
    return None if isinstance(value, dict | list) else count(value, "usageDetails")


def _sum(buckets: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return added(*(buckets.get(name) for name in names))


def _said(tokens: Tokens) -> Tokens | None:
    return tokens if tokens.stated else None
