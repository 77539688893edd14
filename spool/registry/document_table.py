"""
Tables of documents that people and keys create, change and delete, all in memory.

A new table declares its rows, its limit and its checks, and needs no code in engines. A separate document
stores which key created a row. A key may use at most half of the rows that other keys leave free
(`spool.shares`), people all others.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from spool.errors import AlreadyThere, NotAllowed, NotThere
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import (
    Identified,
    check_version_unchanged,
    replace_fields,
    row_version,
    stored_body,
    with_change_fields_if_changed,
)
from spool.registry.file_owners import check_unmanaged
from spool.registry.following import DOCUMENTS, ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.shares import is_within_share

INSIGHTS = "insights"


def row_counts_by_creator_key(
    registry_rows: RegistryRows, limit_name: str, row_count: int
) -> Mapping[str, int]:
    """Return the number of rows that each key created, and under "" those of people."""
    counts_by_maker = Counter(creator_key_by_row_id(registry_rows, limit_name).values())
    return {**counts_by_maker, "": max(0, row_count - counts_by_maker.total())}


def require_key_within_row_share(
    registry_rows: RegistryRows, limit_name: str, row_ids: Collection[str], max_rows: int, actor: Actor
) -> None:
    """
    Raise NotAllowed if the key of `actor` would have more than half of the rows that other keys leave free.
    `row_ids`: the ids of all rows.
    """
    if actor.is_key:
        _require_within_row_share(
            actor.name,
            list(creator_keys_of_rows(registry_rows, limit_name, row_ids)),
            len(row_ids),
            max_rows,
            limit_name,
        )


def require_key_within_recorded_share(
    registry_rows: RegistryRows, limit_name: str, row_count: int, max_rows: int, actor: Actor
) -> None:
    """
    Raise NotAllowed if the actor's key would have more than half of the rows that other keys leave free. The
    makers of rows are recorded, so every deletion of a row must call `delete_creator_key`.
    """
    if actor.is_key:
        _require_within_row_share(
            actor.name,
            list(creator_key_by_row_id(registry_rows, limit_name).values()),
            row_count,
            max_rows,
            limit_name,
        )


def require_key_within_comment_share(
    authors_of_comments: Sequence[str], new_comments: int, max_rows: int, actor: Actor
) -> None:
    if actor.is_key and not is_within_share(
        authors_of_comments.count(actor.name),
        len(authors_of_comments) + new_comments - 1,
        new_comments,
        max_rows,
    ):
        raise NotAllowed(
            f"the comment was not added: {len(authors_of_comments)} of {max_rows} comments exist, and a key gets at "
            "most half of what others leave free"
        )


def _require_within_row_share(
    key: str, creator_keys: Sequence[str], row_count: int, maximum: int, limit_name: str
) -> None:
    own = creator_keys.count(key)
    if not is_within_share(own, row_count, 1, maximum):
        raise NotAllowed(
            f"this key already created {own}: a key gets at most half of what others leave free of "
            f"{limit_name} = {maximum}. Delete one, or ask an operator to create it"
        )


def store_key_that_created_row(
    registry_rows: RegistryRows, limit_name: str, row_id: str, actor: Actor
) -> None:
    if actor.is_key:
        registry_rows.put_document(_document_kind_of_creator_keys(limit_name), row_id, {"key": actor.name})


def delete_creator_key(registry_rows: RegistryRows, limit_name: str, row_id: str) -> None:
    registry_rows.delete_document(_document_kind_of_creator_keys(limit_name), row_id)


def creator_key_by_row_id(registry_rows: RegistryRows, limit_name: str) -> Mapping[str, str]:
    return {
        id: str(body["key"])
        for id, body in registry_rows.documents(_document_kind_of_creator_keys(limit_name)).items()
    }


def creator_keys_of_rows(
    registry_rows: RegistryRows, limit_name: str, row_ids: Collection[str]
) -> Iterator[str]:
    maker_of = creator_key_by_row_id(registry_rows, limit_name)
    return (maker_of.get(id, "") for id in row_ids)


def _document_kind_of_creator_keys(limit_name: str) -> str:
    return f"made by key: {limit_name}"


class ManagedDocument(Identified, Protocol):
    """A stored document that people or files manage. Times are epoch seconds."""

    @property
    def created(self) -> float: ...

    @property
    def last_updated(self) -> float: ...


class NamedDocument(ManagedDocument, Protocol):
    @property
    def name(self) -> str: ...


class MemoryTable(Protocol):
    @property
    def announced_subjects(self) -> tuple[ChangedRowId, ...]:
        """Return the subjects under which other processes announce changes of this table's rows."""
        ...

    async def load(self) -> None: ...


