"""The table that views, budgets, roles and namespaces are: what one more of them has without a line of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from spool.errors import AlreadyThere, NotAllowed, NotThere, RegistryDamaged
from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.shared.document_table import DocumentTable, NamedTable, check_name, stated
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.edits import version_of
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA, FLEET = Actor("ada@example.com", "local"), Actor("fleet", "10.0.0.1", is_key=True)

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True, slots=True, kw_only=True)
class RackDraft:
    name: str
    books: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack(RackDraft):
    id: str
    created: float
    last_updated: float


class RackTable(NamedTable[Rack]):
    kind, draft, limit, action = DocumentKind("rack", Rack, "rack"), RackDraft, "racks.max", "rack"

    async def create(self, id: str, draft: RackDraft, *, actor: Actor = ADA) -> Rack:
        now = self._changes.clock.now()
        row = Rack(id=id, created=now, last_updated=now, **stated(draft))
        return await self._add(row, check=_check, most=3, actor=actor)

    async def change(self, id: str, *, version: str | None = None, **changes: object) -> Rack:
        def changed(row: Rack) -> Rack:
            return replace(row, **changes)  # type: ignore[arg-type]

        return await self._edit(id, changed, check=_check, version=version, actor=ADA)

    async def delete(self, id: str) -> None:
        await self._remove(id, check=_check_empty, actor=ADA)


def _check(rows: RegistryRows, kept: Mapping[str, Rack], rack: Rack) -> None:
    check_name(kept.values(), rack, noun="rack")


def _check_empty(rows: RegistryRows, rack: Rack) -> None:
    if rack.books:
        raise NotAllowed("it is not empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDraft:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(NoteDraft):
    id: str
    created: float
    last_updated: float


class NoteTable(DocumentTable[Note]):
    """Without a name, and without a rule among its rows."""

    kind, draft, limit, action = DocumentKind("note", Note, "note"), NoteDraft, "notes.max", "note"


async def opened(registry: Registry) -> RackTable:
    table = RackTable(changes_of(registry))
    await table.load()
    return table


def changes_of(registry: Registry) -> Changes:
    return registry._changes


async def test_rows_are_there_after_a_restart(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """In memory as they were kept, found by their ids and by their names whatever the case."""
    registry = await open_registry()
    table = await opened(registry)
    made = await table.create("a", RackDraft(name="Poems", books=("one",)))
    await table.create("b", RackDraft(name="plays"))
    await table.delete("b")
    clock.move(60)
    changed = await table.change("a", books=("one", "two"))
    assert replace(made, books=("one", "two"), last_updated=made.created + 60) == changed
    await registry.close()
    again = await opened(await open_registry())
    for each in (table, again):
        assert [changed] == each.all() == [each.get("a")]
        assert changed == each.find_any("a") == each.find_any(" POEMS ")
        assert (1, None) == (each.count(), each.find("b"))
        with pytest.raises(NotThere, match="there is no rack with this id or name"):
            each.find_any("b")


async def test_rows_need_neither_names_nor_checks(open_registry: RegistryOpener) -> None:
    """A table states a rule only where it has one."""
    table = NoteTable(changes_of(await open_registry()))
    await table.load()
    made = await table._add(Note(id="a", created=1.0, last_updated=1.0, text="one"), most=1, actor=ADA)
    await table._edit(
        "a", lambda row: replace(row, **stated(table._redrafted(row, {"text": "two"}))), actor=ADA
    )
    assert ("one", "two") == (made.text, table.get("a").text)
    await table._remove("a", actor=ADA)
    assert 0 == table.count()


async def test_ids_and_names_are_unique_and_rows_are_bounded(open_registry: RegistryOpener) -> None:
    """The refusal names the setting; a key leaves room for others, and what it deleted is room again."""
    table = await opened(await open_registry())
    await table.create("a", RackDraft(name="one"), actor=FLEET)
    with pytest.raises(AlreadyThere, match="with the id 'a'"):
        await table.create("a", RackDraft(name="two"))
    with pytest.raises(AlreadyThere, match="named 'ONE'"):
        await table.create("b", RackDraft(name="ONE"))
    await table.create("b", RackDraft(name="two"))
    with pytest.raises(NotAllowed, match=r"no key makes more than it leaves free of racks\.max = 3"):
        await table.create("c", RackDraft(name="three"), actor=FLEET)
    await table.delete("a")
    await table.create("c", RackDraft(name="three"), actor=FLEET)
    await table.create("d", RackDraft(name="four"))
    with pytest.raises(NotAllowed, match=r"there are 3 racks \(racks\.max\)"):
        await table.create("e", RackDraft(name="five"))
    with pytest.raises(AlreadyThere):
        await table.change("b", name="Three")


async def test_changes_are_audited_and_refusals_leave_nothing(
    open_registry: RegistryOpener, clock: MovedClock
) -> None:
    """An edit shows what it changed; one that changes nothing, or is of an older version, leaves no row."""
    registry = await open_registry()
    table = await opened(registry)
    made = await table.create("a", RackDraft(name="one", books=("x",)))
    clock.move(60)
    assert made == await table.change("a", name="one")
    with pytest.raises(NotAllowed, match="changed since you read it"):
        await table.change("a", version="another", name="two")
    with pytest.raises(NotAllowed, match="not empty"):
        await table.delete("a")
    for refused in (table.change("b", name="two"), table.delete("b")):
        with pytest.raises(NotThere):
            await refused
    assert [made] == table.all()
    await table.change("a", version=version_of(made), books=())
    await table.delete("a")
    rows = [(row.action, row.target, row.before, row.after) for row in await audit_rows(registry)]
    assert ("rack.create", "a", None, {"name": "one", "books": ["x"]}) == rows[0]
    assert ("rack.change", "a", {"books": ["x"]}, {"books": []}) == rows[1]
    assert [("rack.delete", "a", {"name": "one", "books": []}, None)] == rows[2:]


async def test_a_document_that_cannot_be_read_is_damage(open_registry: RegistryOpener) -> None:
    """It names what it should have been; nothing is served that is not what was kept."""
    registry = await open_registry()
    await changes_of(registry).change(lambda rows: rows.put_document("rack", "a", {"id": "a", "name": 1}))
    with pytest.raises(RegistryDamaged, match="a rack cannot be read"):
        await opened(registry)
