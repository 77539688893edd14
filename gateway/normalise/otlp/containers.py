"""
Attributes whose one value holds several figures: JSON objects and texts of Python dicts.

Each reader turns a value into canonical fields, weaker than any attribute that states the same field by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.buckets import is_bucket, sums

Fields = Mapping[str, Any]  # input, output, cache_read, cache_write, reasoning, total, cost, model, provider

_LONGEST = 4096
_PAIR = re.compile(r"""['"](\w{1,64})['"]\s*:\s*(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)(?![\w.])""")


def python_numbers(value: Any) -> dict[str, str]:
    """The numbers in the text of a Python dict, nested ones too, by their own names; the first of a name stays."""
    numbers: dict[str, str] = {}
    if isinstance(value, str) and len(value) <= _LONGEST:
        for name, digits in _PAIR.findall(value):
            numbers.setdefault(name, digits)
    return numbers


def _named(tree: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> Fields:
    found: dict[str, Any] = {}
    for field, keys in names.items():
        value = next((tree[key] for key in keys if key in tree and words.count(tree[key]) is not None), None)
        if value is not None:
            found[field] = value
    return found


def _mlflow_usage(value: Any) -> Fields:
    return _named(
        words.json_object(value),
        {
            "input": ("input_tokens",),
            "output": ("output_tokens",),
            "cache_read": ("cache_read_input_tokens",),
            "cache_write": ("cache_creation_input_tokens",),
            "total": ("total_tokens",),
        },
    )


def _mlflow_cost(value: Any) -> Fields:
    cost = words.json_object(value).get("total_cost")
    return {} if cost is None else {"cost": cost}


def _mlflow_text(field: str) -> Callable[[Any], Fields]:
    def read(value: Any) -> Fields:
        text = words.text(words.unquoted(value))
        return {} if text is None else {field: text}

    return read


def _langsmith_input(value: Any) -> Fields:
    return _named(python_numbers(value), {"cache_read": ("cache_read",), "cache_write": ("cache_creation",)})


def _langsmith_output(value: Any) -> Fields:
    return _named(python_numbers(value), {"reasoning": ("reasoning",)})


def _litellm_usage(value: Any) -> Fields:
    return _named(
        python_numbers(value),
        {
            "cache_read": ("cached_tokens", "cache_read_input_tokens"),
            "cache_write": ("cache_creation_tokens", "cache_creation_input_tokens"),
            "reasoning": ("reasoning_tokens",),
        },
    )


def _adk_response(value: Any) -> Fields:
    usage = value.get("usage_metadata", {}) if isinstance(value, dict) else {}
    return _named(usage, {"cache_read": ("cached_content_token_count",), "total": ("total_token_count",)})


# What the AI SDK's providers add to a usage object that has no names for it (up to version 5), any of them.
_VERCEL_NAMES = {
    "cache_read": ("cacheReadInputTokens", "cachedPromptTokens", "promptCacheHitTokens"),
    "cache_write": ("cacheCreationInputTokens", "cacheWriteInputTokens"),
    "reasoning": ("reasoningTokens",),
}


def _vercel_metadata(value: Any) -> Fields:
    if not isinstance(value, dict):
        return {}
    anthropic = value.get("anthropic")
    usage = anthropic.get("usage") if isinstance(anthropic, dict) else None
    found = {name: _deep(value, name) for names in _VERCEL_NAMES.values() for name in names}
    return {
        **_named(found, _VERCEL_NAMES),
        **_named(usage if isinstance(usage, dict) else {}, {"cache_read": ("cache_read_input_tokens",)}),
    }


def _deep(tree: dict[str, Any], name: str) -> Any:
    """The first value of a name in a small tree of objects (`admission` has bounded its depth)."""
    if name in tree:
        return tree[name]
    below = (_deep(branch, name) for branch in tree.values() if isinstance(branch, dict))
    return next((value for value in below if value is not None), None)


def _invocation_parameters(value: Any) -> Fields:
    return value if isinstance(value, dict) else {}


def _langfuse_usage(value: Any) -> Fields:
    buckets = words.json_object(value)
    is_new = any(isinstance(buckets.get(f"{side}_tokens_details"), dict) for side in ("input", "output"))
    if is_new or "prompt_tokens" in buckets or "completion_tokens" in buckets:
        return _openai_usage(buckets)
    tokens = {name: value for name, value in buckets.items() if is_bucket(name)}  # others may count seconds or images
    counts = {name: number for name, value in tokens.items() if (number := words.count(value)) is not None}
    return {name: number for name, number in sums(counts)._asdict().items() if number is not None}


def _openai_usage(usage: dict[str, Any]) -> Fields:
    """A usage object as OpenAI's two interfaces have it."""
    is_old = "prompt_tokens" in usage or "completion_tokens" in usage
    input_side, output_side = ("prompt", "completion") if is_old else ("input", "output")
    inside, outside = usage.get(f"{input_side}_tokens_details"), usage.get(f"{output_side}_tokens_details")
    return {
        **_named(
            usage,
            {"input": (f"{input_side}_tokens",), "output": (f"{output_side}_tokens",), "total": ("total_tokens",)},
        ),
        **_named(
            inside if isinstance(inside, dict) else {},
            {"cache_read": ("cached_tokens",), "cache_write": ("cache_write_tokens",)},
        ),
        **_named(outside if isinstance(outside, dict) else {}, {"reasoning": ("reasoning_tokens",)}),
    }


def _response_usage(value: Any) -> Fields:
    usage = value.get("usage") if isinstance(value, dict) else None
    return _openai_usage(usage) if isinstance(usage, dict) else {}


def _langfuse_cost(value: Any) -> Fields:
    stated = words.json_object(value)
    total = words.money(stated.get("total"))
    if total is not None:
        return {"cost": total}
    parts = [Decimal(cost) for part in stated.values() if (cost := words.money(part)) is not None]
    return {"cost": words.plain(sum(parts, Decimal()))} if parts else {}


READERS: dict[str, Callable[[Any], Fields]] = {
    "langfuse.observation.usage_details": _langfuse_usage,
    "langfuse.observation.cost_details": _langfuse_cost,
    "mlflow.chat.tokenUsage": _mlflow_usage,
    "mlflow.llm.cost": _mlflow_cost,
    "mlflow.llm.model": _mlflow_text("model"),
    "mlflow.llm.provider": _mlflow_text("provider"),
    "gen_ai.usage.input_token_details": _langsmith_input,
    "gen_ai.usage.output_token_details": _langsmith_output,
    "metadata.usage_object": _litellm_usage,
    "gcp.vertex.agent.llm_response": _adk_response,
    "ai.response.providerMetadata": _vercel_metadata,
    "response_data": _response_usage,
    "llm.invocation_parameters": _invocation_parameters,
    "embedding.invocation_parameters": _invocation_parameters,
}
