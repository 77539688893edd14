"""
A sender that misbehaves in one way until it is stopped: `python -m tests.faults.misbehaving WAY URL KEY`.

It is a separate process so that it takes no turns from other senders.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateway.http.listening.connections import raise_descriptor_limit
from tests.acceptance.payloads import request, span

MIB = 1 << 20
FLOOD = "chatcmpl-flood"  # the response ids of the misbehaving client's calls have this prefix
CALLS = 900  # number of calls per request body
ZEROS = gzip.compress(b"\0" * (16 * MIB), 9)


class Sender:
    def __init__(self, url: str, key: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._address = (host, int(port))
        self._key = key
        self._has_connected = False

    def head(self, length: int, *more: str) -> bytes:
        lines = [
            "POST /v1/traces HTTP/1.1",
            "Host: t",
            f"Authorization: {self._key}",
            f"Content-Length: {length}",
        ]
        return "\r\n".join([*lines, "Content-Type: application/json", *more]).encode() + b"\r\n\r\n"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await asyncio.open_connection(*self._address)
        if not self._has_connected:
            self._has_connected = True
            print("connected", flush=True)
        return connection

    async def slow(self) -> None:
        """Hold back the end of large bodies, compressed or not, and send it byte by byte."""
        whole = [
            (gzip.compress(b" " * (64 * MIB), 1), "Content-Encoding: gzip"),
            (b" " * (40 * MIB), "X-Plain: 1"),
        ]

        async def one(body: bytes, coding: str) -> None:
            _, writer = await self.connect()
            writer.write(self.head(len(body), coding) + body[:-1000])
            for _ in range(1000):
                await writer.drain()
                await asyncio.sleep(0.2)
                writer.write(b" ")

        await asyncio.gather(*(for_ever(one, *whole[place % 2]) for place in range(6)))

    async def bombs(self) -> None:
        """Send 1 GiB of zeros again and again, compressed to 1 MiB."""
        body = ZEROS * 64

        async def one() -> None:
            reader, writer = await self.connect()
            writer.write(self.head(len(body), "Content-Encoding: gzip", "Connection: close") + body)
            await reader.read()
            writer.close()

        await for_ever(one)

    async def flood(self) -> None:
        """Send as many requests as possible over four connections."""
        body = b'{"resourceSpans":[]}'

        async def one() -> None:
            reader, writer = await self.connect()
            while True:
                writer.write(self.head(len(body)) + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(int(length.partition(b":")[2]))

        await asyncio.gather(*(for_ever(one) for _ in range(4)))

    async def calls(self) -> None:
        """Send bodies of new calls over eight connections."""
        calls = [span(f"{FLOOD}-{place:04}-@@@@@@@@@@@@", tokens=1, user__id=FLOOD) for place in range(CALLS)]
        body, numbers, run = request(calls), itertools.count(), os.urandom(3).hex()

        async def one() -> None:
            reader, writer = await self.connect()
            while True:
                own = f"{run}{next(numbers):06x}".encode()
                writer.write(self.head(len(body)) + body.replace(b"@@@@@@@@@@@@", own))
                answer = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(int(length.partition(b":")[2]))

        await asyncio.gather(*(for_ever(one) for _ in range(8)))

    async def halves(self) -> None:
        """Send requests that end in their header or in their body."""
        whole = self.head(1000) + b" " * 500

        async def one(cut: int) -> None:
            _, writer = await self.connect()
            writer.write(whole[:cut])
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.close()

        for place in itertools.count():
            with suppress(OSError):
                await one((20, 90, len(whole))[place % 3])

    async def connections(self) -> None:
        """Hold five hundred silent connections. Reopen each closed connection a second later."""

        async def one() -> None:
            reader, _ = await self.connect()
            await reader.read()
            await asyncio.sleep(1.0)

        await asyncio.gather(*(for_ever(one) for _ in range(500)))

    async def headers(self) -> None:
        """Open two thousand connections that send their header byte by byte."""

        async def one() -> None:
            _, writer = await self.connect()
            for byte in self.head(1000):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1.0)

        await asyncio.gather(*(for_ever(one) for _ in range(2000)))


async def for_ever(one: Callable[..., Awaitable[None]], *arguments: object) -> None:
    while True:
        with suppress(OSError, EOFError):
            await one(*arguments)
        await asyncio.sleep(0.05)


WAYS = ("slow", "bombs", "flood", "halves", "connections")

if __name__ == "__main__":
    raise_descriptor_limit()
    way, url, key = sys.argv[1:]
    asyncio.run(getattr(Sender(url, key), way)())
