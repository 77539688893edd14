"""
The loop of a worker process. It does one job after another, until the server closes the socket.

A worker has no secrets and writes no files. An error of a job states its type, never payload data.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.intake.workers import jobs
from gateway.intake.workers.messages import HEAD, MessageKind, WorkerMessage, messages_of
from gateway.normalise.outcome import Options
from gateway.service.errors import Refusal

# maximum delay in seconds of a result, so that results of small jobs are sent together
JOINED_S: Final = 0.001
JOINED_BYTES: Final = 256 * 1024
LONG_JOB: Final = 32 * 1024  # before a job of at least this number of bytes, the waiting results are sent
TURN_S: Final = 1.0  # a long job reports at this interval, in seconds, that it is still running

Encode = Callable[[bytes], Sequence[bytes]]


class ServerGone(Exception):
    """The server closed the socket."""


class Link:
    """The worker's end of the socket. Results may wait for further results. `flush` sends them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._input = select.poll()
        self._input.register(connection, select.POLLIN)
        self._put_back: deque[WorkerMessage] = deque()
        self._answers: list[bytes] = []
        self._bytes = 0
        self._since = 0.0
        self.sent_at = 0.0

    def receive(self) -> WorkerMessage:
        """Return the next message. Raises ServerGone when the server closes the socket."""
        return self._put_back.popleft() if self._put_back else self._read()

    def answer_to_hold(self) -> bool:
        """
        Read messages until the server answers a HOLD message. Return whether the job may continue. Jobs that
        arrive in the meantime wait.
        """
        self.flush()
        while (message := self._read()).kind not in (MessageKind.GO_ON, MessageKind.GIVE_UP):
            self._put_back.append(message)
        return message.kind == MessageKind.GO_ON

    def send(self, kind: MessageKind, job: int, *payload: bytes) -> None:
        now = time.monotonic()
        if not self._answers:
            self._since = now
        size = sum(map(len, payload))
        self._answers += (HEAD.pack(size, kind, job), *payload)
        self._bytes += size
        if self._bytes >= JOINED_BYTES or now - self._since >= JOINED_S or not self._has_input():
            self.flush()

    def flush(self) -> None:
        if not self._answers:
            return
        answers, self._answers, self._bytes = b"".join(self._answers), [], 0
        try:
            self._socket.sendall(answers)
        except OSError as error:
            raise ServerGone from error
        self.sent_at = time.monotonic()

    def _has_input(self) -> bool:
        return bool(self._put_back or self._input.poll(0))

    def _read(self) -> WorkerMessage:
        size, kind, job = HEAD.unpack(self._exactly(HEAD.size))
        return WorkerMessage(kind, job, self._exactly(size) if size else b"")

    def _exactly(self, size: int) -> bytes:
        """Read exactly `size` bytes. Usually one system call returns all of them, without a copy."""
        pieces = []
        while size:
            try:
                piece = self._socket.recv(size, socket.MSG_WAITALL)
            except OSError as error:
                raise ServerGone from error
            if not piece:
                raise ServerGone
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def serve(link: Link, encode: Encode) -> None:
    """
    Do jobs until the server closes the socket. MemoryError ends the process, and the server treats it as dead.
    """
    # ServerGone may occur even before the first job, because a server may stop while its workers start
    with suppress(ServerGone):
        _do_jobs(link, encode)


def _do_jobs(link: Link, encode: Encode) -> None:
    options, reader = Options(), ""
    link.send(MessageKind.READY, 0)
    while True:
        message = link.receive()
        if len(message.payload) >= LONG_JOB:
            link.flush()
        if message.kind == MessageKind.OPTIONS:
            options = jobs.unpacked_options(message.payload)
        elif message.kind == MessageKind.READER:
            reader = message.payload.decode()
        elif message.kind == MessageKind.DECODE:
            number = message.job
            body = jobs.SentBody(reader, message.payload)
            del message
            _decode(link, number, body, options)
            del body
        else:
            _encode(link, message, encode)


def _decode(link: Link, number: int, body: jobs.SentBody, options: Options) -> None:
    try:
        reported_bytes: list[int] = []
        work = body.normalise(options, reported_bytes.append)
        while True:
            try:
                next(work)
            except StopIteration as done:
                normalised = done.value
                break
            if reported_bytes:
                link.send(MessageKind.HOLD, number, sum(reported_bytes).to_bytes(8, "little"))
                reported_bytes.clear()
                if not link.answer_to_hold():
                    link.send(MessageKind.GIVEN_UP, number)
                    return
            elif time.monotonic() - link.sent_at > TURN_S:
                link.send(MessageKind.TURN, number)
                link.flush()
        for kind, payload in messages_of(normalised, sum(reported_bytes)):
            link.send(kind, number, payload)
    except Refusal as refusal:
        link.send(MessageKind.REFUSED, number, jobs.packed_refusal(refusal))
    except (ServerGone, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - the server does the job itself, and logs what is wrong
        link.send(MessageKind.FAILED, number, type(error).__name__.encode())


def _encode(link: Link, message: WorkerMessage, encode: Encode) -> None:
    try:
        link.send(MessageKind.DONE, message.job, *encode(message.payload))
    except (ServerGone, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - as above
        link.send(MessageKind.FAILED, message.job, type(error).__name__.encode())
