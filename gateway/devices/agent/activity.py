"""
The activity of each source, and the received calls of coding assistants, in two small files next to the spool.

The activity of a source is the time of its last report, and its number of records today.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path

import msgspec

from gateway.devices.agent.heard_calls import HeardSessions, ReceivedCall
from gateway.devices.agent.identity import write_private_file
from gateway.devices.agent.link import SOURCES_FILE
from spool.log.values import Commit
from spool.record import utc_iso

_log = logging.getLogger(__name__)

FILE = SOURCES_FILE
WRITE_AFTER_S = 1.0
_COUNTED_TERMS = ("accepted", "duplicates")


class SourceActivity(msgspec.Struct):
    """
    The activity of one source. `last_seen` is in epoch seconds, and `records` counts the records of `day` in
    the machine's time zone.
    """

    last_seen: float
    day: str
    records: int = 0


class ActivityRecorder:
    """
    Records the activity of sources at each commit, and writes the files. Call `stop` once. While no source
    reports, no background task runs. `next_number` returns the number of the next record in the agent's log.
    """

    def __init__(self, directory: Path, *, now: Callable[[], float]) -> None:
        self._directory = directory
        self._now = now
        self._seen = read_activity(directory)
        self.heard = HeardSessions(directory)
        self.next_number: Callable[[], int] = lambda: 0
        self._writing: asyncio.Task[None] | None = None

    def note_commit(self, commit: Commit) -> None:
        now = self._now()
        for (_, term, source), n in commit.terms.items():
            if term in _COUNTED_TERMS and n > 0:
                self._count_records(source, n if term == "accepted" else 0, now)

    def record_calls(self, calls: Sequence[ReceivedCall]) -> None:
        if calls:
            self.heard.add_calls(calls, self._now())
            self._schedule_write()

    def activity_by_source(self) -> dict[str, dict[str, object]]:
        today = day_in_local_time(self._now())
        return {source: describe_activity(seen, today) for source, seen in sorted(self._seen.items())}

    async def stop(self) -> None:
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
            self._write_activity_files()

    def _count_records(self, source: str, n: int, now: float) -> None:
        day = day_in_local_time(now)
        seen = self._seen.get(source)
        count_before = seen.records if seen is not None and seen.day == day else 0
        self._seen[source] = SourceActivity(now, day, count_before + n)
        self._schedule_write()

    def _schedule_write(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._wait_and_write(), name="sources")

    async def _wait_and_write(self) -> None:
        await asyncio.sleep(WRITE_AFTER_S)
        self._write_activity_files()

    def _write_activity_files(self) -> None:
        """Write the files. If that fails (the disk may be full), the next report tries again."""
        try:
            write_private_file(self._directory / FILE, msgspec.json.encode(self._seen).decode())
            self.heard.write(self.next_number(), self._now())
        except OSError as error:
            extra = {"action": "sources_not_written", "file": str(error.filename), "error": str(error)}
            _log.warning("the activity of the sources could not be written", extra=extra)


def read_activity(directory: Path) -> dict[str, SourceActivity]:
    """Return the stored activity, or an empty dict if the file is missing or damaged."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=dict[str, SourceActivity])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def describe_activity(activity: SourceActivity, today: str) -> dict[str, object]:
    return {
        "last_seen": utc_iso(activity.last_seen),
        "records": activity.records if activity.day == today else 0,
    }


def day_in_local_time(moment: float) -> str:
    day: date = datetime.fromtimestamp(moment).astimezone().date()
    return day.isoformat()
