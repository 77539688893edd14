"""
Names that senders choose, of which a bounded number is kept: half of them those that were seen most often,
the others those that were seen last. A new name always has a place, and made-up ones push out made-up ones,
not what is in use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def often(most: int) -> int:
    """Return how many of the places go to the most frequent names."""
    return most // 2


def beyond(seen: Mapping[str, tuple[int, float]], most: int) -> Collection[str]:
    """The names that have no place, by how often and when each was seen last."""
    if len(seen) <= most:
        return ()
    by_count = sorted(seen, key=lambda name: (-seen[name][0], -seen[name][1], name))
    rest = sorted(by_count[often(most) :], key=lambda name: (-seen[name][1], name))
    return rest[most - often(most) :]
