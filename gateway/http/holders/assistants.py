"""What handlers of assistants work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.people.authentication.tool_calls import ToolCalls
from gateway.service.configuration.sections import McpSettings

if TYPE_CHECKING:
    from spool.clock import Clock
    from spool.registry.tables.tool_calls import ToolCallTable


@dataclass(kw_only=True)
class AssistantServices:
    """`tool_calls` counts what each key asks."""

    clock: Clock
    mcp: Callable[[], McpSettings] = McpSettings
    counted: ToolCallTable | None = None  # None while the registry is damaged
    tool_calls: ToolCalls = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tool_calls = ToolCalls(self.clock, self.mcp, self.counted)
