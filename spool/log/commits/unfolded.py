"""
Tracking of known ids that are in no stored run yet, and of the commits that must be kept because of them.

At a start, an engine finds these ids again in the records of a topic, in commit rows, or in facts stored next
to them. Each of these has ascending numbers. `UnfoldedCommits` has every commit with an id that is in no
stored run. Nothing from the first of these commits on may be deleted, and a start reads from there. Topics
are independent: folding the ids of one topic says nothing about another.
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
    How far ids are in stored runs, as an engine with files stores it.

    For each topic, every id of a record up to the number in `through` is in a run, is stored as a name next
    to the records, or was dropped by the limits on ids.
    """

    through: dict[str, int] = {}
    covered_since: float = 0.0

    def first(self, topic: str) -> int:
        """Return the first number whose ids may be in no run."""
        return 1 + self.through.get(topic, 0)


class UnfoldedCommits:
    """
    Commits whose ids are among the newest, in order.

    Each commit has its first number by kind: by topic for its records, and by further kinds for other stores
    of its ids.
    """

    def __init__(self) -> None:
        self._noted = 0  # number of ids that commits have made known
        self._folded = 0  # number of these ids that are in runs
        # By kind: the number of ids up to the end of a commit, and the first number of the commit.
        self._firsts: dict[str, deque[tuple[int, int]]] = {}

    def note(self, ids: int, first: Mapping[str, int]) -> None:
        """Note that a commit made `ids` more ids known."""
        if ids:
            self._noted += ids
            for kind, number in first.items():
                self._firsts.setdefault(kind, deque()).append((self._noted, number))

    def first_left(self, taken: int = 0) -> dict[str, int]:
        """
        Return the first number of each kind that would still have ids in no run after `taken` more ids are folded.

        A kind without such ids is left out. A commit that is partly folded counts as unfolded.
        """
        gone = self._folded + taken
        firsts = {}
        for kind, commits in self._firsts.items():
            for last, number in commits:
                if last > gone:
                    firsts[kind] = number
                    break
        return firsts

    def folded(self, taken: int) -> None:
        """Note that the oldest `taken` of the newest ids are in runs now."""
        self._folded += taken
        for commits in self._firsts.values():
            while commits and commits[0][0] <= self._folded:
                commits.popleft()


# -- folds that are planned during commits, because planning takes tens of milliseconds and storing only a few --


_log = logging.getLogger(__name__)


class FoldsAside:
    """
    Planner of one fold at a time. `keep` stores a plan and updates the index; it runs with the commit lock held.
    """

    def __init__(self, turn: asyncio.Lock, keep: Callable[[Fold], Awaitable[None]]) -> None:
        self._turn = turn
        self._keep = keep
        self._task: asyncio.Task[None] | None = None

    def begin(self, index: Callable[[], DuplicateIndex], oldest: Callable[[], OldestIds]) -> None:
        """
        Plan a fold of these ids on a thread, then store it. Does nothing while another fold is planned.

        The plan is dropped if `index` has been replaced or another fold was stored meanwhile.
        """
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.create_task(self._fold(index, index(), oldest()), name="fold of known ids")

    async def _fold(
        self, index: Callable[[], DuplicateIndex], before: DuplicateIndex, oldest: OldestIds
    ) -> None:
        fold = await asyncio.to_thread(oldest.fold)
        try:
            async with self._turn:
                if index() is before and before.folds == oldest.folds:
                    await self._keep(fold)
        except SpoolError as error:
            # commits fail in the same way and report it to their senders, and another fold will be planned
            _log.warning(
                "known ids were not compacted, will retry: %s",
                error,
                extra={"action": "ids_not_folded"},
            )

    async def end(self) -> None:
        """Wait for the running fold."""
        if self._task is not None:
            await asyncio.wait([self._task])
