"""
Names that senders choose, of which a bounded number is kept: half of them those that were seen most often,
the others those that were seen last. A new name always has a place, and made-up ones push out made-up ones,
not what is in use.
"""

from __future__ import annotations


def often(most: int) -> int:
    """Return how many of the places go to the most frequent names."""
    return most // 2
