"""
Tools to read attributes whose one value holds several figures: JSON objects and texts of Python dicts.

What they give is weaker than any attribute that states the same field by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.product import Fields
from gateway.normalise.reading.meters import of_parts, parts_in

_LONGEST = 4096
_DEEPEST = 6
_PAIR = re.compile(r"""['"](\w{1,64})['"]\s*:\s*(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)(?![\w.])""")


def counts(tree: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> Fields:
    """The token counts of an object by field: of a field's names the first with a number."""
    found: dict[str, Any] = {}
    for field, keys in names.items():
        for key in keys:
            if key in tree and (number := semconv.count(tree[key], key)) is not None:
                found[field] = number
                break
    return found


def python_numbers(value: Any) -> dict[str, int | str]:
    """The numbers in the text of a Python dict, also nested, by name; the first of a name stays."""
    numbers: dict[str, int | str] = {}
    if isinstance(value, str) and len(value) <= _LONGEST:
        for name, digits in _PAIR.findall(value):
            if name not in numbers:
                numbers[name] = int(digits) if digits.isdecimal() else digits
    return numbers


def openai_usage(usage: dict[str, Any]) -> Fields:
    """A usage object as OpenAI's two interfaces have it."""
    is_old = "prompt_tokens" in usage or "completion_tokens" in usage
    input_side, output_side = ("prompt", "completion") if is_old else ("input", "output")
    totals = {
        "input": (f"{input_side}_tokens",),
        "output": (f"{output_side}_tokens",),
        "total": ("total_tokens",),
    }
    inputs = object_in(usage, f"{input_side}_tokens_details")
    outputs = object_in(usage, f"{output_side}_tokens_details")
    told = of_parts(parts_in(inputs), parts_in(outputs), whole_cache=inputs.get("cached_tokens"))
    return {
        **counts(usage, totals),
        **counts(inputs, {"cache_read": ("cached_tokens",), "cache_write": ("cache_write_tokens",)}),
        **counts(outputs, {"reasoning": ("reasoning_tokens",)}),
        **({} if told is None else {"meters": told}),
    }


def object_in(tree: Any, name: str) -> dict[str, Any]:
    """The object under a name of another; empty when there is none."""
    value = tree.get(name) if isinstance(tree, dict) else None
    return value if isinstance(value, dict) else {}


def token_counts_in(tree: dict[str, Any], depth: int = _DEEPEST) -> dict[str, Any]:
    """A tree of objects reduced to its token counts: texts, lists and all other names are left behind."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and depth:
            if below := token_counts_in(value, depth - 1):
                kept[name] = below
        elif isinstance(value, int | float) and not isinstance(value, bool) and "oken" in name:
            kept[name] = value
    return kept


def token_counts_under(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A reduction that keeps of an object one member, reduced to its token counts."""

    def reduce(tree: dict[str, Any]) -> dict[str, Any]:
        member = tree.get(name)
        return {name: token_counts_in(member)} if isinstance(member, dict) else {}

    return reduce
