"""
Which attributes may enter the model: the door at which content and e-mail addresses stay outside.

A few attributes of content and of request settings are reduced to the numbers or the model name in them, on the spot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.normalise.otlp import semconv
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.tags import LONGEST_CACHED, is_content

MAX_VALUE = 16 * 1024  # a longer text is no name, id, number or usage object

SCALAR = "scalar"
WORDS = "words"  # a list of texts is kept
REDUCED = "reduced"  # a JSON text is reduced to what may be read of it
DROPPED = "dropped"

_ADK_RESPONSE = "gcp.vertex.agent.llm_response"
_VERCEL_METADATA = "ai.response.providerMetadata"
_DEEPEST = 6


# Token counts of prompts and completions are named like them.
_FIGURES = frozenset({*semconv.INPUT, *semconv.OUTPUT, *semconv.TOTAL})


class _Rules(dict[str, str]):
    """The rule for each name that was seen; forgets all when senders invent too many names."""

    def __missing__(self, name: str) -> str:
        rule = _rule(name)
        if len(name) <= LONGEST_CACHED:
            if len(self) >= 8192:
                self.clear()
            self[name] = rule
        return rule


def _rule(name: str) -> str:
    if name in _REDUCTIONS:
        return REDUCED
    if name in semconv.TAG_LISTS:
        return WORDS
    if name in _FIGURES:
        return SCALAR
    if is_content(name) or semconv.is_email(name):
        return DROPPED
    return SCALAR


def _adk_usage(response: dict[str, Any]) -> dict[str, Any]:
    usage = response.get("usage_metadata")
    return {"usage_metadata": _numbers(usage, _DEEPEST)} if isinstance(usage, dict) else {}


def _token_numbers(metadata: dict[str, Any]) -> dict[str, Any]:
    return _numbers(metadata, _DEEPEST)


def _response_usage(response: dict[str, Any]) -> dict[str, Any]:
    usage = response.get("usage")
    return {"usage": _numbers(usage, _DEEPEST)} if isinstance(usage, dict) else {}


def _is_stream(request: dict[str, Any]) -> dict[str, Any]:
    return {"stream": True} if request.get("stream") is True else {}


def _model_name(parameters: dict[str, Any]) -> dict[str, Any]:
    model = words.text(parameters.get("model"))
    return {} if model is None else {"model": model}


def _numbers(tree: dict[str, Any], depth: int) -> dict[str, Any]:
    """The token counts in a tree of objects; texts, lists and all other names are left behind."""
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and depth:
            if below := _numbers(value, depth - 1):
                kept[name] = below
        elif isinstance(value, int | float) and not isinstance(value, bool) and "oken" in name:
            kept[name] = value
    return kept


_REDUCTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    _ADK_RESPONSE: _adk_usage,
    _VERCEL_METADATA: _token_numbers,
    "llm.invocation_parameters": _model_name,
    "embedding.invocation_parameters": _model_name,
    "request_data": _is_stream,  # Logfire's
    "response_data": _response_usage,
}

RULES = _Rules()


def reduced(name: str, value: str | bytes) -> dict[str, Any] | None:
    """What may be read of a JSON text under a name whose rule is REDUCED; None when there is nothing."""
    try:
        tree = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None
    return (_REDUCTIONS[name](tree) or None) if isinstance(tree, dict) else None
