"""Rate limits of MCP tool calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.configuration.sections import McpSettings
from gateway.core.errors import Refusal
from gateway.people.authentication.tool_calls import ToolCalls
from spool.registry.assistant_tools import ToolCallTable
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_registry
from tests.moved_clock import MovedClock

ASSISTANT = Actor("assistant", "127.0.0.1")


@pytest_asyncio.fixture
async def tool_calls() -> AsyncIterator[ToolCallTable]:
    registry = await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=MovedClock())
    yield registry.tool_calls
    await registry.close()


async def passed(calls: ToolCalls, name: str, tries: int) -> int:
    """Count the calls that are accepted out of `tries`."""
    count = 0
    for _ in range(tries):
        try:
            await calls.charge_call(name, ASSISTANT)
        except Refusal as refusal:
            assert refusal.status == 429
            assert (refusal.retry_after_s or 0) > 0
        else:
            count += 1
    return count


async def test_daily_count_of_a_key_restarts_at_midnight_utc(tool_calls: ToolCallTable) -> None:
    """The count of a key starts again at midnight UTC. The refusal states the seconds until midnight."""
    clock = MovedClock(at=86_400 * 20_000 - 100.0)
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=0, daily_calls=3), tool_calls)
    assert await passed(calls, "a", 5) == 3
    assert await passed(calls, "b", 5) == 3
    with pytest.raises(Refusal, match=r"mcp\.daily_calls") as refused:
        await calls.charge_call("a", ASSISTANT)
    assert 101 == refused.value.retry_after_s
    clock.move(101)
    assert 3 == await passed(calls, "a", 5)


async def test_a_minute_brings_as_many_calls_as_the_setting_says() -> None:
    """A burst is accepted first, then calls at the set rate. A refused call does not count."""
    clock = MovedClock()
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=60, daily_calls=0), None)
    assert 60 == await passed(calls, "a", 100)
    clock.move(10.5)
    assert 10 == await passed(calls, "a", 100)
    assert 60 == await passed(calls, "b", 100)


async def test_zero_is_any_number_and_a_reload_counts_at_once() -> None:
    """
    A limit of 0 allows any number of calls. A reload applies at once, because the settings are read at every call.
    """
    settings = [McpSettings(calls_per_minute=0, daily_calls=0)]
    calls = ToolCalls(MovedClock(), lambda: settings[0], None)
    assert 5000 == await passed(calls, "a", 5000)
    settings[0] = McpSettings(calls_per_minute=2, daily_calls=0)
    assert 2 == await passed(calls, "a", 5)


@pytest.mark.proves("a limit admits one too many")
async def test_limit_admits_exactly_its_number_of_long_calls() -> None:
    """
    However long calls take, a limit admits exactly as many as it says, because a fraction of a refilled
    call admits none.
    """
    clock = MovedClock()
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=5, daily_calls=0), None)
    through = 0
    for _ in range(8):
        through += await passed(calls, "a", 1)
        clock.move(0.5)
    assert 5 == through
    clock.move(8.0)
    assert 1 == await passed(calls, "a", 3)


async def test_messages_are_limited_separately_from_calls() -> None:
    """A key may send ten messages for each call that it may make. Calls have their own limit."""
    calls = ToolCalls(MovedClock(), lambda: McpSettings(calls_per_minute=2, daily_calls=0), None)
    for _ in range(20):
        calls.count_message("a")
    with pytest.raises(
        Refusal, match=r"20 messages per minute \(10 times mcp\.calls_per_minute\)"
    ) as refused:
        calls.count_message("a")
    assert refused.value.status == 429
    assert refused.value.retry_after_s == 3
    assert 2 == await passed(calls, "a", 5)
