"""
A table of documents: what people and keys create, change and delete, all of it in memory, too.

A new table of this kind needs no line of any engine: it declares its rows, its limit and what it checks. Which key made
a row is a document of its own, none for what a person made: no key makes more than it leaves free (`spool.shares`).
People have all that is left.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from spool.errors import AlreadyThere, NotAllowed, NotThere
from spool.registry.changes import Changes
from spool.registry.documents import Identified, check_version, edited, stored, version_of
from spool.registry.following import DOCUMENTS, Subject
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.shares import may_add

INSIGHTS = "insights"


def held(rows: RegistryRows, limit: str, there: int) -> Mapping[str, int]:
    """Count the existing rows that each key made; those that people made stand under ""."""
    made = Counter(makers(rows, limit).values())
    return {**made, "": max(0, there - made.total())}


def check_share(rows: RegistryRows, limit: str, there: Collection[str], most: int, actor: Actor) -> None:
    """NotAllowed if a key made as many of the ids that are `there` as it leaves free of `most`."""
    if actor.is_key:
        _check(actor.name, list(owners(rows, limit, there)), len(there), most, limit)


def check_made(rows: RegistryRows, limit: str, there: int, most: int, actor: Actor) -> None:
    """
    Check the share of a key as `check_share` does, for a table that is not read as a whole: every deletion of
    its rows forgets the maker.
    """
    if actor.is_key:
        _check(actor.name, list(makers(rows, limit).values()), there, most, limit)


def check_comments(authors: Sequence[str], n: int, most: int, actor: Actor) -> None:
    """NotAllowed if a key that adds `n` would have written more than it leaves free."""
    if actor.is_key and not may_add(authors.count(actor.name), len(authors) + n - 1, n, most):
        raise NotAllowed(
            f"there are {len(authors)} comments, and no key writes more than it leaves free of {most}"
        )


def _check(key: str, made: Sequence[str], there: int, most: int, limit: str) -> None:
    own = made.count(key)
    if not may_add(own, there, 1, most):
        raise NotAllowed(
            f"this key made {own}, and no key makes more than it leaves free of {limit} = {most}: delete "
            "one, or let an"
            " operator make it"
        )


def note_maker(rows: RegistryRows, limit: str, id: str, actor: Actor) -> None:
    if actor.is_key:
        rows.put_document(_kind(limit), id, {"key": actor.name})


def forget_maker(rows: RegistryRows, limit: str, id: str) -> None:
    rows.delete_document(_kind(limit), id)


def makers(rows: RegistryRows, limit: str) -> Mapping[str, str]:
    """The key that made a row, by the row's id."""
    return {id: str(body["key"]) for id, body in rows.documents(_kind(limit)).items()}


def owners(rows: RegistryRows, limit: str, there: Collection[str]) -> Iterator[str]:
    """The key of each row that is there, "" for what a person made."""
    made = makers(rows, limit)
    return (made.get(id, "") for id in there)


def _kind(limit: str) -> str:
    return f"made by key: {limit}"


class ManagedDocument(Identified, Protocol):
    """With the times at which it was made and changed: epoch seconds."""

    @property
    def created(self) -> float: ...

    @property
    def last_updated(self) -> float: ...


class NamedDocument(ManagedDocument, Protocol):
    """One that people find by its name."""

    @property
    def name(self) -> str: ...


class MemoryTable(Protocol):
    """A table that keeps rows in memory."""

    @property
    def about(self) -> tuple[Subject, ...]:
        """Return the subjects that this table holds in memory, under which other processes announce their changes."""
        ...

    async def load(self) -> None:
        """Read all that is kept in memory."""
        ...


Row = TypeVar("Row", bound=ManagedDocument)
NamedRow = TypeVar("NamedRow", bound=NamedDocument)


