"""The kinds of tokens that a metric may count, as records name them."""

from __future__ import annotations

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
