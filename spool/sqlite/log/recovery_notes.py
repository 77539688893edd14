"""
Work after commits and settlements, so that later damage to the files is noticed and causes smaller losses.

A note on disk has the acknowledged and settled numbers, so that a start learns which commits a damaged
write-ahead log has lost. A checkpoint moves data into the database file, where damage to the log cannot
affect them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading

from spool.loops import repeat
from spool.sqlite.damage.notes import RecoveryNote, write_note
from spool.sqlite.database import Database
from spool.sqlite.deliveries.queries import PROGRESS
from spool.sqlite.log import store

NOTE_EVERY_S = 1.0  # seconds between two writes of the recovery note while there are changes
AT_REST_S = 10.0  # seconds without changes until a checkpoint moves the changed pages into the file
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

_log = logging.getLogger(__name__)


class RecoveryNoteWriter:
    """
    Writes the note from which a start learns of lost commits, and moves the write-ahead log's data into the
    database file, in the background after commits and settlements.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = asyncio.Event()  # set by each change after the recovery note was last written
        self._task: asyncio.Task[None] | None = None
        # held while a note is written, because a thread may still be writing after its caller stopped waiting
        self._writing = threading.Lock()

    def start_writing(self) -> None:
        self._task = asyncio.create_task(self._write_notes_forever(), name="note of changes")

    def note_change(self) -> None:
        self._changes.set()

    async def stop_writing(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write_notes_forever(self) -> None:

        async def write_note_after_change() -> None:
            await self._changes.wait()
            await self.write_note()
            await asyncio.sleep(NOTE_EVERY_S)
            if not await self._wait_for_change(AT_REST_S):
                await self._database.run(lambda connection: connection.execute(CHECKPOINT).fetchall())

        await repeat(
            write_note_after_change,
            every_s=0.0,
            failed="the note of stored records could not be written",
            action="note_not_written",
            retry_s=AT_REST_S,
        )

    async def _wait_for_change(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._changes.wait()
        except TimeoutError:
            return False

    async def write_note(self) -> None:
        """Write the note. The previous note stays if the disk is full."""
        self._changes.clear()
        note = await self._database.read(_read_note)
        try:
            await asyncio.to_thread(self._write_note_file, note)
        except OSError as error:
            _log.warning(
                "the note of stored records was not written: %s", error, extra={"action": "note_not_written"}
            )

    def _write_note_file(self, note: RecoveryNote) -> None:
        with self._writing:
            write_note(self._database.path.parent, note)


def _read_note(connection: sqlite3.Connection) -> RecoveryNote:
    return RecoveryNote(
        kept={topic: n for (topic, _), n in store.count_stored_records(connection).items()},
        accepted={
            topic: number - 1 for topic, number in store.next_record_numbers_by_topic(connection).items()
        },
        progress=dict(connection.execute(PROGRESS).fetchall()),
    )
