"""Rules that the metrics of several products share: kinds of tokens, values of points, counters of servers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.product import MetricFamily
from gateway.normalise.outcome import IMPLAUSIBLE
from gateway.normalise.reading.values import BadValue

INPUT = "input"
INPUT_UNCACHED = "input_uncached"  # what the sender calls input leaves the cache out
OUTPUT = "output"
OUTPUT_VISIBLE = "output_visible"  # what the sender calls output leaves the reasoning out
CACHE_READ = "cache_read"
CACHE_WRITE = "cache_write"
REASONING = "reasoning"
TOOL_INPUT = "tool_input"
TOTAL = "total"  # repeats the others and is dropped

_MEASURES = frozenset(
    {
        INPUT,
        INPUT_UNCACHED,
        OUTPUT,
        OUTPUT_VISIBLE,
        CACHE_READ,
        CACHE_WRITE,
        REASONING,
        TOOL_INPUT,
        TOTAL,
    }
)
_SUBSETS = frozenset({"audio", "text", "image", "video"})  # of the input and the output, and added to nothing
KNOWN = _MEASURES | _SUBSETS


MAX_TOKENS = 10**15  # more than a process lives to count: a time stamp


def tokens_of(value: object) -> int:
    """A point's value as a token count; `107.0` is one. Raises BadValue when it cannot be."""
    if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS and value == int(value):
        return int(value)
    raise BadValue(IMPLAUSIBLE, "a token count that is negative, fractional or absurd")


def money_of(value: object) -> Decimal:
    """A point's value as an amount, from the shortest text of the double, so that 0.1 stays 0.1."""
    amount = semconv.money(value, "the cost")
    if amount is None:
        raise BadValue(IMPLAUSIBLE, "a cost that is not a number")
    return Decimal(amount)


_MODEL = ("model_name", "model_id")


def served(prefix: str, token_types: Mapping[str, str]) -> dict[str, MetricFamily]:
    """
    Families of a server's counters by the names that follow its prefix.

    Prometheus ends counters in `_total` and SDKs of OpenTelemetry do not; some scrapers replace the colon.
    """
    families: dict[str, MetricFamily] = {}
    for name, token_type in token_types.items():
        family = MetricFamily(token_type=token_type, model=_MODEL, repeats_calls=True, is_served=True)
        for beginning in {prefix, prefix.replace(":", "_")}:
            families |= {f"{beginning}{name}": family, f"{beginning}{name}_total": family}
    return families
