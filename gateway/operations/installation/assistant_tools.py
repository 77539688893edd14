"""The assistants' tools that were enabled or disabled, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.configuration.assistants import TOOL_NAMES
from gateway.operations.files.declared import InFiles
from gateway.operations.files.kinds import Asking, FileKind
from gateway.operations.files.text import suggestion
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid
from spool.registry.assistant_tools import TOOL_KIND
from spool.registry.permission_sets import USE_ASSISTANTS
from spool.registry.registry import Registry


class DecidedTool(RequestBody):
    name: str
    enabled: bool


class AssistantToolKind(FileKind):
    """The tools of assistants. The configuration enables or disables a tool that the file does not list."""

    files = InFiles(name="assistant-tools", ignores_case=False)
    noun = "assistant tool"
    action = TOOL_KIND
    new = DecidedTool
    reads = USE_ASSISTANTS

    def id_of(self, row: DecidedTool) -> str:
        return row.name

    async def rows_by_id(self, registry: Registry) -> Mapping[str, DecidedTool]:
        decided = registry.assistant_tools.all()
        return {name: DecidedTool(name=name, enabled=each.enabled) for name, each in decided.items()}

    async def find(self, registry: Registry, id: str) -> DecidedTool:
        return (await self.rows_by_id(registry))[id]

    async def create(self, asking: Asking, given: DecidedTool, secret: str | None) -> str:
        if given.name not in TOOL_NAMES:
            raise Invalid(f"name: there is no such tool{suggestion(given.name, TOOL_NAMES)}")
        await asking.registry.assistant_tools.set_enabled(
            given.name, enabled=given.enabled, actor=asking.actor
        )
        return given.name

    async def change(self, asking: Asking, row: DecidedTool, given: DecidedTool, secret: str | None) -> None:
        await self.create(asking, given, secret)

    async def delete(self, asking: Asking, row: DecidedTool) -> None:
        await asking.registry.assistant_tools.delete_decision(row.name, actor=asking.actor)


ASSISTANT_TOOL_KIND = AssistantToolKind()
