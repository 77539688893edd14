"""What a statement of one question says of dimensions, and texts as PostgreSQL can keep them."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from spool.ledger.queries import BILLED_DIMENSIONS, DIMENSIONS, PRICED_BY, ROW_DIMENSIONS, ROW_TAG, TAG
from spool.ledger.sums import Dimensions


class AskedStatement:
    """The parameters of one statement, and what it joins to the dimensions."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.joins: list[str] = []

    def text(self, value: Any) -> str:
        """The place of a parameter."""
        name = f"p{len(self.values)}"
        self.values[name] = value
        return f"%({name})s"


def own(dimension: str, asked: AskedStatement) -> str:
    """Return SQL for one of the ledger's own dimensions."""
    if dimension in DIMENSIONS:
        return f'k."{dimension}"'
    if dimension in PRICED_BY:
        return f'CAST(k."{dimension}" AS text)'
    if dimension == "origin":
        return f"COALESCE(NULLIF({own(TAG + ROW_TAG + dimension, asked)}, ''), 'calls')"
    if dimension in ROW_DIMENSIONS:
        return own(TAG + ROW_TAG + dimension, asked)
    if dimension == "corrects":  # what stands behind a mark in the key of a provider
        return "split_part(h.provider, chr(31), 2)"
    if dimension in BILLED_DIMENSIONS:
        return f"h.{dimension}"
    return f"COALESCE(k.tag_values ->> {asked.text(stored(dimension.removeprefix(TAG)))}::text, '')"


def digest_of(dimensions: Dimensions) -> bytes:
    return blake2b(json.dumps(dimensions).encode(), digest_size=16).digest()


def stored(value: Any) -> Any:
    """A value as PostgreSQL can keep it: its texts have no U+0000 and no half of a character."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def tag_values(tags: str) -> str:
    """Return the tags as they are asked for."""
    values = json.loads(tags) if tags else {}
    return json.dumps({stored(name): stored(value) for name, value in values.items()}, ensure_ascii=False)
