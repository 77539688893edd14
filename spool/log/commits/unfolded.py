"""
Which of the known ids are in no stored run yet, and what must be kept for them until they are.

An engine finds such ids again at a start: in the records of a topic, in the rows of commits, in what it keeps
beside them. Each of these has ascending numbers. The rule for all of them: every id that is in no stored run is of
a commit that `UnfoldedCommits` has, so from the first of these commits on nothing may be removed, and a start
reads from there. A topic whose newest ids were folded says nothing about another topic.
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
    How far ids are in stored runs, as an engine with files keeps it: by topic, every id of a record up to the number
    in `through` is in a run, among the names beside the records, or forgotten by the bounds on ids.
    """

    through: dict[str, int] = {}
    covered_since: float = 0.0

    def first(self, topic: str) -> int:
        """Return the first number whose ids may be in no run."""
        return 1 + self.through.get(topic, 0)


class UnfoldedCommits:
    """
    Commits whose ids are among the newest, in the order of these. Each has the first of its numbers by kind: of its
    records by topic, and of whatever else has its ids.
    """

    def __init__(self) -> None:
        self._noted = 0  # ids so far
        self._folded = 0  # of them
        # By kind: how many ids there were up to the end of a commit, and the first number of the commit.
        self._firsts: dict[str, deque[tuple[int, int]]] = {}

    def note(self, ids: int, first: Mapping[str, int]) -> None:
        """A commit made so many ids known."""
        if ids:
            self._noted += ids
            for kind, number in first.items():
                self._firsts.setdefault(kind, deque()).append((self._noted, number))

    def first_left(self, taken: int = 0) -> dict[str, int]:
        """
        Return the first number by kind that has ids among the newest once so many of the oldest are in runs; a kind
        without any is left out. A commit of which a part is taken counts as a whole.
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
        """The oldest of the newest ids are in runs now."""
        self._folded += taken
        for commits in self._firsts.values():
            while commits and commits[0][0] <= self._folded:
                commits.popleft()


# -- folds whose runs are planned beside the commits: a plan takes tens of milliseconds, keeping it a few ----


_log = logging.getLogger(__name__)


class FoldsAside:
    """One at a time. `keep` stores a plan and tells the index; it is called with the turn of a commit."""

    def __init__(self, turn: asyncio.Lock, keep: Callable[[Fold], Awaitable[None]]) -> None:
        self._turn = turn
        self._keep = keep
        self._task: asyncio.Task[None] | None = None

    def begin(self, index: Callable[[], DuplicateIndex], oldest: Callable[[], OldestIds]) -> None:
        """
        Plan the fold of these ids; keep it if `index` is then what it was, and nothing else was folded. Does
        nothing while another one is planned.
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
            # the commits that follow say so to their senders, and another fold is planned
            _log.warning("known ids were not folded: %s", error, extra={"action": "ids_not_folded"})

    async def end(self) -> None:
        """Wait for the running fold."""
        if self._task is not None:
            await asyncio.wait([self._task])
