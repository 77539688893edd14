"""
HTTP listeners: sockets, connections and TLS, without routes.

Requests take turns by party: the network address until the key or person is known.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from aiohttp import web, web_response

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import is_loopback, split_address
from gateway.core.errors import Refusal, error_reason
from gateway.core.rate_limits import address_network
from gateway.http import answers
from gateway.http.listening.connections import OpenConnections
from gateway.http.listening.forwarded import TrustedProxies, with_forwarded_origin
from gateway.http.listening.plain_requests import SERVER, FastPathRequestHandler, Handle, handle_by_exact_path
from gateway.http.listening.tls import Certificate
from spool.turns.fair_turns import FairTurnScheduler, current_work

_log = logging.getLogger(__name__)

MAX_HEADER = 17 * 1024  # a token of a person with 200 groups has 16 KiB
# Seconds for an idle connection, and to receive headers. OpenTelemetry's metric readers export every 60 s.
KEEP_ALIVE_S = 75.0
LINGER_S = 5.0  # seconds in which the rest of a rejected upload is read, so that its sender gets the answer
STOP_S = 2.0  # seconds that each of the two steps of a stop may take, after the requests have finished
# a connection counts only after its handshake
HANDSHAKE_S = 10.0
BACKLOG = 1024
OPERATOR_LISTEN = "127.0.0.1:4319"

# aiohttp would send its own and Python's version, also to strangers
web_response.SERVER_SOFTWARE = SERVER  # type: ignore[attr-defined]

# First bytes of other protocols -> action of the log line, its text, and the text of the answer.
_OTHER_PROTOCOLS = {
    b"PRI * HTTP/2.0": (
        "grpc_on_http_port",
        "gRPC arrived on the HTTP port; send it to server.grpc_listen, or set the sender's protocol to http/protobuf",
        b"This port speaks HTTP/1.1; gRPC has a port of its own",
    ),
    b"\x16\x03": (
        "tls_on_plain_port",
        "TLS arrived on a port without TLS; send to http:// instead of https://, or set server.tls_cert_file",
        b"This port has no TLS: use http:// instead of https://",
    ),
}
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: "
    b"close\r\nRetry-After: 5\r\n"
    b"Content-Length: 99\r\n\r\n"
    b'{"error":{"type":"too_many_connections","message":"There are too many connections; repeat later."}}'
)


class HttpServerConnection(FastPathRequestHandler):
    """
    A connection that counts towards a limit. It answers bytes that are not HTTP/1.1 itself, because aiohttp's
    answer would quote them.
    """

    _first = True
    _is_refused = False

    def __init__(self, server: web.Server, connections: OpenConnections | None, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._connections = connections
        self.address = self.place = ""

    def end(self) -> None:
        self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self.place = address_network(self.address)
        if self._connections is not None and not self._connections.add(self):
            self._is_refused = True
            self._refuse_connection(transport, self._connections.setting)
            return
        super().connection_made(transport)

    def _refuse_connection(self, transport: asyncio.BaseTransport, setting: str) -> None:
        extra = {"action": "connection_refused", "address": self.address}
        _log.warning("there are too many connections (%s)", setting, extra=extra)
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_TOO_MANY)
        transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._is_refused:
            return
        if self._connections is not None:
            self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._connections is not None:
            self._connections.mark_active(self)
        if self._first:
            self._first = False
            for sign, other_protocol in _OTHER_PROTOCOLS.items():
                if data.startswith(sign):
                    self._refuse_protocol(*other_protocol)
                    return
        super().data_received(data)

    def _refuse_protocol(self, action: str, explanation: str, answer: bytes) -> None:
        _log.warning(explanation, extra={"action": action, "address": self.address})
        if self.transport is not None:
            head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            self.transport.write(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Log and answer an error, even if it occurred before a request reached an endpoint."""
        name = type(exc).__name__ if exc else None
        extra = {"action": "bad_request", "status": status, "error": name, "address": request.remote}
        level = logging.ERROR if status >= 500 else logging.WARNING
        _log.log(level, "could not handle a request", extra=extra)
        if request.writer.output_size > 0:
            raise ConnectionError("no error can be sent, because the answer has already begun")
        if status >= 500:
            error = Refusal(
                status, "internal", "Internal error of Tollhouse. The operator finds the details in the log."
            )
        else:
            error = Refusal(status, "bad_request", "This is not an HTTP/1.1 request.")
        response = answers.refusal_response(error)
        response.force_close()
        return response


