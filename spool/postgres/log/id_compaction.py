"""Compactions: the newest known ids are moved to sorted runs, which one node at a time stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from spool.log.commits.id_compaction import IdCompactor
from spool.log.duplicates import DuplicateIndex, IdCompaction, IdsToCompact
from spool.postgres.database import Database
from spool.postgres.log import store
from spool.postgres.log.memory import DatabaseClock, NodeMemory


class NodeIdCompactor:
    """
    The moves of dedup ids from memory into stored sorted lists, which all nodes read. Only the node that last
    wrote or read the lists may store new ones. All other nodes move ids only in memory.
    """

    def __init__(self, database: Database, memory: NodeMemory, clock: DatabaseClock) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._aside = IdCompactor(memory.turn, self._store_compaction)

    async def compact_due_ids(self) -> None:
        """
        Move a batch of ids to sorted lists if enough have gathered, in the background if commits need not
        wait. The caller must hold the lock `memory.turn`.

        Ids of open records are not moved, because late reports look them up. Ids that other nodes have stored
        are moved as well.
        """
        now = self._clock.now()
        closed = self._memory.lowest_open_numbers
        index = self._memory.index
        while index.check_compaction_due(now, closed):
            if index.can_compact_later(now):
                self._aside.start_compaction(
                    lambda: self._memory.index, partial(_ids_to_compact, index, now, closed)
                )
                return
            if not await self._run_compaction(partial(index.plan_compaction, now, closed)):
                await self._run_compaction(partial(index.plan_compaction, now))

    async def wait_for_compaction(self) -> None:
        await self._aside.wait_for_compaction()

    async def compact_all_closed_ids(self) -> None:
        """
        Move the ids of all closed records to sorted lists. If another node has stored lists meanwhile, read
        everything again first.
        """
        memory = self._memory
        async with memory.turn:
            for _ in range(2):
                if memory.runs_seq is None:
                    await memory.load()
                await self._run_compaction(
                    partial(memory.index.plan_compaction, self._clock.now(), memory.lowest_open_numbers)
                )
                if memory.runs_seq is not None:
                    return

    async def _run_compaction(self, plan: Callable[[], IdCompaction]) -> int:
        compaction = await asyncio.to_thread(plan)
        await self._store_compaction(compaction)
        return compaction.taken

    async def _store_compaction(self, compaction: IdCompaction) -> None:
        following = self._memory.following
        seq = self._memory.runs_seq
        if seq is not None:
            commit, through = following.highest_compacted_commit_and_numbers(compaction.taken)
            write = partial(
                store.write_compaction_if_current,
                self._database,
                compaction=compaction,
                commit=commit,
                through=through,
                seq=seq,
            )
            self._memory.runs_seq = seq + 1 if await self._database.transaction(write) else None
        following.index.apply_compaction(compaction)
        following.note_compacted_ids(compaction.taken)


def _ids_to_compact(index: DuplicateIndex, now: float, closed: Mapping[str, int]) -> IdsToCompact:
    oldest = index.oldest_ids_to_compact(now, closed)
    return oldest if oldest.ids else index.oldest_ids_to_compact(now)
