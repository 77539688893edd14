"""
A resource: what people, or keys too, list, create, read, change and delete. Its verbs are written once, here.

A resource declares its fields, its table and its list, and overrides the rules that it has. `ByPeople` and `ByKeys`
say where it is managed; `managed_by_people` and `managed_by_keys` in
`gateway.people.calls` make the addresses from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from gateway.http.lists import List, MemoryRows, Rows
from gateway.http.resources.declaration import stated
from gateway.http.visible import EVERYTHING, WHOLE, Visible
from spool.errors import Invalid, NotThere
from spool.registry.document_table import ManagedDocument, ManagedTable, NamedTable, Sees, everything
from spool.registry.views import NO_VIEW, View

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.http.holders.operators import InstallationServices
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.registry.roles import Holder

Answer = Mapping[str, object]
Held = TypeVar("Held")
Row = TypeVar("Row", bound=ManagedDocument)

LIST, CREATE, SHOW, CHANGE, DELETE = "list", "create", "show", "change", "delete"  # the verbs of a resource


async def _everything() -> Visible:
    return EVERYTHING


@dataclass(frozen=True, kw_only=True)
class Asker(Generic[Held]):
    """
    Who asks. `sees` is what of the calls, and what is made of them, the asker may see; `known` the dimensions
    that the asker may name. A person may name things by their names, too, and confirms what is deleted.

    `holder` is a person as a role holder, None for a key and at the server itself.
    """

    services: Held
    shared: InstallationServices
    actor: Actor
    http: web.Request
    known: Callable[[], Awaitable[Collection[str]]]
    sees: Callable[[], Awaitable[Visible]] = _everything
    is_person: bool = False
    holder: Holder | None = None

    @property
    def registry(self) -> Registry:
        """The registry. Refusal 503 with the reason while it cannot be read."""
        return self.shared.require_registry()

    def check_confirmed(self, text: str, what: str) -> None:
        """Invalid unless a person confirms a deletion with `text`."""
        if self.is_person and self.http.query.get("confirm", "") != text:
            raise Invalid(f"confirm must be the exact {what}")

    async def view_named(self, word: str) -> View:
        """Return the view that a field `view` names. Invalid if the asker sees none of this id or name."""
        try:
            return self.registry.views.find_any(word, (await self.sees()).view)
        except NotThere:
            raise Invalid(NO_VIEW) from None


@dataclass(frozen=True, kw_only=True)
class ByPeople:
    """
    Where people manage a resource, below the operator API; `reads` and `changes` are the permission sets needed.

    `names` and `words` are in place of the usual ones, by verb. `new` decodes one that people create, if not as keys
    do. `is_shown_when_deleted`: what is gone is answered under its name. `is_confirmed`: who deletes one says its
    name. `repeated` are query parameters of one, `in_turn` what is read.
    """

    path: str
    reads: str
    changes: str
    shows: str = WHOLE
    names: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    new: type | None = None
    is_shown_when_deleted: bool = False
    is_confirmed: bool = False
    repeated: tuple[str, ...] = ()
    in_turn: bool = False


@dataclass(frozen=True, kw_only=True)
class ByKeys:
    """
    Where keys manage a resource; `id` names its part of the path, `group` is the first part of the scopes.

    `names`, `scopes` and `words` are in place of the usual ones, by verb. `is_bare_when_made`: one that was
    created or changed is answered without its name. Rows of `by_hand` are written next to their handlers. `repeated`
    are query parameters of one, `in_turn` what is read.
    """

    path: str
    id: str
    group: str
    endpoint: str
    one_endpoint: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    scopes: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    is_bare_when_made: bool = False
    by_hand: Collection[str] = ()
    repeated: tuple[str, ...] = ()
    in_turn: bool = False


class ManagedResource(Generic[Row]):
    """
    The declaration of a resource, and its verbs. What the asker does not see is answered as if it did not exist.

    `noun` is that of its operations, `root` the member under which one is answered. `new` and `changes` decode
    bodies, `item` is a row of the list and `one` an answer about one.
    """

    noun: str
    lists: List[Any]
    new: type[msgspec.Struct]
    changes: type[msgspec.Struct]
    item: type[msgspec.Struct]
    one: type[msgspec.Struct]
    table: type[ManagedTable[Row]]
    has_dimensions: bool = False  # fields of it name dimensions of the ledger
    people: ByPeople | None = None
    keys: ByKeys | None = None

    # -- its rules ---------------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self.noun

    def rows_in(self, registry: Registry) -> ManagedTable[Row]:
        """Return its table of a registry."""
        return registry.table(self.table)

    async def sees(self, asking: Asker[Any]) -> Sees[Row]:
        """Return which rows the asker sees."""
        return everything

    async def shown(self, asking: Asker[Any], row: Row) -> Any:
        """Return a row as its list has it."""
        return row

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        """Return the fields that a body states, by the names of a draft."""
        return stated(given)

    async def check(self, asking: Asker[Any], fields: Mapping[str, Any], before: Row | None) -> None:
        """Raise for fields that this asker may not state; `before` is None for a new one."""

    def own(self, asking: Asker[Any], given: Any) -> Mapping[str, Any]:
        """Return what a new row has beside its draft: its id, if it is stated, and what is of its asker."""
        return {}

    async def filled(self, asking: Asker[Any], page: Answer) -> Answer:
        """Add to a page of the list what the query asks for."""
        return page

    # -- its verbs: `show`, `change` and `delete` take what the path names ---------------------------------------

    async def rows(self, asking: Asker[Any]) -> Rows[Any]:
        sees = await self.sees(asking)
        kept = self.rows_in(asking.registry).all()
        return MemoryRows([await self.shown(asking, row) for row in kept if sees(row)])

    async def create(self, asking: Asker[Any], given: Any) -> Answer:
        fields = await self.fields(asking, given)
        await self.check(asking, fields, None)
        table = self.rows_in(asking.registry)
        made = await table.create(
            table.draft(**fields),
            most=table.most or asking.shared.most(table.limit),
            known=await self._known(asking),
            actor=asking.actor,
            sees=await self.sees(asking),
            **self.own(asking, given),
        )
        return await self.made(asking, made)

    async def show(self, asking: Asker[Any], word: str) -> Answer:
        return await self.answer(asking, await self.find(asking, word))

    async def change(self, asking: Asker[Any], word: str, given: Any) -> Answer:
        before = await self.find(asking, word)
        fields = await self.fields(asking, given)
        await self.check(asking, fields, before)
        changed = await self.rows_in(asking.registry).change(
            before.id,
            fields,
            version=getattr(given, "version", None),
            known=await self._known(asking),
            actor=asking.actor,
            sees=await self.sees(asking),
        )
        return await self.made(asking, changed)

    async def delete(self, asking: Asker[Any], word: str) -> str:
        """Return the id of what is gone."""
        row = await self.find(asking, word)
        await self.rows_in(asking.registry).delete(row.id, actor=asking.actor)
        return row.id

    async def find(self, asking: Asker[Any], word: str) -> Row:
        """Return the row of an id; people may name one by its name. NotThere if the asker sees none."""
        table, sees = self.rows_in(asking.registry), await self.sees(asking)
        if asking.is_person and isinstance(table, NamedTable):
            found: Row = table.find_any(word, sees)
            return found
        row = table.get(word)
        if not sees(row):
            raise NotThere(f"there is no {table.kind.noun} with this id")
        return row

    async def made(self, asking: Asker[Any], row: Row) -> Answer:
        """Answer about a row that was created or changed."""
        return await self.answer(asking, row)

    async def answer(self, asking: Asker[Any], row: Row) -> Answer:
        return {self.root: self.lists.show(await self.shown(asking, row))}

    async def _known(self, asking: Asker[Any]) -> Collection[str]:
        return await asking.known() if self.has_dimensions else ()


def words_of(noun: str) -> Mapping[str, str]:
    """The summaries of the calls, by verb."""
    one = with_article(noun)
    return {
        LIST: f"List {noun.replace('_', ' ')}s",
        CREATE: f"Create {one}",
        SHOW: f"Show {one}",
        CHANGE: f"Change {one}",
        DELETE: f"Delete {one}",
    }


def with_article(noun: str) -> str:
    """Put the article before a noun."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun.replace('_', ' ')}"
