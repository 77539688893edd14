"""
Leases: if several gateways share a storage, the one that holds a lease runs a task, such as sending a route.

A lease does not protect data, because two gateways may briefly both believe that they hold it. Deliveries
have fences, and readers of the log check how far they may read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import SpoolDamaged, SpoolFull, SpoolUnavailable

AGAIN_S = 5.0  # seconds to wait after the storage was unreachable

_log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

# The two tasks that send billing rows upstream share one lease, because each would replace the other's rows.
BILLING = "billing"
_SHARED = {"upstream/billing-data": BILLING, "upstream/billing-hours": BILLING}


def lease_name(route: str) -> str:
    """Return the lease name of a route, or of a table that is sent upstream."""
    return _SHARED.get(route, route)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """
    The state of a node (one gateway process) for operators. A node that has not renewed for a few seconds
    counts as stopped.
    """

    id: str
    name: str
    version: str
    started_at: float
    seen_at: float
    is_live: bool
    is_this: bool  # whether this row is the gateway that returns it
    leases: Sequence[str]  # leases that the gateway holds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node: a digest of each setting, and since when they apply."""

    node: str
    name: str
    since: float
    digests: Mapping[str, str]


class Leases(Protocol):
    """The leases of this gateway, each of which lets it run one task."""

    async def run_while_leased(
        self,
        lease_name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """
        Run `work` whenever this gateway holds the lease `lease_name`. Returns or raises when `work` does.

        If the lease is lost, `work` is cancelled and runs again after the lease is regained. If the lease is
        to move to another gateway, `finish` is called to let `work` end by itself; without `finish`, `work`
        is cancelled. `wake` is called when an operator created work.
        """
        ...

    async def node_states(self) -> Sequence[NodeState]:
        """Return the nodes by name, or none if there can be only one gateway."""
        ...

    def publish_settings(self, digests: Mapping[str, str]) -> None:
        """Publish a digest of each setting. Other gateways see it within seconds."""
        ...

    async def differing_node_settings(self) -> Sequence[NodeSettings]:
        """
        Return the settings of each running gateway by name, or none if all gateways have equal settings.
        """
        ...

    async def wake_tasks(self, lease_name: str) -> None:
        """Call `wake` of the tasks with this name within a second, in whichever gateway they run."""
        ...


class SoleNode:
    """The leases of an installation with one process, which holds all of them."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Callable[[], None]]] = {}

    async def run_while_leased(
        self,
        lease_name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        wakes = self._wakes.setdefault(lease_name, [])
        if wake is not None:
            wakes.append(wake)
        try:
            await work()
        finally:
            if wake is not None:
                wakes.remove(wake)

    async def node_states(self) -> Sequence[NodeState]:
        return ()

    def publish_settings(self, digests: Mapping[str, str]) -> None:
        """Do nothing, because there are no other gateways."""

    async def differing_node_settings(self) -> Sequence[NodeSettings]:
        return ()

    async def wake_tasks(self, lease_name: str) -> None:
        for wake in self._wakes.get(lease_name, ()):
            wake()


@dataclass(eq=False)
class _LeaseRun:
    finish: Callable[[], None] | None
    wake: Callable[[], None] | None
    task: asyncio.Task[None] | None = None
    is_asked: bool = False  # True if the lease was requested to end


class LeaseTasks:
    """The tasks of a process that need a lease. They start when it is gained, and end when it is lost."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._runs: dict[str, list[_LeaseRun]] = {}
        self._gained = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def wanted_leases(self) -> frozenset[str]:
        return frozenset(self._runs)

    async def run_while_leased(
        self,
        lease_name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """
        Run `work` as `Leases.run_while_leased` says. If it fails because the storage is unreachable or full,
        start it again.
        """
        run = _LeaseRun(finish, wake)
        self._runs.setdefault(lease_name, []).append(run)
        try:
            while True:
                await self._wait_until_held(lease_name)
                run.is_asked = False
                run.task = asyncio.create_task(work(), name=lease_name)
                error = await self._wait_for_end(run.task)
                if error is None and not run.is_asked:
                    return
                if error is not None and not _is_temporary(error):
                    raise error
                if error is not None:
                    _log.warning(
                        "%s starts again after an error: %s",
                        lease_name,
                        error,
                        extra={"action": "task_begins_again"},
                    )
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._runs[lease_name].remove(run)
            if not self._runs[lease_name]:
                del self._runs[lease_name]

    def gain_lease(self, lease_name: str) -> None:
        self.held.add(lease_name)
        self._notify_lease_waiters()

    def fail_runs(self, error: Exception) -> None:
        self._failure = error
        self._notify_lease_waiters()

    def _notify_lease_waiters(self) -> None:
        gained, self._gained = self._gained, asyncio.Event()
        gained.set()

    def wake_running_tasks(self, lease_name: str) -> None:
        for run in self._running_tasks(lease_name):
            if run.wake is not None:
                run.wake()

    def lose_lease(self, lease_name: str) -> None:
        """Cancel the tasks of a lost lease at once, because another gateway may already hold it."""
        self.held.discard(lease_name)
        for run in self._running_tasks(lease_name):
            self._cancel_run(run)

    async def finish_tasks_and_wait(self, lease_name: str) -> None:
        """Let the tasks finish, so that another gateway can get the lease."""
        self.held.discard(lease_name)
        runs = self._running_tasks(lease_name)
        for run in runs:
            if run.finish is None:
                self._cancel_run(run)
            else:
                run.is_asked = True
                run.finish()
        tasks = [run.task for run in runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _running_tasks(self, lease_name: str) -> list[_LeaseRun]:
        return [run for run in self._runs.get(lease_name, ()) if run.task is not None]

    @staticmethod
    def _cancel_run(run: _LeaseRun) -> None:
        run.is_asked = True
        if run.task is not None:
            run.task.cancel()

    async def _wait_until_held(self, lease_name: str) -> None:
        while lease_name not in self.held:
            if self._failure is not None:
                raise self._failure
            await self._gained.wait()

    @staticmethod
    async def _wait_for_end(task: asyncio.Task[None]) -> BaseException | None:
        """
        Wait for a task and return its error, if any. If the caller is cancelled, the task is cancelled as
        well.
        """
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.exception()


def _is_temporary(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_temporary, error.exceptions))
    return isinstance(error, SpoolUnavailable | SpoolFull) and not isinstance(error, SpoolDamaged)
