"""Folds: the newest known ids are moved to sorted runs, which one node at a time stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from spool.log.commits.unfolded import FoldPlanner
from spool.log.duplicates import DuplicateIndex, IdFold, OldestIds
from spool.postgres.database import Database
from spool.postgres.log import store
from spool.postgres.log.memory import DatabaseClock, NodeMemory


class NodeFolds:
    """
    The moves of dedup ids from memory into stored sorted lists, which all nodes read. Only the node that last
    wrote or read the lists may store new ones. All other nodes move ids only in memory.
    """

    def __init__(self, database: Database, memory: NodeMemory, clock: DatabaseClock) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._aside = FoldPlanner(memory.turn, self._store_fold)

    async def fold_due_ids(self) -> None:
        """
        Move a batch of ids to sorted lists if enough have gathered, in the background if commits need not
        wait. The caller must hold the lock `memory.turn`.

        Ids of open records are not moved, because late reports look them up. Ids that other nodes have stored
        are moved as well.
        """
        now = self._clock.now()
        closed = self._memory.closed_numbers
        index = self._memory.index
        while index.check_fold_due(now, closed):
            if index.can_fold_later(now):
                self._aside.start_fold(lambda: self._memory.index, partial(_ids_to_fold, index, now, closed))
                return
            if not await self._run_fold(partial(index.plan_fold, now, closed)):
                await self._run_fold(partial(index.plan_fold, now))

    async def wait_for_fold(self) -> None:
        await self._aside.wait_for_fold()

    async def fold_all(self) -> None:
        """
        Move the ids of all closed records to sorted lists. If another node has stored lists meanwhile, read
        everything again first.
        """
        memory = self._memory
        async with memory.turn:
            for _ in range(2):
                if memory.runs_seq is None:
                    await memory.load()
                await self._run_fold(
                    partial(memory.index.plan_fold, self._clock.now(), memory.closed_numbers)
                )
                if memory.runs_seq is not None:
                    return

    async def _run_fold(self, plan: Callable[[], IdFold]) -> int:
        fold = await asyncio.to_thread(plan)
        await self._store_fold(fold)
        return fold.taken

    async def _store_fold(self, fold: IdFold) -> None:
        following = self._memory.following
        seq = self._memory.runs_seq
        if seq is not None:
            commit, through = following.bounds_after_fold(fold.taken)
            write = partial(
                store.write_fold, self._database, fold=fold, commit=commit, through=through, seq=seq
            )
            self._memory.runs_seq = seq + 1 if await self._database.transaction(write) else None
        following.index.apply_fold(fold)
        following.note_folded_ids(fold.taken)


def _ids_to_fold(index: DuplicateIndex, now: float, closed: Mapping[str, int]) -> OldestIds:
    oldest = index.oldest_ids_to_fold(now, closed)
    return oldest if oldest.ids else index.oldest_ids_to_fold(now)
