"""
Leases. Several gateways may share a storage, but some tasks, such as a route or retention, may run on only
one of them. The gateway that holds the task's lease runs it.

A lease only decides which gateway starts a task. It does not protect data: deliveries have fences, and
readers of the log check how far they may read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import SpoolDamaged, SpoolFull, SpoolUnavailable

AGAIN_S = 5.0  # seconds before a task starts again after the storage was unreachable

_log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

# All tasks that send billing drops upstream share one lease, because two such tasks would replace
# each other's drops.
BILLING = "billing"
_SHARED = {"upstream/billing-data": BILLING, "upstream/billing-hours": BILLING}


def lease_name(route: str) -> str:
    """Return the name of the lease under which a route, or a table that is sent upstream, runs."""
    return _SHARED.get(route, route)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """
    A running gateway, as operators see it. If it has not renewed its session for a few seconds, it
    counts as stopped.
    """

    id: str
    name: str
    version: str
    started_at: float
    seen_at: float
    is_live: bool
    is_this: bool  # True for the gateway that returns this value
    leases: Sequence[str]  # names of the leases that the gateway holds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """
    Settings of a running gateway: a digest of each setting, by name, and the time since which they are in effect.
    """

    node: str
    name: str
    since: float
    digests: Mapping[str, str]


class Leases(Protocol):
    """The leases of this gateway."""

    async def run(
        self,
        name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """
        Run `work` while this gateway holds the lease, and again each time it gains the lease. Several tasks
        may share a lease.

        `work` is cancelled if the lease is lost. If the lease is to move to another gateway, `finish` is
        called so that `work` can end by itself. Without `finish`, `work` is cancelled. `wake` is called if an
        operator created work for the task. Returns when `work` ends by itself, and raises what it raises.
        """
        ...

    async def nodes(self) -> Sequence[NodeState]:
        """Return every gateway on this storage, by name. Empty if the storage can have only one gateway."""
        ...

    def publish_settings(self, digests: Mapping[str, str]) -> None:
        """
        Publish the settings of this gateway to the other gateways within seconds, as a digest of each setting.
        """
        ...

    async def settings(self) -> Sequence[NodeSettings]:
        """
        Return the settings of the running gateways, by name. Empty if all gateways have the same settings.
        """
        ...

    async def wake_tasks(self, name: str) -> None:
        """Make the tasks under a lease check for work within a second, on whichever gateway they run."""
        ...


class SoleNode:
    """Leases of a storage that only one process uses. That process holds all leases at once."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Callable[[], None]]] = {}

    async def run(
        self,
        name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        wakes = self._wakes.setdefault(name, [])
        if wake is not None:
            wakes.append(wake)
        try:
            await work()
        finally:
            if wake is not None:
                wakes.remove(wake)

    async def nodes(self) -> Sequence[NodeState]:
        return ()

    def publish_settings(self, digests: Mapping[str, str]) -> None:
        """Do nothing, because there are no other gateways."""

    async def settings(self) -> Sequence[NodeSettings]:
        return ()

    async def wake_tasks(self, name: str) -> None:
        for wake in self._wakes.get(name, ()):
            wake()


@dataclass(eq=False)
class _Run:
    """State of one call of `run`."""

    finish: Callable[[], None] | None
    wake: Callable[[], None] | None
    task: asyncio.Task[None] | None = None
    is_asked: bool = False  # True after the task was requested to end


class HeldTasks:
    """
    Tasks of one process under its leases. A task starts when its lease is gained, and ends when the
    lease is lost.
    """

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._runs: dict[str, list[_Run]] = {}
        self._gained = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def wanted_leases(self) -> frozenset[str]:
        """The leases that the tasks of this process need."""
        return frozenset(self._runs)

    async def run(
        self,
        name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """
        Run a task as in `Leases.run`. If the storage was unreachable or full for a while, `work` is started again.
        """
        run = _Run(finish, wake)
        self._runs.setdefault(name, []).append(run)
        try:
            while True:
                await self._until_held(name)
                run.is_asked = False
                run.task = asyncio.create_task(work(), name=name)
                error = await self._wait_for_end(run.task)
                if error is None and not run.is_asked:
                    return
                if error is not None and not _is_passing(error):
                    raise error
                if error is not None:
                    _log.warning(
                        "%s starts again after an error: %s",
                        name,
                        error,
                        extra={"action": "task_begins_again"},
                    )
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._runs[name].remove(run)
            if not self._runs[name]:
                del self._runs[name]

    def gain_lease(self, name: str) -> None:
        """Start the tasks that wait for the lease."""
        self.held.add(name)
        self._look_again()

    def fail(self, error: Exception) -> None:
        """Stop granting leases. Tasks that wait for a lease get the error."""
        self._failure = error
        self._look_again()

    def _look_again(self) -> None:
        gained, self._gained = self._gained, asyncio.Event()
        gained.set()

    def wake_held(self, name: str) -> None:
        """Make the tasks under the lease check for work at once."""
        for run in self._running_tasks(name):
            if run.wake is not None:
                run.wake()

    def lose_lease(self, name: str) -> None:
        """Cancel the tasks under a lease that another gateway may already hold."""
        self.held.discard(name)
        for run in self._running_tasks(name):
            self._cancel(run)

    async def let_go(self, name: str) -> None:
        """
        End the tasks under the lease, and let them finish their work first. Afterwards another gateway may
        get the lease.
        """
        self.held.discard(name)
        runs = self._running_tasks(name)
        for run in runs:
            if run.finish is None:
                self._cancel(run)
            else:
                run.is_asked = True
                run.finish()
        tasks = [run.task for run in runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _running_tasks(self, name: str) -> list[_Run]:
        return [run for run in self._runs.get(name, ()) if run.task is not None]

    @staticmethod
    def _cancel(run: _Run) -> None:
        run.is_asked = True
        if run.task is not None:
            run.task.cancel()

    async def _until_held(self, name: str) -> None:
        while name not in self.held:
            if self._failure is not None:
                raise self._failure
            await self._gained.wait()

    @staticmethod
    async def _wait_for_end(task: asyncio.Task[None]) -> BaseException | None:
        """
        Wait for a task and return its error, if any. If the caller is cancelled, the task is cancelled as well.
        """
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.exception()


def _is_passing(error: BaseException) -> bool:
    """Return True if the error only means that the storage was unreachable or full."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_passing, error.exceptions))
    return isinstance(error, SpoolUnavailable | SpoolFull) and not isinstance(error, SpoolDamaged)
