"""
The handover of a server's listening sockets to its successor, so that no connection is refused.

Both processes share the sockets. A connection that waits in a socket belongs to neither; the process that accepts
next gets it. Opening the sockets again with SO_REUSEPORT would not work, because Linux resets the connections that
wait in a listening socket when it is closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.http.listening.sockets import ListeningSockets
from gateway.operations.requests.socket import MAX_PATH_BYTES, SocketFile
from spool.loops import repeat

FILE = "handover.sock"
ANSWER_S = 30.0  # maximum seconds between the successor's two messages
MAX_MESSAGE = 4096
_TAKE, _GO = b"take", b"go"

_log = logging.getLogger(__name__)


class ListenerHandover:
    """
    The running server's side of the handover: a socket in the data directory that only the directory's
    owner may open.

    `sockets` are the listening sockets by name, and `grpc` is the gRPC address. The successor sets `asked`
    when it is ready. Then this server stops.
    """

    def __init__(self, directory: Path, sockets: Callable[[], Mapping[str, int]], grpc: str) -> None:
        self._directory = directory
        self._sockets = sockets
        self._grpc = grpc
        self._listener: socket.socket | None = None
        self._file: SocketFile | None = None
        self._task: asyncio.Task[None] | None = None
        self.asked = asyncio.Event()

    def start(self) -> None:
        """
        Listen on the socket, after deleting the socket file that a killed process left. Do nothing on
        Windows, where Python has no such sockets.
        """
        if sys.platform == "win32":
            return
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._directory / FILE
        path.unlink(missing_ok=True)
        with _socket_address(self._directory) as address:
            listener.bind(address)
        self._file = SocketFile(path)
        path.chmod(0o600)
        listener.listen()
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept_successors(listener), name="hand-over")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        if self._file is not None:
            self._file.remove()

    async def _accept_successors(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        async def accept_successor() -> None:
            connection, _ = await loop.sock_accept(listener)
            with connection:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await self._hand_over_sockets(connection)
                except OSError as error:  # TimeoutError is a subclass of OSError
                    _log.warning(
                        "the handover to another process failed: %s",
                        error,
                        extra={"action": "handover_ended"},
                    )

        await repeat(
            accept_successor,
            every_s=0.0,
            failed="the handover to another process failed",
            action="handover_ended",
            retry_s=ANSWER_S,
        )

    async def _hand_over_sockets(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if await loop.sock_recv(connection, MAX_MESSAGE) != _TAKE:
            return
        sockets = self._sockets()
        message = json.dumps({"sockets": list(sockets), "grpc": self._grpc}).encode()
        if sys.platform != "win32":  # on Windows, nothing listens on this socket
            socket.send_fds(connection, [message], list(sockets.values()))
        if await loop.sock_recv(connection, MAX_MESSAGE) == _GO:
            _log.info("another process takes over", extra={"action": "handed_over"})
            self.asked.set()


class Predecessor:
    """The server from which this process takes over. It runs unchanged until this process calls `let_server_stop`."""

    def __init__(self, connection: socket.socket, sockets: ListeningSockets, grpc: str) -> None:
        self._connection = connection
        self.sockets = sockets
        self.grpc = grpc

    @classmethod
    def request_sockets(cls, directory: Path) -> Predecessor | None:
        """
        Request the sockets of the running server. Return None if no server runs on the directory. Blocks.

        Raises OSError if the server ends or does not respond.
        """
        if sys.platform == "win32":
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ANSWER_S)
        try:
            with _socket_address(directory) as address:
                connection.connect(address)
            connection.sendall(_TAKE)
            message, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 8)
            if not message:
                raise ConnectionResetError(
                    "the old server on this data directory ended before it handed over to this one; "
                    "start Tollhouse again"
                )
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        description = json.loads(message)
        sockets = [socket.socket(fileno=number) for number in descriptors]
        return cls(
            connection,
            ListeningSockets(dict(zip(description["sockets"], sockets, strict=True))),
            description["grpc"],
        )

    def let_server_stop(self) -> None:
        """Let the server stop. If it was killed meanwhile, this process already owns the data directory."""
        with self._connection:
            try:
                self._connection.sendall(_GO)
            except OSError as error:
                _log.warning(
                    "the previous server has already ended: %s", error, extra={"action": "predecessor_gone"}
                )


@contextmanager
def _socket_address(directory: Path) -> Iterator[str]:
    """
    Yield the socket's address. If its path is too long for a socket address, the address uses a path through
    the open directory.
    """
    path = str((directory / FILE).absolute())
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/{FILE}"
    finally:
        with suppress(OSError):
            os.close(descriptor)