class Listener:
    """An HTTP server on one address. Call `start` and `stop` once each."""

    def __init__(
        self,
        application: web.Application,
        *,
        certificate: Certificate | None = None,
        connections: OpenConnections | None = None,
        proxies: TrustedProxies | None = None,
        scheduler: FairTurnScheduler | None = None,
    ) -> None:
        """
        Create a listener. Without `connections`, their number is not limited. Without `scheduler`, requests do
        not wait.
        """
        self._turns = scheduler
        self._tls = None if certificate is None else certificate.context
        self._connections = connections
        self._proxies = proxies or TrustedProxies()
        # aiohttp accepts a truncated gzip body; gateway.http.bodies inflates
        self._settings: dict[str, Any] = {
            "auto_decompress": False,
            "access_log": None,
            "keepalive_timeout": KEEP_ALIVE_S,
            "lingering_time": LINGER_S,
            "max_field_size": MAX_HEADER,
        }
        stopping: dict[str, Any] = {"handle_signals": False, "shutdown_timeout": STOP_S}
        self._runner = web.AppRunner(application, **stopping, **self._settings)
        self._server: asyncio.Server | None = None
        self.address = ""
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def start(self, address: str, listening: socket.socket | None = None) -> None:
        """
        Start to listen, on the socket `listening` if given. Raises OSError if the address is in use or not on
        this machine.
        """
        host, port = split_address(address)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        web_server = self._runner.server
        assert web_server is not None
        in_turn: Callable[[Handle], Handle]
        in_turn = (
            _unchanged_handler if self._turns is None else partial(partial, handle_in_turns, self._turns)
        )
        web_server.request_handler = in_turn(
            handle_by_exact_path(self._runner.app, web_server.request_handler)
        )
        web_server.request_factory = with_forwarded_origin(web_server.request_factory, self._proxies)

        def make_connection() -> HttpServerConnection:
            return HttpServerConnection(
                web_server, self._connections, in_turn=in_turn, loop=loop, **self._settings
            )

        try:
            where: dict[str, Any] = {"host": host, "port": port} if listening is None else {"sock": listening}
            self._server = await loop.create_server(
                make_connection,
                **where,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls else None,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error_reason(error)}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = f"{address.rpartition(':')[0]}:{self.port}"

    @property
    def descriptor(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].fileno()

    async def close_listening_socket(self) -> None:
        """Accept no new connections. Open connections continue."""
        if self._server is not None:
            await close_server(self._server)

    async def stop(self) -> None:
        """Close idle connections at once, and others after their request, or after STOP_S."""
        await self.close_listening_socket()
        await self._runner.cleanup()


async def close_server(server: asyncio.Server) -> None:
    """
    Close a server. asyncio loses a connection that it accepts in the turn before `close`: the connection
    stays open, and nothing closes it. So the server stops accepting two turns earlier.
    """
    # event loops on Windows have no readers of sockets, so accepting cannot be paused there
    if sys.platform == "win32":
        server.close()
        return
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(2):
        await asyncio.sleep(0)
    server.close()


def operator_listen_address(server: ServerSettings) -> str | None:
    """
    Return the address of /metrics, the console and the operator API, or None if they share `server.listen`.
    """
    if server.operator_listen:
        return server.operator_listen
    return None if is_loopback(split_address(server.listen)[0]) else OPERATOR_LISTEN


def uses_tls(server: ServerSettings, address: str) -> bool:
    """Return whether an address uses TLS. Loopback does not, because its traffic stays on this machine."""
    return server.tls_cert_file is not None and not is_loopback(split_address(address)[0])


# -- turns ---------------------------------------------------------------------------------------------------


async def handle_in_turns(
    scheduler: FairTurnScheduler, handle: Handle, request: web.Request
) -> web.StreamResponse:
    """
    Handle a request in fair turns. The time of each of its steps is charged to its party: its key, person or
    address.
    """
    connection = request.protocol
    assert isinstance(connection, FastPathRequestHandler)
    with scheduler.new_request(fair_turn_party_of_address(request.remote or "")) as work:
        connection.work = work
        response: web.StreamResponse = await work.run_and_charge_time_to_party(handle(request))
        if work.party is None or scheduler.are_shared:
            await work.wait_for_turn_before_response()
        connection.party, connection.work = work.party, None
        return response


def _unchanged_handler(handle: Handle) -> Handle:
    return handle


@lru_cache(maxsize=4096)  # cached, because every request calls this
def fair_turn_party_of_address(address: str) -> str:
    return f"address {address_network(address)}"


def fair_turn_party_of_key(key_name: str) -> str:
    return f"key {key_name}"


async def wait_for_turn(party: str = "") -> None:
    """
    Wait until it is the turn of the current request, for `party`. Without a party, the network address
    counts.

    Returns at once if the request has already begun, or if the listener has no turns.
    """
    work = current_work()
    if work is not None:
        await work.set_party_and_wait_for_turn(party)
