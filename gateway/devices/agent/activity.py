"""
The activity of each source, and the newest call of each coding assistant, in two small files next to the spool.

The activity of a source is the time of its last report, and its number of records today.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path

import msgspec

from gateway.devices.agent.identity import write_private_file
from gateway.devices.agent.link import CALLS_FILE, SOURCES_FILE
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
    reports, no background task runs.
    """

    def __init__(self, directory: Path, *, now: Callable[[], float]) -> None:
        self._directory = directory
        self._now = now
        self._seen = read_activity(directory)
        self._calls = read_call_ends(directory)
        self._writing: asyncio.Task[None] | None = None

    def note_commit(self, commit: Commit) -> None:
        now = self._now()
        for (_, term, source), n in commit.terms.items():
            if term in _COUNTED_TERMS and n > 0:
                self._count_records(source, n if term == "accepted" else 0, now)

    def record_call_ends(self, ends: Mapping[str, float]) -> None:
        newer = newer_call_ends(self._calls, ends, now=self._now())
        if newer:
            self._calls.update(newer)
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
            write_private_file(self._directory / CALLS_FILE, msgspec.json.encode(self._calls).decode())
        except OSError as error:
            extra = {"action": "sources_not_written", "file": str(error.filename), "error": str(error)}
            _log.warning("the activity of the sources could not be written", extra=extra)


def newer_call_ends(
    known_ends: Mapping[str, float], ends: Mapping[str, float], *, now: float
) -> dict[str, float]:
    """
    Return the ends of calls that replace known ones, because they are later. A known end in the future is
    replaced as well, because the clock was set back.
    """
    earlier = {name: ended for name, ended in known_ends.items() if ended <= now}
    return {name: ended for name, ended in ends.items() if name and ended > earlier.get(name, 0.0)}


def read_activity(directory: Path) -> dict[str, SourceActivity]:
    """Return the stored activity, or an empty dict if the file is missing or damaged."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=dict[str, SourceActivity])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def read_call_ends(directory: Path) -> dict[str, float]:
    """Return the stored ends of calls by assistant, or an empty dict if the file is missing or damaged."""
    try:
        return msgspec.json.decode((directory / CALLS_FILE).read_bytes(), type=dict[str, float])
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
