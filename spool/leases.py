"""
Which of the gateways on one storage runs what only one of them runs at a time: a route, or a task such as retention.

A lease says who begins. Nothing is kept safe by it alone: each delivery has a fence, each reader of the
log its reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spool.errors import SpoolDamaged, SpoolFull, SpoolUnavailable

AGAIN_S = 5.0  # before a task begins again that could not reach the storage

_log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

# The lease of all that sends billing drops upstream: two that did so at once would replace each other's.
BILLING = "billing"
_SHARED = {"upstream/billing-data": BILLING, "upstream/billing-hours": BILLING}


def lease_of(route: str) -> str:
    """Name the lease under which a route, or a table that is sent upstream, is sent."""
    return _SHARED.get(route, route)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One running gateway, as the operator sees it. A node that was not seen for a few seconds is over."""

    id: str
    name: str
    version: str
    started_at: float
    seen_at: float
    is_live: bool
    is_this: bool  # the one that answers
    leases: Sequence[str]  # what it runs alone, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What one live gateway works with: a digest of each setting, by its name, and since when all of them are so."""

    node: str
    name: str
    since: float
    digests: Mapping[str, str]


class Leases(Protocol):
    """What this gateway may run now."""

    async def run(
        self,
        name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """
        Run `work` whenever this gateway holds the lease, for as long as it does; several may run under one name.

        It is cancelled when the lease is lost. When another gateway is to have it, `finish` asks it to end by
        itself, without which it is cancelled. `wake` is called when an operator gave it something to do.
        Returns when `work` ends unasked, and raises what it raises.
        """
        ...

    async def nodes(self) -> Sequence[NodeState]:
        """Every gateway on this storage, by name; none where there is only ever one."""
        ...

    def tell(self, digests: Mapping[str, str]) -> None:
        """Have the other gateways know, within seconds, what this one works with: a digest of each setting."""
        ...

    async def settings(self) -> Sequence[NodeSettings]:
        """Return the settings of the live gateways, by name, if they are not all the same; else none."""
        ...

    async def wake(self, name: str) -> None:
        """Have whoever runs under a lease, at this gateway or another, look within a second for something to do."""
        ...


class SoleNode:
    """The leases of a storage that one process has for itself: all of them are held at once."""

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

    def tell(self, digests: Mapping[str, str]) -> None:
        """Do nothing: there are no other gateways."""

    async def settings(self) -> Sequence[NodeSettings]:
        return ()

    async def wake(self, name: str) -> None:
        for wake in self._wakes.get(name, ()):
            wake()


@dataclass(eq=False)
class _Run:
    """One caller of `run`."""

    finish: Callable[[], None] | None
    wake: Callable[[], None] | None
    task: asyncio.Task[None] | None = None
    is_asked: bool = False  # to end


class HeldTasks:
    """The tasks of one process under its leases: each begins when its lease is gained, and ends when that goes."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._runs: dict[str, list[_Run]] = {}
        self._gained = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """The leases that somebody here would run under, or does."""
        return frozenset(self._runs)

    async def run(
        self,
        name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """See `Leases.run`. Where the storage cannot be reached or is full for a while, `work` begins again."""
        run = _Run(finish, wake)
        self._runs.setdefault(name, []).append(run)
        try:
            while True:
                await self._until_held(name)
                run.is_asked = False
                run.task = asyncio.create_task(work(), name=name)
                error = await self._end_of(run.task)
                if error is None and not run.is_asked:
                    return
                if error is not None and not _is_passing(error):
                    raise error
                if error is not None:
                    _log.warning("%s begins again: %s", name, error, extra={"action": "task_begins_again"})
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._runs[name].remove(run)
            if not self._runs[name]:
                del self._runs[name]

    def gain(self, name: str) -> None:
        """Begin what waits for the lease."""
        self.held.add(name)
        self._look_again()

    def fail(self, error: Exception) -> None:
        """Stop granting leases: callers that wait for one get the error."""
        self._failure = error
        self._look_again()

    def _look_again(self) -> None:
        gained, self._gained = self._gained, asyncio.Event()
        gained.set()

    def wake_held(self, name: str) -> None:
        """Have what runs under the lease look at once for something to do."""
        for run in self._running(name):
            if run.wake is not None:
                run.wake()

    def lose(self, name: str) -> None:
        """Cut off what runs under a lease that somebody else may have by now."""
        self.held.discard(name)
        for run in self._running(name):
            self._cancel(run)

    async def let_go(self, name: str) -> None:
        """End what runs under the lease in good order, then it may be given away."""
        self.held.discard(name)
        runs = self._running(name)
        for run in runs:
            if run.finish is None:
                self._cancel(run)
            else:
                run.is_asked = True
                run.finish()
        tasks = [run.task for run in runs if run.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _running(self, name: str) -> list[_Run]:
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
    async def _end_of(task: asyncio.Task[None]) -> BaseException | None:
        """Its error, if it has one; whoever is cancelled in here takes the task along."""
        try:
            await asyncio.wait([task])
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return None if task.cancelled() else task.exception()


def _is_passing(error: BaseException) -> bool:
    """True if all that went wrong is that the storage could not be reached, or had no room."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_passing, error.exceptions))
    return isinstance(error, SpoolUnavailable | SpoolFull) and not isinstance(error, SpoolDamaged)
