"""
A cheap load generator: one thread, one epoll, prepared bodies. `python -m tests.bench.load.generator` reads
a LoadJob from standard input, writes a line at the first accepted request, and writes LoadFigures when the
job is done.
"""

from __future__ import annotations

import re
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.bench.load.job import LoadFigures, LoadJob, quantiles

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
AGAIN_S = 0.05  # a client with `repeat` retries after this pause
ANSWERS_S = 60.0  # seconds to wait for the last responses, after the last request
READ_BYTES = 2**16


class LoadClient:
    """One connection with at most one request in flight."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.socket: socket.socket | None = None
        self.request = b""
        self.number = 0  # number of the request in flight
        self.begun = 0.0
        self._unsent = memoryview(b"")
        self._answer = b""

    def connect(self) -> socket.socket:
        self.socket = socket.create_connection(self._address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        return self.socket

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self._answer = b""

    def send(self, request: bytes) -> bool:
        """
        Send the request; return whether the socket accepted all bytes. If not, call `flush` when the
        socket is writable.
        """
        self.request = request
        self._unsent = memoryview(request)
        return self.flush()

    def flush(self) -> bool:
        assert self.socket is not None
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    def receive(self) -> str:
        """
        Return the status of a complete response, or "" before. Raises ConnectionError if the connection ended.
        """
        assert self.socket is not None
        part = self.socket.recv(READ_BYTES)
        if not part:
            raise ConnectionResetError("closed before the answer was complete")
        self._answer += part
        end = self._answer.find(b"\r\n\r\n")
        if end < 0:
            return ""
        found = LENGTH.search(self._answer, 0, end)
        if len(self._answer) < end + 4 + (int(found[1]) if found else 0):
            return ""
        status, self._answer = self._answer[9:12].decode(), b""
        return status


def _head(job: LoadJob, host: str, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{job.method} {job.path} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: ".encode()


class Load:
    """All clients of a load generator's job."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        target = urlsplit(job.url)
        assert target.hostname is not None
        assert target.port is not None
        headers = dict(job.headers)
        if job.compression:
            headers["Content-Encoding"] = job.compression
        keys = [{"Authorization": key} for key in job.keys] or [{}]
        self._heads = [_head(job, target.netloc, headers | key) for key in keys]
        self._poll = select.epoll()
        self._clients = [LoadClient((target.hostname, target.port)) for _ in range(job.clients)]
        self._by_socket: dict[int, LoadClient] = {}
        self._free: deque[LoadClient] = deque()
        # wait before a broken connection is made again: each client with the time at which its pause ends
        self._waiting: deque[tuple[float, LoadClient]] = deque()
        self._next = job.first
        self._latencies: list[float] = []
        self.figures = LoadFigures()

    def run(self) -> LoadFigures:
        """Run the load until its time is over and every request is answered."""
        for client in self._clients:
            self._resume(client)
        began = time.perf_counter()
        end = began + self._job.seconds
        while (now := time.perf_counter()) < end or not self.figures.sent:
            self._send_what_is_due(began, now)
            self._turn(self._pause(began, time.perf_counter()))
        self._finish(time.perf_counter() + ANSWERS_S)
        figures = self.figures
        figures.seconds = time.perf_counter() - began
        figures.cpu_seconds = time.process_time()
        figures.latencies_ms = quantiles(self._latencies)
        return figures

    def _finish(self, deadline: float) -> None:
        while len(self._free) < len(self._clients) and time.perf_counter() < deadline:
            self._turn(0.1)
        self.figures.unanswered = sorted(
            {client.number for client in self._clients} - {one.number for one in self._free}
        )
        for client in self._clients:
            client.close()
        self._poll.close()

    def _pause(self, began: float, now: float) -> float:
        """Return the seconds until the next request is due if a client is free for it."""
        if not self._job.rate or not self._free:
            return 0.1
        return max(0.0, began + (self._next - self._job.first) / self._job.rate - now)

    def _send_what_is_due(self, began: float, now: float) -> None:
        """
        Send the requests that are due. At a fixed rate, a request counts from when it was due, even if it
        waited for a free client.
        """
        while self._free:
            due = now
            if self._job.rate:
                due = began + (self._next - self._job.first) / self._job.rate
                if due > now:
                    return
            client = self._free.popleft()
            client.number = self._next
            body = self._job.compressed(self._next)
            self._next += 1
            client.begun = due if self._job.rate else time.perf_counter()
            self.figures.sent += 1
            head = self._heads[client.number % len(self._heads)]
            self._send(client, b"%b%d\r\n\r\n%b" % (head, len(body), body))

    def _send(self, client: LoadClient, request: bytes) -> None:
        try:
            complete = client.send(request)
        except OSError:
            self._broken(client)
            return
        if not complete:
            assert client.socket is not None
            self._poll.modify(client.socket, select.EPOLLIN | select.EPOLLOUT)

    def _turn(self, timeout_s: float) -> None:
        """Handle socket events, and clients whose pause has ended."""
        now = time.perf_counter()
        while self._waiting and self._waiting[0][0] <= now:
            _, client = self._waiting.popleft()
            self._resume(client)
        for descriptor, events in self._poll.poll(min(timeout_s, AGAIN_S if self._waiting else timeout_s)):
            client = self._by_socket[descriptor]
            try:
                if events & select.EPOLLOUT and client.flush():
                    self._poll.modify(descriptor, select.EPOLLIN)
                if events & ~select.EPOLLOUT and (status := client.receive()):
                    self._answered(client, status)
            except OSError:
                self._broken(client)

    def _answered(self, client: LoadClient, status: str) -> None:
        if status.startswith("2"):
            self._latencies.append(time.perf_counter() - client.begun)
            self.figures.accepted += 1
            if self.figures.accepted == 1:
                print("accepted", flush=True)
            self._free.append(client)
            return
        self.figures.refuse(status)
        if self._job.repeat:
            self._wait(client)
        else:
            self._free.append(client)

    def _broken(self, client: LoadClient) -> None:
        """Handle a connection that ended during a request or between two."""
        self._forget(client)
        if client in self._free:
            self._free.remove(client)
            client.request = b""
        else:
            self.figures.broken += 1
        self._wait(client)

    def _wait(self, client: LoadClient) -> None:
        self._waiting.append((time.perf_counter() + AGAIN_S, client))

    def _resume(self, client: LoadClient) -> None:
        try:
            if client.socket is None:
                self._connect(client)
        except OSError:
            if not self._job.repeat:
                raise
            self._forget(client)
            self._wait(client)
            return
        if self._job.repeat and client.request:
            self._send(client, client.request)
        else:
            self._free.append(client)

    def _connect(self, client: LoadClient) -> None:
        own = client.connect()
        self._by_socket[own.fileno()] = client
        self._poll.register(own, select.EPOLLIN)

    def _forget(self, client: LoadClient) -> None:
        if client.socket is not None:
            del self._by_socket[client.socket.fileno()]
        client.close()


if __name__ == "__main__":
    print(Load(LoadJob.from_json(sys.stdin.read())).run().to_json(), flush=True)
