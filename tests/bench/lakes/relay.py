"""A relay in front of a server that regularly resets connections and refuses requests."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Queue
from urllib.parse import urlsplit

RESET_EACH, REFUSE_EACH = 7, 11  # the relay resets every 7th connection and refuses every 11th
REFUSAL = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_HELD = 4096  # number of bytes to forward before a reset
_AT_ONCE = 1 << 16


class Relay:
    """
    A relay that forwards one request and its response per connection. It resets every `reset_each`-th
    connection and refuses every `refuse_each`-th with 503.
    """

    def __init__(self, address: str, reset_each: int, refuse_each: int) -> None:
        self._reset_each, self._refuse_each = reset_each, refuse_each
        parts = urlsplit(address)
        self._to = (str(parts.hostname), int(parts.port or 80))
        self.connections = self.resets = self.refused = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if number % self._refuse_each == 0:
                self.refused += 1
                await reader.readuntil(b"\r\n\r\n")
                writer.write(REFUSAL)
                await writer.drain()
            else:
                await self._carry(reader, writer, limit=_HELD if number % self._reset_each == 0 else None)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, limit: int | None
    ) -> None:
        there_reader, there = await asyncio.open_connection(*self._to)
        back = asyncio.create_task(_copy(there_reader, writer))
        try:
            await _copy(reader, there, limit=limit)
            if limit is not None:
                self.resets += 1
                held: socket.socket = writer.get_extra_info("socket")
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        finally:
            there.close()
            back.cancel()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, limit: int | None = None
) -> None:
    """Copy until the end, or until `limit` bytes are copied."""
    passed = 0
    while limit is None or passed < limit:
        part = await reader.read(_AT_ONCE if limit is None else limit - passed)
        if not part:
            return
        passed += len(part)
        writer.write(part)
        await writer.drain()


@contextmanager
def relayed(
    address: str, *, reset_each: int = RESET_EACH, refuse_each: int = REFUSE_EACH
) -> Iterator[tuple[str, Relay]]:
    """Run a relay to the address on its own thread; yield the relay's address."""
    relay, ports, loops = (
        Relay(address, reset_each, refuse_each),
        Queue[int](),
        Queue[asyncio.AbstractEventLoop](),
    )
    ended = asyncio.Event()

    async def serve() -> None:
        async with await asyncio.start_server(relay.take, "127.0.0.1", 0) as server:
            loops.put(asyncio.get_running_loop())
            ports.put(server.sockets[0].getsockname()[1])
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=60)}", relay
    finally:
        loops.get(timeout=60).call_soon_threadsafe(ended.set)
        thread.join(timeout=60)
