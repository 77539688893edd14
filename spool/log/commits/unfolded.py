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
from spool.log.duplicates import DuplicateIndex, IdFold, OldestIds


class FoldedIds(msgspec.Struct):
    """
    How far ids have been moved to stored sorted lists, for engines with files.

    Every id up to a topic's number in `through` is in a list, is stored next to the records, or was dropped
    by the limits on ids.
    """

    through: dict[str, int] = {}
    covered_since: float = 0.0

    def first_unfolded_number(self, topic: str) -> int:
        return 1 + self.through.get(topic, 0)


class UnfoldedCommits:
    """
    The commits with ids in no sorted list, in order, with their first record number of each kind. A kind is a
    topic, or another place that stores ids.
    """

    def __init__(self) -> None:
        self._noted = 0  # number of ids of all commits
        self._folded = 0  # number of ids moved into runs
        # by kind: number of ids up to the end of a commit, and the first number of the commit
        self._firsts: dict[str, deque[tuple[int, int]]] = {}

    def note_commit(self, ids: int, first: Mapping[str, int]) -> None:
        if ids:
            self._noted += ids
            for kind, number in first.items():
                self._firsts.setdefault(kind, deque()).append((self._noted, number))

    def first_unfolded_numbers(self, taken: int = 0) -> dict[str, int]:
        """
        Return by kind the first number whose ids are not all in sorted lists, after `taken` more ids are
        moved there.

        A kind without such ids is omitted. A commit counts until all its ids are in sorted lists.
        """
        gone = self._folded + taken
        firsts = {}
        for kind, commits in self._firsts.items():
            for last, number in commits:
                if last > gone:
                    firsts[kind] = number
                    break
        return firsts

    def note_fold(self, taken: int) -> None:
        self._folded += taken
        for commits in self._firsts.values():
            while commits and commits[0][0] <= self._folded:
                commits.popleft()


# -- moves of ids into runs (folds), planned on a thread because planning takes tens of milliseconds ---------


_log = logging.getLogger(__name__)


class FoldPlanner:
    """
    Plans one fold at a time on a thread: the oldest dedup ids move from memory into sorted lists. `keep`
    stores the plan and updates the index, while the lock `turn` of commits is held.
    """

    def __init__(self, turn: asyncio.Lock, keep: Callable[[IdFold], Awaitable[None]]) -> None:
        self._turn = turn
        self._keep = keep
        self._task: asyncio.Task[None] | None = None

    def start_fold(self, index: Callable[[], DuplicateIndex], oldest: Callable[[], OldestIds]) -> None:
        """
        Plan a fold on a thread, then store it. Does nothing if another fold is being planned.

        The plan is dropped if another index was loaded or another fold was stored meanwhile.
        """
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.create_task(
            self._plan_and_store(index, index(), oldest()), name="fold of known ids"
        )

    async def _plan_and_store(
        self, index: Callable[[], DuplicateIndex], before: DuplicateIndex, oldest: OldestIds
    ) -> None:
        fold = await asyncio.to_thread(oldest.plan_fold)
        try:
            async with self._turn:
                if index() is before and before.folds == oldest.folds:
                    await self._keep(fold)
        except SpoolError as error:
            # senders learn of it, because their commits fail as well
            _log.warning(
                "known ids were not compacted, will retry: %s",
                error,
                extra={"action": "ids_not_folded"},
            )

    async def wait_for_fold(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
