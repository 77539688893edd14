"""Tokens by day as a series, and whether two of them are one. Pure."""

from __future__ import annotations

from collections.abc import Mapping

ALIKE = 0.02  # two series of tokens by day that are one


def are_alike(first: Mapping[int, int], second: Mapping[int, int], tolerance: float = ALIKE) -> bool:
    """True if two series by day are one, within a share of the larger."""
    size = max(sum(first.values()), sum(second.values()))
    apart = sum(abs(first.get(day, 0) - second.get(day, 0)) for day in {*first, *second})
    return size > 0 and apart <= tolerance * size
