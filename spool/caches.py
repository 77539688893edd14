"""
Caches for texts that senders choose.

A full cache loses its oldest eighth, so a sender that invents texts does not cost all senders their entries
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LONGEST: Final = 256  # maximum characters of a remembered text
MOST_SEEN: Final = 8192


def make_room(cache: dict[Any, Any]) -> None:
    for key in list(islice(cache, max(1, len(cache) // 8))):
        cache.pop(key, None)  # another thread may have deleted it


class SeenKeys(set[int]):
    """
    Hashes of keys seen once, so that a cache stores only keys that recur. Texts that a sender invents then
    displace no other sender's texts.
    """

    def check_and_add(self, key: Hashable) -> bool:
        """
        Return whether the key was seen before. If another key has the same hash, this key counts as seen.
        """
        number = hash(key)
        if number in self:
            return True
        if len(self) >= MOST_SEEN:
            self.clear()
        self.add(number)
        return False


class CachedResults(dict[str, V]):
    """Results of a function by text, computed on first use. The results of long texts are not stored."""

    def __init__(self, function: Callable[[str], V], most: int = 8192) -> None:
        super().__init__()
        self._function = function
        self._most = most

    def __missing__(self, text: str) -> V:
        result = self._function(text)
        if len(text) <= LONGEST:
            if len(self) >= self._most:
                make_room(self)
            self[text] = result
        return result


def cache_by_text(most: int) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Cache the results of a pure function of a text."""
    return lambda function: CachedResults(function, most).__getitem__
