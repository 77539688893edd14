"""What a node does between its own commits: it follows the other nodes, and does what none of them has done."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress

from spool.errors import SpoolError
from spool.postgres.database import Database
from spool.postgres.log.commits import GroupCommits
from spool.postgres.log.finds import book_all
from spool.postgres.log.horizon import PostgresHorizon
from spool.postgres.log.memory import NodeMemory

FOLLOW_S = 0.1  # between looks at what other nodes committed
BOOK_S = 2.0  # between two countings of commits into the books, about
WRITE_S = 1.0  # between two writings of what was confirmed
TICK_S = 1.0  # what is overdue for so long is closed by an empty commit, if nobody commits

_log = logging.getLogger(__name__)


class LogFollower:
    """Runs until it is closed: follows, closes what is due when nobody commits, counts commits into the books."""

    def __init__(
        self, database: Database, *, memory: NodeMemory, horizon: PostgresHorizon, commits: GroupCommits
    ) -> None:
        self._database = database
        self._memory = memory
        self._horizon = horizon
        self._commits = commits
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="follow other nodes")

    async def close(self) -> None:
        """Finish what is under way."""
        self._closing.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        books_at = time.monotonic() + BOOK_S
        write_at = time.monotonic()
        overdue_since: float | None = None
        is_away = False
        while not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._closing.wait()
                    return
            if time.monotonic() > write_at:
                write_at = time.monotonic() + WRITE_S
                await self._memory.write_confirmed()
            try:
                await self._memory.follow()
                now = time.monotonic()
                # What failed may not be to do any more; only a commit shows that commits work again.
                has_failed = self._commits.last_error is not None
                if not (has_failed or self._horizon.is_overdue()):
                    overdue_since = None
                elif overdue_since is None:
                    overdue_since = now + TICK_S * random.random()
                elif now > overdue_since:
                    overdue_since = now + TICK_S
                    await self._commits.commit_nothing(wait=has_failed)
                if now > books_at:
                    books_at = now + BOOK_S * (0.5 + random.random())
                    await book_all(self._database)
                is_away = False
            except SpoolError as error:
                if not is_away:
                    _log.error(
                        "other nodes cannot be followed: %s", error, extra={"action": "following_failed"}
                    )
                is_away = True
            except Exception:  # noqa: BLE001 - following must outlive whatever it meets
                _log.exception("following failed", extra={"action": "following_failed"})
