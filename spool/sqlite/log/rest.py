"""
What is done when commits or settlements have come, so that damage done to the files later is noticed or does less.

The note says which numbers were acknowledged and settled: a start finds by it what a damaged write-ahead log
lost. And what is in the file itself is not lost with that log.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading

from spool.sqlite.damage.notes import Note, write_note
from spool.sqlite.database import Database
from spool.sqlite.deliveries.queries import PROGRESS
from spool.sqlite.log import store

NOTE_EVERY_S = 1.0  # while changes come
AT_REST_S = 10.0  # after the last change its pages go from the write-ahead log into the file
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

_log = logging.getLogger(__name__)


class Rest:
    """Runs beside commits and settlements, from `begin` to `end`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = asyncio.Event()  # since the last note
        self._task: asyncio.Task[None] | None = None
        self._writing = threading.Lock()  # a thread that is no longer waited for may still write

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name="note of changes")

    def changed(self) -> None:
        self._changes.set()

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._changes.wait()
            try:
                await self.note()
                await asyncio.sleep(NOTE_EVERY_S)
                if not await self._comes_within(AT_REST_S):
                    await self._database.run(lambda connection: connection.execute(CHECKPOINT).fetchall())
            except Exception:  # noqa: BLE001 - commits go on; the next change is noted again
                _log.exception("changes could not be noted", extra={"action": "note_not_written"})
                await asyncio.sleep(AT_REST_S)

    async def _comes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._changes.wait()
        except TimeoutError:
            return False

    async def note(self) -> None:
        """Note what is kept and acknowledged; on a full disk the last note has to do."""
        self._changes.clear()
        note = await self._database.read(_note)
        try:
            await asyncio.to_thread(self._write, note)
        except OSError as error:
            _log.warning("the spool's note was not written: %s", error, extra={"action": "note_not_written"})

    def _write(self, note: Note) -> None:
        with self._writing:
            write_note(self._database.path.parent, note)


def _note(connection: sqlite3.Connection) -> Note:
    return Note(
        kept={topic: n for (topic, _), n in store.kept(connection).items()},
        accepted={topic: number - 1 for topic, number in store.next_numbers(connection).items()},
        progress=dict(connection.execute(PROGRESS).fetchall()),
    )
