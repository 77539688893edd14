"""Folds whose runs are planned beside the commits: a plan takes tens of milliseconds, keeping it a few."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from spool.errors import SpoolError
from spool.log.duplicates import DuplicateIndex, Fold, OldestIds

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