Row = TypeVar("Row", bound=ManagedDocument)
NamedRow = TypeVar("NamedRow", bound=NamedDocument)


class RowCollection(Protocol[Row]):
    """How rows of a class are stored: as documents (`DocumentCollection`), or in a database table."""

    @property
    def noun(self) -> str: ...

    @property
    def announced_subject(self) -> ChangedRowId: ...

    @property
    def row(self) -> Callable[..., Row]: ...

    def all(self, registry_rows: RegistryRows) -> dict[str, Row]: ...

    def store_row(self, registry_rows: RegistryRows, row: Row) -> None: ...

    def delete(self, registry_rows: RegistryRows, id: str) -> None: ...


# function that returns whether the requester may see a row
Sees: TypeAlias = "Callable[[Row], bool]"


def sees_everything(_: object) -> bool:
    return True


# function that raises if a row does not fit all stored rows
DocumentCheck = Callable[[RegistryRows, Mapping[str, Row], Row], None]


class DocumentTable(Generic[Row]):
    """
    A table of documents. Each change is one transaction with its audit row; if it raises, nothing changes.

    A subclass declares its kind, its editable fields (`draft`) and its limit, and uses `_add_row`,
    `_edit_row` and `_remove_row`.
    """

    kind: RowCollection[Row]
    draft: type[Any]  # the fields that people and keys set and the audit list shows
    # Name of the setting that limits the number of rows, or any text if `most` limits it. Rows are also
    # recorded by creator under this name.
    limit: str
    most: int = 0  # largest number of rows, if no setting limits it
    action: str  # name of audit actions before the dot

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        missing = [name for name in ("kind", "draft", "limit", "action") if not hasattr(self, name)]
        if missing:
            raise TypeError(f"{type(self).__name__} does not declare {', '.join(missing)}: see DocumentTable")
        self._changes = change_writer
        self._rows: dict[str, Row] = {}

    @property
    def announced_subjects(self) -> tuple[ChangedRowId, ...]:
        return (self.kind.announced_subject,)

    async def load(self) -> None:
        self._set_rows(await self._changes.read(self.kind.all))

    def all(self) -> list[Row]:
        return list(self._rows.values())

    def find(self, id: str) -> Row | None:
        return self._rows.get(id)

    def get(self, id: str) -> Row:
        return self._require_row(self._rows, id)

    def count(self) -> int:
        """Return the number of rows, without built-in ones."""
        return len(self._rows)

    def item_counts_by_limit_and_key(self) -> Mapping[str, Mapping[str, int]]:
        """
        Return the number of other items, such as comments, by the name of their limit and the API key that
        created them. The key "" stands for people.
        """
        return {}

    async def _add_row(
        self, row: Row, *, check: DocumentCheck[Row] | None = None, max_rows: int | None, actor: Actor
    ) -> Row:
        """
        Add a row. Raises NotAllowed if there would be more than `max_rows` rows (None: no limit), or if a key
        would have too many.
        """
        noun = self.kind.noun

        def add_row(registry_rows: RegistryRows) -> Row:
            stored = self._stored_rows(registry_rows)
            if row.id in stored:
                raise AlreadyThere(f"a {noun} with the id {row.id!r} already exists")
            if max_rows is not None and len(stored) >= max_rows:
                setting = "" if self.most else f" ({self.limit})"
                raise NotAllowed(f"the limit of {max_rows} {noun}s{setting} is reached: delete one first")
            if max_rows is not None:
                require_key_within_row_share(registry_rows, self.limit, stored, max_rows, actor)
            if check is not None:
                check(registry_rows, stored, row)
            self.kind.store_row(registry_rows, row)
            store_key_that_created_row(registry_rows, self.limit, row.id, actor)
            registry_rows.add_audit(
                row.created, actor, f"{self.action}.create", row.id, after=self._audited_fields(row)
            )
            return row

        return await self._changes.change_rows(add_row, self._remember_row)

    async def _edit_row(
        self,
        id: str,
        edit: Callable[[Row], Row],
        *,
        check: DocumentCheck[Row] | None = None,
        version: str | None = None,
        actor: Actor,
        **stamp: Any,
    ) -> Row:
        """
        Apply `edit` to a row. If this changes the row, also set the fields in `stamp`.

        Raises NotAllowed if the row's version is not `version`.
        """
        now = self._changes.now()

        def edit_row(registry_rows: RegistryRows) -> Row:
            stored = self._stored_rows(registry_rows)
            before = self._require_row(stored, id)
            check_version_unchanged(row_version(before), version)
            after: Row = with_change_fields_if_changed(before, edit(before), last_updated=now, **stamp)
            if after is before:
                return before
            check_unmanaged(self._changes, registry_rows, self.action, id)
            if check is not None:
                check(registry_rows, stored, after)
            self.kind.store_row(registry_rows, after)
            old, new = self._audited_fields(before), self._audited_fields(after)
            names = [name for name in new if old[name] != new[name]]
            old, new = ({name: members[name] for name in names} for members in (old, new))
            registry_rows.add_audit(now, actor, f"{self.action}.change", id, before=old, after=new)
            return after

        return await self._changes.change_rows(edit_row, self._remember_row)

    def _changed_draft(self, before: Row, changes: Mapping[str, Any]) -> Any:
        return self.draft(**{**draft_fields(before, self.draft), **changes})

    async def _remove_row(
        self, id: str, *, check: Callable[[RegistryRows, Row], None] | None = None, actor: Actor
    ) -> None:
        """Delete a row. `check` raises if it must not be deleted, else it deletes dependent rows."""
        now = self._changes.now()

        def remove_row(registry_rows: RegistryRows) -> None:
            before = self._require_row(self._stored_rows(registry_rows), id)
            check_unmanaged(self._changes, registry_rows, self.action, id)
            if check is not None:
                check(registry_rows, before)
            self.kind.delete(registry_rows, id)
            delete_creator_key(registry_rows, self.limit, id)
            registry_rows.add_audit(
                now, actor, f"{self.action}.delete", id, before=self._audited_fields(before)
            )

        await self._changes.change_rows(remove_row, lambda _: self._forget_row(id))

    def _stored_rows(self, registry_rows: RegistryRows) -> Mapping[str, Row]:
        """
        Return the stored rows. In a draft (all changes are one open transaction), memory has them, because no
        other process changes them.
        """
        return self._rows if self._changes.is_draft else self.kind.all(registry_rows)

    def _require_row(self, kept: Mapping[str, Row], id: str) -> Row:
        row = kept.get(id)
        if row is None:
            raise NotThere(f"no {self.kind.noun} has this id")
        return row

    def _audited_fields(self, row: Row, names: Iterable[str] | None = None) -> dict[str, Any]:
        others = set(field_names(type(row))) - set(field_names(self.draft))
        members = {name: value for name, value in stored_body(row).items() if name not in others}
        return members if names is None else {name: members[name] for name in names}

    def _set_rows(self, rows: dict[str, Row]) -> None:
        self._rows = rows

    def _remember_row(self, row: Row) -> None:
        self._set_rows({**self._rows, row.id: row})

    def _forget_row(self, id: str) -> None:
        self._set_rows({row_id: row for row_id, row in self._rows.items() if row_id != id})


