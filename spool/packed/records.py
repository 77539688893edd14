"""Records that stay packed until accessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from spool.log.amendments import replace_fields
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry
from spool.packed.native import NativeModule
from spool.record import Inference, Record

_PLAIN_OF = 4  # if more than one in this number of records is no plain call, all records are decoded


class PackedRecords(Sequence[Record]):
    """
    The records of a packed list from index `begin` until before `end`, decoded on access.

    `odd`: decoded records that are no plain calls, by index. `native`: the module that reads the others.
    """

    __slots__ = ("_starts", "begin", "end", "native", "odd", "offsets", "packed")

    def __init__(
        self,
        native: NativeModule,
        packed: bytes,
        offsets: bytes,
        begin: int,
        end: int,
        odd: Mapping[int, Record],
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
        return map(self.decode_record, range(self.begin, self.end))

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> PackedRecords: ...
    def __getitem__(self, place: int | slice) -> Record | PackedRecords:
        found = range(self.begin, self.end)[place]
        if isinstance(found, int):
            return self.decode_record(found)
        if found.step != 1:
            raise ValueError("packed records have no slices with a step")
        end = max(found.start, found.stop)
        return PackedRecords(self.native, self.packed, self.offsets, found.start, end, self.odd)

    def decode_record(self, index: int) -> Record:
        known = self.odd.get(index)
        return (
            codec.decode_record(self.packed[self._starts[index] : self._starts[index + 1]])
            if known is None
            else known
        )


def packed_records(
    native: NativeModule,
    entry: CachedEntry,
    entry_first_number: int,
    first_number: int,
    last_number: int,
    amendments: Mapping[int, dict[str, Any]],
) -> PackedRecords | None:
    """
    Return an entry with its later reports as packed records. `entry_first_number`: number of the entry's first record.
    `first_number` and `last_number`: the numbers to include.

    Returns None if too many records need decoding. Raises EntryUnreadable.
    """
    begin, end = first_number - entry_first_number, last_number - entry_first_number + 1
    filled = {
        at - entry_first_number: amendments[at]
        for at in amendments.keys() & range(first_number, last_number + 1)
    }
    if filled:
        entry, begin, end = _amend_records(entry, begin, end, filled), 0, end - begin
    walked = entry.walked
    if walked is None:
        walked = entry.walked = native.record_positions(entry.packed, len(entry.decoded))
    if walked is None:
        return None
    odd = [place for place in walked.odd if begin <= place < end]
    if len(odd) * _PLAIN_OF > end - begin:
        return None
    decoded = {place: codec.decode_record(entry.raw_records[place]) for place in odd}
    return PackedRecords(native, entry.packed, walked.offsets, begin, end, decoded)


def _amend_records(
    entry: CachedEntry, begin: int, end: int, amended_fields_by_index: Mapping[int, dict[str, Any]]
) -> CachedEntry:
    records: list[Any] = list(entry.raw_records[begin:end])
    for place, fields in amended_fields_by_index.items():
        record = codec.decode_record(entry.raw_records[place])
        if isinstance(record, Inference):
            records[place - begin] = replace_fields(record, fields)
    packed = codec.encode_records(records)
    return CachedEntry(codec.split_records(packed), packed)
