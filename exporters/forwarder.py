"""Runs every route and every table that is brought upstream; all try again at once when a secret changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from exporters.exporter import RouteConfig
from exporters.route_loop import RouteLoop
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import RouteState
from spool.log.protocols import Log
from spool.settings import MAX_DEAD_LETTERS

SECRETS_EVERY_S = 1.0


class Sync(Protocol):
    """A table that is brought upstream row by row, shown like a route."""

    def state(self) -> RouteState: ...

    def stamps(self) -> object: ...

    def poke(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...


class Forwarder:
    """The routes, one for each destination and topic, and the tables that are brought upstream."""

    def __init__(
        self,
        deliveries: Deliveries,
        log: Log,
        clock: Clock,
        specs: Sequence[RouteConfig],
        syncs: Sequence[Sync] = (),
        *,
        max_dead_letters: int = MAX_DEAD_LETTERS,
    ) -> None:
        self._deliveries = deliveries
        self._configs = list(specs)
        self._routes = [
            RouteLoop(
                config.spec,
                config.exporter,
                deliveries=deliveries,
                log=log,
                clock=clock,
                backoff=config.backoff,
                max_dead_letters=max_dead_letters,
            )
            for config in self._configs
        ]
        self._syncs = list(syncs)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Declare the configured routes to the storage, then run every one."""
        await self._deliveries.declare([config.spec for config in self._configs])
        states = {state.name: state.state for state in await self._deliveries.routes()}
        for route in self._routes:
            self._tasks.append(asyncio.create_task(route.run(states[route.name]), name=f"route {route.name}"))
        for sync in self._syncs:
            self._tasks.append(asyncio.create_task(sync.run(), name=f"sync {sync.state().name}"))
        self._tasks.append(asyncio.create_task(self._watch_secrets(), name="secret files"))

    async def wait(self) -> None:
        """Wait for the end of a route, which is always a fault, and raise its cause."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Cancel what is being sent: an open delivery stays open and is sent again with the same bytes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for config in self._configs:
            await config.exporter.close()
        for sync in self._syncs:
            await sync.close()

    def syncs(self) -> Sequence[RouteState]:
        """The tables brought upstream, shown as routes are."""
        return [sync.state() for sync in self._syncs]

    def poke(self) -> None:
        """Let every route try again at once."""
        for route in self._routes:
            route.poke()
        for sync in self._syncs:
            sync.poke()

    async def _watch_secrets(self) -> None:
        watched: list[tuple[Callable[[], object], RouteLoop | Sync]] = [
            *((config.stamps, route) for config, route in zip(self._configs, self._routes, strict=True)),
            *((sync.stamps, sync) for sync in self._syncs),
        ]
        seen = [stamps() for stamps, _ in watched]
        while True:
            await asyncio.sleep(SECRETS_EVERY_S)
            for place, (stamps, waiter) in enumerate(watched):
                if (now := stamps()) != seen[place]:
                    seen[place] = now
                    waiter.poke()
