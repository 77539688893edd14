"""
Cache of the entries that were read last, so that records which one reader has decoded are not decoded again.
"""

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

RAW_BYTES = 72  # bytes of memory per undecoded record, in addition to its own bytes
DECODED = 6  # a decoded record takes this many times the memory of its packed bytes


class CachedEntry:
    """
    The records of an entry in three forms: packed together, undecoded one by one, and decoded if a
    reader needed them.

    `walked` has the positions of the records in the packed bytes, after a reader of packed records
    has computed them.
    """

    __slots__ = ("decoded", "is_kept", "packed", "raws", "size", "walked")

    def __init__(self, raws: list[msgspec.Raw], packed: bytes) -> None:
        self.raws = raws
        self.packed = packed
        self.walked: Walked | None = None
        self.decoded: list[Record | None] = [None] * len(raws)
        # approximate bytes in memory, without decoded records
        self.size = len(packed) + RAW_BYTES * len(raws)
        self.is_kept = True  # False once the entry is removed from the cache; a reader may still use it


class EntryCache:
    """
    Least-recently-used cache of entries. Entries never change, so the cache is never outdated.

    Several threads may read. No caller may change a record.
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
        with self._lock:
            return {
                first: entry for (entry_topic, first), entry in self._kept.items() if entry_topic == topic
            }

    def put(self, topic: str, first: int, raws: list[msgspec.Raw], packed: bytes) -> CachedEntry:
        """Add an entry. `packed` has the same records as `raws`."""
        entry = CachedEntry(raws, packed)
        with self._lock:
            self._remove(topic, first)
            self._kept[topic, first] = entry
            self._make_room(entry.size)
        return entry

    def records(self, entry: CachedEntry, begin: int, end: int) -> list[Record | None]:
        """
        Return the records from `begin` until before `end`. Decodes those that were not decoded
        yet. Raises EntryUnreadable.
        """
        decoded = entry.decoded[begin:end]
        if None not in decoded:
            return decoded
        added = 0
        for index in range(begin, end):
            if entry.decoded[index] is None:
                entry.decoded[index] = codec.record(entry.raws[index])
                added += DECODED * len(entry.raws[index])
        with self._lock:
            entry.size += added
            if entry.is_kept:
                self._make_room(added)
        return entry.decoded[begin:end]

    def forget_below(self, oldest: Mapping[str, int]) -> None:
        """Drop the entries below the lowest stored number of each topic, because they are deleted."""
        with self._lock:
            for topic, first in list(self._kept):
                if first < oldest[topic]:
                    self._remove(topic, first)

    def clear(self) -> None:
        """Drop all entries, because the entries on disk have changed."""
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
