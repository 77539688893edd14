"""The listeners of a start that waits for room on the disk: senders are told to repeat, probes are told why."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from gateway.addresses.application import refusing_application
from gateway.addresses.telemetry import GRPC_SERVICES
from gateway.configuration.sections import ServerSettings
from gateway.errors import Refusal
from gateway.http.connections import Connections, connection_limit
from gateway.http.listener import Listener, operator_listen, tls_context
from gateway.receivers.otlp_grpc import GrpcServer, refusals
from spool.clock import Clock

REPEAT_AFTER_S = 5


class RefusingListeners:
    """Every address of a server, answered with 503. `start` and `stop` once each."""

    def __init__(self, server: ServerSettings, clock: Clock, reason: str) -> None:
        self._server = server
        self._clock = clock
        self._stack = AsyncExitStack()
        self._reason = reason
        self._refusal = Refusal(503, "starting", f"Nothing was kept: {reason}.", retry_after_s=REPEAT_AFTER_S)

    async def start(self) -> ServerSettings:
        """Listen; the settings with the ports that were chosen, so that the server behind it gets the same."""
        server = self._server
        try:
            operator_address = operator_listen(server)
            public = await self._listen(server, server.listen, shows_reason=operator_address is None)
            server = replace(server, listen=public)
            if operator_address is not None:
                private = replace(server, tls_cert_file=None)
                server = replace(
                    server, operator_listen=await self._listen(private, operator_address, shows_reason=True)
                )
            if server.grpc_listen:
                grpc = GrpcServer(
                    refusals(self._refusal, GRPC_SERVICES),
                    max_bytes=server.max_body_bytes,
                    max_connections=connection_limit(server),
                )
                self._stack.push_async_callback(grpc.stop, 0.0)
                await grpc.start(server)
                server = replace(server, grpc_listen=grpc.address)
        except BaseException:
            await self.stop()
            raise
        return server

    async def stop(self) -> None:
        await self._stack.aclose()

    async def _listen(self, server: ServerSettings, address: str, *, shows_reason: bool) -> str:
        shown = self._reason if shows_reason else None
        application = refusing_application(self._refusal, self._clock, shown_reason=shown)
        listener = Listener(application, tls=tls_context(server), connections=Connections(connection_limit(server)))
        self._stack.push_async_callback(listener.stop)
        await listener.start(address)
        return listener.address
