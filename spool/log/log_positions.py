"""
The positions of known ids that are in runs, to compare a late report with the stored record.

A compaction stores the positions of its ids in blocks, sorted by id, which never change. Blocks are stored and deleted
with compactions, and loaded at a start.
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

# the keys of blocks sort between these two texts
FIRST, AFTER = ("places ", "places!")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class LogPositionBlock:
    """
    A block of dedup ids (`run`, sorted) that arrived one after the other, with the position (topic and
    number) of each id's record.
    """

    run: IdRun
    places: array[int]
    highest: int

    def find_log_position(self, id: int) -> int | None:
        run = self.run
        at = id & run.mask
        if not run.marks[at >> 3] >> (at & 7) & 1:
            return None
        at = bisect_left(run.ids, id)
        return self.places[at] if at < len(run.ids) and run.ids[at] == id else None


class _StoredBlock(msgspec.Struct, array_like=True):
    """A block of positions as it is stored. The encoding is positional: add new fields only at the end."""

    arrived_at: float
    ids: bytes
    ids_sum: int
    places: bytes
    places_sum: int


_packed = msgspec.msgpack.Decoder(_StoredBlock)


def encode_position_block(block: LogPositionBlock) -> tuple[str, bytes]:
    packed = _StoredBlock(block.run.arrived_at, *runs.pack_ids(block.run.ids), *runs.pack_ids(block.places))
    return fact_key_of_position_block(block.run.key), msgspec.msgpack.encode(packed)


def fact_key_of_position_block(id_run_key: int) -> str:
    return f"{FIRST}{id_run_key:020}"


def unpack_position_block(name: str, data: bytes, native: NativeModule | None = None) -> LogPositionBlock:
    """Decode a block. Raises ValueError if the bytes are damaged."""
    try:
        packed = _packed.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"a block with the record numbers of known ids is damaged: {error}") from error
    ids = runs.unpack_ids(packed.ids, packed.ids_sum)
    log_positions = runs.unpack_ids(packed.places, packed.places_sum)
    if ids is None or log_positions is None or len(ids) != len(log_positions):
        raise ValueError("a block with the record numbers of known ids is damaged")
    key = int(name.removeprefix(FIRST))
    return LogPositionBlock(
        runs.build_id_run(key, 0, packed.arrived_at, ids, native),
        log_positions,
        max(log_positions, default=0),
    )


class RecentLogPositions:
    """The blocks of dedup ids with the positions of their records, oldest first. Immutable."""

    def __init__(self, blocks: Sequence[LogPositionBlock] = ()) -> None:
        self.blocks = tuple(blocks)

    def __len__(self) -> int:
        return sum(len(block.places) for block in self.blocks)

    def find_log_position(self, id: int) -> int | None:
        for block in reversed(self.blocks):
            place = block.find_log_position(id)
            if place is not None:
                return place
        return None

    def with_ids(
        self,
        ids: array[int],
        log_positions: array[int],
        arrived_at: float,
        *,
        max_ids_per_block: int,
        arrived_since: float,
        lowest_position: int,
        max_ids: int,
        native: NativeModule | None,
    ) -> RecentLogPositions:
        """
        Return the blocks with the positions of sorted ids added, at most `max_ids_per_block` ids per block.

        Blocks are dropped if their newest id arrived before `arrived_since` or all their records are deleted (below
        `lowest_position`), and the oldest ones while there are more than `max_ids` ids.
        """
        blocks = [
            block
            for block in self.blocks
            if block.run.arrived_at >= arrived_since and block.highest >= lowest_position
        ]
        if log_positions and arrived_at >= arrived_since and max(log_positions) >= lowest_position:
            key = self.blocks[-1].run.key + 1 if self.blocks else 1
            if blocks and len(blocks[-1].places) + len(log_positions) <= max_ids_per_block:
                last = blocks.pop()
                positions_by_id = dict(zip(last.run.ids + ids, last.places + log_positions, strict=True))
                ids = array("Q", sorted(positions_by_id))
                log_positions = array("Q", map(positions_by_id.__getitem__, ids))
                arrived_at = max(arrived_at, last.run.arrived_at)
            run = runs.build_id_run(key, 0, arrived_at, ids, native)
            blocks.append(LogPositionBlock(run, log_positions, max(log_positions)))
        count = sum(len(block.places) for block in blocks)
        while count > max_ids:
            count -= len(blocks.pop(0).places)
        return RecentLogPositions(blocks)

    def blocks_missing_in(self, other: RecentLogPositions) -> list[LogPositionBlock]:
        keys = {block.run.key for block in other.blocks}
        return [block for block in self.blocks if block.run.key not in keys]


NO_PLACES = RecentLogPositions()


def decode_recent_log_positions(
    stored_blocks: Iterable[tuple[str, bytes]], native: NativeModule | None = None
) -> RecentLogPositions:
    """
    Decode the stored blocks of record positions at a start of the gateway. Damaged blocks are logged and left
    out.
    """
    blocks = []
    for name, value in stored_blocks:
        try:
            blocks.append(unpack_position_block(name, value, native))
        except ValueError as error:
            _log.error("%s and are left out", error, extra={"action": "places_damaged", "fact": name})
    return RecentLogPositions(blocks)
