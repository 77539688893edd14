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


def remove_oldest_eighth(cache: dict[Any, Any]) -> None:
    for key in list(islice(cache, max(1, len(cache) // 8))):
        cache.pop(key, None)  # another thread may have deleted it


class SeenKeys(set[int]):
    """
    Hashes of the keys requested so far. A cache stores a key only at its second request, so texts that a
    sender invents do not displace other texts.
    """

    def add_and_return_whether_known(self, key: Hashable) -> bool:
        """
        Add the key. Return whether it was already seen. Two keys with the same hash count as the same key.
        """
        number = hash(key)
        if number in self:
            return True
        if len(self) >= MOST_SEEN:
            self.clear()
        self.add(number)
        return False


class CachedResults(dict[str, V]):
    """A cache of a function's results by its text argument. Results for long texts are not stored."""

    def __init__(self, function: Callable[[str], V], max_results: int = 8192) -> None:
        super().__init__()
        self._function = function
        self._most = max_results

    def __missing__(self, text: str) -> V:
        result = self._function(text)
        if len(text) <= LONGEST:
            if len(self) >= self._most:
                remove_oldest_eighth(self)
            self[text] = result
        return result


def cache_by_text(max_texts: int) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Return a decorator that caches a pure function of one text, for at most `max_texts` texts."""
    return lambda function: CachedResults(function, max_texts).__getitem__
