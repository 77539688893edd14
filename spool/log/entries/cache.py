"""
A cache of decoded log entries, so that a reader that keeps up with the log neither reads nor decodes them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.record import Inference, Record, UsageMetric

if TYPE_CHECKING:
    from spool.packed.native import RecordOffsets

RAW_BYTES = 72  # memory per undecoded record besides its bytes
DECODED = 6  # memory of a decoded record, as a multiple of its packed bytes
COPIED = 4  # like DECODED, for copies of records that were just received, which share many texts
# share of the memory for entries that no reader has reached, if there is one reader; several readers share
# the rest
UNREAD_SHARE = 0.625
# These records are copied at a commit. Nothing changes the values in their fields in place.
_COPIED_TYPES = {Inference, UsageMetric}


class CachedEntry:
    """
    The records of an entry in three forms: packed together, undecoded one by one, and decoded on demand. One
    of the first two is given, and the other is made from it.

    `walked`: the record positions in the packed bytes, once computed.
    """

    __slots__ = ("_packed", "_raws", "checksum", "decoded", "is_decoded", "is_kept", "size", "walked")

    def __init__(
        self,
        raws: list[msgspec.Raw] | None,
        packed: bytes | None,
        decoded: list[Record | None] | None = None,
        *,
        checksum: int = 0,
    ) -> None:
        self._raws = raws
        self._packed = packed
        self.checksum = checksum  # checksum of the stored entry
        self.walked: RecordOffsets | None = None
        self.decoded: list[Record | None] = [None] * len(raws or ()) if decoded is None else decoded
        self.is_decoded = packed is None
        # approximate memory, without decoded records
        self.size = len(packed or b"") + RAW_BYTES * len(self.decoded)
        self.is_kept = True  # False once the cache has removed the entry, though a reader may still use it

    @property
    def packed(self) -> bytes:
        if self._packed is None:
            self._packed = codec.encode_records(self.decoded)
        return self._packed

    @property
    def raw_records(self) -> list[msgspec.Raw]:
        if self._raws is None:
            self._raws = codec.split_records(self.packed)
        return self._raws


class CommittedEntry(NamedTuple):
    """An entry of a commit in two forms: as the storage gets it, and as the cache does."""

    topic: str
    first: int
    records: int
    body: EntryBody
    cached: CachedEntry


def build_committed_entries(
    topic: str, first_number: int, records: list[Record], *, caches_copies: bool
) -> Iterator[CommittedEntry]:
    """
    Divide the records of a commit into entries, from number `first_number` on.

    With `caches_copies`, the cache gets copies, because a sender whose request was cancelled may still change its
    own records. They are also packed, so both forms are equal. Records that cannot be copied safely are
    cached packed.
    """
    caches_copies = caches_copies and {*map(type, records)} <= _COPIED_TYPES
    for part, packed in codec.pack_in_slices(list(map(copy, records)) if caches_copies else records):
        body = codec.compress_entry(packed, codec.entry_location(topic, first_number, len(part)))
        if caches_copies:
            cached = CachedEntry(None, None, [*part], checksum=body.checksum)
            cached.size = COPIED * len(packed)
        else:
            cached = CachedEntry(None, packed, [None] * len(part), checksum=body.checksum)
        yield CommittedEntry(topic, first_number, len(part), body, cached)
        first_number += len(part)


class EntryCache:
    """
    A cache of entries that were read, and of newer entries that no reader has reached.

    Entries never change, and are found only under the checksum that is stored now, so a reader never gets
    records that the storage does not have. Several threads may read. No caller may change a record.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int], CachedEntry] = OrderedDict()
        # entries by topic and number, only for topics that are read
        self._unread: dict[str, OrderedDict[int, CachedEntry]] = {}
        self._unread_bytes = 0
        self._max_unread = max_bytes * UNREAD_SHARE
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept) + sum(map(len, self._unread.values()))

    def find(self, topic: str, first_number: int, checksum: int) -> CachedEntry | None:
        with self._lock:
            self._make_entries_evictable_up_to(topic, first_number)
            entry = self._kept.get((topic, first_number))
            return None if entry is None or entry.checksum != checksum else entry

    def entries(self, topic: str) -> dict[int, CachedEntry]:
        with self._lock:
            return {
                first: entry for (entry_topic, first), entry in self._kept.items() if entry_topic == topic
            }

    def put_entry(
        self, topic: str, first_number: int, raws: list[msgspec.Raw], packed: bytes, *, checksum: int = 0
    ) -> CachedEntry:
        entry = CachedEntry(raws, packed, checksum=checksum)
        with self._lock:
            self._remove_entry(topic, first_number)
            self._kept[topic, first_number] = entry
            self._make_room(entry.size)
        return entry

    @property
    def needs_entries_of_new_commits(self) -> bool:
        """
        Return whether the cache should get the entries of new commits: readers use it, and it has space.
        """
        return bool(self._unread) and self._unread_bytes < self._max_unread

    def add_committed(self, entries: Iterable[CommittedEntry]) -> None:
        """
        Add the entries of a durable commit. If too many entries are unread, the older ones stay, because
        readers need them first.
        """
        with self._lock:
            for topic, first, _, _, entry in entries:
                if topic in self._unread and self._unread_bytes + entry.size <= self._max_unread:
                    self._remove_entry(topic, first)
                    self._unread[topic][first] = entry
                    self._unread_bytes += entry.size
                    self._make_room(entry.size)

    def _make_entries_evictable_up_to(self, topic: str, entry_first_number: int) -> None:
        """
        Note that a reader has reached an entry, so that this and earlier entries of the topic may be dropped.
        """
        unread = self._unread.setdefault(topic, OrderedDict())
        while unread and next(iter(unread)) <= entry_first_number:
            number, entry = unread.popitem(last=False)
            self._unread_bytes -= entry.size
            self._kept[topic, number] = entry

    def decode_records(self, entry: CachedEntry, begin: int, end: int) -> list[Record | None]:
        """
        Decode those of the entry's records `begin` to `end` that are not decoded yet, and return them. Raises
        EntryUnreadable.
        """
        decoded = entry.decoded[begin:end]
        if entry.is_decoded or None not in decoded:
            return decoded
        added = 0
        for index in range(begin, end):
            if entry.decoded[index] is None:
                entry.decoded[index] = codec.decode_record(entry.raw_records[index])
                added += DECODED * len(entry.raw_records[index])
        with self._lock:
            entry.is_decoded |= end - begin == len(entry.decoded)
            entry.size += added
            if entry.is_kept:
                self._make_room(added)
        return entry.decoded[begin:end]

    def forget_below(self, oldest: Mapping[str, int]) -> None:
        with self._lock:
            for topic in list(self._unread):
                self._make_entries_evictable_up_to(topic, oldest[topic] - 1)
            for topic, first in list(self._kept):
                if first < oldest[topic]:
                    self._remove_entry(topic, first)

    def _remove_entry(self, topic: str, first_number: int) -> None:
        gone = self._kept.pop((topic, first_number), None)
        if gone is not None:
            gone.is_kept = False
            self.bytes -= gone.size

    def _make_room(self, added: int) -> None:
        self.bytes += added
        while self.bytes > self._max_bytes and len(self._kept) > 1:
            self._remove_entry(*next(iter(self._kept)))
