"""
The metric families that count tokens or money, as one table: name, unit, and what the sender calls each kind of token.

Everything else that a metric can say of AI (durations, counts, per-call distributions of what a family counts already)
is no usage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.normalise.reading import vocabulary as words

TOKENS = "{token}"
MONEY = "USD"

INPUT = "input"
INPUT_UNCACHED = "input_uncached"  # what the sender calls input leaves the cache out
OUTPUT = "output"
OUTPUT_VISIBLE = "output_visible"  # what the sender calls output leaves the reasoning out
CACHE_READ = "cache_read"
CACHE_WRITE = "cache_write"
REASONING = "reasoning"
TOOL_INPUT = "tool_input"
TOTAL = "total"  # repeats the others and is dropped
LONGEST_TYPE = 64
MAX_TOKENS = 10**15  # more than a process lives to count: a time stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """
    One family. The kind of token is in the name (`token_type`) or in an attribute (`type_keys`, the first that is
    there, translated by `types`; a word that is not in the table stays: it is a subset such as `audio`).
    """

    unit: str = TOKENS
    source: str | None = None  # whose name it is; None: whoever the scope or the resource names
    token_type: str | None = None
    type_keys: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    divisor: Decimal = Decimal(1)


_COST = Family(unit=MONEY)
_SEMCONV_TYPES = {
    "prompt": INPUT,
    "completion": OUTPUT,
    # Envoy AI Gateway and others: parts of input and output, never added to them
    "cached_input": CACHE_READ,
    "cached": CACHE_READ,
    "cache_read_input": CACHE_READ,
    "cache_creation_input": CACHE_WRITE,
    "cache_creation": CACHE_WRITE,
    "cache_write_input": CACHE_WRITE,
    "reasoning_output": REASONING,
}
_CLAUDE_CODE_TYPES = {"input": INPUT_UNCACHED, "cacheRead": CACHE_READ, "cacheCreation": CACHE_WRITE}
_CODEX_TYPES = {"cached_input": CACHE_READ, "cache_write_input": CACHE_WRITE, "reasoning_output": REASONING}
_GEMINI_TYPES = {"output": OUTPUT_VISIBLE, "thought": REASONING, "cache": CACHE_READ, "tool": TOOL_INPUT}
_QWEN_TYPES = {"thought": REASONING, "cache": CACHE_READ, "tool": TOOL_INPUT}

_FAMILIES: dict[str, Family] = {
    "gen_ai.client.token.usage": Family(type_keys=("gen_ai.token.type",), types=_SEMCONV_TYPES),
    "gen_ai.client.inference.usage.input_tokens": Family(token_type=INPUT),
    "gen_ai.client.inference.usage.output_tokens": Family(token_type=OUTPUT),
    "gen_ai.client.inference.usage.cache_read.input_tokens": Family(token_type=CACHE_READ),
    "gen_ai.client.inference.usage.cache_write.input_tokens": Family(token_type=CACHE_WRITE),
    "gen_ai.client.inference.usage.cache_creation.input_tokens": Family(token_type=CACHE_WRITE),
    "gen_ai.client.inference.usage.reasoning.output_tokens": Family(token_type=REASONING),
    "gen_ai.client.token.cost": _COST,
    "gen_ai.usage.cost": _COST,
    "operation.cost": _COST,
    "kong.gen_ai.llm.cost": Family(source="kong", unit=MONEY),
    "claude_code.token.usage": Family(source="claude_code", type_keys=("type",), types=_CLAUDE_CODE_TYPES),
    "claude_code.cost.usage": Family(source="claude_code", unit=MONEY),
    "codex.turn.token_usage": Family(source="codex", type_keys=("token_type",), types=_CODEX_TYPES),
    "codex.turn.cost_microusd": Family(source="codex", unit=MONEY, divisor=Decimal(1_000_000)),
    "gemini_cli.token.usage": Family(source="gemini_cli", type_keys=("type",), types=_GEMINI_TYPES),
    "qwen-code.token.usage": Family(source="qwen_code", type_keys=("type",), types=_QWEN_TYPES),
    "cline.tokens.input.total": Family(source="cline", token_type=INPUT_UNCACHED),
    "cline.tokens.output.total": Family(source="cline", token_type=OUTPUT),
    "cline.cache.read.tokens.total": Family(source="cline", token_type=CACHE_READ),
    "cline.cache.write.tokens.total": Family(source="cline", token_type=CACHE_WRITE),
    "cline.cost.total": Family(source="cline", unit=MONEY),
}

_SEMANTIC_KERNEL = re.compile(r"semantic_kernel\.connectors\.[^.]+\.tokens\.(prompt|completion|total)")
_SEMANTIC_KERNEL_FAMILIES = {
    "prompt": Family(source="semantic_kernel", token_type=INPUT),
    "completion": Family(source="semantic_kernel", token_type=OUTPUT),
    "total": Family(source="semantic_kernel", token_type=TOTAL),
}

# Distributions and second counters of what a family counts.
_REPEATS = re.compile(
    r"gen_ai\.client\.inference\.operation\..*"
    r"|gen_ai\.prompt_caching"
    r"|cline\..*\.per_(response|event)"
    r"|strands\.event_loop\..*\.tokens"
    r"|(gemini_cli|qwen-code)\.token\.(efficiency|breakdown).*"
)

_USAGE_WORD = re.compile(r"(^|[._])(tokens?|cost)([._]|$)")
_NO_USAGE_UNITS = frozenset({"s", "ms", "us", "ns", "min", "h", "By", "%"})
_AI_BEGINNINGS = ("gen_ai.", "llm.", "ai.")


def find(name: str) -> Family | None:
    """The family of a metric name; None when its points are no usage."""
    family = _FAMILIES.get(name)
    if family is None and (match := _SEMANTIC_KERNEL.fullmatch(name)):
        return _SEMANTIC_KERNEL_FAMILIES[match[1]]
    return family


def tokens(value: object) -> int:
    """A point's value as a token count; `107.0` is one."""
    if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS and value == int(value):
        return int(value)
    raise words.Implausible("a token count that is negative, fractional or absurd")


def money(value: object) -> Decimal:
    """A point's value as an amount, from the shortest text of the double, so that 0.1 stays 0.1."""
    amount = words.money(value)
    if amount is None:
        raise words.Implausible("a cost that is no number")
    return Decimal(amount)


def is_repeat(name: str) -> bool:
    """Whether a metric tells again what one of the families counts."""
    return _REPEATS.fullmatch(name) is not None


def looks_like_usage(name: str, unit: str, *, names_a_model: bool) -> bool:
    """Whether a metric of no family could be one that we ought to know."""
    if unit in _NO_USAGE_UNITS or not _USAGE_WORD.search(name):
        return False
    return names_a_model or name.startswith(_AI_BEGINNINGS)
