"""The notes for AI assistants that an organization writes: one text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.changes import RegistryChangeWriter
from spool.registry.file_owners import check_unmanaged
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import storable_text
from spool.turns.threads import prepare_types_for_msgspec

KIND = "org_context"
ID = "notes"
MAX_TEXT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgContext:
    """The notes as stored. `set_at`: epoch seconds."""

    text: str
    set_by: str
    set_at: float


prepare_types_for_msgspec(OrgContext)


def encode_context(context: OrgContext) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(context)
    return body


def restore_context(body: Mapping[str, Any]) -> OrgContext:
    try:
        return msgspec.convert(body, OrgContext)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"the stored notes on the organization cannot be read: {error}") from error


def check_org_context_text(text: str) -> str:
    """Return the text without blanks around it. Empty means no notes. Raises Invalid."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise Invalid(f"text must have at most {MAX_TEXT} characters, but this has {len(text)}: shorten it")
    return storable_text(text)


class OrgContextTable:
    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def get(self) -> OrgContext | None:
        return await self._changes.read(_read_context)

    async def set_text(self, text: str, *, actor: Actor) -> OrgContext | None:
        """Replace the notes. An empty text deletes them."""
        text, now = check_org_context_text(text), self._changes.now()

        def store_context_text(registry_rows: RegistryRows) -> OrgContext | None:
            before = _read_context(registry_rows)
            old_text = "" if before is None else before.text
            if text == old_text:
                return before
            check_unmanaged(self._changes, registry_rows, KIND, ID)
            after = OrgContext(text=text, set_by=actor.name, set_at=now) if text else None
            if after is None:
                registry_rows.delete_document(KIND, ID)
            else:
                registry_rows.put_document(KIND, ID, encode_context(after))
            registry_rows.add_audit(
                now, actor, "org_context.set", "org_context", before={"text": old_text}, after={"text": text}
            )
            return after

        return await self._changes.change_rows(store_context_text)


def _read_context(registry_rows: RegistryRows) -> OrgContext | None:
    body = registry_rows.document(KIND, ID)
    return None if body is None else restore_context(body)
