"""Makes what handlers of assistants work with."""

from __future__ import annotations

from gateway.assembly.parts import Assembler
from gateway.http.holders.assistants import AssistantServices


def assistant_services(parts: Assembler) -> AssistantServices:
    registry = parts.storage.registry
    counted = None if registry is None else registry.tool_calls
    return AssistantServices(clock=parts.clock, mcp=lambda: parts.config.mcp, counted=counted)
