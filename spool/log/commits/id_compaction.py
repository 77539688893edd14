"""
Ids that are in no stored run (sorted file of ids) yet, and the commits that must stay because of them.

At a start, an engine reads these ids, in ascending order, from records, commit rows, or facts next to them.
From the first commit with such an id on, nothing may be deleted. Topics are independent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from spool.errors import SpoolError
from spool.log.duplicates import DuplicateIndex, IdCompaction, IdsToCompact


class CompactedIds(msgspec.Struct):
    """
    How far ids have been moved to stored sorted lists, for engines that store these in files.

    Every id up to a topic's number in `through` is in a list, is stored next to the records, or was dropped
    by the limits on ids, which keep all ids since `covered_since`.
    """

    through: dict[str, int] = {}
    covered_since: float = 0.0

    def first_uncompacted_number(self, topic: str) -> int:
        return 1 + self.through.get(topic, 0)


class UncompactedCommits:
    """
    The commits with ids in no sorted list, in order, with their first record number of each kind. A kind is a
    topic, or another place that stores ids.
    """

    def __init__(self) -> None:
        self._noted = 0  # number of ids in all commits so far
        self._folded = 0  # number of ids moved into runs
        # by kind: number of ids up to the end of a commit, and the first number of the commit
        self._firsts: dict[str, deque[tuple[int, int]]] = {}

    def note_commit(self, id_count: int, first_numbers: Mapping[str, int]) -> None:
        if id_count:
            self._noted += id_count
            for kind, number in first_numbers.items():
                self._firsts.setdefault(kind, deque()).append((self._noted, number))

    def first_uncompacted_number_by_kind(self, newly_compacted_id_count: int = 0) -> dict[str, int]:
        """
        Return by kind the first number whose ids are not all in sorted lists, after
        `newly_compacted_id_count` more ids are moved there.

        A kind without such ids is omitted. If a commit's ids are only partly in the lists, its first number
        is returned.
        """
        gone = self._folded + newly_compacted_id_count
        firsts = {}
        for kind, commits in self._firsts.items():
            for last, number in commits:
                if last > gone:
                    firsts[kind] = number
                    break
        return firsts

    def note_compacted_ids(self, newly_compacted_id_count: int) -> None:
        self._folded += newly_compacted_id_count
        for commits in self._firsts.values():
            while commits and commits[0][0] <= self._folded:
                commits.popleft()


# -- moves of ids into runs (compactions), planned on a thread because planning takes tens of milliseconds ---------


_log = logging.getLogger(__name__)


class IdCompactor:
    """
    Plans one compaction at a time on a thread: the oldest dedup ids move from memory into sorted lists.
    `store_compaction` stores the plan and updates the index, while `commit_lock` is held.
    """

    def __init__(
        self, commit_lock: asyncio.Lock, store_compaction: Callable[[IdCompaction], Awaitable[None]]
    ) -> None:
        self._turn = commit_lock
        self._keep = store_compaction
        self._task: asyncio.Task[None] | None = None

    def start_compaction(
        self, current_index: Callable[[], DuplicateIndex], choose_ids: Callable[[], IdsToCompact]
    ) -> None:
        """
        Plan a compaction on a thread, then store it. Does nothing if another compaction is being planned.

        The plan is dropped if another index was loaded or another compaction was stored meanwhile.
        """
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.create_task(
            self._plan_and_store(current_index, current_index(), choose_ids()), name="fold of known ids"
        )

    async def _plan_and_store(
        self,
        current_index: Callable[[], DuplicateIndex],
        planned_index: DuplicateIndex,
        ids_to_compact: IdsToCompact,
    ) -> None:
        compaction = await asyncio.to_thread(ids_to_compact.plan_compaction)
        try:
            async with self._turn:
                if current_index() is planned_index and planned_index.folds == ids_to_compact.folds:
                    await self._keep(compaction)
        except SpoolError as error:
            # senders learn of it, because their commits fail as well
            _log.warning(
                "known ids were not compacted, will retry: %s", error, extra={"action": "ids_not_folded"}
            )

    async def wait_for_compaction(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
