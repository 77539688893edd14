"""Daily limits of assistants' tool calls, which survive restarts."""

from __future__ import annotations

import asyncio

from spool.registry.assistant_tools import CALLS_KIND
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from tests.spool.contract.conftest import RegistryOpener

TODAY = 20_000
MOST = 3
ASSISTANT = Actor("assistant", "127.0.0.1")


async def passed(registry: Registry, name: str, tries: int, *, day: int = TODAY) -> int:
    """Return how many of `tries` simultaneous calls are allowed."""
    takes = [
        registry.tool_calls.count_call_if_allowed(name, day=day, max_calls=MOST, actor=ASSISTANT)
        for _ in range(tries)
    ]
    return sum(await asyncio.gather(*takes))


async def kept(registry: Registry) -> int:
    return len(await registry._changes.read(lambda rows: rows.documents(CALLS_KIND)))


async def test_a_restart_counts_on(open_registry: RegistryOpener) -> None:
    """The count per key or person survives a restart, and simultaneous calls cannot exceed the limit."""
    registry = await open_registry()
    assert await passed(registry, "key a", 2) == 2
    assert await passed(registry, "key b", MOST + 2) == MOST
    await registry.close()
    registry = await open_registry()
    assert await passed(registry, "key a", MOST) == 1
    assert await passed(registry, "key b", MOST) == 0


async def test_counts_start_again_each_day(registry: Registry) -> None:
    """Counts start again each day, so the table has only one small row for each actor that called today."""
    for name in ("key a", "key b", "key c"):
        assert MOST == await passed(registry, name, MOST)
    assert 3 == await kept(registry)
    assert MOST == await passed(registry, "key a", MOST + 1, day=TODAY + 1)
    assert 1 == await kept(registry)
