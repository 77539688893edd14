"""
Updates this process's memory with changes by other processes: keys and small tables within 0.1 s, other data
within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.devices.table import DeviceTable
from spool.errors import SpoolError
from spool.loops import RETRY_S, repeat
from spool.postgres.streams import PostgresStreams
from spool.registry.following import CLUSTERS, DEVICES
from spool.registry.registry import Registry
from spool.streams import KnownStreams

LOOK_S = 0.1  # seconds between checks for changes; see docs/decisions/log.md
STREAMS_EVERY = 10  # number of checks after which the stream definitions are read again
# Data that change constantly, such as the last use of devices and keys, are read once per this number of
# reads of the stream definitions.
REST_EVERY = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FollowedRows:
    """The tables in memory whose rows other processes also write."""

    registry: Registry
    devices: DeviceTable
    clusters: ClusterTable
    streams: PostgresStreams
    book: KnownStreams
    container_files: ContainerFiles


class RegistryChangeFollower:
    """
    Tasks that read changes by other processes into memory, until `close`. If this fails for a second, the
    registry reports that it is not fresh.

    Separate tasks read everything outside the registry, so that checks of keys never wait for a connection
    with long queries.
    """

    def __init__(self, shared: FollowedRows, *, look_s: float = LOOK_S) -> None:
        self._shared = shared
        self._look_s = look_s
        self._rests = 0
        # Anything may have changed between the load and the start.
        self._devices: set[str] | None = None  # None means any device
        self._clusters = True
        self._is_owed = asyncio.Event()
        self._failed: set[str] = set()  # names of the reads that failed at their last attempt
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        runs = {
            "registry": self._read_changes_periodically(),
            "devices": self._read_changed_rows_when_signalled(),
            "streams": self._read_unannounced_periodically(),
        }
        self._tasks = [asyncio.create_task(run, name=f"follow {kind}") for kind, run in runs.items()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def read_registry_changes(self) -> None:
        changes = await self._shared.registry.catch_up()
        devices = changes.changed_ids(DEVICES)
        owed = self._devices
        self._devices = None if devices is None or owed is None else owed | set(devices)
        self._clusters |= changes.has_changed([(CLUSTERS, "")])
        if self._devices is None or self._devices or self._clusters:
            self._is_owed.set()

    async def read_changed_rows(self) -> None:
        self._is_owed.clear()
        devices, self._devices = self._devices, set()
        clusters, self._clusters = self._clusters, False
        try:
            # read all rows written since the last read, then the known rows that may have been deleted
            if devices is None:
                await self._shared.devices.read_changes_of_other_processes(None)
                await self._shared.devices.read_changes_of_other_processes(
                    [device.id for device in self._shared.devices.all()]
                )
            elif devices:
                await self._shared.devices.read_changes_of_other_processes(devices)
            devices = set()
            if clusters:
                await self._shared.clusters.read_changes_of_other_processes()
                clusters = False
        finally:
            self._devices = None if devices is None or self._devices is None else self._devices | devices
            self._clusters |= clusters

    async def read_tables_without_announcements(self) -> None:
        """
        Read tables that do not announce their changes. All are tried, then SpoolError is raised if one
        failed.
        """
        shared = self._shared
        steps: list[Callable[[], Awaitable[object]]] = [self._reload_known_streams]
        if self._rests % REST_EVERY == 0:
            steps += [
                self._read_device_changes,
                shared.registry.keys.load_access_times,
                shared.container_files.read_changes_of_other_processes,
            ]
        self._rests += 1
        failed: SpoolError | None = None
        for step in steps:
            try:
                await step()
            except SpoolError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _read_device_changes(self) -> None:
        await self._shared.devices.read_changes_of_other_processes(None)

    async def _reload_known_streams(self) -> None:
        self._shared.book.replace_known(await self._shared.streams.streams())

    async def _read_changes_periodically(self) -> None:
        async def wait_and_read() -> None:
            await asyncio.sleep(self._look_s)
            await self._try_read("the registry", self.read_registry_changes)

        await _repeat(wait_and_read)

    async def _read_changed_rows_when_signalled(self) -> None:
        async def wait_and_read() -> None:
            await self._is_owed.wait()
            if not await self._try_read("devices and clusters", self.read_changed_rows):
                await asyncio.sleep(self._look_s)
                self._is_owed.set()

        await _repeat(wait_and_read)

    async def _read_unannounced_periodically(self) -> None:
        async def wait_and_read() -> None:
            await asyncio.sleep(STREAMS_EVERY * self._look_s)
            await self._try_read(
                "streams and the last use of devices and keys", self.read_tables_without_announcements
            )

        await _repeat(wait_and_read)

    async def _try_read(self, what: str, read: Callable[[], Awaitable[None]]) -> bool:
        """
        Run `read`. Return whether it succeeded. An error never ends the task, and an equal error is logged
        once.
        """
        try:
            await read()
        except Exception as error:  # noqa: BLE001 - the boundary of a task
            if what not in self._failed:
                is_known = isinstance(error, SpoolError)
                _log.warning(
                    "changes of other gateways cannot be read: %s: %s",
                    what,
                    error if is_known else type(error).__name__,
                    exc_info=not is_known,
                    extra={"action": "registry_not_followed"},
                )
            self._failed.add(what)
            return False
        self._failed.discard(what)
        return True


async def _repeat(turn: Callable[[], Awaitable[None]]) -> None:
    failed = "changes of other gateways cannot be read"
    await repeat(turn, every_s=0.0, failed=failed, action="registry_not_followed", retry_s=RETRY_S)
