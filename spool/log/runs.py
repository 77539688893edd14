"""
Runs of known ids: sorted lists of eight-byte ids that never change. Pure.

The index (`spool.log.duplicates`) decides when runs are made.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spool.packed.native import NativeModule

SPACE = 2**64  # number of possible ids; hashes spread ids evenly
SLICES = 64  # slices of a merge, so that no step blocks other threads for long
SLICE = 16_384  # number of ids to compare in a step, so that no step blocks other threads for long
NO_IDS = array("Q")  # stands for the ids of a damaged run, so that it expires like any other
EVERY_ID = b"\xff"  # marks of a run read from disk, which exclude no id


@dataclass(frozen=True, slots=True, eq=False)
class IdRun:
    """
    The ids of calls that started in one hour, sorted.

    `marks`: a bit for the low end of every id, which excludes most unknown ids without a search.
    """

    key: int  # key of the stored row
    hour: int
    arrived_at: float  # arrival time of the newest id
    ids: array[int]
    marks: bytes = EVERY_ID
    mask: int = 0  # bit mask for the low end of an id

    def __contains__(self, id: int) -> bool:
        ids = self.ids
        at = bisect_left(ids, id)
        return at < len(ids) and ids[at] == id


def build_id_run(
    key: int, hour: int, arrived_at: float, ids: array[int], native: NativeModule | None = None
) -> IdRun:
    """
    Build a sorted list (run) from sorted ids. Its `marks`, a bitmap with four to eight bits per id, exclude
    seven of eight unknown ids without a search.
    """
    bits = max(8, 1 << (4 * len(ids) - 1).bit_length())
    mask = bits - 1
    if native is not None and (native_marks := native.low_bits_bitmap(ids.tobytes(), bits >> 3)) is not None:
        return IdRun(key, hour, arrived_at, ids, native_marks, mask)
    flags = bytearray(bits)  # a byte per bit: Python sets bytes twice as fast
    for id in ids:
        flags[id & mask] = 1
    marks = sum(int.from_bytes(flags[bit::8], "little") << bit for bit in range(8))
    return IdRun(key, hour, arrived_at, ids, marks.to_bytes(bits >> 3, "little"), mask)


def merge_sorted_ids(one: array[int], other: array[int], native: NativeModule | None = None) -> array[int]:
    """Merge two runs into one sorted array, one slice of the range of ids at a time."""
    merged = array("Q")
    if (
        native is not None
        and (merged_bytes := native.merge_sorted_ids(one.tobytes(), other.tobytes())) is not None
    ):
        merged.frombytes(merged_bytes)
        return merged
    for low in range(SLICES):
        merged += array("Q", sorted(_slice_ids(one, low) + _slice_ids(other, low)))
    return merged


def count_repeats(runs: Sequence[array[int]]) -> int:
    """
    Count the ids that occur in several sorted lists, because the start times of their reports differ too much
    for a lookup.
    """
    return sum(1 for _ in repeated_ids(runs))


def repeated_ids(runs: Sequence[array[int]]) -> Iterator[int]:
    """Yield each repeated id once less than it occurs."""
    slices = max(1, sum(map(len, runs)) // SLICE)
    for low in range(slices):
        ids = sorted([id for run in runs for id in _slice_ids(run, low, slices)])
        yield from (id for id, next_id in pairwise(ids) if id == next_id)


def _slice_ids(ids: array[int], slice_index: int, slice_count: int = SLICES) -> array[int]:
    width = SPACE // slice_count
    begin = bisect_left(ids, slice_index * width)
    end = bisect_left(ids, (slice_index + 1) * width) if slice_index + 1 < slice_count else len(ids)
    return ids[begin:end]


def pack_ids(ids: array[int]) -> tuple[bytes, int]:
    """Return the ids as bytes, little endian on every machine, and their checksum."""
    data = _little_endian(ids).tobytes()
    return data, zlib.crc32(data)


def unpack_ids(data: bytes, checksum: int) -> array[int] | None:
    """Return the ids, or None if they are damaged."""
    if zlib.crc32(data) != checksum or len(data) % 8:
        return None
    ids = array("Q")
    ids.frombytes(data)
    return _little_endian(ids)


def _little_endian(ids: array[int]) -> array[int]:
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return ids
