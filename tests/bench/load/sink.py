"""
A cheap upstream that accepts every POST, counts the records, and honours idempotency keys.

`python -m tests.bench.load.sink` prints its address. `GET /figures` returns the counts, `GET /ids` returns
how often each record id arrived, and `PUT /behaviour` changes its responses.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from typing import Any

from tests.bench.load.payloads import IDS, inflated

HEADER = re.compile(
    rb"\r\n(content-length|content-encoding|transfer-encoding|idempotency-key): *([^\r]*)", re.IGNORECASE
)


class Sink:
    """Counts of accepted records. `keep` remembers every id for the comparison after a kill."""

    def __init__(self) -> None:
        self.status = 200
        self.delay_s = 0.0
        self.keep = False
        self.ids: Counter[bytes] = Counter()
        self.figures = {"records": 0, "requests": 0, "bytes": 0, "repeated_deliveries": 0, "refused": 0}
        self._keys: set[bytes] = set()

    def behave(self, wish: dict[str, Any]) -> None:
        self.status = wish.get("status", self.status)
        self.delay_s = wish.get("delay_s", self.delay_s)
        self.keep = wish.get("keep", self.keep)

    def take(self, body: bytes, headers: dict[bytes, bytes]) -> None:
        """Count one request unless a delivery with this idempotency key was already accepted."""
        if self.status != 200:
            self.figures["refused"] += 1
            return
        key = headers.get(b"idempotency-key")
        if key is not None and key in self._keys:
            self.figures["repeated_deliveries"] += 1
            return
        if key is not None:
            self._keys.add(key)
        ids = IDS.findall(inflated(body, headers.get(b"content-encoding", b"").decode()))
        self.figures["records"] += len(ids)
        self.figures["requests"] += 1
        self.figures["bytes"] += len(body)
        if self.keep:
            self.ids.update(ids)


class SinkConnection(asyncio.Protocol):
    """One connection that handles requests one after the other."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            headers = {name.lower(): value for name, value in HEADER.findall(head)}
            if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
                body, after = _chunks(self._received, end + 4)
            else:
                after = end + 4 + int(headers.get(b"content-length", 0))
                body = bytes(self._received[end + 4 : after])
            if after < 0 or len(self._received) < after:
                return
            del self._received[:after]
            self._answer(head, headers, body)

    def _answer(self, head: bytes, headers: dict[bytes, bytes], body: bytes) -> None:
        verb, path = head.split(b" ", 2)[:2]
        status, answer = 200, b""
        if path == b"/figures":
            answer = json.dumps(self._sink.figures).encode()
        elif path == b"/ids":
            answer = json.dumps({id.decode(): times for id, times in self._sink.ids.items()}).encode()
        elif path == b"/behaviour":
            self._sink.behave(json.loads(body))
        elif verb == b"POST":
            status = self._sink.status
            self._sink.take(body, headers)
            if self._sink.delay_s:
                asyncio.get_running_loop().call_later(self._sink.delay_s, self._write, status, answer)
                return
        self._write(status, answer)

    def _write(self, status: int, answer: bytes) -> None:
        head = b"HTTP/1.1 %d -\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % (status, len(answer)) + answer)


def _chunks(received: bytearray, place: int) -> tuple[bytes, int]:
    """Return a chunked body and its end position, or -1 while it is incomplete."""
    body = bytearray()
    while (end := received.find(b"\r\n", place)) >= 0:
        size = int(received[place:end], 16)
        body += received[end + 2 : end + 2 + size]
        place = end + 4 + size
        if len(received) < place:
            break
        if size == 0:
            return bytes(body), place
    return b"", -1


async def main() -> None:
    sink = Sink()
    listener = socket.create_server(("127.0.0.1", 0))
    server = await asyncio.get_running_loop().create_server(lambda: SinkConnection(sink), sock=listener)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
