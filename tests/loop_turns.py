from __future__ import annotations

import asyncio


async def until_all_wait() -> None:
    """
    Run the event loop until every task waits. Works only if no task waits for a thread, file, socket or timer.
    """
    for _ in range(50):
        await asyncio.sleep(0)
