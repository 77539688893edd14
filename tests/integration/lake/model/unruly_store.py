"""
A store in memory that delays, repeats, drops and reorders puts, loses answers, and may ignore conditions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Final

from exporters.errors import Retryable
from exporters.lake.stores import StoredObject

# Possible fates of a put. The second line is for the process that waits for the put's answer.
PUT, UNHEARD, LATE, TWICE, DROPPED = "put", "unheard", "late", "twice", "dropped"
KILLED_BEFORE, KILLED_WITHIN, KILLED_AFTER = "killed before", "killed within", "killed after"
_FATES: Final = (
    *[PUT] * 8, UNHEARD, UNHEARD, LATE, LATE, TWICE, TWICE, DROPPED, KILLED_BEFORE, KILLED_WITHIN, KILLED_AFTER,
)  # fmt: skip
_UNREAD: Final = 0.03  # the share of reads that fail


class Killed(Exception):
    """The process was killed at this point."""


class HeldPut:
    """A put that waits while its process is asleep."""

    def __init__(self, behind: int) -> None:
        """Let `behind` puts pass, and hold the next one."""
        self.behind = behind
        self.begun = asyncio.Event()
        self.released = asyncio.Event()


class UnrulyStore:
    """
    A store as in `exporters.lake.stores.LakeStore`. Like ObjectStore, it first checks whether the object
    exists.
    """

    def __init__(self, chance: Random, *, has_conditions: bool) -> None:
        self.objects: dict[str, bytes] = {}
        self.has_conditions = has_conditions
        self.is_calm = False
        self.held: HeldPut | None = None
        self._chance = chance
        self._on_their_way: list[tuple[str, bytes]] = []

    def calm(self) -> None:
        """Let all delayed puts arrive in random order. After that, nothing fails."""
        self.is_calm = True
        self._some_arrive(1.0)

    async def create_object(self, name: str, content: Path | bytes) -> bool:
        body = content if isinstance(content, bytes) else content.read_bytes()
        self._some_arrive(0.2)
        if name in self.objects:
            return False
        fate = PUT if self.is_calm else self._chance.choice(_FATES)
        if fate == KILLED_BEFORE:
            raise Killed
        if fate != DROPPED and self.held is not None:
            await self._hold(self.held)
        if fate in (LATE, KILLED_WITHIN, TWICE):
            self._on_their_way.append((name, body))
        created = fate in (PUT, UNHEARD, TWICE, KILLED_AFTER) and self._write(name, body)
        if fate in (KILLED_WITHIN, KILLED_AFTER):
            raise Killed
        if fate in (UNHEARD, LATE, DROPPED):
            raise Retryable(f"no answer: {fate}", answered=False)
        return created

    async def _hold(self, put: HeldPut) -> None:
        put.behind -= 1
        if put.behind < 0:
            self.held = None
            put.begun.set()
            await put.released.wait()

    def _write(self, name: str, body: bytes) -> bool:
        if name in self.objects and self.has_conditions:
            return False
        self.objects[name] = body
        return True

    def _some_arrive(self, share: float) -> None:
        self._chance.shuffle(self._on_their_way)
        waiting = []
        for name, body in self._on_their_way:
            if self._chance.random() < share:
                self._write(name, body)
            else:
                waiting.append((name, body))
        self._on_their_way = waiting

    def _answer(self) -> None:
        if not self.is_calm and self._chance.random() < _UNREAD:
            raise Retryable("no answer", answered=False)

    async def probe_overwrite_refusal(self, name: str, content: bytes) -> bool:
        return not self._write(name, content)

    async def object_size(self, name: str) -> int | None:
        self._answer()
        return len(self.objects[name]) if name in self.objects else None

    async def read_end(self, name: str, size: int, count: int) -> bytes:
        self._answer()
        return self.objects[name][-count:]

    async def fetch(self, name: str, path: Path) -> None:
        self._answer()
        if name not in self.objects:
            raise FileNotFoundError(name)
        path.write_bytes(self.objects[name])

    async def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        self._answer()
        for name in sorted(self.objects):
            if name.startswith(prefix) and name > after:
                yield StoredObject(name, len(self.objects[name]))
