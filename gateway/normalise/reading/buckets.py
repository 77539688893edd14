"""
Langfuse's usage buckets, alike in its batches and in its spans: free names, whose words say what each one counts.

They exclude one another and add up, unless `total` is the sum of `input` and `output` alone: then these are
inclusive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.normalise.reading.tokens import Tokens, added

_TOTAL = ("total", "total_tokens")
_WRITTEN = re.compile("creation|write|ephemeral")


def is_bucket(name: str) -> bool:
    """Whether the name tells of tokens; other names are free for other things."""
    return _is_input(name) or "output" in name or name in _TOTAL


def sums(buckets: Mapping[str, int]) -> Tokens:
    """The sums of `buckets` by name; None where no bucket counts."""
    inputs = {name: number for name, number in buckets.items() if _is_input(name)}
    outputs = {name: number for name, number in buckets.items() if "output" in name}
    came_in, came_out, total = (_either(buckets, name, f"{name}_tokens") for name in ("input", "output", "total"))
    if total is None or total != (came_in or 0) + (came_out or 0):
        came_in, came_out = added(*inputs.values()), added(*outputs.values())
    return Tokens(
        came_in,
        came_out,
        cache_read=added(*(number for name, number in inputs.items() if "cache" in name and not _WRITTEN.search(name))),
        cache_write=added(*(number for name, number in inputs.items() if _WRITTEN.search(name))),
        reasoning=added(*(number for name, number in outputs.items() if "reasoning" in name)),
    )


def _is_input(name: str) -> bool:
    return "input" in name or name.startswith("cache")


def _either(buckets: Mapping[str, int], *names: str) -> int | None:
    return next((buckets[name] for name in names if name in buckets), None)