class RowKind(Protocol[Row]):
    """Where the rows of a table are: documents of one kind (`DocumentKind`), or a table of their own."""

    @property
    def noun(self) -> str: ...

    @property
    def about(self) -> Subject: ...

    @property
    def row(self) -> Callable[..., Row]:
        """The class of the rows."""
        ...

    def all(self, rows: RegistryRows) -> dict[str, Row]:
        """Read all rows, by id."""
        ...

    def put(self, rows: RegistryRows, row: Row) -> None: ...

    def delete(self, rows: RegistryRows, id: str) -> None: ...


Sees: TypeAlias = "Callable[[Row], bool]"  # whether the person who asks may see a row


def everything(_: object) -> bool:
    return True


# What is checked of a row that is to be kept, among all that are there; it raises.
Check = Callable[[RegistryRows, Mapping[str, Row], Row], None]


class DocumentTable(Generic[Row]):
    """
    Rows of one kind. Each change is one transaction with its audit row, and one that raises changes nothing.

    A table declares its kind, its draft and its limit. `_add`, `_edit` and `_remove` keep its rows.
    """

    kind: RowKind[Row]
    draft: type[Any]  # its fields are what people and keys state of a row, and what the audit list shows
    limit: str  # the setting that bounds the rows, or a name for the bound if `most` has it; makers are noted by it
    most: int = 0  # the bound itself, where no setting has it
    action: str  # of audit rows, before the dot

    def __init__(self, changes: Changes) -> None:
        missing = [name for name in ("kind", "draft", "limit", "action") if not hasattr(self, name)]
        if missing:
            raise TypeError(f"{type(self).__name__} does not declare {', '.join(missing)}: see DocumentTable")
        self._changes = changes
        self._rows: dict[str, Row] = {}

    @property
    def about(self) -> tuple[Subject, ...]:
        return (self.kind.about,)

    async def load(self) -> None:
        self._set(await self._changes.read(self.kind.all))

    def all(self) -> list[Row]:
        return list(self._rows.values())

    def find(self, id: str) -> Row | None:
        return self._rows.get(id)

    def get(self, id: str) -> Row:
        """NotThere if there is none."""
        return self._found(self._rows, id)

    def count(self) -> int:
        """Return how many there are, of the rows that are made and deleted."""
        return len(self._rows)

    def held_beside(self) -> Mapping[str, Mapping[str, int]]:
        """Return, by limit, how much else than rows each key holds; what people hold stands under ""."""
        return {}

    async def _add(self, row: Row, *, check: Check[Row] | None = None, most: int | None, actor: Actor) -> Row:
        """NotAllowed when there are `most`, or a key made as many as it leaves free; None for any number."""
        noun = self.kind.noun

        def work(rows: RegistryRows) -> Row:
            stored = self.kind.all(rows)
            if row.id in stored:
                raise AlreadyThere(f"there is a {noun} with the id {row.id!r}")
            if most is not None and len(stored) >= most:
                setting = "" if self.most else f" ({self.limit})"
                raise NotAllowed(f"there are {most} {noun}s{setting}; delete one")
            if most is not None:
                check_share(rows, self.limit, stored, most, actor)
            if check is not None:
                check(rows, stored, row)
            self.kind.put(rows, row)
            note_maker(rows, self.limit, row.id, actor)
            rows.add_audit(row.created, actor, f"{self.action}.create", row.id, after=self._shown(row))
            return row

        return await self._changes.change(work, self._remember)

    async def _edit(
        self,
        id: str,
        edit: Callable[[Row], Row],
        *,
        check: Check[Row] | None = None,
        version: str | None = None,
        actor: Actor,
        **stamp: Any,
    ) -> Row:
        """
        Keep what `edit` makes of a row, with `stamp` if that is another one.

        NotAllowed if it is not of the `version` any more that was read.
        """
        now = self._changes.now()

        def work(rows: RegistryRows) -> Row:
            stored = self.kind.all(rows)
            before = self._found(stored, id)
            check_version(version_of(before), version)
            after: Row = edited(before, edit(before), last_updated=now, **stamp)  # type: ignore[type-var]
            if after is before:
                return before
            if check is not None:
                check(rows, stored, after)
            self.kind.put(rows, after)
            names = [name for name in names_of(self.draft) if getattr(before, name) != getattr(after, name)]
            was = self._shown(before, names)
            is_now = self._shown(after, names)
            rows.add_audit(now, actor, f"{self.action}.change", id, before=was, after=is_now)
            return after

        return await self._changes.change(work, self._remember)

    def _redrafted(self, before: Row, changes: Mapping[str, Any]) -> Any:
        """The draft of a row with the fields that are changed; not checked."""
        return self.draft(**{**stated(before, self.draft), **changes})

    async def _remove(
        self, id: str, *, check: Callable[[RegistryRows, Row], None] | None = None, actor: Actor
    ) -> None:
        """`check` raises if the row has to stay, and takes away what goes with it."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> None:
            before = self._found(self.kind.all(rows), id)
            if check is not None:
                check(rows, before)
            self.kind.delete(rows, id)
            forget_maker(rows, self.limit, id)
            rows.add_audit(now, actor, f"{self.action}.delete", id, before=self._shown(before))

        await self._changes.change(work, lambda _: self._forget(id))

    def _found(self, kept: Mapping[str, Row], id: str) -> Row:
        row = kept.get(id)
        if row is None:
            raise NotThere(f"there is no {self.kind.noun} with this id")
        return row

    def _shown(self, row: Row, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return a row's stated fields, or these alone, for the audit list."""
        body = stored(row)
        return {name: body[name] for name in (names_of(self.draft) if names is None else names)}

    def _set(self, rows: dict[str, Row]) -> None:
        """Keep these in memory."""
        self._rows = rows

    def _remember(self, row: Row) -> None:
        self._set({**self._rows, row.id: row})

    def _forget(self, id: str) -> None:
        self._set({kept: row for kept, row in self._rows.items() if kept != id})


