from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from exporters.exporter import RouteConfig
from exporters.route_loop import AFTER_A_FAULT_S, RouteLoop
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import PARKED, RUNNING, RouteState
from spool.errors import SpoolError
from spool.leases import Leases, SoleNode, lease_name
from spool.log.protocols import RecordLog
from spool.loops import ENOUGH, failure_logger, failure_reason, for_each_item, repeat
from spool.packed.native import NativeModule
from spool.settings import MAX_DEAD_LETTERS

SECRETS_EVERY_S = 1.0
# seconds in which records that still wait for others are sent at a stop
FLUSH_S = 1.0


@asynccontextmanager
async def running_companion(
    companion: Callable[[], Coroutine[Any, Any, None]] | None, name: str
) -> AsyncIterator[None]:
    if companion is None:
        yield
        return
    task = asyncio.create_task(companion(), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class TableSync(Protocol):
    """A table that is sent upstream row by row, such as devices. Operators see it as a route."""

    def state(self) -> RouteState: ...

    def secret_file_states(self) -> Sequence[object]: ...

    def retry_now(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(eq=False, kw_only=True)
class _RunningSender:
    """
    The task that sends for a route or sync. `stamps`: states of its secret files; it retries when they
    change. `close`: releases its connections after it has ended.
    """

    sender: RouteLoop | TableSync
    stamps: Callable[[], Sequence[object]]
    close: Callable[[], Awaitable[None]]
    task: asyncio.Task[None]
    seen_stamps: Sequence[object]
    config: RouteConfig | None = None


class RouteForwarder:
    """The routes and syncs, which run while this process holds their leases."""

    def __init__(
        self,
        deliveries: Deliveries,
        record_log: RecordLog,
        clock: Clock,
        specs: Sequence[RouteConfig],
        syncs: Sequence[TableSync] = (),
        *,
        max_dead_letters: int = MAX_DEAD_LETTERS,
        leases: Leases | None = None,
        native: NativeModule | None = None,
    ) -> None:
        """`native`: the compiled module that reads packed records, for routes that accept them."""
        self._leases = leases or SoleNode()
        self._deliveries = deliveries
        self._log = record_log
        self._clock = clock
        self._max_dead_letters = max_dead_letters
        self._packed = native
        self._specs = list(specs)
        self._syncs = list(syncs)
        self._running: dict[str, _RunningSender] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._reads_files = asyncio.Event()  # set if a destination's secret is in a file

    async def start(self) -> None:
        await self._deliveries.set_routes([config.spec for config in self._specs])
        for config in self._specs:
            self._start_route(config)
        for sync in self._syncs:
            self._start_sync(sync)
        self._watch = asyncio.create_task(self._watch_secrets(), name="secret files")

    async def apply_routes_and_syncs(
        self, specs: Sequence[RouteConfig], syncs: Sequence[TableSync] | None
    ) -> None:
        """
        Replace the routes and syncs (senders of the newest state of a table). If this raises, nothing has
        changed. If `syncs` is None, the syncs stay.

        Requests in progress are completed, so no delivery becomes ambiguous. Routes that do not change
        continue.
        """
        await self._deliveries.set_routes([config.spec for config in specs], at_start=False)
        configs_by_name = {config.spec.name: config for config in specs}
        for name, running in list(self._running.items()):
            config = running.config
            if config is not None and (
                name not in configs_by_name
                or configs_by_name[name].compared_settings != config.compared_settings
            ):
                self._retire_sender(name)
        for name, config in configs_by_name.items():
            if name not in self._running:
                self._start_route(config)
        if syncs is not None:
            for sync in self._syncs:
                self._retire_sender(sync.state().name)
            self._syncs = list(syncs)
            for sync in self._syncs:
                self._start_sync(sync)
        self.retry_now()

    async def stop(self) -> None:
        """
        Send waiting records for FLUSH_S, then cancel requests.

        A cancelled delivery stays open and is sent again with the same bytes.
        """
        running = list(self._running.values())
        flushes = [
            runner.sender.send_waiting_records() for runner in running if isinstance(runner.sender, RouteLoop)
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await asyncio.gather(*flushes, return_exceptions=True)
        self._running.clear()
        tasks = [runner.task for runner in running] + ([self._watch] if self._watch else [])
        for task in (*tasks, *self._retiring):
            task.cancel()
        await asyncio.gather(*tasks, *self._retiring, return_exceptions=True)
        for runner in running:
            await runner.close()

    def sync_states(self) -> Sequence[RouteState]:
        return [sync.state() for sync in self._syncs]

    def retry_now(self) -> None:
        for running in self._running.values():
            running.sender.retry_now()

    async def _stored_route_state(self, route: str) -> str:
        try:
            return next(
                (
                    known_route.state
                    for known_route in await self._deliveries.route_states()
                    if known_route.name == route
                ),
                RUNNING,
            )
        except SpoolError:
            # assume that it runs: the first delivery shows the real state
            return RUNNING

    def _start_route(self, config: RouteConfig) -> None:
        name = config.spec.name
        loop = RouteLoop(
            config.spec,
            config.exporter,
            deliveries=self._deliveries,
            record_log=self._log,
            clock=self._clock,
            backoff=config.backoff,
            linger_s=config.linger_s,
            lands=config.lands,
            max_dead_letters=self._max_dead_letters,
            native=self._packed if config.reads_packed else None,
        )
        before = [task for task in self._retiring if task.get_name() == name]

        async def run_after_previous() -> None:
            if before:  # two loops of a route would mix their lines in its file
                await asyncio.wait(before)
            await self._leases.run_while_leased(
                lease_name(name),
                send_deliveries,
                finish=loop.leave_route_to_other_process,
                wake=loop.send_now,
            )

        async def send_until_handed_over() -> object:
            try:
                async with running_companion(config.beside, f"beside {name}"):
                    await loop.run(await self._stored_route_state(name))
            except Exception as error:
                await self._deliveries.set_route_state(name, PARKED, failure_reason(error))
                raise
            return ENOUGH

        async def send_deliveries() -> None:
            await repeat(
                send_until_handed_over,
                every_s=0.0,
                failed=f"{name}: the route ended; it starts again",
                action="route_fault",
                retry_s=AFTER_A_FAULT_S,
            )

        self._start_sender(
            name,
            run_after_previous(),
            sender=loop,
            stamps=config.stamps,
            close=config.exporter.close,
            config=config,
        )

    def _start_sync(self, sync: TableSync) -> None:
        name = sync.state().name
        run = self._leases.run_while_leased(lease_name(name), sync.run, wake=sync.retry_now)
        self._start_sender(name, run, sender=sync, stamps=sync.secret_file_states, close=sync.close)

    def _start_sender(
        self,
        name: str,
        run: Coroutine[Any, Any, None],
        *,
        sender: RouteLoop | TableSync,
        stamps: Callable[[], Sequence[object]],
        close: Callable[[], Awaitable[None]],
        config: RouteConfig | None = None,
    ) -> None:
        task = asyncio.create_task(run, name=name)
        seen_stamps = stamps()
        if any(stamp is not None for stamp in seen_stamps):
            self._reads_files.set()
        self._running[name] = _RunningSender(
            sender=sender, stamps=stamps, close=close, task=task, seen_stamps=seen_stamps, config=config
        )

    def _retire_sender(self, name: str) -> None:
        """
        Stop a route, which first completes its requests, or a sync, which stops at once because repeating
        changes nothing.
        """
        running = self._running.pop(name)

        async def stop_and_close_sender() -> None:
            try:
                if isinstance(running.sender, RouteLoop) and running.sender.is_running:
                    running.sender.retire()
                else:
                    running.task.cancel()
                await asyncio.wait([running.task])
            finally:
                running.task.cancel()
                await asyncio.gather(running.task, return_exceptions=True)
                await running.close()

        task = asyncio.create_task(stop_and_close_sender(), name=name)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _watch_secrets(self) -> None:
        await self._reads_files.wait()

        async def retry_if_changed(running: _RunningSender) -> None:
            now = running.stamps()
            if now != running.seen_stamps:
                running.seen_stamps = now
                running.sender.retry_now()

        async def check_all() -> None:
            log = failure_logger(
                "a secret file could not be checked",
                action="secret_not_checked",
                name=lambda running: running.task.get_name(),
            )
            await for_each_item(list(self._running.values()), retry_if_changed, log)

        await repeat(
            check_all,
            every_s=SECRETS_EVERY_S,
            failed="secret files could not be checked",
            action="secret_not_checked",
        )
