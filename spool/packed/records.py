"""Records as they are packed, for readers that need no objects; whoever asks for one gets it decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from spool.log.amendments import amended
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry
from spool.packed.native import Native
from spool.record import Inference, Record

_PLAIN_OF = 4  # with more odd records than one in so many, all are decoded


class PackedRecords(Sequence[Record]):
    """
    The records from `begin` until before `end` of some that are packed one behind the other.

    `odd` are those, by their places there, that are no plain calls: they are decoded already. `native` can
    read the others.
    """

    __slots__ = ("_starts", "begin", "end", "native", "odd", "offsets", "packed")

    def __init__(
        self, native: Native, packed: bytes, offsets: bytes, begin: int, end: int, odd: Mapping[int, Record]
    ) -> None:
        self.native = native
        self.packed = packed
        self.offsets = offsets
        self.begin = begin
        self.end = end
        self.odd = odd
        self._starts = memoryview(offsets).cast("I")

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[Record]:
        return map(self.record, range(self.begin, self.end))

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> PackedRecords: ...
    def __getitem__(self, place: int | slice) -> Record | PackedRecords:
        found = range(self.begin, self.end)[place]
        if isinstance(found, int):
            return self.record(found)
        if found.step != 1:
            raise ValueError("packed records are cut in one piece")
        end = max(found.start, found.stop)
        return PackedRecords(self.native, self.packed, self.offsets, found.start, end, self.odd)

    def record(self, place: int) -> Record:
        """The record at a place of all that are packed."""
        known = self.odd.get(place)
        return (
            codec.record(self.packed[self._starts[place] : self._starts[place + 1]])
            if known is None
            else known
        )


def packed_records(
    native: Native,
    entry: CachedEntry,
    number: int,
    first: int,
    last: int,
    amendments: Mapping[int, dict[str, Any]],
) -> PackedRecords | None:
    """
    The records of an entry from the numbers `first` to `last`, amended; its first record has the number `number`.

    None if they are to be decoded: too many are odd. EntryUnreadable when one of them is damaged.
    """
    begin, end = first - number, last - number + 1
    filled = {at - number: amendments[at] for at in amendments.keys() & range(first, last + 1)}
    if filled:
        entry, begin, end = _amended(entry, begin, end, filled), 0, end - begin
    walked = entry.walked
    if walked is None:
        walked = entry.walked = native.walk(entry.packed, len(entry.raws))
    if walked is None:
        return None
    odd = [place for place in walked.odd if begin <= place < end]
    if len(odd) * _PLAIN_OF > end - begin:
        return None
    decoded = {place: codec.record(entry.raws[place]) for place in odd}
    return PackedRecords(native, entry.packed, walked.offsets, begin, end, decoded)


def _amended(
    entry: CachedEntry, begin: int, end: int, amendments: Mapping[int, dict[str, Any]]
) -> CachedEntry:
    """Some records of an entry alone: what is amended is packed again, the rest as it was."""
    records: list[Any] = list(entry.raws[begin:end])
    for place, fields in amendments.items():
        record = codec.record(entry.raws[place])
        if isinstance(record, Inference):
            records[place - begin] = amended(record, fields)
    packed = codec.pack(records)
    return CachedEntry(codec.raws(packed), packed)
