"""Turns of the event loop, for tests whose tasks wait only for each other."""

from __future__ import annotations

import asyncio


async def until_all_wait() -> None:
    """Until every task waits for another one. Nothing here waits for a thread, a file, a socket or a timer."""
    for _ in range(50):
        await asyncio.sleep(0)
