"""
Rows that are kept as documents, one kind for each class of rows, and what every table does when somebody edits one.

A document is a JSON object by its id, for small tables that are read as a whole. A field that a class gains has a
default: documents of before lack it. An edit that changes nothing leaves nothing, and no edit overwrites another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from spool.errors import NotAllowed, RegistryDamaged
from spool.registry.following import DOCUMENTS, Subject
from spool.turns.threads import prepare


class Identified(Protocol):
    """A frozen dataclass whose rows have an id."""

    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=Identified)


class DocumentRows(Protocol):
    """What an engine owes for them, in a transaction of `spool.registry.registry_rows.RegistryRows`."""

    def documents(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """The JSON objects of one kind by id, in the order of the ids."""
        ...

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None: ...

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None: ...

    def delete_document(self, kind: str, id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DocumentKind(Generic[Row]):
    """`name` is that of the kind in the storage, `noun` what messages call one of the rows."""

    name: str
    row: type[Row]
    noun: str

    def __post_init__(self) -> None:
        prepare(self.row)

    @property
    def about(self) -> Subject:
        """Return the subject under which other processes announce a change of one."""
        return (DOCUMENTS, self.name)

    def all(self, rows: DocumentRows) -> dict[str, Row]:
        """Return all, ordered by id."""
        return {id: self.restore(body) for id, body in rows.documents(self.name).items()}

    def find(self, rows: DocumentRows, id: str) -> Row | None:
        body = rows.document(self.name, id)
        return None if body is None else self.restore(body)

    def put(self, rows: DocumentRows, row: Row) -> None:
        """Add a row, or replace the one with its id."""
        rows.put_document(self.name, row.id, stored(row))

    def delete(self, rows: DocumentRows, id: str) -> None:
        rows.delete_document(self.name, id)

    def restore(self, body: Mapping[str, Any]) -> Row:
        """The row of a document; RegistryDamaged if it is none."""
        try:
            return msgspec.convert(body, self.row)
        except msgspec.ValidationError as error:
            raise RegistryDamaged(f"a {self.noun} cannot be read: {error}") from error


def stored(row: Identified) -> dict[str, Any]:
    """The row as a document."""
    body: dict[str, Any] = msgspec.to_builtins(row)
    return body


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Edited = TypeVar("Edited", bound=DataclassInstance)
else:
    Edited = TypeVar("Edited")


def edited(before: Edited, after: Edited, **stamp: Any) -> Edited:
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
