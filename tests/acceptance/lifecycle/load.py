"""A sender on several connections in the background of a test, which counts responses other than 200."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway.service.listeners import LEAVE_S
from tests.bench.load.payloads import RUN, protobuf_spans

SPANS = 5
# half of the time that a stopping server waits for the next request of an open connection
LATE_S = LEAVE_S / 2


@dataclass
class Tally:
    """Number of acknowledged requests, and counts of all other results by status line or error."""

    acknowledged: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.acknowledged * SPANS


@contextmanager
def load(url: str, key: str, *, connections: int = 6, requests_each: int = 40) -> Iterator[Tally]:
    """
    Send requests as fast as they are answered while the block runs.

    Every connection is replaced after `requests_each` requests, so new ones are opened all the time. If the
    server closes a connection between two requests, the sender opens another, as any client would.

    A request without a response counts as failed, unless this sender was stalled before it for so long that a
    stopping server need not wait for the request. In that case the sender sends the same calls again.
    """
    tally, end = Tally(), threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(_drive(url, key, tally, end, connections, requests_each))
    )
    thread.start()
    try:
        yield tally
    finally:
        end.set()
        thread.join()


async def _drive(
    url: str, key: str, tally: Tally, end: threading.Event, connections: int, requests_each: int
) -> None:
    target, template, numbers = urlsplit(url), protobuf_spans(SPANS), itertools.count()
    left: list[int] = []  # numbers of the requests that must be sent again
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: {target.netloc}\r\nAuthorization: {key}\r\n"
        f"Content-Type: application/x-protobuf\r\nContent-Length: {len(template)}\r\n\r\n"
    ).encode()

    async def sender() -> None:
        while left or not end.is_set():
            quiet_since = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection(target.hostname, target.port)
            except OSError as error:
                tally.failed[type(error).__name__] += 1
                await asyncio.sleep(0.01)
                continue
            await talk(reader, writer, quiet_since)
            writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quiet_since: float) -> None:
        for _ in range(requests_each):
            if (end.is_set() and not left) or reader.at_eof():
                return
            number = left.pop() if left else next(numbers)
            writer.write(head + template.replace(RUN, b"%08d" % number))
            is_late = time.monotonic() > quiet_since + LATE_S
            try:
                answer = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: (\d+)", answer.lower())
                await reader.readexactly(int(length[1]) if length else 0)
            except (OSError, asyncio.IncompleteReadError) as error:
                if is_late:
                    left.append(number)
                else:
                    tally.failed[type(error).__name__] += 1
                return
            quiet_since = time.monotonic()
            if answer.startswith(b"HTTP/1.1 200"):
                tally.acknowledged += 1
            elif is_late and answer.startswith(b"HTTP/1.1 503"):
                left.append(number)
            else:
                tally.failed[answer.partition(b"\r\n")[0].decode()] += 1
            if b"\r\nconnection: close" in answer.lower():
                return

    await asyncio.gather(*(sender() for _ in range(connections)))
