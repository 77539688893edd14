"""
How operator commands reach the operator API: on the running server's socket, or, when no server runs, on a
temporary socket over the data directory. In both cases the command speaks HTTP.
"""

from __future__ import annotations

import asyncio
import functools
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
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import click
import orjson
from yarl import URL

from gateway.cli import config_option, data_option, fail
from gateway.cli.data_directory import installation
from gateway.cli.output import JsonObject
from gateway.service.configuration.local_operator import AS_ENV, local_address
from gateway.service.configuration.sections import Config, ConfigError
from gateway.service.mounts import AS, OPERATOR_API, socket_path
from spool.errors import SpoolError, SpoolLocked

T = TypeVar("T")

PATIENCE_S = 5.0
# for the data directory: a server that stops has it for half a minute, other commands for some seconds
TURN_S = 40.0
SILENCE_S = 60.0  # of an event stream, which says something every 15 s
ANSWER_S = 600.0  # a recount of a large spool takes minutes
RETRY_EVERY_S = 0.1
OPENED = "opened"
WRONG_USE = (400, 404, 409, 422)


@dataclass(frozen=True)
class OpenDirectory:
    """A data directory that is open for many calls: its socket, and the event loop on which it is open."""

    socket: Path
    runner: asyncio.Runner


@dataclass(frozen=True)
class OperatorClient:
    """Calls the operator API of one data directory in the name of one person."""

    config: Config
    actor: str
    has_file: bool = False  # `config` was read from a file, so the routes that it does not name are orphaned
    opened: OpenDirectory | None = None  # see `staying_open`

    def request(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> JsonObject:
        """Call the operator API once. The command ends if it is refused or not answered."""
        status, payload = self.answer(method, path, body=body, query=query)
        if status >= 400:
            refuse(status, payload)
        return payload

    def answer(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, JsonObject]:
        """Ask as `request` does, and return the status of a refusal, too."""
        return self._answered(self.ask(method, path, body=body, query=query))

    @contextmanager
    def staying_open(self) -> Iterator[OperatorClient]:
        """
        A client for many calls: a data directory without a server is opened once for all of them.

        To open it reads what was kept in the last days, which takes longer than most answers.
        """
        with asyncio.Runner() as runner:
            if runner.run(_running(self.config.data_dir)) is not None:
                yield self
                return
            stack = AsyncExitStack()
            reached = stack.enter_async_context(self._reached())
            opened = OpenDirectory(_answered(reached, runner), runner)
            try:
                yield replace(self, opened=opened)
            finally:
                runner.run(stack.aclose())

    def _answered(self, call: Coroutine[Any, Any, T]) -> T:
        return _answered(call, None if self.opened is None else self.opened.runner)

    def _reached(self) -> AbstractAsyncContextManager[Path]:
        if self.opened is not None:
            return nullcontext(self.opened.socket)
        return _socket(self.config, names_routes=self.has_file)

    async def ask_running(self, path: str) -> JsonObject:
        """Return what a server that runs here answers; nothing if none does. No storage is opened."""
        if await _running(self.config.data_dir) is None:
            return {}
        try:
            status, payload = await self.ask("GET", path)
        except (ConfigError, SpoolError, OSError, aiohttp.ClientError):
            return {}
        return payload if status < 400 else {}

    def copy(self, path: str, query: Sequence[tuple[str, str]], to: BinaryIO) -> Mapping[str, str]:
        """Write what a call answers as it comes; its headers. The command ends when it is refused or not answered."""
        return self._answered(self._copy(path, query, to))

    async def ask(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, JsonObject]:
        """The status and the answer of one call. ConfigError, SpoolError, OSError or ClientError without one."""
        headers = self._headers
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else orjson.dumps(body)
        async with self._asked(method, path, query, headers, data) as response:
            return response.status, orjson.loads(await response.read())

    async def _copy(self, path: str, query: Sequence[tuple[str, str]], to: BinaryIO) -> Mapping[str, str]:
        async with self._asked("GET", path, query, self._headers, None) as response:
            if response.status >= 400:
                refuse(response.status, orjson.loads(await response.read()))
            async for piece in response.content.iter_any():
                to.write(piece)
            to.flush()
            return dict(response.headers)

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        headers: dict[str, str],
        data: bytes | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        parameters = f"?{urlencode(query)}" if query else ""
        url = URL(f"http://tollhouse{OPERATOR_API}{path}{parameters}", encoded=True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=PATIENCE_S)
        async with (
            self._reached() as socket,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as session,
            session.request(method, url, headers=headers, data=data) as response,
        ):
            yield response

    def require_server(self) -> None:
        """The command ends if no server runs over the data directory."""
        asyncio.run(self._server())

    async def _server(self) -> Path:
        socket = await _running(self.config.data_dir)
        if socket is None:
            fail(
                f"no server runs over {self.config.data_dir}: start one with tollhouse serve, or name "
                "another --data"
            )
        return socket

    async def events(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[tuple[str, Any]]:
        """
        The events of a stream of the running server, each with its data; OPENED is the first, when it has begun.

        The command ends when the stream is refused.
        """
        socket = await self._server()
        url = URL(f"http://tollhouse{OPERATOR_API}{path}?{urlencode(query)}", encoded=True)
        timeout = aiohttp.ClientTimeout(sock_connect=PATIENCE_S, sock_read=SILENCE_S)
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as session,
            session.get(url, headers=self._headers) as response,
        ):
            if response.status >= 400:
                refuse(response.status, orjson.loads(await response.read()))
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
        return {AS: quote(self.actor)}


def refuse(status: int, payload: JsonObject) -> NoReturn:
    """End the command as a refusal says."""
    fail(payload["error"]["message"], 2 if status in WRONG_USE else 1)


def _answered(call: Coroutine[Any, Any, T], runner: asyncio.Runner | None) -> T:
    """Run a call and return its answer, or end the command with the error."""
    try:
        return asyncio.run(call) if runner is None else runner.run(call)
    except ConfigError as error:
        fail("; ".join(error.problems), 2)
    except TimeoutError:
        fail(f"Tollhouse did not answer within {ANSWER_S:.0f} s; look at its log and at /livez")
    except (SpoolError, OSError) as error:
        fail(str(error))
    except aiohttp.ClientError as error:
        fail(f"Tollhouse did not answer ({error}); try again")


@asynccontextmanager
async def _socket(config: Config, *, names_routes: bool) -> AsyncIterator[Path]:
    """
    A socket with the operator API: that of a server that answers, else one over the data directory.

    The lock of the data directory says whether a server runs; while one starts or stops, or another command
    has it, this waits for TURN_S.
    """
    deadline = time.monotonic() + TURN_S
    while True:
        running = await _running(config.data_dir)
        if running is not None:
            yield running
            return
        from gateway.service.offline import (
            open_offline,  # the whole operator API: its import takes longer than a call
        )

        with suppress(SpoolLocked):  # a server begins or ends there
            async with open_offline(
                config, version=version("tollhouse"), names_routes=names_routes
            ) as socket:
                yield socket
                return
        if time.monotonic() > deadline:
            fail("Tollhouse is starting or stopping, or too busy to answer; look at its log")
        await asyncio.sleep(RETRY_EVERY_S)


async def _running(data_dir: Path) -> Path | None:
    """
    The socket of the server over a data directory; None if nobody answers on it.

    A server without a free descriptor accepts nobody, and a connection to it waits for ever.
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
    except OSError:  # TimeoutError is one
        return None


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command its `client` from --data, --config and --as."""

    @data_option
    @config_option
    @click.option(
        "--as",
        "asking",
        metavar="EMAIL",
        help=f"Who asks, for the audit list; default: {AS_ENV}, `operators.local`, or USER@HOSTNAME.",
    )
    @functools.wraps(command)
    def prepared(*, data: Path | None, config: Path | None, asking: str | None, **rest: object) -> None:
        settings = installation(config, data)
        command(
            OperatorClient(settings, asking or local_address(settings), has_file=config is not None), **rest
        )

    return prepared


def part(name: str) -> str:
    """Returns a name quoted as one part of a path."""
    return quote(name, safe="")
