"""A sender on several connections beside a test, which counts what was not answered with 200."""

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
LATE_S = LEAVE_S / 2  # of what a server that stops waits for the next request of an open connection


@dataclass
class Tally:
    """Requests that were acknowledged, and by its first line or its error everything else that happened."""

    acknowledged: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.acknowledged * SPANS


@contextmanager
def load(url: str, key: str, *, connections: int = 6, requests_each: int = 40) -> Iterator[Tally]:
    """
    Send as fast as it is answered while the block runs.

    Every connection is closed and opened anew after `requests_each`: new ones come in all the time. One that
    the server closes between two requests is opened again, as every client does; a request without an answer
    has failed. It has not where this client stood still so long before it that a server that stops need not
    have waited for it: then the same calls are sent again.
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
    left: list[int] = []  # what is to be sent again
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
