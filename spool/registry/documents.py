"""
Rows stored as JSON documents, one kind of document per row class, and rules of editing.

Documents suit small tables that are read as a whole. A new field needs a default, because older documents
lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import Annotated, Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec

from spool.errors import NotAllowed, RegistryDamaged
from spool.registry.following import DOCUMENTS, ChangedRowId
from spool.turns.threads import prepare_types_for_msgspec


class Identified(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=Identified)
Edited = TypeVar("Edited")
Item = TypeVar("Item")
_PORTION = 250


@dataclass(frozen=True, slots=True)
class StoredForm:
    """
    How documents store a field, if not as its plain JSON form. The field's type states it.

    `to`: returns the document's members for a value in JSON form. `back`: returns this JSON form from a
    document.
    """

    to: Callable[[Any], Mapping[str, Any]]
    back: Callable[[Mapping[str, Any]], Any]


class DocumentRows(Protocol):
    """The access to documents that an engine provides within a transaction."""

    def documents(self, kind: str, ids: Iterable[str] | None = None) -> Mapping[str, Mapping[str, Any]]:
        """Return all documents of a kind, or those with these ids. Order by id."""
        ...

    def each_document(self, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the id and the JSON object of each document of one kind, ordered by id, with few in memory."""
        ...

    def document(self, kind: str, id: str) -> Mapping[str, Any] | None: ...

    def put_document(self, kind: str, id: str, body: Mapping[str, Any]) -> None: ...

    def put_documents(self, kind: str, bodies: Iterable[tuple[str, Mapping[str, Any]]]) -> None: ...

    def delete_document(self, kind: str, id: str) -> None: ...

    def delete_documents(self, kind: str, ids: Iterable[str]) -> None: ...


def split_into_portions(items: Iterable[Item]) -> Iterator[list[Item]]:
    """
    Yield the items in small lists. PostgreSQL ends a transaction that computes for long between two
    statements, so a change of many documents runs a statement per list.
    """
    remaining = iter(items)
    while portion := list(islice(remaining, _PORTION)):
        yield portion


@dataclass(frozen=True, slots=True)
class DocumentCollection(Generic[Row]):
    """A kind of documents. `name`: in the storage. `noun`: in messages."""

    name: str
    row: type[Row]
    noun: str

    def __post_init__(self) -> None:
        prepare_types_for_msgspec(self.row)

    @property
    def announced_subject(self) -> ChangedRowId:
        return (DOCUMENTS, self.name)

    def all(self, document_rows: DocumentRows) -> dict[str, Row]:
        return {id: self.build_row_from_body(body) for id, body in document_rows.documents(self.name).items()}

    def find(self, document_rows: DocumentRows, id: str) -> Row | None:
        body = document_rows.document(self.name, id)
        return None if body is None else self.build_row_from_body(body)

    def store_row(self, document_rows: DocumentRows, row: Row) -> None:
        document_rows.put_document(self.name, row.id, stored_body(row))

    def delete(self, document_rows: DocumentRows, id: str) -> None:
        document_rows.delete_document(self.name, id)

    def build_row_from_body(self, body: Mapping[str, Any]) -> Row:
        """Decode a document to its row. Raises RegistryDamaged if that is impossible."""
        try:
            values = {name: form.back(body) for name, form in _stored_form_by_field(self.row).items()}
            return msgspec.convert({**body, **values}, self.row)
        except (msgspec.ValidationError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise RegistryDamaged(f"a stored {self.noun} cannot be read: {error}") from error


def stored_body(row: Any) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(row)
    for name, form in _stored_form_by_field(row.__class__).items():
        body |= form.to(body.pop(name))
    return body


@cache
def _stored_form_by_field(kind: type) -> Mapping[str, StoredForm]:
    if not issubclass(kind, msgspec.Struct):
        return {}
    notes = {
        field.name: get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
        for field in msgspec.structs.fields(kind)
    }
    return {name: note for name, found in notes.items() for note in found if isinstance(note, StoredForm)}


def replace_fields(row: Edited, **changes: Any) -> Edited:
    if isinstance(row, msgspec.Struct):
        return msgspec.structs.replace(row, **changes)
    return replace(row, **changes)  # type: ignore[type-var]


def with_change_fields_if_changed(before: Edited, after: Edited, **stamp: Any) -> Edited:
    """
    Return `after` with the stamp (time and author), or `before` if the rows are equal.

    So an edit without a change is neither stored nor audited, and a new time always means a change.
    """
    return before if after == before else replace_fields(after, **stamp)


def row_version(row: object) -> str:
    """
    Return a text that a client sends back with an edit, to detect a concurrent change.

    Fields in the class's `noted` are left out, because Tollhouse itself writes them and must not make an edit
    fail.
    """
    body = stored_body(row)
    for name in getattr(row, "noted", ()):
        del body[name]
    return blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=12).hexdigest()


def check_version_unchanged(version: str, version_read: str | None) -> None:
    """Raise NotAllowed if the row's version is no longer the one that was `version_read`. None checks nothing."""
    if version_read is not None and version_read != version:
        raise NotAllowed(
            "this was changed after you read it, so your edit was not stored. Read it again, then "
            "repeat your edit"
        )
