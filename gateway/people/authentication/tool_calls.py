"""How often a key or a person may call tools of assistants and send other messages, by minute and day."""

from __future__ import annotations

from collections.abc import Callable

from gateway.service.attempts import Buckets
from gateway.service.configuration.sections import McpSettings
from gateway.service.errors import Refusal
from spool.clock import Clock
from spool.registry.assistant_tools import ToolCallTable
from spool.registry.operators import Actor

DAY_S = 86_400
MINUTE_S = 60
# that one may send for each call of a tool that it may make: lists and pings, too
MESSAGES_A_CALL = 10


class ToolCalls:
    """
    Calls of a day are counted in the registry, those of a minute in this process. `settings` is asked at
    every call, so that a reload counts.
    """

    def __init__(self, clock: Clock, settings: Callable[[], McpSettings], kept: ToolCallTable | None) -> None:
        self._clock = clock
        self._settings = settings
        self._kept = kept  # None while the registry is damaged
        self._per_minute = 0
        self._minute: Buckets | None = None
        self._messages: Buckets | None = None

    async def charge(self, name: str, actor: Actor) -> None:
        """Count one call. Refusal 429 names the setting that it would exceed."""
        settings = self._settings()
        self._configure(settings.calls_per_minute)
        minute = self._minute
        if minute is not None and (wait_s := minute.wait_s(name)):
            raise _too_many(f"{settings.calls_per_minute} calls a minute (mcp.calls_per_minute)", wait_s)
        if minute is not None:
            minute.charge(name)
        if settings.daily_calls and self._kept is not None:
            now = self._clock.now()
            day = int(now // DAY_S)
            if not await self._kept.take(name, day=day, most=settings.daily_calls, actor=actor):
                wait_s = int((day + 1) * DAY_S - now) + 1
                raise _too_many(f"{settings.daily_calls} calls a day (mcp.daily_calls)", wait_s)

    def count(self, name: str) -> None:
        """Count one message, whatever it asks. Refusal 429 over MESSAGES_A_CALL times as many as calls."""
        self._configure(self._settings().calls_per_minute)
        if self._messages is None:
            return
        wait_s = self._messages.wait_s(name)
        if wait_s:
            most = MESSAGES_A_CALL * self._per_minute
            raise _too_many(
                f"{most} messages a minute ({MESSAGES_A_CALL} times mcp.calls_per_minute)", wait_s
            )
        self._messages.charge(name)

    def _configure(self, per_minute: int) -> None:
        """The buckets of a setting; a changed one begins with full ones."""
        if per_minute != self._per_minute:
            self._minute = self._of(per_minute)
            self._messages = self._of(MESSAGES_A_CALL * per_minute)
            self._per_minute = per_minute

    def _of(self, per_minute: int) -> Buckets | None:
        return Buckets(self._clock, burst=per_minute, per_s=per_minute / MINUTE_S) if per_minute else None


def _too_many(limit: str, wait_s: int) -> Refusal:
    return Refusal(429, "tool_limit", f"over the limit of {limit}; repeat later", retry_after_s=wait_s)
