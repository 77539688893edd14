"""
Tracking of known ids that are in no stored run yet, and of the commits that must be stored because of them.

At a start, an engine reads these ids from the records of a topic, from commit rows, or from facts stored next
to them. All three are stored in ascending order. `UnfoldedCommits` lists every commit with an id that is in
no stored run. From the first of these commits on, nothing may be deleted, because a start reads from there.
Topics are independent: if all ids of one topic are in runs, the ids of another topic may not be.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from spool.errors import SpoolError
from spool.log.duplicates import DuplicateIndex, Fold, OldestIds


class FoldedIds(msgspec.Struct):
    """
    The point up to which ids are in stored runs. An engine with files stores it.

    For each topic, every id of a record up to the number in `through` is in a run, is stored as a name next
    to the records, or was dropped by the limits on ids.
    """

    through: dict[str, int] = {}
    covered_since: float = 0.0

    def first_unfolded_number(self, topic: str) -> int:
        """Return the first number whose ids may not be in a run."""
        return 1 + self.through.get(topic, 0)


class UnfoldedCommits:
    """
    Commits with ids that are in no run, in order.

    For each commit, the first number of each kind is stored. A kind is a topic, or another place where
    ids are stored.
    """

    def __init__(self) -> None:
        self._noted = 0  # number of ids that commits have made known
        self._folded = 0  # number of these ids that have been moved into runs
        # For each kind: the number of ids up to the end of a commit, and the first number of that commit.
        self._firsts: dict[str, deque[tuple[int, int]]] = {}

    def note_commit(self, ids: int, first: Mapping[str, int]) -> None:
        """Note a commit that made `ids` further ids known."""
        if ids:
            self._noted += ids
            for kind, number in first.items():
                self._firsts.setdefault(kind, deque()).append((self._noted, number))

    def first_left(self, taken: int = 0) -> dict[str, int]:
        """
        Return, for each kind, the first number with ids in no run after `taken` more ids are moved into runs.

        A kind without such ids is omitted. A commit counts until all its ids are in runs.
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
        """Note that the oldest `taken` of the newest ids have been moved into runs."""
        self._folded += taken
        for commits in self._firsts.values():
            while commits and commits[0][0] <= self._folded:
                commits.popleft()


# -- folds that are planned while commits run, because planning takes tens of milliseconds -------------------


_log = logging.getLogger(__name__)


class FoldsAside:
    """
    Planner of one fold at a time. `keep` is called with the commit lock held; it stores the plan and
    updates the index.
    """

    def __init__(self, turn: asyncio.Lock, keep: Callable[[Fold], Awaitable[None]]) -> None:
        self._turn = turn
        self._keep = keep
        self._task: asyncio.Task[None] | None = None

    def start_fold(self, index: Callable[[], DuplicateIndex], oldest: Callable[[], OldestIds]) -> None:
        """
        Plan a fold of these ids on a thread, then store it. Does nothing while another fold is planned.

        The plan is dropped if `index` was replaced, or another fold was stored, before it is complete.
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
            # senders already learn of the problem, because their commits fail in the same way; another fold
            # will be planned
            _log.warning(
                "known ids were not compacted, will retry: %s",
                error,
                extra={"action": "ids_not_folded"},
            )

    async def wait_for_fold(self) -> None:
        """Wait until no fold is running."""
        if self._task is not None:
            await asyncio.wait([self._task])
