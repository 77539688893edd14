"""The pending requests: counted, so that a stop can refuse new ones and finish these."""

from __future__ import annotations

import asyncio

from gateway.service.errors import Refusal


class RequestsInHand:
    """A context manager for each request; entering it raises Refusal 503 once it is closed."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self.leaving = False  # answers say that their connection ends: a successor takes the next one
        self._empty = asyncio.Event()
        self._empty.set()

    def __enter__(self) -> None:
        if self.closed:
            raise stopping()
        self.count += 1
        self._empty.clear()

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        if not self.count:
            self._empty.set()

    def leave(self) -> None:
        self.leaving = True

    async def close(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for those that run; False when some were still there at the end."""
        self.closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


def stopping() -> Refusal:
    return Refusal(503, "stopping", "Tollhouse is stopping; send it again shortly.", retry_after_s=1)
