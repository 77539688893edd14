"""Turns of waiting password checks."""

from __future__ import annotations

import asyncio

from spool.registry.tables.operators import FairConcurrencyLimit
from tests.waiting import limited


async def test_names_take_turns() -> None:
    """
    A name with fifty waiting requests gets one turn, and then the other name gets its first. If a waiting
    request is cancelled, its turn passes on.
    """
    turns, order, go = FairConcurrencyLimit(1), [], asyncio.Event()

    async def work(name: str) -> None:
        async with turns.hold_turn(name):
            order.append(name)
            await go.wait()

    tasks = [asyncio.create_task(work(name)) for name in (*["stranger"] * 50, "owner", "owner")]
    await asyncio.sleep(0)  # the tasks wait for their turn in this order
    tasks[1].cancel()
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert ["stranger", "stranger", "owner", "stranger", "owner"] == order[:5]
    assert 51 == len(order)


async def test_turn_of_a_cancelled_task_is_not_lost() -> None:
    """
    If a waiting task is cancelled after it got the turn and before it ran, the turn goes to the next task.
    """
    turns = FairConcurrencyLimit(1)

    async def work() -> None:
        async with turns.hold_turn("a"):
            pass

    async with turns.hold_turn("b"):
        waiting = asyncio.create_task(work())
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with limited():
        await work()
