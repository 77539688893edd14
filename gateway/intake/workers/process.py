"""
A worker process as the server sees it. The process gets only the environment variables that are needed to
find its modules.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gateway.intake.workers.messages import HEAD, MessageKind, MessageReader, WorkerMessage

READ_BYTES: Final = 256 * 1024
WRITE_BYTES: Final = 1024 * 1024  # limit of bytes to write per turn of the event loop
MOST_PIECES: Final = 512  # limit of buffers to write per system call
END_S: Final = 2.0  # seconds that a worker has to exit after its socket is closed

# The only environment variables that a worker gets, because any other may contain a key or a secret.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_KEPT_BEGINNING = "PYTHON"


def environment(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name in _KEPT or name.startswith(_KEPT_BEGINNING)}


class Child(Protocol):
    """A process with the interface of subprocess.Popen."""

    pid: int

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


StartChild = Callable[[socket.socket], Child]


def starter(*command: str) -> StartChild:
    """
    Return a function that starts this interpreter with `command`. `{socket}` is replaced by
    the socket's descriptor.
    """

    def start(theirs: socket.socket) -> subprocess.Popen[bytes]:
        number = theirs.fileno()
        return subprocess.Popen(
            [sys.executable, "-P", *(word.format(socket=number) for word in command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
            env=environment(os.environ),
        )

    return start


class WorkerProcess:
    """
    A process and its socket. `take` gets each message. `ended` is set when no further message can arrive.
    """

    def __init__(self, start: StartChild, take: Callable[[WorkerMessage], None]) -> None:
        """Start the process. Raises OSError if the machine cannot start it."""
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._reader = MessageReader()
        self._out: deque[memoryview | bytes] = deque()
        self._is_writing = False
        self.ended = asyncio.Event()
        self._socket, worker_socket = socket.socketpair()
        with worker_socket:
            self._socket.setblocking(False)
            try:
                # Start it on the event loop's own thread, because the worker ends when the thread that
                # started it ends.
                self._process = start(worker_socket)
            except BaseException:
                self._socket.close()
                raise
        self.pid = self._process.pid
        self._loop.add_reader(self._socket, self._read)

    def send(self, kind: MessageKind, job: int, *payload: bytes) -> None:
        """Queue a message. Messages of one turn of the event loop are sent together."""
        if self.ended.is_set():
            return
        self._out += (HEAD.pack(sum(map(len, payload)), kind, job), *payload)
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._write)

    def kill(self) -> None:
        """Kill the process and set `ended`."""
        self._process.kill()
        self._end()

    async def close(self) -> None:
        """Close the socket, wait for the process to exit, and kill it after END_S."""
        self._end()
        try:
            await asyncio.to_thread(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def _end(self) -> None:
        if not self.ended.is_set():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._out.clear()
            self.ended.set()

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        for message in self._reader.feed(data):
            self._take(message)

    def _write(self) -> None:
        written = 0
        while self._out and written < WRITE_BYTES:
            pieces = [self._out[index] for index in range(min(len(self._out), MOST_PIECES))]
            try:
                sent = self._socket.sendmsg(pieces)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # the process has ended, and the reader of the socket notices that as well
                self._out.clear()
                break
            written += sent
            self._drop(sent)
        if self._out and not self.ended.is_set():
            self._loop.add_writer(self._socket, self._write)
        else:
            self._is_writing = False
            if not self.ended.is_set():
                self._loop.remove_writer(self._socket)

    def _drop(self, sent: int) -> None:
        """Remove the first `sent` bytes from the output queue."""
        out = self._out
        while sent:
            first = out.popleft()
            if len(first) > sent:
                out.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)
        while out and not len(out[0]):
            out.popleft()
