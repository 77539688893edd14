"""
Runs of known ids: sorted, eight bytes per id, never changed after they are made.

Pure: searches, merges, compares and packs runs. The index (`spool.log.duplicates`) decides when.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spool.packed.native import Native

SPACE = 2**64  # size of the range over which ids are spread evenly
SLICES = 64  # number of steps of a merge, so that no step blocks other threads for long
SLICE = 16_384  # number of ids that are compared in one step, so that no step blocks other threads for long
NO_IDS = array("Q")  # the ids of a damaged run, whose row then expires like any other
EVERY_ID = b"\xff"  # marks of a run that was read from disk; they exclude no id


@dataclass(frozen=True, slots=True, eq=False)
class IdRun:
    """
    Ids of calls that started within the same hour.

    `marks` is a bitmap with a bit for the low end of every id. It shows at once that most unknown ids are not
    in the run, at a fraction of the cost of a search.
    """

    key: int  # key of the stored row
    hour: int
    arrived_at: float  # arrival time of the newest id
    ids: array[int]
    marks: bytes = EVERY_ID
    mask: int = 0  # mask that selects the low end of an id

    def __contains__(self, id: int) -> bool:
        ids = self.ids
        at = bisect_left(ids, id)
        return at < len(ids) and ids[at] == id


def build_run(key: int, hour: int, arrived_at: float, ids: array[int], native: Native | None = None) -> IdRun:
    """
    Build a run with its marks. There are four to eight bits per id, so the marks exclude seven of
    eight unknown ids.
    """
    bits = max(8, 1 << (4 * len(ids) - 1).bit_length())
    mask = bits - 1
    if native is not None and (native_marks := native.marks(ids.tobytes(), bits >> 3)) is not None:
        return IdRun(key, hour, arrived_at, ids, native_marks, mask)
    flags = bytearray(bits)  # one byte per bit, because Python sets bytes twice as fast as bits
    for id in ids:
        flags[id & mask] = 1
    marks = sum(int.from_bytes(flags[bit::8], "little") << bit for bit in range(8))
    return IdRun(key, hour, arrived_at, ids, marks.to_bytes(bits >> 3, "little"), mask)


def merge_runs(one: array[int], other: array[int], native: Native | None = None) -> array[int]:
    """Merge two runs into one sorted run, one slice of the number range at a time."""
    merged = array("Q")
    if native is not None and (merged_bytes := native.merge(one.tobytes(), other.tobytes())) is not None:
        merged.frombytes(merged_bytes)
        return merged
    for low in range(SLICES):
        merged += array("Q", sorted(_slice(one, low) + _slice(other, low)))
    return merged


def count_repeats(runs: Sequence[array[int]]) -> int:
    """
    Count the repeated ids in some runs. A repeated id is a call that was reported again too late for a
    lookup to find.
    """
    return sum(1 for _ in repeated_ids(runs))


def repeated_ids(runs: Sequence[array[int]]) -> Iterator[int]:
    """
    Yield each id that occurs several times in the runs. An id that occurs n times is yielded n - 1 times.
    """
    slices = max(1, sum(map(len, runs)) // SLICE)
    for low in range(slices):
        ids = sorted([id for run in runs for id in _slice(run, low, slices)])
        yield from (id for id, next_id in pairwise(ids) if id == next_id)


def _slice(ids: array[int], low: int, slices: int = SLICES) -> array[int]:
    width = SPACE // slices
    begin = bisect_left(ids, low * width)
    end = bisect_left(ids, (low + 1) * width) if low + 1 < slices else len(ids)
    return ids[begin:end]


def pack_ids(ids: array[int]) -> tuple[bytes, int]:
    """Encode a run, little endian on every machine. Return the bytes and their checksum."""
    data = _little_endian(ids).tobytes()
    return data, zlib.crc32(data)


def unpack_ids(data: bytes, checksum: int) -> array[int] | None:
    """Decode the bytes of `pack_ids`. Return None if they are damaged."""
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
