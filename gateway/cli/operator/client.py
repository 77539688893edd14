"""
The client of the operator API.

It uses the running server's socket. If no server runs, it opens the data directory itself, with a temporary
socket. Either way the command speaks HTTP.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import click
import orjson

from gateway.cli import config_option, data_option, exit_because_of, exit_with_message
from gateway.cli.data_directory import load_config_with_data
from gateway.cli.output import JsonObject
from gateway.configuration.local_operator import AS_ENV, REASON_ENV, local_address
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.core.paths import AS, OPERATOR_API, REASON, socket_path
from spool.errors import SpoolError, SpoolLocked
from spool.printable import replace_unprintable

# aiohttp takes a third of the start of a command, so it is imported when a command sends its request
if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

PATIENCE_S = 5.0
# Seconds to wait for the data directory. A stopping server locks it for up to half a minute, other
# commands for seconds.
TURN_S = 40.0
# seconds without an event after which a stream is broken; a healthy stream sends something every 15 s
SILENCE_S = 60.0
ANSWER_S = 600.0  # seconds to wait for a response; recounting a large queue takes minutes
RETRY_EVERY_S = 0.1
_SHOWN_BYTES = 100  # maximum bytes of a response that is no JSON to show in an error
OPENED = "opened"
WRONG_USE = (400, 404, 409, 422)


@dataclass(frozen=True)
class OpenDataDirectory:
    """
    An opened data directory that serves many requests: its socket, and the event loop that answers on it.
    """

    socket: Path
    runner: asyncio.Runner


@dataclass(frozen=True)
class OperatorClient:
    """A client of the operator API of one data directory, on behalf of one person."""

    config: Config
    actor: str
    # True if `config` was read from a file; only then, a route that `config` does not name is orphaned
    has_file: bool = False
    opened: OpenDataDirectory | None = None
    reason: str = ""  # why the person looks at figures of people

    def request(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> JsonObject:
        """Send one request and return its response. Exits if the request is refused or gets no response."""
        status, payload = self.request_with_status(method, path, body=body, query=query)
        if status >= 400:
            exit_with_error(status, payload)
        return payload

    def request_with_status(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, JsonObject]:
        """Send one request; return its status and response. Exits only if there is no response."""
        return self._run_call(self.send_request(method, path, body=body, query=query))

    @contextmanager
    def client_for_many_requests(self) -> Iterator[OperatorClient]:
        """
        Yield a client for many requests. If no server runs, it opens the data directory once for all of them.

        Opening reads the records of the last days, which takes longer than most requests.
        """
        with asyncio.Runner() as runner:
            if runner.run(_find_server_socket(self.config.data_dir)) is not None:
                yield self
                return
            stack = AsyncExitStack()
            reached = stack.enter_async_context(self._find_or_open_socket())
            opened = OpenDataDirectory(_run_or_exit(reached, runner), runner)
            try:
                yield replace(self, opened=opened)
            finally:
                runner.run(stack.aclose())

    def _run_call(self, call: Coroutine[Any, Any, T]) -> T:
        return _run_or_exit(call, None if self.opened is None else self.opened.runner)

    def _find_or_open_socket(self) -> AbstractAsyncContextManager[Path]:
        if self.opened is not None:
            return nullcontext(self.opened.socket)
        return _find_or_serve_socket(self.config, orphans_unnamed_routes=self.has_file)

    def has_running_server(self) -> bool:
        """Return whether a server runs on the data directory. Never opens the storage."""
        return asyncio.run(_find_server_socket(self.config.data_dir)) is not None

    async def get_from_running_server(self, path: str) -> JsonObject:
        """
        Query the running server. Return {} if no server runs, or if it refuses. Never opens the storage.
        """
        import aiohttp

        if await _find_server_socket(self.config.data_dir) is None:
            return {}
        try:
            status, payload = await self.send_request("GET", path)
        except (ConfigError, SpoolError, OSError, aiohttp.ClientError):
            return {}
        return payload if status < 400 else {}

    def copy_response(
        self, path: str, query: Sequence[tuple[str, str]], target_file: BinaryIO
    ) -> Mapping[str, str]:
        """
        Copy a response body to a file while it arrives, and return the headers. Exits if no response or
        an error arrives.
        """
        return self._run_call(self._copy_response(path, query, target_file))

    async def send_request(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, JsonObject]:
        """
        Send one request, and return its status and response. If `body` is bytes, it is sent as CSV, otherwise
        as JSON.

        Raises ConfigError, SpoolError, OSError or ClientError if there is no response.
        """
        headers = self._headers
        if body is not None:
            headers["Content-Type"] = "text/csv" if isinstance(body, bytes) else "application/json"
        # aiohttp sends a file object in pieces, and warns of large bytes
        data = None if body is None else BytesIO(body if isinstance(body, bytes) else orjson.dumps(body))
        async with self._open_response(method, path, query, headers, data) as response:
            return response.status, _parse_response(response.status, await response.read())

    async def _copy_response(
        self, path: str, query: Sequence[tuple[str, str]], target_file: BinaryIO
    ) -> Mapping[str, str]:
        async with self._open_response("GET", path, query, self._headers, None) as response:
            if response.status >= 400:
                exit_with_error(response.status, _parse_response(response.status, await response.read()))
            async for piece in response.content.iter_any():
                target_file.write(piece)
            target_file.flush()
            return dict(response.headers)

    @asynccontextmanager
    async def _open_response(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        headers: dict[str, str],
        data: BytesIO | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp
        from yarl import URL

        parameters = f"?{urlencode(query)}" if query else ""
        url = URL(f"http://tollhouse{OPERATOR_API}{path}{parameters}", encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE_S, sock_read=ANSWER_S)
        async with (
            self._find_or_open_socket() as socket,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as session,
            session.request(method, url, headers=headers, data=data) as response,
        ):
            yield response

    def require_server(self) -> None:
        asyncio.run(self._find_socket_or_exit())

    async def _find_socket_or_exit(self) -> Path:
        socket = await _find_server_socket(self.config.data_dir)
        if socket is None:
            exit_with_message(
                f"no server uses {self.config.data_dir}; start one with `tollhouse serve`, or name "
                "another directory with --data"
            )
        return socket

    async def stream_events(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[tuple[str, Any]]:
        """
        Yield the events of a stream with their data, beginning with OPENED once the stream is accepted.

        Exits if the stream is refused.
        """
        import aiohttp
        from yarl import URL

        socket = await self._find_socket_or_exit()
        url = URL(f"http://tollhouse{OPERATOR_API}{path}?{urlencode(query)}", encoded=True)
        timeout = aiohttp.ClientTimeout(sock_connect=PATIENCE_S, sock_read=SILENCE_S)
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as session,
            session.get(url, headers=self._headers) as response,
        ):
            if response.status >= 400:
                exit_with_error(response.status, _parse_response(response.status, await response.read()))
            yield OPENED, None
            name = ""
            async for line in response.content:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, orjson.loads(value)

    @property
    def _headers(self) -> dict[str, str]:
        reason = self.reason or os.environ.get(REASON_ENV, "")
        return {AS: quote(self.actor), **({REASON: quote(reason)} if reason else {})}


def exit_with_error(status: int, payload: JsonObject) -> NoReturn:
    """Exit with the message of an error response, with code 2 if the same command cannot succeed."""
    exit_with_message(payload["error"]["message"], 2 if status in WRONG_USE else 1)


def _parse_response(status: int, body: bytes) -> JsonObject:
    """Return a response. Raises SpoolError if it is no JSON, because another program may answer in its place."""
    try:
        payload: JsonObject = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = replace_unprintable(body[:_SHOWN_BYTES].decode(errors="replace").strip())
        raise SpoolError(f"Tollhouse responded with {status} and no JSON ({text}); see its log") from None
    return payload


def _run_or_exit(call: Coroutine[Any, Any, T], runner: asyncio.Runner | None) -> T:
    import aiohttp

    try:
        return asyncio.run(call) if runner is None else runner.run(call)
    except ConfigError as error:
        exit_with_message("; ".join(error.problems), 2)
    except TimeoutError:
        exit_with_message(f"Tollhouse did not respond within {ANSWER_S:.0f} s; see its log and /livez")
    except (SpoolError, OSError) as error:
        exit_because_of(error)
    except aiohttp.ClientError as error:
        exit_with_message(f"Tollhouse did not respond ({error}); try again")


@asynccontextmanager
async def _find_or_serve_socket(config: Config, *, orphans_unnamed_routes: bool) -> AsyncIterator[Path]:
    """
    Yield a socket with the operator API: the running server's, or one that this process opens.

    Waits up to TURN_S while a server starts or stops, or while another command uses the data directory.
    """
    deadline = time.monotonic() + TURN_S
    while True:
        running = await _find_server_socket(config.data_dir)
        if running is not None:
            yield running
            return
        # imported late, because the import takes longer than a whole request to a server
        from gateway.service.offline import open_offline_operator_socket

        with suppress(SpoolLocked):  # a server is starting or stopping, or another command uses the directory
            async with open_offline_operator_socket(
                config, version=version("tollhouse"), orphans_unnamed_routes=orphans_unnamed_routes
            ) as socket:
                yield socket
                return
        if time.monotonic() > deadline:
            exit_with_message("Tollhouse is starting or stopping, or is too busy to respond; see its log")
        await asyncio.sleep(RETRY_EVERY_S)


async def _find_server_socket(data_dir: Path) -> Path | None:
    """
    Return the socket of the server on a data directory, or None if no server responds there.

    The timeout matters: a server without free descriptors accepts no connection, so the client would wait forever.
    """
    try:
        socket = socket_path(data_dir)
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                return socket if await reader.read(1) else None
            finally:
                writer.close()
    except OSError:  # TimeoutError is a subclass of OSError
        return None


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Add --data, --config, --as and --reason to a command, and pass it a `client` made from them."""

    @data_option
    @config_option
    @click.option(
        "--as",
        "asking",
        metavar="EMAIL",
        help=(
            f"Your name in the audit list; default: ${AS_ENV}, the setting operators.local, or USER@HOSTNAME."
        ),
    )
    @click.option(
        "--reason",
        metavar="TEXT",
        default="",
        help=f"Why you look at figures of people, for the list of who looked; default: ${REASON_ENV}.",
    )
    @functools.wraps(command)
    def run_with_client(
        *, data: Path | None, config: Path | None, asking: str | None, reason: str, **rest: object
    ) -> None:
        settings = load_config_with_data(config, data)
        actor = asking or local_address(settings)
        command(OperatorClient(settings, actor, has_file=config is not None, reason=reason), **rest)

    return run_with_client


def quote_segment(name: str) -> str:
    return quote(name, safe="")
