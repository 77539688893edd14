"""What an organization wants assistants to know of it: one text, with who set it. Values and rules; no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.shared.texts import storable
from spool.turns.threads import prepare

KIND = "org_context"  # of its document
ID = "notes"
MAX_TEXT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgContext:
    """As it is kept; `set_at` is in epoch seconds."""

    text: str
    set_by: str
    set_at: float


prepare(OrgContext)


def stored(context: OrgContext) -> dict[str, Any]:
    """The text as a document."""
    body: dict[str, Any] = msgspec.to_builtins(context)
    return body


def restore_context(body: Mapping[str, Any]) -> OrgContext:
    """The text of a document; RegistryDamaged if it is none."""
    try:
        return msgspec.convert(body, OrgContext)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"the notes on the organization cannot be read: {error}") from error


def check_context(text: str) -> str:
    """The text in its stored form; empty for none."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise Invalid(f"text has at most {MAX_TEXT} characters, and this has {len(text)}: shorten it")
    return storable(text)
