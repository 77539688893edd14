"""A sender on several connections beside a test, which counts what was not answered with 200."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.bench.load.payloads import RUN, protobuf_spans

SPANS = 5


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

    Every connection is closed and opened anew after `requests_each`: new ones come in all the time. One that the server
    closes between two requests is opened again, as every client does; a request without an answer has failed.
    """
    tally, end = Tally(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_drive(url, key, tally, end, connections, requests_each)))
    thread.start()
    try:
        yield tally
    finally:
        end.set()
        thread.join()


async def _drive(url: str, key: str, tally: Tally, end: threading.Event, connections: int, requests_each: int) -> None:
    target, template, numbers = urlsplit(url), protobuf_spans(SPANS), itertools.count()
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: {target.netloc}\r\nAuthorization: {key}\r\n"
        f"Content-Type: application/x-protobuf\r\nContent-Length: {len(template)}\r\n\r\n"
    ).encode()

    async def sender() -> None:
        while not end.is_set():
            try:
                reader, writer = await asyncio.open_connection(target.hostname, target.port)
            except OSError as error:
                tally.failed[type(error).__name__] += 1
                await asyncio.sleep(0.01)
                continue
            await talk(reader, writer)
            writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(requests_each):
            if end.is_set() or reader.at_eof():
                return
            try:
                writer.write(head + template.replace(RUN, b"%08d" % next(numbers)))
                answer = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: (\d+)", answer.lower())
                await reader.readexactly(int(length[1]) if length else 0)
            except (OSError, asyncio.IncompleteReadError) as error:
                tally.failed[type(error).__name__] += 1
                return
            if answer.startswith(b"HTTP/1.1 200"):
                tally.acknowledged += 1
            else:
                tally.failed[answer.partition(b"\r\n")[0].decode()] += 1
            if b"\r\nconnection: close" in answer.lower():
                return

    await asyncio.gather(*(sender() for _ in range(connections)))
