"""Limits of tool calls, at their edges."""

from __future__ import annotations

import pytest

from gateway.authentication.tool_calls import ToolCalls
from gateway.configuration.sections import McpSettings
from gateway.errors import Refusal
from tests.moved_clock import MovedClock


def passed(calls: ToolCalls, name: str, tries: int) -> int:
    """How many calls of so many go through."""
    count = 0
    for _ in range(tries):
        try:
            calls.charge(name)
        except Refusal as refusal:
            assert (429, True) == (refusal.status, (refusal.retry_after_s or 0) > 0)
        else:
            count += 1
    return count


def test_a_day_begins_anew_at_midnight() -> None:
    """Of UTC, and for each key by itself; the refusal says how long that is."""
    clock = MovedClock(at=86_400 * 20_000 - 100.0)
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=0, daily_calls=3))
    assert (3, 3) == (passed(calls, "a", 5), passed(calls, "b", 5))
    with pytest.raises(Refusal, match=r"mcp\.daily_calls") as refused:
        calls.charge("a")
    assert 101 == refused.value.retry_after_s
    clock.move(101)
    assert 3 == passed(calls, "a", 5)


def test_a_minute_brings_as_many_calls_as_the_setting_says() -> None:
    """At once at first, then in step; a refused call uses nothing up."""
    clock = MovedClock()
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=60, daily_calls=0))
    assert 60 == passed(calls, "a", 100)
    clock.move(10.5)
    assert 10 == passed(calls, "a", 100)
    assert 60 == passed(calls, "b", 100)


def test_zero_is_any_number_and_a_reload_counts_at_once() -> None:
    """The settings are read at every call."""
    settings = [McpSettings(calls_per_minute=0, daily_calls=0)]
    calls = ToolCalls(MovedClock(), lambda: settings[0])
    assert 5000 == passed(calls, "a", 5000)
    settings[0] = McpSettings(calls_per_minute=2, daily_calls=0)
    assert 2 == passed(calls, "a", 5)


def test_a_limit_lets_as_many_through_as_it_says_while_calls_take_their_time() -> None:
    """What is refilled meanwhile is not a call before it is a whole one."""
    clock = MovedClock()
    calls = ToolCalls(clock, lambda: McpSettings(calls_per_minute=5, daily_calls=0))
    through = 0
    for _ in range(8):
        through += passed(calls, "a", 1)
        clock.move(0.5)
    assert 5 == through
    clock.move(8.0)
    assert 1 == passed(calls, "a", 3)


def test_messages_are_limited_beside_calls() -> None:
    """Ten for each call that a key may make; calls go by their own limit."""
    calls = ToolCalls(MovedClock(), lambda: McpSettings(calls_per_minute=2, daily_calls=0))
    for _ in range(20):
        calls.count("a")
    with pytest.raises(Refusal, match=r"20 messages a minute \(10 times mcp\.calls_per_minute\)") as refused:
        calls.count("a")
    assert (429, 3) == (refused.value.status, refused.value.retry_after_s)
    assert 2 == passed(calls, "a", 5)
