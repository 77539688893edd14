"""
Runs of known ids: sorted, eight bytes each, never changed once made.

Pure: how they are searched, merged, compared and packed. When and why is the index's business.
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

SPACE = 2**64  # ids are spread evenly over it
SLICES = 64  # a merge is done in so many steps, so that no single one holds up other threads
SLICE = 16_384  # ids that are compared in one step, for the same reason
NO_IDS = array("Q")  # of a damaged run: its row goes as that of any other one
EVERY_ID = b"\xff"  # the marks of a run that was read from disk: any id may be in it


@dataclass(frozen=True, slots=True, eq=False)
class IdRun:
    """
    Ids of calls that started within one hour.

    `marks` has a bit for the low end of every id: most ids that are not here are recognised by one look at
    it, at a fraction of a search's cost.
    """

    key: int  # names its row
    hour: int
    arrived_at: float  # when the newest of them arrived
    ids: array[int]
    marks: bytes = EVERY_ID
    mask: int = 0  # of the low end

    def __contains__(self, id: int) -> bool:
        ids = self.ids
        at = bisect_left(ids, id)
        return at < len(ids) and ids[at] == id


def marked(key: int, hour: int, arrived_at: float, ids: array[int], native: Native | None = None) -> IdRun:
    """A run with its marks: four to eight bits an id, so that seven in eight unknown ids are recognised at once."""
    bits = max(8, 1 << (4 * len(ids) - 1).bit_length())
    mask = bits - 1
    if native is not None and (found := native.marks(ids.tobytes(), bits >> 3)) is not None:
        return IdRun(key, hour, arrived_at, ids, found, mask)
    marks = bytearray(bits >> 3)
    for id in ids:
        at = id & mask
        marks[at >> 3] |= 1 << (at & 7)
    return IdRun(key, hour, arrived_at, ids, bytes(marks), mask)


def merge(one: array[int], other: array[int], native: Native | None = None) -> array[int]:
    """Both runs, sorted, slice by slice of the number space."""
    merged = array("Q")
    if native is not None and (found := native.merge(one.tobytes(), other.tobytes())) is not None:
        merged.frombytes(found)
        return merged
    for low in range(SLICES):
        merged.extend(sorted(_slice(one, low) + _slice(other, low)))
    return merged


def count_repeats(runs: Sequence[array[int]]) -> int:
    """Count the ids that stand in more than one run: calls that came again outside the reach of a lookup."""
    return sum(1 for _ in repeated(runs))


def repeated(runs: Sequence[array[int]]) -> Iterator[int]:
    """Yield each id that stands in several runs, or several times in one, once less than it does."""
    slices = max(1, sum(map(len, runs)) // SLICE)
    for low in range(slices):
        ids = sorted([id for run in runs for id in _slice(run, low, slices)])
        yield from (one for one, other in pairwise(ids) if one == other)


def _slice(ids: array[int], low: int, slices: int = SLICES) -> array[int]:
    width = SPACE // slices
    begin = bisect_left(ids, low * width)
    end = bisect_left(ids, (low + 1) * width) if low + 1 < slices else len(ids)
    return ids[begin:end]


def packed(ids: array[int]) -> tuple[bytes, int]:
    """A run as bytes, with their checksum. Little endian on every machine."""
    data = _little_endian(ids).tobytes()
    return data, zlib.crc32(data)


def unpacked(data: bytes, checksum: int) -> array[int] | None:
    """The inverse of `packed`; None when the bytes changed."""
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
