"""The assistants' tools that were enabled or disabled, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.configuration.assistants import TOOL_NAMES
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler
from gateway.operations.files.text import suggestion
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid
from spool.registry.assistant_tools import TOOL_KIND
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, USE_ASSISTANTS
from spool.registry.registry import Registry


class DecidedTool(RequestBody):
    name: str
    enabled: bool


class AssistantToolFileHandler(ObjectFileHandler):
    """The tools of assistants. The configuration enables or disables a tool that the file does not list."""

    files = ResourceFiles(name="assistant-tools", ignores_case=False)
    noun = "assistant tool"
    action = TOOL_KIND
    new = DecidedTool
    reads = USE_ASSISTANTS
    changes = ORGANIZATION_ADMINISTRATION

    def id_of(self, row: DecidedTool) -> str:
        return row.name

    async def rows_by_id(self, registry: Registry) -> Mapping[str, DecidedTool]:
        decided = registry.assistant_tools.all()
        return {name: DecidedTool(name=name, enabled=each.enabled) for name, each in decided.items()}

    async def find(self, registry: Registry, id: str) -> DecidedTool:
        return (await self.rows_by_id(registry))[id]

    async def create(self, caller: MoneyCaller, new_values: DecidedTool, secret: str | None) -> str:
        if new_values.name not in TOOL_NAMES:
            raise Invalid(f"name: there is no such tool{suggestion(new_values.name, TOOL_NAMES)}")
        await caller.registry.assistant_tools.set_enabled(
            new_values.name, enabled=new_values.enabled, actor=caller.actor
        )
        return new_values.name

    async def change(
        self, caller: MoneyCaller, row: DecidedTool, new_values: DecidedTool, secret: str | None
    ) -> None:
        await self.create(caller, new_values, secret)

    async def delete(self, caller: MoneyCaller, row: DecidedTool) -> None:
        await caller.registry.assistant_tools.delete_decision(row.name, actor=caller.actor)


ASSISTANT_TOOL_KIND = AssistantToolFileHandler()
