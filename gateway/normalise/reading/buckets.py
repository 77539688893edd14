"""
Langfuse's usage buckets, in its batches and in its spans: free names, whose parts name what each one counts.

Buckets exclude one another and are added up, unless `total` is the sum of `input` and `output` alone: then
these two include the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.normalise.reading.tokens import Tokens, added

_TOTAL = ("total", "total_tokens")
_WRITTEN = re.compile("creation|write|ephemeral")
_ONE_HOUR = re.compile("_1h(?:_|$)")


def is_bucket(name: str) -> bool:
    """True if a bucket of this name counts tokens; others may count seconds or images."""
    return _is_input(name) or "output" in name or name in _TOTAL


def sums(buckets: Mapping[str, int]) -> Tokens:
    """The sums of `buckets` by name; None where no bucket counts."""
    inputs = {name: number for name, number in buckets.items() if _is_input(name)}
    outputs = {name: number for name, number in buckets.items() if "output" in name}
    cache_writes = {name: number for name, number in inputs.items() if _WRITTEN.search(name)}
    cache_reads = [number for name, number in inputs.items() if "cache" in name and name not in cache_writes]
    reasoning = [number for name, number in outputs.items() if "reasoning" in name]
    input_tokens = _either(buckets, "input", "input_tokens")
    output_tokens = _either(buckets, "output", "output_tokens")
    total = _either(buckets, *_TOTAL)
    if total is None or total != (input_tokens or 0) + (output_tokens or 0):
        input_tokens, output_tokens = added(*inputs.values()), added(*outputs.values())
    return Tokens(
        input=input_tokens,
        output=output_tokens,
        cache_read=added(*cache_reads),
        cache_write=added(*cache_writes.values()),
        reasoning=added(*reasoning),
        cache_write_1h=added(*[number for name, number in cache_writes.items() if _ONE_HOUR.search(name)]),
    )


def _is_input(name: str) -> bool:
    return "input" in name or name.startswith("cache")


def _either(buckets: Mapping[str, int], *names: str) -> int | None:
    return next((buckets[name] for name in names if name in buckets), None)
