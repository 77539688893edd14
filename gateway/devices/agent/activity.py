"""
When each source last reported, and how many records today; observes commits and keeps a small file
beside the spool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import msgspec

from gateway.devices.agent.identity import write_private
from spool.log.values import Commit
from spool.record import moment

FILE = "sources.json"
WRITE_AFTER_S = 1.0
_COUNTED_TERMS = ("accepted", "duplicates")


class SourceActivity(msgspec.Struct):
    """One source; `records` are those of `day`, the machine's own."""

    last_seen: float
    day: str
    records: int = 0


class ActivityRecorder:
    """An observer of commits. `stop` it once; nothing runs in the background while no source reports."""

    def __init__(self, directory: Path, *, now: Callable[[], float]) -> None:
        self._path = directory / FILE
        self._now = now
        self._seen = read(directory)
        self._writing: asyncio.Task[None] | None = None

    def committed(self, commit: Commit) -> None:
        now = self._now()
        for (_, term, source), n in commit.terms.items():
            if term in _COUNTED_TERMS and n > 0:
                self._count(source, n if term == "accepted" else 0, now)

    def sources(self) -> dict[str, dict[str, object]]:
        """Returns the activity of each source as heartbeats carry it."""
        today = day_of(self._now())
        return {source: describe(seen, today) for source, seen in sorted(self._seen.items())}

    async def stop(self) -> None:
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writing
            self._write()

    def _count(self, source: str, n: int, now: float) -> None:
        day = day_of(now)
        seen = self._seen.get(source)
        before = seen.records if seen is not None and seen.day == day else 0
        self._seen[source] = SourceActivity(now, day, before + n)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon(), name="sources")

    async def _write_soon(self) -> None:
        await asyncio.sleep(WRITE_AFTER_S)
        self._write()

    def _write(self) -> None:
        write_private(self._path, msgspec.json.encode(self._seen).decode())


def read(directory: Path) -> dict[str, SourceActivity]:
    """Returns the activity that was written last; empty if the file is absent or damaged."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=dict[str, SourceActivity])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def describe(seen: SourceActivity, today: str) -> dict[str, object]:
    return {
        "last_seen": moment(seen.last_seen),
        "records": seen.records if seen.day == today else 0,
    }


def day_of(at: float) -> str:
    """Returns the day in the time zone of the machine."""
    day: date = datetime.fromtimestamp(at).astimezone().date()
    return day.isoformat()