class ManagedTable(DocumentTable[Row]):
    """A table whose rows people and keys manage as drafts. Subclasses override the rules of their resource."""

    def checked(self, draft: Any) -> Any:
        """Return a draft in its stored form. Invalid names the field and the rule."""
        return draft

    def check_known(self, draft: Any, given: Collection[str], known: Collection[str]) -> None:
        """Invalid if a field that is given names a dimension that is not `known`."""

    def made(self, actor: Actor, now: float) -> Mapping[str, Any]:
        """Return the fields of a new row that its draft, its id and its times do not set."""
        return {}

    def changed(self, before: Row, after: Row, actor: Actor, now: float) -> Row:
        """Return the form in which to store a changed row."""
        return after

    def check_place(self, rows: RegistryRows, stored: Mapping[str, Row], row: Row, sees: Sees[Row]) -> None:
        """Raise if a new or changed row conflicts with stored rows. `sees` says which rows the requester may see."""

    def check_deletion(self, rows: RegistryRows, row: Row) -> None:
        """Raise if a row must not be deleted. Otherwise delete the rows that depend on it."""

    async def create(
        self,
        draft: Any,
        *,
        id: str | None = None,
        most: int | None,
        known: Collection[str] = (),
        actor: Actor,
        sees: Sees[Row] = everything,
        **own: Any,
    ) -> Row:
        """
        Add a row under a new id or a given one. `own` are fields beside those of its draft.

        NotAllowed when there are `most`, or a key made as many as it leaves free; None for any number.
        """
        now = self._changes.now()
        drafted = self.checked(draft)
        self.check_known(drafted, names_of(self.draft), known)
        row: Row = self.kind.row(
            **stated(drafted),
            **self.made(actor, now),
            **own,
            id=secrets.token_hex(16) if id is None else id,
            created=now,
            last_updated=now,
        )
        return await self._add(row, check=self._place(sees), most=most, actor=actor)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known: Collection[str] = (),
        actor: Actor,
        sees: Sees[Row] = everything,
    ) -> Row:
        """Set the fields of a draft that are given. NotAllowed if the row is not of the `version` that was read."""
        now = self._changes.now()

        def edit(before: Row) -> Row:
            drafted = self.checked(self._redrafted(before, changes))
            self.check_known(drafted, changes, known)
            after: Row = replace(before, **stated(drafted))  # type: ignore[type-var]
            return before if after == before else self.changed(before, after, actor, now)

        return await self._edit(id, edit, check=self._place(sees), version=version, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        await self._remove(id, check=self.check_deletion, actor=actor)

    def _place(self, sees: Sees[Row]) -> Check[Row]:
        return lambda rows, stored, row: self.check_place(rows, stored, row, sees)


class PlainDocuments:
    """Documents of one kind as whoever uses them writes them: added and taken away whole, all in memory."""

    def __init__(self, changes: Changes, kind: str) -> None:
        self._changes = changes
        self._kind = kind
        self._documents: Mapping[str, Mapping[str, Any]] = {}

    @property
    def about(self) -> tuple[Subject, ...]:
        return ((DOCUMENTS, self._kind),)

    async def load(self) -> None:
        self._documents = await self._changes.read(lambda rows: rows.documents(self._kind))

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """All by id: another mapping after each change."""
        return self._documents

    async def add(
        self, id: str, body: Mapping[str, Any], *, actor: Actor, action: str, shown: Mapping[str, object]
    ) -> None:
        """Keep one that is not there; AlreadyThere if it is. `shown` is what the audit list shows of it."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> None:
            if rows.document(self._kind, id) is not None:
                raise AlreadyThere(f"{id} is there already")
            rows.put_document(self._kind, id, body)
            rows.add_audit(now, actor, action, id, after=shown)

        await self._changes.change(work, lambda _: self._set({**self._documents, id: body}))

    async def remove(self, id: str, *, actor: Actor, action: str) -> None:
        """Take one away; NotThere if it is not there. Without an `action` another change tells of it."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> None:
            if rows.document(self._kind, id) is None:
                raise NotThere(f"there is no {id}")
            rows.delete_document(self._kind, id)
            if action:
                rows.add_audit(now, actor, action, id)

        kept = {each: body for each, body in self._documents.items() if each != id}
        await self._changes.change(work, lambda _: self._set(kept))

    def _set(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._documents = documents


class NamedTable(DocumentTable[NamedRow]):
    """A table whose rows are found by their names, too."""

    def named(self, name: str, sees: Sees[NamedRow] = everything) -> NamedRow | None:
        """The row of this name, whatever the case, among those that are seen."""
        wanted = name.strip().casefold()
        return next((row for row in self.all() if row.name.casefold() == wanted and sees(row)), None)

    def find_any(self, word: str, sees: Sees[NamedRow] = everything) -> NamedRow:
        """The row of this id, else of this name. NotThere if neither is there and seen."""
        row = self.find(word)
        if row is None or not sees(row):
            row = self.named(word, sees)
        if row is None:
            raise NotThere(f"there is no {self.kind.noun} with this id or name")
        return row


def names_of(draft: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(draft))


def stated(draft: Any, kind: type[Any] | None = None) -> dict[str, Any]:
    """The fields of a draft, or of a row those that its draft has."""
    return {name: getattr(draft, name) for name in names_of(kind or type(draft))}


def is_taken(kept: Iterable[NamedRow], row: NamedRow, sees: Sees[NamedRow] = everything) -> bool:
    """
    True if another one has the new name of a row, whatever the case.

    One that is not seen does not count: else the refusal would show that it exists.
    """
    name = row.name.casefold()
    same = [each for each in kept if each.name.casefold() == name and (each.id == row.id or sees(each))]
    return bool(same) and all(each.id != row.id for each in same)


def check_name(
    kept: Iterable[NamedRow], row: NamedRow, *, noun: str, sees: Sees[NamedRow] = everything
) -> None:
    """AlreadyThere if the new name of a row is taken."""
    if is_taken(kept, row, sees):
        raise AlreadyThere(f"there is a {noun} named {row.name!r}")
