"""The records of the entries last read, in memory: what one reader had decoded the next one gets as it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from spool.log.entries import codec
from spool.record import Record

if TYPE_CHECKING:
    from spool.packed.native import Walked

RAW_BYTES = 72  # of an undecoded record beside its own bytes
DECODED = 6  # a decoded record takes that many times its packed bytes


class CachedEntry:
    """
    The records of an entry: all undecoded, also as they are packed, and those that a reader had decoded.

    `walked` is where they are in the packed bytes, once a reader of these has asked.
    """

    __slots__ = ("decoded", "is_kept", "packed", "raws", "size", "walked")

    def __init__(self, raws: list[msgspec.Raw], packed: bytes) -> None:
        self.raws = raws
        self.packed = packed
        self.walked: Walked | None = None
        self.decoded: list[Record | None] = [None] * len(raws)
        self.size = len(packed) + RAW_BYTES * len(raws)  # bytes in memory, about
        self.is_kept = True  # in the cache: one that had to go may still be read from


class EntryCache:
    """
    Entries never change, so nothing here grows stale. Those that were read longest ago go first.

    Several threads may read. Nobody changes a record.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int], CachedEntry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, topic: str, first: int) -> CachedEntry | None:
        with self._lock:
            entry = self._kept.get((topic, first))
            if entry is not None:
                self._kept.move_to_end((topic, first))
            return entry

    def entries(self, topic: str) -> dict[int, CachedEntry]:
        """Return the cached entries of a topic by their first numbers."""
        with self._lock:
            return {first: entry for (of, first), entry in self._kept.items() if of == topic}

    def put(self, topic: str, first: int, raws: list[msgspec.Raw], packed: bytes) -> CachedEntry:
        """`packed`: the same records."""
        entry = CachedEntry(raws, packed)
        with self._lock:
            self._remove(topic, first)
            self._kept[topic, first] = entry
            self._make_room(entry.size)
        return entry

    def records(self, entry: CachedEntry, begin: int, end: int) -> list[Record | None]:
        """
        Return the records at the places from `begin` until before `end`, decoding those that were not read
        before. EntryUnreadable for a damaged one.
        """
        found = entry.decoded[begin:end]
        if None not in found:
            return found
        added = 0
        for place in range(begin, end):
            if entry.decoded[place] is None:
                entry.decoded[place] = codec.record(entry.raws[place])
                added += DECODED * len(entry.raws[place])
        with self._lock:
            entry.size += added
            if entry.is_kept:
                self._make_room(added)
        return entry.decoded[begin:end]

    def forget_below(self, oldest: Mapping[str, int]) -> None:
        """Let go of the entries before the lowest number that a topic has: nobody asks for them again."""
        with self._lock:
            for topic, first in list(self._kept):
                if first < oldest[topic]:
                    self._remove(topic, first)

    def clear(self) -> None:
        """Drop every entry: what is on disk has changed."""
        with self._lock:
            for topic, first in list(self._kept):
                self._remove(topic, first)

    def _remove(self, topic: str, first: int) -> None:
        gone = self._kept.pop((topic, first), None)
        if gone is not None:
            gone.is_kept = False
            self.bytes -= gone.size

    def _make_room(self, added: int) -> None:
        self.bytes += added
        while self.bytes > self._max_bytes and len(self._kept) > 1:
            self._remove(*next(iter(self._kept)))
