"""
The places of known ids that are in runs, to compare a late report with the stored record.

A fold stores the places of its ids in blocks, sorted by id, which never change. Blocks are stored and deleted
with folds, and loaded at a start.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from spool.log import runs
from spool.log.entries.codec import NO_RECORD
from spool.log.runs import IdRun
from spool.packed.native import NativeModule

# the keys of blocks sort between the two
FIRST, AFTER = (
    "places ",
    "places!",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceBlock:
    """
    A block of dedup ids (`run`, sorted) that arrived one after the other, with the place (topic and number)
    of each id's record. `highest`: the highest place.
    """

    run: IdRun
    places: array[int]
    highest: int

    def find_place(self, id: int) -> int | None:
        run = self.run
        at = id & run.mask
        if not run.marks[at >> 3] >> (at & 7) & 1:
            return None
        at = bisect_left(run.ids, id)
        return self.places[at] if at < len(run.ids) and run.ids[at] == id else None


class _StoredBlock(msgspec.Struct, array_like=True):
    """A block of places as it is stored. The encoding is positional: add new fields only at the end."""

    arrived_at: float
    ids: bytes
    ids_sum: int
    places: bytes
    places_sum: int


_packed = msgspec.msgpack.Decoder(_StoredBlock)


def encode_block(block: PlaceBlock) -> tuple[str, bytes]:
    packed = _StoredBlock(block.run.arrived_at, *runs.pack_ids(block.run.ids), *runs.pack_ids(block.places))
    return block_fact_key(block.run.key), msgspec.msgpack.encode(packed)


def block_fact_key(key: int) -> str:
    return f"{FIRST}{key:020}"


def unpack_block(name: str, data: bytes, native: NativeModule | None = None) -> PlaceBlock:
    """Decode a block. Raises ValueError if the bytes are damaged."""
    try:
        packed = _packed.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"a block with the record numbers of known ids is damaged: {error}") from error
    ids = runs.unpack_ids(packed.ids, packed.ids_sum)
    places = runs.unpack_ids(packed.places, packed.places_sum)
    if ids is None or places is None or len(ids) != len(places):
        raise ValueError("a block with the record numbers of known ids is damaged")
    key = int(name.removeprefix(FIRST))
    return PlaceBlock(runs.build_run(key, 0, packed.arrived_at, ids, native), places, max(places, default=0))


class RecentPlaces:
    """The blocks of dedup ids with the places of their records, oldest first. Immutable."""

    def __init__(self, blocks: Sequence[PlaceBlock] = ()) -> None:
        self.blocks = tuple(blocks)

    def __len__(self) -> int:
        return sum(len(block.places) for block in self.blocks)

    def find_place(self, id: int) -> int | None:
        for block in reversed(self.blocks):
            place = block.find_place(id)
            if place is not None:
                return place
        return None

    def with_ids(
        self,
        ids: array[int],
        places: array[int],
        arrived_at: float,
        *,
        full: int,
        since: float,
        lowest: int,
        most: int,
        native: NativeModule | None,
    ) -> RecentPlaces:
        """
        Return the blocks with the places of sorted ids added, at most `full` ids per block.

        Blocks are dropped if their newest id arrived before `since` or all their records are deleted (below
        `lowest`), and the oldest ones while there are more than `most` ids.
        """
        blocks = [block for block in self.blocks if block.run.arrived_at >= since and block.highest >= lowest]
        if places and arrived_at >= since and max(places) >= lowest:
            key = self.blocks[-1].run.key + 1 if self.blocks else 1
            if blocks and len(blocks[-1].places) + len(places) <= full:
                last = blocks.pop()
                place_of = dict(zip(last.run.ids + ids, last.places + places, strict=True))
                ids = array("Q", sorted(place_of))
                places = array("Q", map(place_of.__getitem__, ids))
                arrived_at = max(arrived_at, last.run.arrived_at)
            run = runs.build_run(key, 0, arrived_at, ids, native)
            blocks.append(PlaceBlock(run, places, max(places)))
        count = sum(len(block.places) for block in blocks)
        while count > most:
            count -= len(blocks.pop(0).places)
        return RecentPlaces(blocks)

    def blocks_missing_in(self, other: RecentPlaces) -> list[PlaceBlock]:
        keys = {block.run.key for block in other.blocks}
        return [block for block in self.blocks if block.run.key not in keys]


NO_PLACES = RecentPlaces()


def load_blocks(facts: Iterable[tuple[str, bytes]], native: NativeModule | None = None) -> RecentPlaces:
    """
    Decode the stored blocks of record places at a start of the gateway. Damaged blocks are logged and left
    out.
    """
    blocks = []
    for name, value in facts:
        try:
            blocks.append(unpack_block(name, value, native))
        except ValueError as error:
            _log.error("%s and are left out", error, extra={"action": "places_damaged", "fact": name})
    return RecentPlaces(blocks)
