"""The organization's notes for assistants, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.operations.files.declared import InFiles
from gateway.operations.files.kinds import Asking, FileKind
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid
from spool.registry.org_context import ID, KIND
from spool.registry.permission_sets import USE_ASSISTANTS
from spool.registry.registry import Registry


class OrgContextText(RequestBody):
    text: str


class OrgContextKind(FileKind):
    files = InFiles(name="organization", key=())
    noun = "organization context"
    action = KIND
    new = OrgContextText
    reads = USE_ASSISTANTS

    def id_of(self, row: OrgContextText) -> str:
        return ID

    async def rows(self, registry: Registry) -> Mapping[str, OrgContextText]:
        context = await registry.org_context.get()
        return {} if context is None else {ID: OrgContextText(text=context.text)}

    async def find(self, registry: Registry, id: str) -> OrgContextText:
        return (await self.rows(registry))[id]

    async def create(self, asking: Asking, given: OrgContextText, secret: str | None) -> str:
        if await asking.registry.org_context.set(given.text, actor=asking.actor) is None:
            raise Invalid("text must not be empty; remove this item instead")
        return ID

    async def change(
        self, asking: Asking, row: OrgContextText, given: OrgContextText, secret: str | None
    ) -> None:
        await self.create(asking, given, secret)

    async def delete(self, asking: Asking, row: OrgContextText) -> None:
        await asking.registry.org_context.set("", actor=asking.actor)


ORG_CONTEXT_KIND = OrgContextKind()
