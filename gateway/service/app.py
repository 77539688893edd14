"""
A running Tollhouse: it assembles and starts all parts, and stops them in reverse order. A background task
that ends starts again.

`tollhouse serve` starts it. Tests start it the same way on port 0.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.configuration.local_operator import local_address
from gateway.configuration.problems import config_problems as problems_of
from gateway.configuration.sections import Config
from gateway.configuration.settings_in_effect import DEFAULT, SettingInEffect, settings_in_effect
from gateway.configuration.values import ConfigError, split_address
from gateway.core.errors import innermost_frames
from gateway.core.paths import CONSOLE, console_link
from gateway.http.listening.sockets import ListeningSockets
from gateway.http.listening.tls import Certificate
from gateway.operations.holders.operators import PublicUrls, ReloadOutcome
from gateway.operations.services import AllServices
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.assembly.services import open_services
from gateway.service.handover import Predecessor
from gateway.service.listeners import ServerListeners, StartWaitListeners
from spool import disks
from spool.clock import Clock, SteadyClock
from spool.errors import BeingMigrated, OtherSchema, SpoolDamaged, SpoolLocked, SpoolUnavailable
from spool.log.protocols import CommitObserver
from spool.loops import ENOUGH, repeat
from spool.registry.operators import ADMIN, Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import POSTGRES
from spool.turns.fair_turns import FairTurnScheduler, run_in_background
from spool.turns.threads import lower_priority, shorten_thread_time_slices

if TYPE_CHECKING:
    from gateway.service.listeners import StartWaitListeners

_log = logging.getLogger(__name__)

FOLLOW_S = 30.0  # seconds to wait for the previous server to stop; that server stops after at most 28 s
RESTART_S = 30.0  # seconds until a background task that ended starts again
LOOK_AGAIN_S = 3.0  # seconds between two checks while the disk is too full to start
FIRST_KEY = "First key"
ANSWERING = 8  # number of threads that compute answers and wait for system calls; more threads are not faster
# Seconds that a thread waits for the interpreter's lock while another thread computes. A commit waits for the
# lock after each system call and statement. With Python's default of 5 ms, and even with 0.5 ms, these waits
# take longer than the commit.
SWITCH_S = 0.00003


class StartAbandoned(Exception):
    """Raised if the process was told to stop while its start waited for space on the disk."""


class TollhouseApp:
    """A running Tollhouse. Call `start`, await `wait_for_failure` or a signal, then call `stop`."""

    def __init__(
        self,
        config: Config,
        *,
        version: str,
        clock: Clock | None = None,
        local: AuthenticatedKey | None = None,
        observer: CommitObserver | None = None,
        reread: Callable[[], Config] | None = None,
        sockets: ListeningSockets | None = None,
        takes_over: bool = False,
        origins: Callable[[], Mapping[str, str]] | None = None,
        prepare: Callable[[AllServices], Awaitable[None]] | None = None,
    ) -> None:
        """
        Prepare the app. `local` makes it an agent (gateway.devices.agent). `observer` is told of each commit.

        `reread` reads the configuration again for a reload. Without it, a reload only reads the files that
        the configuration names. `sockets` are already listening. `takes_over` is the server that already runs
        on the data directory, if any. `origins` has the source of each setting. `prepare` is called once
        everything is open, before the server accepts requests.
        """
        self.config = config
        self._sockets = sockets or ListeningSockets({})
        self._takes_over = takes_over
        self._listeners = ServerListeners(config.server, config.data_dir, self._sockets)
        self._following_until = 0.0  # time by which the previous server must have stopped
        # The configuration as it was read. In contrast, the addresses in `config` may have ports that
        # the system chose.
        self._running = config
        self._reread = reread or (lambda: config)
        self._origins = origins
        self._prepare = prepare
        self._given = origins and origins()
        self._reloading = asyncio.Lock()
        self._local = local
        self._observer = observer
        self._version = version
        self._clock = clock or SteadyClock(step_s=config.spool.clock_step, hold_s=config.spool.clock_hold)
        self._supervisor = TaskSupervisor()
        self._stack = AsyncExitStack()
        self._services: AllServices | None = None
        self._certificate: Certificate | None = None
        self._abandoned = asyncio.Event()

    async def start(self) -> None:
        """
        Start everything. The server accepts requests when this returns. If a step fails, the parts already
        started are stopped.

        On a full disk, or while a database is unreachable, the start waits and answers 503.
        `stop_waiting_for_space` ends the wait with StartAbandoned. Raises SpoolError if the data directory
        cannot be opened, OSError for an address or a file, and ConfigError for an error in a file that the
        configuration names.
        """
        sys.setswitchinterval(SWITCH_S)
        shorten_thread_time_slices()
        answering = ThreadPoolExecutor(ANSWERING, thread_name_prefix="answers", initializer=lower_priority)
        asyncio.get_running_loop().set_default_executor(answering)
        try:
            await self._prepare_listeners()
            self._services = services = await self._open_when_there_is_room()
            services.operators.installation.reload = self.reload
            services.operators.installation.settings = self._settings_in_effect
            if self._prepare is not None:
                await self._prepare(services)
            self._stack.push_async_callback(self._supervisor.stop)
            turns = services.receivers.turns
            for name, run in services.background.items():
                self._supervisor.start_task(name, partial(_run_in_background, turns, run))
            certificate = self._certificate
            if certificate is not None:
                self._supervisor.start_task("certificate", certificate.reload_repeatedly)
                services.operators.installation.in_use = lambda: certificate.loaded_pem_by_setting
            self._stack.push_async_callback(self._listeners.close)
            await self._listeners.start(services, certificate)
        except BaseException:
            await self._listeners.close()
            await self._stack.aclose()
            raise
        where = {"url": self.url, "grpc": self.grpc_address, "operator_url": self.operator_url}
        _log.info("ready", extra={"action": "ready", "version": self._version, **where})

    def stop_waiting_for_space(self) -> None:
        """Stop waiting for space on the disk. Does nothing once everything is open."""
        self._abandoned.set()

    async def wait_for_failure(self) -> str:
        return await self._supervisor.wait_for_failure()

    async def stop(self) -> None:
        """Refuse new requests, finish the running ones, and close everything."""
        _log.info("stopping", extra={"action": "stopping"})
        await self._stack.aclose()
        _log.info("stopped", extra={"action": "stopped"})

    @property
    def url(self) -> str:
        return self._listeners.url

    @property
    def operator_url(self) -> str:
        return self._listeners.operator_url

    @property
    def metrics_url(self) -> str:
        return self._listeners.metrics_url  # "" if no listener serves only metrics

    @property
    def grpc_address(self) -> str:
        return self._listeners.grpc_address  # address of the gRPC listener, or "" if gRPC is off

    async def wait_for_handover(self) -> None:
        await self._listeners.wait_for_handover()

    async def create_first_key(self) -> str | None:
        """Create a first key if there are no keys, and return its secret. Return None otherwise."""
        registry = self.services.storage.registry
        if registry is None or registry.keys.all() or self.config.server.api_key_file:
            return None
        actor = Actor(local_address(self.config), "tollhouse serve")
        _, secret = await registry.keys.create(name=FIRST_KEY, use_cases=[SEND_AI_TELEMETRY], actor=actor)
        return secret

    async def console_link(self, actor: Actor) -> str | None:
        """
        Create a one-time link that signs in to the console as an Admin. Return None if the registry is damaged.
        """
        services = self.services.operators
        if services.installation.registry is None:
            return None
        secret = await services.installation.registry.operators.create_sign_in_link(role=ADMIN, actor=actor)
        return console_link(services.installation.urls().console, secret)

    async def reload(self, actor: Actor) -> ReloadOutcome:
        """
        Apply the current configuration, keys, prices and certificates, and retry paused routes.

        Raises ConfigError with every problem, or SpoolError. The earlier configuration then stays in effect.
        """
        async with self._reloading:
            reload = self.services.reload
            self._running, outcome = await reload(self._running, self._reread, self._certificate, actor)
            if self._origins and self._given is not None:
                with suppress(ConfigError):  # the configuration file may have been deleted after the reload
                    before = {name: self._given.get(name, DEFAULT) for name in outcome.needs_restart}
                    self._given = {**self._origins(), **before}
        return outcome

    def _settings_in_effect(self) -> Sequence[SettingInEffect]:
        return tuple(settings_in_effect(self._running, self._given))

    @property
    def services(self) -> AllServices:
        """Return everything that the listeners serve. The app must have started."""
        if self._services is None:
            raise RuntimeError("the app has not been started")
        return self._services

    def _current_urls(self) -> PublicUrls:
        is_shared = self.url == self.operator_url
        return PublicUrls(
            console=f"{self.operator_url}{CONSOLE}/",
            telemetry=None if is_shared else self.url,
            public=self._running.oidc.console,
        )

    async def _prepare_listeners(self) -> None:
        predecessor = None
        if self._takes_over:
            predecessor = await asyncio.to_thread(Predecessor.request_sockets, self.config.data_dir)
        server = self.config.server
        if predecessor is not None:
            self._sockets = predecessor.sockets
            if split_address(server.grpc_listen or ":1")[1] == 0:
                server = replace(server, grpc_listen=predecessor.grpc)
        server = self._sockets.with_socket_addresses(server)
        if server != self.config.server:
            self.config = replace(self.config, server=server)
            problems = list(problems_of(self.config))
            if problems:
                raise ConfigError(problems)
        self._certificate = Certificate.from_settings(server)
        self._listeners = ServerListeners(server, self.config.data_dir, self._sockets)
        if predecessor is not None:
            if server.grpc_listen and server.reuse_port:
                await self._listeners.start_grpc(self._certificate)
            await asyncio.to_thread(predecessor.let_server_stop)
            self._following_until = self._clock.monotonic() + FOLLOW_S

    async def _open_when_there_is_room(self) -> AllServices:
        refusing: StartWaitListeners | None = None
        try:
            while True:
                was_full = disks.is_disk_full(self.config.data_dir)
                try:
                    return await self._open_or_salvage()
                except SpoolLocked:
                    if self._clock.monotonic() > self._following_until:
                        raise
                    await asyncio.sleep(0.02)
                    continue
                except (SpoolUnavailable, OSError) as error:
                    reason = self._wait_reason(error, was_full)
                    if not reason:
                        raise
                    if refusing is None:
                        refusing = await self._listen_and_refuse(reason, error)
                await self._wait_for_room()
        finally:
            if refusing is not None:
                await refusing.stop()

    def _wait_reason(self, error: Exception, was_full: bool) -> str:
        if isinstance(error, BeingMigrated):
            return "the storage is being upgraded"
        if self.config.storage.engine == POSTGRES and isinstance(error, SpoolUnavailable):
            return "the storage cannot be reached"
        is_full = disks.is_disk_full_error(error, self.config.data_dir, was_full_before=was_full)
        return f"the disk of {self.config.data_dir} is full" if is_full else ""

    async def _listen_and_refuse(self, reason: str, error: Exception) -> StartWaitListeners:
        """
        Listen and answer 503, so that senders retry and probes see the reason. The server later gets the same
        ports.
        """
        takes_grpc = not self._listeners.grpc_address
        refusing = StartWaitListeners(
            self.config.server, self._clock, reason, self._sockets, takes_grpc=takes_grpc
        )
        self.config = replace(self.config, server=await refusing.start())
        self._listeners.server = self.config.server
        listen = self.config.server.listen
        _log.error(
            "waiting to start: %s: %s", reason, error, extra={"action": "start_waits", "listen": listen}
        )
        return refusing

    async def _wait_for_room(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._abandoned.wait()
        if self._abandoned.is_set():
            raise StartAbandoned

    async def _open_or_salvage(self) -> AllServices:
        """
        Open the storage and services. If damage is found, open them once more, which salvages what is readable.
        """
        try:
            return await self._open_services()
        except SpoolDamaged:
            return await self._open_services()

    async def _open_services(self) -> AllServices:
        return await self._stack.enter_async_context(
            open_services(
                self.config,
                clock=self._clock,
                version=self._version,
                urls=self._current_urls,
                local=self._local,
                observer=self._observer,
            )
        )


async def _run_in_background(turns: FairTurnScheduler, run: Callable[[], Awaitable[None]]) -> None:
    await run_in_background(turns, run())


class TaskSupervisor:
    """
    Runs tasks that must not end. A task that ends starts again, unless the storage has another schema: then no
    task of this process can ever work, so the process must end.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.failed: str | None = None  # name of the first task that met another schema
        self._failure = asyncio.Event()

    def start_task(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._tasks.add(asyncio.create_task(self._keep_running(name, run), name=name))

    async def wait_for_failure(self) -> str:
        await self._failure.wait()
        assert self.failed is not None
        return self.failed

    async def stop(self) -> None:
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        async def run_once() -> object:
            error: BaseException | None = None
            try:
                await run()
            except asyncio.CancelledError as ended_by:
                if self._stopping:
                    raise
                error = ended_by  # a task that it waited for was cancelled
            except Exception as ended_by:  # noqa: BLE001 - the supervised loop
                error = ended_by
            _log_ended_task(name, error)
            if not isinstance(error, OtherSchema):
                return None
            if self.failed is None:
                self.failed = name
                self._failure.set()
            return ENOUGH

        await repeat(run_once, every_s=RESTART_S, failed=f"the task {name} ended", action="task_died")


def _log_ended_task(name: str, error: BaseException | None) -> None:
    kind = type(error).__name__ if error else None
    where = innermost_frames(error) if error else []
    extra = {"action": "task_died", "task": name, "error": kind, "where": where}
    _log.critical("a background task ended; it starts again", extra=extra)
