"""The organization's notes for assistants, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid
from spool.registry.org_context import ID, KIND
from spool.registry.permission_sets import USE_ASSISTANTS, WORK_ON_INSIGHTS
from spool.registry.registry import Registry


class OrgContextBody(RequestBody):
    text: str


class OrgContextFileHandler(ObjectFileHandler):
    files = ResourceFiles(name="organization", key=())
    noun = "organization context"
    action = KIND
    new = OrgContextBody
    reads = USE_ASSISTANTS
    changes = WORK_ON_INSIGHTS

    def id_of(self, row: OrgContextBody) -> str:
        return ID

    async def rows_by_id(self, registry: Registry) -> Mapping[str, OrgContextBody]:
        context = await registry.org_context.get()
        return {} if context is None else {ID: OrgContextBody(text=context.text)}

    async def find(self, registry: Registry, id: str) -> OrgContextBody:
        return (await self.rows_by_id(registry))[id]

    async def create(self, caller: MoneyCaller, new_values: OrgContextBody, secret: str | None) -> str:
        if await caller.registry.org_context.set_text(new_values.text, actor=caller.actor) is None:
            raise Invalid("text must not be empty; to delete the text, remove its item from the file")
        return ID

    async def change(
        self, caller: MoneyCaller, row: OrgContextBody, new_values: OrgContextBody, secret: str | None
    ) -> None:
        await self.create(caller, new_values, secret)

    async def delete(self, caller: MoneyCaller, row: OrgContextBody) -> None:
        await caller.registry.org_context.set_text("", actor=caller.actor)


ORG_CONTEXT_KIND = OrgContextFileHandler()
