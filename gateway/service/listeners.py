"""
Everything a server listens on: HTTP for senders and operators, gRPC, and the operator socket.

While a start waits for space on the disk, other listeners answer: senders are told to retry, and probes
get the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.configuration.server import ServerSettings
from gateway.core.errors import Refusal
from gateway.http.listening.connections import OpenConnections, connection_limit
from gateway.http.listening.listener import Listener, operator_listen_address, uses_tls
from gateway.http.listening.sockets import HTTP, METRICS, OPERATOR, ListeningSockets
from gateway.http.listening.tls import Certificate
from gateway.http.pending_requests import stopping_refusal
from gateway.operations.requests.socket import OperatorSocket
from gateway.operations.services import AllServices
from gateway.service.addresses.application import (
    build_application,
    metrics_application,
    operator_application,
    refusing_application,
)
from gateway.service.addresses.areas import GRPC_SERVICES
from gateway.service.handover import ListenerHandover
from spool.clock import Clock

if TYPE_CHECKING:
    from gateway.operations.receivers.otlp_grpc import Export, GrpcServer

_log = logging.getLogger(__name__)

UPLOAD_S = 1.0  # seconds that a stop waits for the rest of request bodies
DRAIN_S = 4.0  # seconds that a stop then waits for the responses to requests that have arrived
# Seconds that a stop finally waits for gRPC calls. All waits together stay below the 10 s of `docker stop`.
CUT_S = 1.0
# Seconds that a stop first waits if a successor accepts new connections, so that open connections can send
# their last request.
LEAVE_S = 2.0
LOOK_S = 0.02
SETTLE_S = 0.2  # seconds in which a connection that was just accepted may send its first request

REPEAT_AFTER_S = 5


class ServerListeners:
    """
    The listeners of a server. Call `start` once, then `close`. The listening sockets in `sockets` were
    already open, and `close` leaves them open.
    """

    def __init__(self, server: ServerSettings, directory: Path, sockets: ListeningSockets) -> None:
        self.server = server
        self._directory = directory
        self._sockets = sockets
        self._stack = AsyncExitStack()
        self._http: dict[str, Listener] = {}
        self._grpc: GrpcServer | None = None
        self._exports: Mapping[str, Export] = {}
        self._ready = asyncio.Event()
        self._hand_over: ListenerHandover | None = None
        self.grpc_address = ""  # "" if gRPC is off

    @property
    def url(self) -> str:
        return self._http[HTTP].url

    @property
    def operator_url(self) -> str:
        return self._http.get(OPERATOR, self._http[HTTP]).url

    @property
    def metrics_url(self) -> str:
        return self._http[METRICS].url if METRICS in self._http else ""

    async def start_grpc(self, certificate: Certificate | None) -> None:
        """
        Accept gRPC calls. They wait until `start` has installed their handlers. Raises OSError if the address
        is in use.
        """
        # the gRPC library takes 9 MiB, so it is imported only if gRPC is on
        from gateway.operations.receivers.otlp_grpc import GrpcServer, waiting_handlers

        server = self.server
        grpc = GrpcServer(
            waiting_handlers(GRPC_SERVICES, self._wait_for_exports),
            max_bytes=server.max_body_bytes,
            max_connections=connection_limit(server),
            reuse_port=server.reuse_port,
        )
        self._stack.push_async_callback(grpc.stop, CUT_S)
        await grpc.start(server.grpc_listen, certificate)
        self._grpc, self.grpc_address = grpc, grpc.address

    async def start(self, services: AllServices, certificate: Certificate | None) -> None:
        """
        Listen on all addresses. Raises OSError if an address is in use or does not belong to this machine.
        """
        server = self.server
        operators = OperatorSocket(self._directory, operator_application(services.operators))
        self._stack.push_async_callback(operators.stop)
        await operators.start()
        operator_address = operator_listen_address(server)
        outer = build_application(services, for_senders=True, for_operators=operator_address is None)
        connections = services.receivers.connections
        proxies = services.receivers.proxies
        turns = services.receivers.turns
        public = Listener(
            outer, certificate=certificate, connections=connections, proxies=proxies, scheduler=turns
        )
        await self._start_http(HTTP, public, server.listen)
        people = services.operators.installation.connections
        if operator_address is not None:
            inner = build_application(services, for_senders=False, for_operators=True)
            tls = certificate if uses_tls(server, operator_address) else None
            inside = Listener(inner, certificate=tls, connections=people, proxies=proxies, scheduler=turns)
            await self._start_http(OPERATOR, inside, operator_address)
        if server.metrics_listen:
            tls = certificate if uses_tls(server, server.metrics_listen) else None
            figures = Listener(
                metrics_application(services), certificate=tls, connections=people, scheduler=turns
            )
            await self._start_http(METRICS, figures, server.metrics_listen)
        if server.grpc_listen:
            from gateway.operations.receivers.otlp_grpc import export_handlers

            self._exports = export_handlers(services.receivers, GRPC_SERVICES, self.grpc_address)
        self._ready.set()
        if server.grpc_listen and self._grpc is None:
            await self.start_grpc(certificate)
        self._stack.push_async_callback(self._drain_requests, services)
        self._hand_over = ListenerHandover(self._directory, self._socket_descriptors, self.grpc_address)
        self._stack.push_async_callback(self._hand_over.stop)
        self._hand_over.start()

    async def wait_for_handover(self) -> None:
        assert self._hand_over is not None
        await self._hand_over.asked.wait()

    async def close(self) -> None:
        await self._stack.aclose()
        self._sockets.close()

    async def _wait_for_exports(self) -> Mapping[str, Export]:
        await self._ready.wait()
        return self._exports

    async def _start_http(self, name: str, listener: Listener, address: str) -> None:
        self._stack.push_async_callback(listener.stop)
        await listener.start(address, self._sockets.find(name))
        self._http[name] = listener

    def _socket_descriptors(self) -> Mapping[str, int]:
        return {name: listener.descriptor for name, listener in self._http.items()}

    async def _drain_requests(self, services: AllServices) -> None:
        receivers = services.receivers
        for listener in self._http.values():
            await listener.close_listening_socket()
        if self._sockets or (self._hand_over is not None and self._hand_over.asked.is_set()):
            await self._close_after_responses(services)
        if await receivers.in_hand.close_and_wait(UPLOAD_S):
            return
        receivers.inflight.cut_uploads(stopping_refusal())
        if not await receivers.in_hand.close_and_wait(DRAIN_S):
            _log.warning("some requests did not finish in time", extra={"action": "drain_cut"})

    async def _close_after_responses(self, services: AllServices) -> None:
        """
        Answer the requests that open connections still send, and close each connection after its response.

        A sender that finds its connection closed opens a new one before it sends, and the successor accepts that.
        """
        receivers = services.receivers
        receivers.in_hand.mark_server_as_leaving()
        calls = None if self._grpc is None else asyncio.create_task(self._grpc.stop(LEAVE_S))
        await asyncio.sleep(SETTLE_S)
        for _ in range(int(LEAVE_S / LOOK_S)):
            if not receivers.connections.count:
                break
            await asyncio.sleep(LOOK_S)
        if calls is not None:
            await calls


class StartWaitListeners:
    """Listeners on every address of a server that answer 503. Call `start` and `stop` once each."""

    def __init__(
        self,
        server: ServerSettings,
        clock: Clock,
        reason: str,
        sockets: ListeningSockets,
        *,
        takes_grpc: bool,
    ) -> None:
        self._server = server
        self._certificate = Certificate.from_settings(server)
        self._clock = clock
        self._stack = AsyncExitStack()
        self._sockets = sockets
        self._takes_grpc = takes_grpc
        self._reason = reason
        self._refusal = Refusal(
            503,
            "starting",
            f"Tollhouse is starting and stored nothing: {reason}. Send the request again later.",
            retry_after_s=REPEAT_AFTER_S,
        )

    async def start(self) -> ServerSettings:
        """
        Listen. Return the settings with the ports that the system chose, so that the server later gets
        the same ports.
        """
        server = self._server
        certificate = self._certificate
        try:
            operator_address = operator_listen_address(server)
            public = await self._listen_and_refuse(
                HTTP, server.listen, certificate, shows_reason=operator_address is None
            )
            server = replace(server, listen=public)
            if operator_address is not None:
                private = certificate if uses_tls(server, operator_address) else None
                operator_address = await self._listen_and_refuse(
                    OPERATOR, operator_address, private, shows_reason=True
                )
                server = replace(server, operator_listen=operator_address)
            if server.metrics_listen:
                private = certificate if uses_tls(server, server.metrics_listen) else None
                figures = await self._listen_and_refuse(
                    METRICS, server.metrics_listen, private, shows_reason=False
                )
                server = replace(server, metrics_listen=figures)
            if server.grpc_listen and self._takes_grpc:
                from gateway.operations.receivers.otlp_grpc import GrpcServer, refusing_handlers

                grpc = GrpcServer(
                    refusing_handlers(self._refusal, GRPC_SERVICES),
                    max_bytes=server.max_body_bytes,
                    max_connections=connection_limit(server),
                )
                self._stack.push_async_callback(grpc.stop, 0.0)
                await grpc.start(server.grpc_listen, certificate)
                server = replace(server, grpc_listen=grpc.address)
        except BaseException:
            await self.stop()
            raise
        return server

    async def stop(self) -> None:
        await self._stack.aclose()

    async def _listen_and_refuse(
        self, name: str, address: str, certificate: Certificate | None, *, shows_reason: bool
    ) -> str:
        shown = self._reason if shows_reason else None
        application = refusing_application(self._refusal, self._clock, shown_reason=shown)
        connections = OpenConnections(connection_limit(self._server))
        listener = Listener(application, certificate=certificate, connections=connections)
        self._stack.push_async_callback(listener.stop)
        await listener.start(address, self._sockets.find(name))
        return listener.address
