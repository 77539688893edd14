"""
What every table does when somebody edits a row of it: nothing for nothing, and nothing over somebody else's edit.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from spool.errors import NotAllowed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Row = TypeVar("Row", bound=DataclassInstance)
else:
    Row = TypeVar("Row")


def edited(before: Row, after: Row, **stamp: Any) -> Row:
    """
    `after` with when and by whom it was changed; `before` itself if they are equal.

    Then nothing is kept of it and nothing audited: a time of a change says that something was changed.
    """
    return before if after == before else replace(after, **stamp)


def version_of(row: object) -> str:
    """
    A row as a short text, another one after each change. It is shown with the row, and given back with an
    edit of it.
    """
    body = msgspec.to_builtins(row)
    return blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=12).hexdigest()


def check_version(version: str, read: str | None) -> None:
    """NotAllowed if a row is not what was read any more; None: whoever edits it did not say what was read."""
    if read is not None and read != version:
        raise NotAllowed(
            "this was changed since you read it, so your edit was not kept: read it again, then edit it"
        )
