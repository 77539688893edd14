"""
What other processes changed is brought into this one's memory: keys and small tables at once, the rest within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.devices import DeviceTable
from spool.errors import SpoolError
from spool.postgres.streams import PostgresStreams
from spool.registry.registry import Registry
from spool.registry.shared.following import CLUSTERS, DEVICES
from spool.streams import StreamBook

LOOK_S = 0.25  # between looks at what was changed: a deleted key is dead within a second
STREAMS_EVERY = 4  # looks between reading the definitions of streams
REST_EVERY = 20  # and between reading what changes all the time: when devices and keys were last heard, what is in use

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What is in memory of rows that several processes write."""

    registry: Registry
    devices: DeviceTable
    clusters: ClusterTable
    streams: PostgresStreams
    book: StreamBook
    container_files: ContainerFiles


class Follower:
    """Looks until it is closed. Where a look fails, the registry is no longer fresh a second later, and says so."""

    def __init__(self, shared: Shared, *, look_s: float = LOOK_S) -> None:
        self._shared = shared
        self._look_s = look_s
        self._looks = 0
        self._devices: set[str] | None = set()  # changed, and not read yet; None: any of them
        self._clusters = False
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="follow the registry")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def look(self) -> None:
        """One look; SpoolError when something cannot be read, after the rest was."""
        shared, looks = self._shared, self._looks
        self._looks += 1
        steps: list[Callable[[], Awaitable[object]]] = [self._follow_changes]
        if looks % STREAMS_EVERY == 0:
            steps.append(self._follow_streams)
        if looks % REST_EVERY == 0:
            steps += [self._follow_heard, shared.registry.keys.follow_accesses, shared.container_files.follow]
        failed: SpoolError | None = None
        for step in steps:
            try:
                await step()
            except SpoolError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _follow_changes(self) -> None:
        shared = self._shared
        news = await shared.registry.follow()
        devices, owed = news.ids(DEVICES), self._devices
        self._devices = None if devices is None or owed is None else owed | set(devices)
        if self._devices is None or self._devices:
            await shared.devices.follow(self._devices)
            self._devices = set()
        self._clusters |= news.concerns([(CLUSTERS, "")])
        if self._clusters:
            await shared.clusters.follow()
            self._clusters = False

    async def _follow_heard(self) -> None:
        await self._shared.devices.follow(None)

    async def _follow_streams(self) -> None:
        self._shared.book.follow(await self._shared.streams.streams())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self.look()
            except SpoolError as error:
                if not self._failed:
                    extra = {"action": "registry_not_followed"}
                    _log.warning("what other gateways changed cannot be read: %s", error, extra=extra)
                self._failed = True
            else:
                self._failed = False
