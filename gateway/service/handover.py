"""
A server gives its listening sockets to the process that takes over from it, so that no connection is refused.

Both sides share the sockets: connections that wait in them belong to neither, and are accepted by whoever
comes next. That is why they are passed on, and not opened a second time with SO_REUSEPORT: Linux resets what
waits in a listening socket that is closed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.http.listening.sockets import ListeningSockets
from gateway.http.operator.socket import MAX_PATH_BYTES, SocketFile

FILE = "handover.sock"
ANSWER_S = 30.0  # between the two words of the process that takes over
MAX_MESSAGE = 4096
_TAKE, _GO = b"take", b"go"

_log = logging.getLogger(__name__)


class HandOver:
    """
    The side of the running server, on a socket in its data directory that its owner alone may open.

    `sockets` are its listening sockets by name, `grpc` is its gRPC address. `asked` is set when the other
    process is ready to follow: then this one stops.
    """

    def __init__(self, directory: Path, sockets: Callable[[], Mapping[str, int]], grpc: str) -> None:
        self._directory = directory
        self._sockets = sockets
        self._grpc = grpc
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file: SocketFile | None = None
        self._task: asyncio.Task[None] | None = None
        self.asked = asyncio.Event()

    def start(self) -> None:
        """Remove what a killed process left behind, and listen."""
        path = self._directory / FILE
        path.unlink(missing_ok=True)
        with _address(self._directory) as address:
            self._listener.bind(address)
        self._file = SocketFile(path)
        path.chmod(0o600)
        self._listener.listen()
        self._listener.setblocking(False)
        self._task = asyncio.create_task(self._serve(), name="hand-over")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._listener.close()
        if self._file is not None:
            self._file.remove()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            with connection:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await self._give(connection)
                except OSError as error:  # TimeoutError is one
                    _log.warning("nobody took over: %s", error, extra={"action": "handover_ended"})

    async def _give(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if await loop.sock_recv(connection, MAX_MESSAGE) != _TAKE:
            return
        sockets = self._sockets()
        message = json.dumps({"sockets": list(sockets), "grpc": self._grpc}).encode()
        socket.send_fds(connection, [message], list(sockets.values()))
        if await loop.sock_recv(connection, MAX_MESSAGE) == _GO:
            _log.info("another process takes over", extra={"action": "handed_over"})
            self.asked.set()


class Predecessor:
    """The server that this process takes over from. It goes on as it was until `go`."""

    def __init__(self, connection: socket.socket, sockets: ListeningSockets, grpc: str) -> None:
        self._connection = connection
        self.sockets = sockets
        self.grpc = grpc

    @classmethod
    def ask(cls, directory: Path) -> Predecessor | None:
        """None when no server runs on the directory; OSError when it ends or does not answer. Blocks until then."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ANSWER_S)
        try:
            with _address(directory) as address:
                connection.connect(address)
            connection.sendall(_TAKE)
            message, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE, 8)
            if not message:
                raise ConnectionResetError(
                    "the server on this data directory ended before it answered: start again"
                )
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        told = json.loads(message)
        sockets = [socket.socket(fileno=number) for number in descriptors]
        return cls(
            connection, ListeningSockets(dict(zip(told["sockets"], sockets, strict=True))), told["grpc"]
        )

    def go(self) -> None:
        """Let it stop. One that was killed meanwhile has left the data directory to this process."""
        with self._connection:
            try:
                self._connection.sendall(_GO)
            except OSError as error:
                _log.warning(
                    "the server before this one has gone: %s", error, extra={"action": "predecessor_gone"}
                )


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The socket's address; by way of the open directory where the path is longer than an address may be."""
    path = str((directory / FILE).absolute())
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{FILE}"
    finally:
        with suppress(OSError):
            os.close(descriptor)
