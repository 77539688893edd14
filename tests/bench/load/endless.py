"""
Connections that send the same bytes for ever, as fast as the server reads, and begin again when they are closed.

`python -m tests.bench.load.endless` reads a LoadJob from standard input, and writes LoadFigures at the end. `sent`
counts connections, `accepted` pieces of PIECE_BYTES, and `broken` connections that the server closed.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from urllib.parse import urlsplit

from tests.bench.load.job import LoadFigures, LoadJob

PIECE_BYTES = 2**18
READ_BYTES = 2**16


class EndlessSender:
    """One connection at a time. It reads and ignores all answers."""

    def __init__(self, job: LoadJob, figures: LoadFigures) -> None:
        target = urlsplit(job.url if "//" in job.url else f"//{job.url}")
        assert target.hostname is not None
        assert target.port is not None
        self._address = (target.hostname, target.port)
        head = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": target.netloc, **job.headers}.items()
        )
        self._opening = job.body(0)
        if job.path:
            self._opening = f"{job.method} {job.path} HTTP/1.1\r\n{head}\r\n".encode() + self._opening
        repeated = job.repeated_bytes()
        self._piece = repeated * (PIECE_BYTES // len(repeated))
        self._figures = figures
        self.begin()

    def begin(self) -> None:
        self.socket = socket.create_connection(self._address)
        self.socket.setblocking(False)
        self._unsent = memoryview(self._opening)
        self._figures.sent += 1

    def send(self) -> None:
        self._unsent = self._unsent[self.socket.send(self._unsent) :]
        if not self._unsent:
            self._unsent = memoryview(self._piece)
            self._figures.accepted += 1

    def receive(self) -> None:
        if not self.socket.recv(READ_BYTES):
            raise ConnectionResetError


def run(job: LoadJob) -> LoadFigures:
    """Send over all connections until the job's time is over."""
    figures = LoadFigures()
    senders = [EndlessSender(job, figures) for _ in range(job.clients)]
    began = time.perf_counter()
    while time.perf_counter() < began + job.seconds:
        sockets = {sender.socket: sender for sender in senders}
        readable, writable, _ = select.select(sockets, sockets, [], 0.1)
        for ready in {*readable, *writable}:
            sender = sockets[ready]
            try:
                if ready in readable:
                    sender.receive()
                if ready in writable:
                    sender.send()
            except OSError:
                figures.broken += 1
                ready.close()
                sender.begin()
    figures.seconds = time.perf_counter() - began
    for sender in senders:
        sender.socket.close()
    return figures


if __name__ == "__main__":
    print(run(LoadJob.from_json(sys.stdin.read())).to_json(), flush=True)
