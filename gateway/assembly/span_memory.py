"""The memory of spans, where the compiled module is."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.monitoring.metrics import Metrics
from gateway.normalise.memory.spans import SpanMemory
from gateway.normalise.payload.body_limits import SliceClock
from spool.packed.native import Native

LEARN_S: Final = 0.02  # between two kinds of spans that are learned
LOOK_S: Final = 0.25  # while none waits


def span_memory(native: Native, metrics: Metrics) -> SpanMemory:
    """Make a memory that metrics show."""
    memory = SpanMemory(native)
    metrics.watch_memory(memory)
    return memory


async def learn(memory: SpanMemory) -> None:
    """Learn one kind of span at a time, in turns so short that nobody waits for them."""
    while True:
        learning, clock = memory.learning(), SliceClock()
        for _ in learning or ():
            if clock.is_over():
                await asyncio.sleep(0)
                clock.begin()
        await asyncio.sleep(LOOK_S if learning is None else LEARN_S)
