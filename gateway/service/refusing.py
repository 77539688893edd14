"""The listeners of a start that waits for room on the disk: senders are told to repeat, probes are told why."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from gateway.http.listening.connections import Connections, connection_limit
from gateway.http.listening.listener import Listener, operator_listen, uses_tls
from gateway.http.listening.sockets import HTTP, METRICS, OPERATOR, ListeningSockets
from gateway.http.listening.tls import Certificate
from gateway.intake.receivers.otlp_grpc import GrpcServer, refusals
from gateway.service.addresses.application import refusing_application
from gateway.service.addresses.areas import GRPC_SERVICES
from gateway.service.configuration.sections import ServerSettings
from gateway.service.errors import Refusal
from spool.clock import Clock

REPEAT_AFTER_S = 5


class RefusingListeners:
    """Every address of a server, answered with 503. `start` and `stop` once each."""

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
        self._certificate = Certificate.of(server)
        self._clock = clock
        self._stack = AsyncExitStack()
        self._sockets = sockets
        self._takes_grpc = takes_grpc
        self._reason = reason
        self._refusal = Refusal(503, "starting", f"Nothing was kept: {reason}.", retry_after_s=REPEAT_AFTER_S)

    async def start(self) -> ServerSettings:
        """Listen; the settings with the ports that were chosen, so that the server behind it gets the same."""
        server = self._server
        certificate = self._certificate
        try:
            operator_address = operator_listen(server)
            public = await self._listen(
                HTTP, server.listen, certificate, shows_reason=operator_address is None
            )
            server = replace(server, listen=public)
            if operator_address is not None:
                private = certificate if uses_tls(server, operator_address) else None
                operator_address = await self._listen(OPERATOR, operator_address, private, shows_reason=True)
                server = replace(server, operator_listen=operator_address)
            if server.metrics_listen:
                private = certificate if uses_tls(server, server.metrics_listen) else None
                figures = await self._listen(METRICS, server.metrics_listen, private, shows_reason=False)
                server = replace(server, metrics_listen=figures)
            if server.grpc_listen and self._takes_grpc:
                grpc = GrpcServer(
                    refusals(self._refusal, GRPC_SERVICES),
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

    async def _listen(
        self, name: str, address: str, certificate: Certificate | None, *, shows_reason: bool
    ) -> str:
        shown = self._reason if shows_reason else None
        application = refusing_application(self._refusal, self._clock, shown_reason=shown)
        connections = Connections(connection_limit(self._server))
        listener = Listener(application, certificate=certificate, connections=connections)
        self._stack.push_async_callback(listener.stop)
        await listener.start(address, self._sockets.find(name))
        return listener.address
