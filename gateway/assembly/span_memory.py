"""The memory of spans, where the compiled module is: made when the first span comes, because it loads the rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.first_use import Once
from gateway.monitoring.metrics import Metrics
from gateway.normalise.payload.body_limits import SliceClock
from spool.packed.native import Native

if TYPE_CHECKING:  # no start needs it
    from gateway.normalise.memory.spans import SpanMemory

LEARN_S: Final = 0.02  # between two kinds of spans that are learned
LOOK_S: Final = 0.25  # while none waits


def span_memory(native: Native, metrics: Metrics) -> Once[SpanMemory]:
    """A memory that metrics show once it is made. Who asks for it first has imported its module, in a thread."""

    def make() -> SpanMemory:
        from gateway.normalise.memory.spans import SpanMemory

        memory = SpanMemory(native)
        metrics.watch_memory(memory)
        return memory

    return Once(make)


async def learn(memory: Once[SpanMemory]) -> None:
    """Learn one kind of span at a time, in turns so short that nobody waits for them."""
    while True:
        learning = memory.made and memory.made.learning()
        clock = SliceClock()
        for _ in learning or ():
            if clock.is_over():
                await asyncio.sleep(0)
                clock.begin()
        await asyncio.sleep(LOOK_S if learning is None else LEARN_S)
