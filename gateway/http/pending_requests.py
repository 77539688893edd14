"""
Pending requests, and slots for gRPC messages. At a stop, new requests are rejected and pending ones finish.

A gRPC message's size is known only after its arrival. A call without a slot waits, and the transport limits
what its sender may send meanwhile, so the memory of arriving messages is limited.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.core.errors import Refusal
from gateway.http.inflight_bytes import busy_refusal


class RequestsInHand:
    """
    The pending requests of a server, as a context manager around each. Entering after `close_and_wait` raises
    Refusal 503.
    """

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        # whether answers close their connection, so that the next request reaches the successor process
        self.leaving = False
        self.stopping = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def __enter__(self) -> None:
        if self.closed:
            raise stopping_refusal()
        self.count += 1
        self._empty.clear()

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        if not self.count:
            self._empty.set()

    def mark_server_as_leaving(self) -> None:
        self.leaving = True
        self.stopping.set()

    async def close_and_wait(self, timeout_s: float) -> bool:
        """
        Reject new requests, and wait for pending ones. Return False if some are still pending after
        `timeout_s`.
        """
        self.closed = True
        self.stopping.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


def stopping_refusal() -> Refusal:
    return Refusal(503, "stopping", "Tollhouse is stopping. Send the request again shortly.", retry_after_s=1)


WAIT_S = 10.0
MESSAGES = 4


class ReceivingSlots:
    """
    The slots for gRPC messages that are received at the same time. A key may hold at most as many slots as are
    still free.
    """

    def __init__(self, limit: int = MESSAGES, *, wait_s: float = WAIT_S) -> None:
        self.limit = limit
        self._wait_s = wait_s
        self._by_key: Counter[str] = Counter()
        self._given_back = asyncio.Condition()

    @property
    def count(self) -> int:
        return self._by_key.total()

    @asynccontextmanager
    async def hold_slot(self, key: str) -> AsyncIterator[None]:
        """Hold a slot. Raises Refusal 503 if none is free in time."""
        if not self._has_free_slot(key):
            try:
                async with asyncio.timeout(self._wait_s), self._given_back:
                    await self._given_back.wait_for(lambda: self._has_free_slot(key))
            except TimeoutError as error:
                raise busy_refusal() from error
        self._by_key[key] += 1
        try:
            yield
        finally:
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]
            async with self._given_back:
                self._given_back.notify_all()

    def _has_free_slot(self, key: str) -> bool:
        free = self.limit - self.count
        return self._by_key[key] < free or (self.limit == 1 and free == 1)
