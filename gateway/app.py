"""
One running Tollhouse: assembled, listening, and stopped in reverse order.

Started by `tollhouse serve`; tests start it the same way on port 0.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from gateway.addresses.application import application, operator_application
from gateway.addresses.telemetry import GRPC_SERVICES
from gateway.assembly import open_services
from gateway.authentication.access import Bearer
from gateway.configuration.sections import Config
from gateway.http.in_hand import stopping
from gateway.http.listener import Listener, operator_listen, uses_tls
from gateway.http.services import ReceiverServices, Services
from gateway.http.tls import Certificate
from gateway.monitoring.memory import release_unused
from gateway.monitoring.supervisor import Supervisor
from gateway.mounts import CONSOLE
from gateway.operator.socket import OperatorSocket
from gateway.receivers.otlp_grpc import GrpcServer, exports
from gateway.refusing import RefusingListeners
from spool import disk
from spool.clock import Clock
from spool.errors import SpoolDamaged, SpoolUnavailable
from spool.log.protocols import Observer
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.steady_clock import SteadyClock

_log = logging.getLogger(__name__)

UPLOAD_S = 1.0  # what bodies get to arrive when the server stops
DRAIN_S = 4.0  # and what has arrived, to be answered
CUT_S = 1.0  # and calls of gRPC after that: all waits of a stop together stay under the 10 s of `docker stop`
LOOK_AGAIN_S = 3.0  # at a disk that is too full to start on
FIRST_KEY = "First key"


class StartAbandoned(Exception):
    """The process was asked to stop while its start waited for room on the disk."""


class App:
    """One running Tollhouse. `start`, then `failure` or whatever else ends it, then `stop`."""

    def __init__(
        self,
        config: Config,
        *,
        version: str,
        clock: Clock | None = None,
        local: Bearer | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`local` makes it an agent: see gateway.agent. `observer` is notified of commits too."""
        self.config = config
        self._local = local
        self._observer = observer
        self._version = version
        self._clock = clock or SteadyClock(step_s=config.spool.clock_step, hold_s=config.spool.clock_hold)
        self._supervisor = Supervisor()
        self._stack = AsyncExitStack()
        self._services: Services | None = None
        self._certificate: Certificate | None = None
        self._abandoned = asyncio.Event()
        self.url = ""
        self.operator_url = ""
        self.grpc_address = ""  # "" when gRPC is off

    async def start(self) -> None:
        """
        Ready to take requests when it returns; when a step fails, what was started is stopped again.

        On a full disk it waits for room and answers 503 meanwhile; `abandon` ends that with StartAbandoned. SpoolError
        when the data directory cannot be opened, OSError for an address or a file, ConfigError when what the
        configuration points to is wrong.
        """
        try:
            self._services = await self._open_when_there_is_room()
            self._stack.push_async_callback(self._supervisor.stop)
            for name, run in self._services.background.items():
                self._supervisor.start(name, run())
            await self._listen(self._services)
        except BaseException:
            await self._stack.aclose()
            raise
        release_unused()
        where = {"url": self.url, "grpc": self.grpc_address, "operator_url": self.operator_url}
        _log.info("ready", extra={"action": "ready", "version": self._version, **where})

    def abandon(self) -> None:
        """Wait for room no longer; does nothing once everything is open."""
        self._abandoned.set()

    async def failure(self) -> str:
        """Wait until a background task dies; its name."""
        return await self._supervisor.failure()

    async def stop(self) -> None:
        """Refuse new requests, finish those in hand, settle, close."""
        _log.info("stopping", extra={"action": "stopping"})
        await self._stack.aclose()
        _log.info("stopped", extra={"action": "stopped"})

    async def first_key(self) -> str | None:
        """The secret of a first key, made for a registry without keys; None when there are keys already."""
        registry = self.services.storage.registry
        if registry is None or registry.keys.all() or self.config.server.api_key_file:
            return None
        _, secret = await registry.keys.create(
            name=FIRST_KEY, use_cases=[SEND_AI_TELEMETRY], actor=Actor("tollhouse serve", "local")
        )
        return secret

    async def reload(self) -> None:
        """Take over changed secret files and certificates, and try parked routes again."""
        if self._certificate is not None:
            self._certificate.renew()
        await self.services.receivers.access.flush()
        self.services.poke()
        _log.info("read secrets again", extra={"action": "reloaded"})

    @property
    def services(self) -> Services:
        """Everything behind the listeners, once it has started."""
        if self._services is None:
            raise RuntimeError("the app has not started")
        return self._services

    async def _open_when_there_is_room(self) -> Services:
        refusing: RefusingListeners | None = None
        try:
            while True:
                try:
                    return await self._open()
                except (SpoolUnavailable, OSError) as error:
                    if not disk.explains(error, self.config.data_dir):
                        raise
                    if refusing is None:
                        refusing = await self._refuse(f"the disk of {self.config.data_dir} is full", error)
                await self._wait_for_room()
        finally:
            if refusing is not None:
                await refusing.stop()

    async def _refuse(self, reason: str, error: Exception) -> RefusingListeners:
        """Listen, so that senders hear when to repeat and probes why; the ports stay those of the server."""
        refusing = RefusingListeners(self.config.server, self._clock, reason)
        self.config = replace(self.config, server=await refusing.start())
        listen = self.config.server.listen
        _log.error("the start waits: %s: %s", reason, error, extra={"action": "start_waits", "listen": listen})
        return refusing

    async def _wait_for_room(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._abandoned.wait()
        if self._abandoned.is_set():
            raise StartAbandoned

    async def _open(self) -> Services:
        """What is met damaged on the way is remembered, and salvaged by opening again."""
        try:
            return await self._open_once()
        except SpoolDamaged:
            return await self._open_once()

    async def _open_once(self) -> Services:
        return await self._stack.enter_async_context(
            open_services(
                self.config,
                clock=self._clock,
                version=self._version,
                console_url=lambda: f"{self.operator_url}{CONSOLE}/",
                local=self._local,
                observer=self._observer,
            )
        )

    async def _listen(self, services: Services) -> None:
        server = self.config.server
        self._certificate = certificate = Certificate.of(server)
        if certificate is not None:
            self._supervisor.start("certificate", certificate.watch())
        socket = OperatorSocket(self.config.data_dir, operator_application(services.operators))
        self._stack.push_async_callback(socket.stop)
        await socket.start()
        operator_address = operator_listen(server)
        outer = application(services, for_senders=True, for_operators=operator_address is None)
        public = Listener(outer, certificate=certificate, connections=services.receivers.connections)
        listeners = [public]
        self._stack.push_async_callback(public.stop)
        await public.start(server.listen)
        self.url = self.operator_url = public.url
        if operator_address is not None:
            inner = application(services, for_senders=False, for_operators=True)
            private = Listener(inner, certificate=certificate if uses_tls(server, operator_address) else None)
            listeners.append(private)
            self._stack.push_async_callback(private.stop)
            await private.start(operator_address)
            self.operator_url = private.url
        if server.grpc_listen:
            receivers = services.receivers
            grpc = GrpcServer(
                exports(receivers, GRPC_SERVICES),
                max_bytes=receivers.max_body_bytes,
                max_connections=receivers.connections.limit,
            )
            self._stack.push_async_callback(grpc.stop, CUT_S)
            await grpc.start(server.grpc_listen, certificate)
            self.grpc_address = grpc.address
        self._stack.push_async_callback(self._drain, services.receivers, listeners)

    async def _drain(self, receivers: ReceiverServices, listeners: list[Listener]) -> None:
        for listener in listeners:
            listener.close_socket()
        if await receivers.in_hand.close(UPLOAD_S):
            return
        receivers.budget.cut_uploads(stopping())
        if not await receivers.in_hand.close(DRAIN_S):
            _log.warning("some requests did not finish in time", extra={"action": "drain_cut"})