class ManagedTable(DocumentTable[Row]):
    """A table of rows that are created and changed by drafts. Subclasses override the rules that differ."""

    def check_draft(self, draft: Any) -> Any:
        """Return a draft in its stored form. Raises Invalid with the field and the broken rule."""
        return draft

    def require_known_dimensions(
        self, draft: Any, changed_fields: Collection[str], known_dimensions: Collection[str]
    ) -> None:
        """Raise Invalid if a field in `changed_fields` uses a dimension that is not in `known_dimensions`."""

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        """Return the fields of a new row that its draft does not have, except id and times."""
        return {}

    def with_reset_progress(self, before: Row, after: Row, actor: Actor, now: float) -> Row:
        return after

    def check_conflicts(
        self, registry_rows: RegistryRows, stored: Mapping[str, Row], row: Row, can_see_row: Sees[Row]
    ) -> None:
        """
        Raise an error if the row conflicts with stored rows. `can_see_row` returns whether a row may be named in the
        error.
        """

    def check_deletion(self, registry_rows: RegistryRows, row: Row) -> None:
        """Raise an error if the row must not be deleted. Otherwise delete dependent rows."""

    async def create(
        self,
        draft: Any,
        *,
        id: str | None = None,
        max_rows: int | None,
        known_dimensions: Collection[str] = (),
        actor: Actor,
        can_see_row: Sees[Row] = sees_everything,
        **own: Any,
    ) -> Row:
        """
        Create a row from a draft. `own`: fields outside the draft.

        Raises NotAllowed beyond `max_rows` rows (None: no limit), or if a key would have too many.
        """
        now = self._changes.now()
        drafted = self.check_draft(draft)
        self.require_known_dimensions(drafted, field_names(self.draft), known_dimensions)
        row: Row = self.kind.row(
            **draft_fields(drafted),
            **self.creation_fields(actor, now),
            **own,
            id=secrets.token_hex(16) if id is None else id,
            created=now,
            last_updated=now,
        )
        return await self._add_row(
            row, check=self._conflict_check(can_see_row), max_rows=max_rows, actor=actor
        )

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known_dimensions: Collection[str] = (),
        actor: Actor,
        can_see_row: Sees[Row] = sees_everything,
    ) -> Row:
        """Change fields of a row. Raises NotAllowed if the row's version is not `version`."""
        now = self._changes.now()

        def edit_row(before: Row) -> Row:
            drafted = self.check_draft(self._changed_draft(before, changes))
            self.require_known_dimensions(drafted, changes, known_dimensions)
            after: Row = replace_fields(before, **draft_fields(drafted))
            return before if after == before else self.with_reset_progress(before, after, actor, now)

        return await self._edit_row(
            id, edit_row, check=self._conflict_check(can_see_row), version=version, actor=actor
        )

    async def delete(self, id: str, *, actor: Actor) -> None:
        await self._remove_row(id, check=self.check_deletion, actor=actor)

    def _conflict_check(self, can_see_row: Sees[Row]) -> DocumentCheck[Row]:
        return lambda rows, stored, row: self.check_conflicts(rows, stored, row, can_see_row)


