"""
What each assistant reported: when last, and how much today. Told of commits, kept in a small file beside the spool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path

import msgspec

from gateway.agent.identity import write_private
from spool.log.values import Commit
from spool.record import NS, rfc3339

FILE = "sources.json"
WRITE_AFTER_S = 1.0
_HEARD = ("accepted", "duplicates")


class Seen(msgspec.Struct):
    """One source; `records` are those of `day`, the machine's own."""

    last_seen: float
    day: str
    records: int = 0


class Tally:
    """An observer of commits. `start` and `stop` once each; nothing runs while nobody reports."""

    def __init__(self, directory: Path, *, now: Callable[[], float]) -> None:
        self._path = directory / FILE
        self._now = now
        self._seen = read(directory)
        self._writing: asyncio.Task[None] | None = None

    def committed(self, commit: Commit) -> None:
        now = self._now()
        for (_, term, source), n in commit.terms.items():
            if term in _HEARD and n > 0:
                self._count(source, n if term == "accepted" else 0, now)

    def sources(self) -> dict[str, dict[str, object]]:
        """As a heartbeat says it."""
        today = day_of(self._now())
        return {source: shown(seen, today) for source, seen in sorted(self._seen.items())}

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
        self._seen[source] = Seen(now, day, before + n)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_soon(), name="sources")

    async def _write_soon(self) -> None:
        await asyncio.sleep(WRITE_AFTER_S)
        self._write()

    def _write(self) -> None:
        write_private(self._path, msgspec.json.encode(self._seen).decode())


def read(directory: Path) -> dict[str, Seen]:
    """What was written last; nothing when there is nothing to read."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=dict[str, Seen])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def shown(seen: Seen, today: str) -> dict[str, object]:
    return {
        "last_seen": rfc3339(int(seen.last_seen) * NS),
        "records": seen.records if seen.day == today else 0,
    }


def day_of(at: float) -> str:
    """The machine's own calendar: what its user calls today."""
    day: date = datetime.fromtimestamp(at).astimezone().date()
    return day.isoformat()
