"""The notes on the organization: one document, each change with its audit row."""

from __future__ import annotations

from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.org_context import ID, KIND, OrgContext, check_context, restore_context, stored
from spool.registry.registry_rows import RegistryRows


class OrgContextTable:
    """Read and set the notes. A method that raises changes nothing."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def get(self) -> OrgContext | None:
        return await self._changes.read(_read)

    async def set(self, text: str, *, actor: Actor) -> OrgContext | None:
        """Replace the notes; an empty text removes them. The same text again changes nothing."""
        text, now = check_context(text), self._changes.now()

        def work(rows: RegistryRows) -> OrgContext | None:
            before = _read(rows)
            was = "" if before is None else before.text
            if text == was:
                return before
            after = OrgContext(text=text, set_by=actor.name, set_at=now) if text else None
            if after is None:
                rows.delete_document(KIND, ID)
            else:
                rows.put_document(KIND, ID, stored(after))
            rows.add_audit(
                now, actor, "org_context.set", "org_context", before={"text": was}, after={"text": text}
            )
            return after

        return await self._changes.change(work)


def _read(rows: RegistryRows) -> OrgContext | None:
    body = rows.document(KIND, ID)
    return None if body is None else restore_context(body)
