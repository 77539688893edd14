"""
The table under budgets, plans and namespaces: behavior that every declared table has without further code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from spool.errors import AlreadyThere, NotAllowed, NotThere, RegistryDamaged
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name_free
from spool.registry.documents import DocumentCollection, row_version
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA, FLEET = Actor("ada@example.com", "local"), Actor("fleet", "10.0.0.1", is_key=True)

pytestmark = pytest.mark.rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RackDraft:
    name: str
    books: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack(RackDraft):
    id: str
    created: float
    last_updated: float


class RackTable(ManagedTable[Rack], NamedTable[Rack]):
    kind, draft, limit, action = DocumentCollection("rack", Rack, "rack"), RackDraft, "racks.max", "rack"

    def check_conflicts(
        self, registry_rows: RegistryRows, stored: Mapping[str, Rack], row: Rack, can_see_row: Sees[Rack]
    ) -> None:
        check_name_free(stored.values(), row, noun="rack", can_see_row=can_see_row)

    def check_deletion(self, registry_rows: RegistryRows, row: Rack) -> None:
        if row.books:
            raise NotAllowed("it is not empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDraft:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(NoteDraft):
    id: str
    created: float
    last_updated: float


class NoteTable(ManagedTable[Note]):
    """A table without names, with a limit that no setting defines."""

    kind, draft, limit, action = DocumentCollection("note", Note, "note"), NoteDraft, "notes", "note"
    most = 2


class MistakenTable(ManagedTable[Note]):
    """A table whose rule raises an unexpected error."""

    kind, draft, limit, action = DocumentCollection("other", Note, "note"), NoteDraft, "others", "other"

    def check_conflicts(
        self, registry_rows: RegistryRows, stored: Mapping[str, Note], row: Note, can_see_row: Sees[Note]
    ) -> None:
        raise AttributeError("a rule with a mistake")


class Racks:
    """The racks of one open registry, changed by an operator."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.table = registry.declared_table(RackTable)

    @classmethod
    async def of(cls, open_registry: RegistryOpener) -> Racks:
        return cls(await open_registry(declared=[RackTable, NoteTable, MistakenTable]))

    async def create(self, id: str, name: str, *books: str, actor: Actor = ADA) -> Rack:
        return await self.table.create(RackDraft(name=name, books=books), id=id, max_rows=3, actor=actor)

    async def change(self, id: str, *, version: str | None = None, **changes: object) -> Rack:
        return await self.table.change(id, changes, version=version, actor=ADA)

    async def delete(self, id: str) -> None:
        await self.table.delete(id, actor=ADA)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_rows_are_there_after_a_restart(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """After a restart, rows in memory equal the stored rows. They are found by id and by name without case."""
    racks = await Racks.of(open_registry)
    made = await racks.create("a", "Poems", "one")
    await racks.create("b", "plays")
    await racks.delete("b")
    clock.move(60)
    changed = await racks.change("a", books=("one", "two"))
    assert replace(made, books=("one", "two"), last_updated=made.created + 60) == changed
    await racks.registry.close()
    again = await Racks.of(open_registry)
    for each in (racks.table, again.table):
        assert [changed] == each.all() == [each.get("a")]
        assert changed == each.require_by_id_or_name("a") == each.require_by_id_or_name(" POEMS ")
        assert each.count() == 1
        assert each.find("b") is None
        with pytest.raises(NotThere, match="no rack has this id or name"):
            each.require_by_id_or_name("b")


async def test_a_table_without_a_declaration_says_which(open_registry: RegistryOpener) -> None:
    """An incomplete declaration raises an error when the table is created, before any row is read."""

    class Nameless(ManagedTable[Note]):
        kind, draft, action = DocumentCollection("nameless", Note, "note"), NoteDraft, "note"

    with pytest.raises(TypeError, match="Nameless does not declare limit"):
        await open_registry(declared=[Nameless])


async def test_error_of_a_fixed_limit_names_no_setting(open_registry: RegistryOpener) -> None:
    racks = await Racks.of(open_registry)
    notes = racks.registry.declared_table(NoteTable)
    for id in ("a", "b"):
        await notes.create(NoteDraft(text=id), id=id, max_rows=NoteTable.most, actor=ADA)
    with pytest.raises(NotAllowed, match=r"^the limit of 2 notes is reached: delete one first$"):
        await notes.create(NoteDraft(text="c"), id="c", max_rows=NoteTable.most, actor=ADA)
    assert racks.registry.max_rows_by_limit() == {"notes": 2, "enrolment tokens": 20_000}


async def test_a_mistake_in_a_rule_is_not_called_damage(open_registry: RegistryOpener) -> None:
    """
    A defect in a rule is not reported as damage. Otherwise an operator would start a new registry and
    lose every key.
    """
    racks = await Racks.of(open_registry)
    table = racks.registry.declared_table(MistakenTable)
    with pytest.raises(AttributeError, match="a rule with a mistake"):
        await table.create(NoteDraft(text="a"), id="a", max_rows=None, actor=ADA)
    assert await racks.create("a", "Poems")


async def test_a_registry_has_the_tables_that_it_was_opened_with(open_registry: RegistryOpener) -> None:
    """The registry finds names and creators of rows in declared tables as it does in its own tables."""
    racks = await Racks.of(open_registry)
    await racks.create("a", "Poems", actor=FLEET)
    assert racks.registry.document_name("rack", "a") == "Poems"
    assert racks.registry.document_name("rack", "b") is None
    held = await racks.registry.row_counts_by_limit_and_key()
    assert held["racks.max"] == {"fleet": 1, "": 0}
    assert held["notes"] == {"": 0}
    with pytest.raises(KeyError):
        (await open_registry(declared=[])).declared_table(RackTable)


async def test_rows_need_neither_names_nor_rules(open_registry: RegistryOpener) -> None:
    """A table declares only the rules that it has. A row without an id gets a new one."""
    table = (await Racks.of(open_registry)).registry.declared_table(NoteTable)
    one, two = [await table.create(NoteDraft(text="one"), max_rows=2, actor=ADA) for _ in range(2)]
    await table.change(one.id, {"text": "two"}, actor=ADA)
    assert one.text == "one"
    assert table.get(one.id).text == "two"
    assert table.get(two.id).text == "one"
    await table.delete(one.id, actor=ADA)
    assert 1 == table.count()


async def test_ids_and_names_are_unique_and_rows_are_bounded(open_registry: RegistryOpener) -> None:
    """
    Ids and names are unique, and the number of rows is limited. The refusal names the setting of the limit. One key
    cannot use the whole limit, and deleted rows free space.
    """
    racks = await Racks.of(open_registry)
    await racks.create("a", "one", actor=FLEET)
    with pytest.raises(AlreadyThere, match="with the id 'a'"):
        await racks.create("a", "two")
    with pytest.raises(AlreadyThere, match="named 'ONE'"):
        await racks.create("b", "ONE")
    await racks.create("b", "two")
    with pytest.raises(
        NotAllowed, match=r"a key gets at most half of what others leave free of racks\.max = 3"
    ):
        await racks.create("c", "three", actor=FLEET)
    await racks.delete("a")
    await racks.create("c", "three", actor=FLEET)
    await racks.create("d", "four")
    with pytest.raises(NotAllowed, match=r"limit of 3 racks \(racks\.max\)"):
        await racks.create("e", "five")
    with pytest.raises(AlreadyThere):
        await racks.change("b", name="Three")
    assert "TWO" == (await racks.change("b", name="TWO")).name


@pytest.mark.every_engine
async def test_changes_are_audited_and_refusals_leave_nothing(
    open_registry: RegistryOpener, clock: MovedClock
) -> None:
    """
    The audit row of an edit shows its changes. An edit without a change, or of an old version, adds no row.
    """
    racks = await Racks.of(open_registry)
    made = await racks.create("a", "one", "x")
    clock.move(60)
    assert made == await racks.change("a", name="one")
    with pytest.raises(NotAllowed, match="changed after you read it"):
        await racks.change("a", version="another", name="two")
    with pytest.raises(NotAllowed, match="not empty"):
        await racks.delete("a")
    for refused in (racks.change("b", name="two"), racks.delete("b")):
        with pytest.raises(NotThere):
            await refused
    assert [made] == racks.table.all()
    await racks.change("a", version=row_version(made), books=())
    await racks.delete("a")
    rows = [(row.action, row.target, row.before, row.after) for row in await audit_rows(racks.registry)]
    assert ("rack.create", "a", None, {"name": "one", "books": ["x"]}) == rows[0]
    assert ("rack.change", "a", {"books": ["x"]}, {"books": []}) == rows[1]
    assert [("rack.delete", "a", {"name": "one", "books": []}, None)] == rows[2:]


async def test_a_document_that_cannot_be_read_is_damage(open_registry: RegistryOpener) -> None:
    """A document that cannot be read is damage: the error names its kind, and no altered row is returned."""
    changes = (await open_registry())._changes
    await changes.change_rows(lambda rows: rows.put_document("rack", "a", {"id": "a", "name": 1}))
    with pytest.raises(RegistryDamaged, match="a stored rack cannot be read"):
        await Racks.of(open_registry)
