"""Limits on tool calls and other messages of assistants, per key or person, minute and day."""

from __future__ import annotations

from collections.abc import Callable

from gateway.configuration.sections import McpSettings
from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets
from spool.clock import Clock
from spool.registry.assistant_tools import ToolCallTable
from spool.registry.operators import Actor

DAY_S = 86_400
MINUTE_S = 60
# messages such as lists and pings for each allowed tool call
MESSAGES_A_CALL = 10


class ToolCalls:
    """
    The limits on assistants' messages by caller. Calls are counted by day in the registry, and by minute in
    this process.

    `settings` is called for every tool call, so that a reload takes effect.
    """

    def __init__(self, clock: Clock, settings: Callable[[], McpSettings], kept: ToolCallTable | None) -> None:
        self._clock = clock
        self._settings = settings
        self._kept = kept  # stored counts of calls, or None while the registry is damaged
        self._per_minute = 0
        self._minute: TokenBuckets | None = None
        self._messages: TokenBuckets | None = None

    async def charge_call(self, name: str, actor: Actor) -> None:
        """Charge a tool call. Raises Refusal 429, which names the setting of the limit."""
        settings = self._settings()
        self._apply_limit(settings.calls_per_minute)
        minute = self._minute
        if minute is not None and (wait_s := minute.wait_s(name)):
            raise _too_many_refusal(
                f"{settings.calls_per_minute} calls a minute (mcp.calls_per_minute)", wait_s
            )
        if minute is not None:
            minute.charge(name)
        if settings.daily_calls and self._kept is not None:
            now = self._clock.now()
            day = int(now // DAY_S)
            if not await self._kept.count_call_if_allowed(
                name, day=day, max_calls=settings.daily_calls, actor=actor
            ):
                wait_s = int((day + 1) * DAY_S - now) + 1
                raise _too_many_refusal(f"{settings.daily_calls} calls a day (mcp.daily_calls)", wait_s)

    def count_message(self, name: str) -> None:
        """Count a message. Raises Refusal 429 above MESSAGES_A_CALL times the allowed number of calls."""
        self._apply_limit(self._settings().calls_per_minute)
        if self._messages is None:
            return
        wait_s = self._messages.wait_s(name)
        if wait_s:
            limit = MESSAGES_A_CALL * self._per_minute
            raise _too_many_refusal(
                f"{limit} messages per minute ({MESSAGES_A_CALL} times mcp.calls_per_minute)", wait_s
            )
        self._messages.charge(name)

    def _apply_limit(self, per_minute: int) -> None:
        """Set the limit. New buckets start full."""
        if per_minute != self._per_minute:
            self._minute = self._new_buckets(per_minute)
            self._messages = self._new_buckets(MESSAGES_A_CALL * per_minute)
            self._per_minute = per_minute

    def _new_buckets(self, per_minute: int) -> TokenBuckets | None:
        return (
            TokenBuckets(self._clock, burst=per_minute, per_s=per_minute / MINUTE_S) if per_minute else None
        )


def _too_many_refusal(limit: str, wait_s: int) -> Refusal:
    return Refusal(429, "tool_limit", f"over the limit of {limit}; retry later", retry_after_s=wait_s)
