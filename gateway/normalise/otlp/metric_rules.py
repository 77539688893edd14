"""Rules that several products' metrics share."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.product import MetricFamily
from gateway.normalise.outcome import IMPLAUSIBLE
from gateway.normalise.reading.values import BadValue

INPUT = "input"
INPUT_UNCACHED = "input_uncached"  # token type: input without the part from the cache
OUTPUT = "output"
OUTPUT_VISIBLE = "output_visible"  # token type: output without reasoning
CACHE_READ = "cache_read"
CACHE_WRITE = "cache_write"
REASONING = "reasoning"
TOOL_INPUT = "tool_input"
TOTAL = "total"  # token type: a total of other types; points of this type are dropped

_MEASURES = frozenset(
    {INPUT, INPUT_UNCACHED, OUTPUT, OUTPUT_VISIBLE, CACHE_READ, CACHE_WRITE, REASONING, TOOL_INPUT, TOTAL}
)
# token types that are parts of the input or the output, so they are never added to it
_SUBSETS = frozenset({"audio", "text", "image", "video"})
KNOWN = _MEASURES | _SUBSETS


MAX_TOKENS = 10**15  # largest plausible token count; larger values are probably timestamps


def parse_token_count(value: object) -> int:
    """Parse a token count, which may be a whole float such as `107.0`. Raises BadValue."""
    if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS and value == int(value):
        return int(value)
    raise BadValue(IMPLAUSIBLE, "the token count is negative, not a whole number, or impossibly large")


def parse_cost_without_rounding(value: object) -> Decimal:
    """Return an amount without binary rounding: 0.1 stays 0.1. Raises BadValue."""
    amount = semconv.parse_amount_if_number(value, "the cost")
    if amount is None:
        raise BadValue(IMPLAUSIBLE, "the cost is not a number")
    return Decimal(amount)


_MODEL = ("model_name", "model_id")


def families_of_server_counters(prefix: str, token_types: Mapping[str, str]) -> dict[str, MetricFamily]:
    """
    Return families of counters, each under all spellings of its name. Prometheus adds `_total`, and some
    scrapers replace the colon by `_`.
    """
    families: dict[str, MetricFamily] = {}
    for name, token_type in token_types.items():
        family = MetricFamily(token_type=token_type, model=_MODEL, repeats_calls=True, is_served=True)
        for beginning in {prefix, prefix.replace(":", "_")}:
            families |= {f"{beginning}{name}": family, f"{beginning}{name}_total": family}
    return families