class ImmutableDocumentTable:
    """
    Documents without a row class, all in memory. They are added, removed and replaced as a whole. Audit rows omit
    the fields `unaudited`.
    """

    def __init__(
        self, change_writer: RegistryChangeWriter, kind: str, *, unaudited: Collection[str] = ()
    ) -> None:
        self._changes = change_writer
        self._kind = kind
        self._unaudited = unaudited
        self._documents: Mapping[str, Mapping[str, Any]] = {}

    @property
    def announced_subjects(self) -> tuple[ChangedRowId, ...]:
        return ((DOCUMENTS, self._kind),)

    async def load(self) -> None:
        self._documents = await self._changes.read(lambda rows: rows.documents(self._kind))

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the documents by id. Every change creates a new mapping."""
        return self._documents

    async def add(self, id: str, body: Mapping[str, Any], *, actor: Actor, action: str) -> None:
        """Add a document. Raises AlreadyThere if the id exists."""
        now = self._changes.now()

        def add_document(registry_rows: RegistryRows) -> None:
            if registry_rows.document(self._kind, id) is not None:
                raise AlreadyThere(f"{id} already exists")
            registry_rows.put_document(self._kind, id, body)
            registry_rows.add_audit(now, actor, action, id, after=self._audited_fields(body))

        await self._changes.change_rows(
            add_document, lambda _: self._set_documents({**self._documents, id: body})
        )

    async def replace(self, id: str, body: Mapping[str, Any], *, actor: Actor, action: str) -> None:
        """Replace a document. Raises NotThere."""
        now = self._changes.now()

        def replace_document(registry_rows: RegistryRows) -> None:
            before = registry_rows.document(self._kind, id)
            if before is None:
                raise NotThere(f"{id} does not exist")
            registry_rows.put_document(self._kind, id, body)
            fields = self._audited_fields(before), self._audited_fields(body)
            registry_rows.add_audit(now, actor, action, id, before=fields[0], after=fields[1])

        await self._changes.change_rows(
            replace_document, lambda _: self._set_documents({**self._documents, id: body})
        )

    async def remove(self, id: str, *, actor: Actor, action: str) -> None:
        """Delete a document. Raises NotThere. If `action` is "", no audit row is written."""
        now = self._changes.now()

        def remove_document(registry_rows: RegistryRows) -> None:
            body = registry_rows.document(self._kind, id)
            if body is None:
                raise NotThere(f"{id} does not exist")
            registry_rows.delete_document(self._kind, id)
            if action:
                registry_rows.add_audit(now, actor, action, id, before=self._audited_fields(body))

        remaining = {other_id: body for other_id, body in self._documents.items() if other_id != id}
        await self._changes.change_rows(remove_document, lambda _: self._set_documents(remaining))

    def _audited_fields(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in body.items() if name not in self._unaudited}

    def _set_documents(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._documents = documents


class NamedTable(DocumentTable[NamedRow]):
    def find_by_name(self, name: str, can_see_row: Sees[NamedRow] = sees_everything) -> NamedRow | None:
        folded_name = name.strip().casefold()
        return next(
            (row for row in self.all() if row.name.casefold() == folded_name and can_see_row(row)), None
        )

    def require_by_id_or_name(
        self, id_or_name: str, can_see_row: Sees[NamedRow] = sees_everything
    ) -> NamedRow:
        row = self.find(id_or_name)
        if row is None or not can_see_row(row):
            row = self.find_by_name(id_or_name, can_see_row)
        if row is None:
            raise NotThere(f"no {self.kind.noun} has this id or name")
        return row


def field_names(draft: type[Any]) -> tuple[str, ...]:
    if issubclass(draft, msgspec.Struct):
        return draft.__struct_fields__
    return tuple(draft_field.name for draft_field in fields(draft))


def draft_fields(draft: Any, kind: type[Any] | None = None) -> dict[str, Any]:
    """Return the fields of a draft or, with `kind`, those fields of a row that the draft class `kind` has."""
    return {name: getattr(draft, name) for name in field_names(kind or type(draft))}


def is_name_taken(
    kept: Iterable[NamedRow], row: NamedRow, can_see_row: Sees[NamedRow] = sees_everything
) -> bool:
    """
    Return whether another row that `can_see_row` accepts has this name, ignoring case.

    An error about hidden rows would reveal them.
    """
    name = row.name.casefold()
    same = [
        other
        for other in kept
        if other.name.casefold() == name and (other.id == row.id or can_see_row(other))
    ]
    return bool(same) and all(other.id != row.id for other in same)


def check_name_free(
    kept: Iterable[NamedRow], row: NamedRow, *, noun: str, can_see_row: Sees[NamedRow] = sees_everything
) -> None:
    if is_name_taken(kept, row, can_see_row):
        raise AlreadyThere(f"a {noun} named {row.name!r} already exists")
