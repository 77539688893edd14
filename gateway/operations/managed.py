"""
Resources that people, and partly keys, list, create, read, change and delete. Their operations are
written once, here.

A resource declares its fields, its table and its list, and overrides the rules that differ. `ByPeople` and
`ByKeys` declare its addresses, which `build_people_rows` and `build_key_rows` in `gateway.operations.people` create.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from gateway.core.fields import given_fields
from gateway.core.visible import EVERYTHING, WHOLE, Visible
from gateway.http.lists import List, MemoryRows, Named, Rows
from gateway.operations.files.declared import InFiles, NotInFiles
from spool.errors import Invalid, NotThere
from spool.registry.document_table import ManagedDocument, ManagedTable, NamedTable, Sees, sees_everything
from spool.registry.views import NO_VIEW, View

if TYPE_CHECKING:
    from multidict import MultiMapping

    from gateway.operations.holders.operators import InstallationServices
    from spool.ledger.ledger import Ledger
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.registry.roles import Holder

Answer = Mapping[str, object]
Held = TypeVar("Held")
Held_co = TypeVar("Held_co", covariant=True)
Row = TypeVar("Row", bound=ManagedDocument)

LIST, CREATE, SHOW, CHANGE, DELETE = "list", "create", "show", "change", "delete"  # operations of a resource


class HasLedger(Protocol):
    """The services of a resource that needs only the totals."""

    @property
    def ledger(self) -> Ledger: ...


async def _sees_everything() -> Visible:
    return EVERYTHING


@dataclass(frozen=True, kw_only=True)
class Asker(Generic[Held_co]):
    """
    The caller of an operation: a person, a key, or a command on the server's machine.

    `sees` returns which calls, and which results from them, the caller may see. `known` returns the
    dimensions that the caller may name. Only people may refer to resources by name, and only people must
    confirm deletions. `holder` is the person as a role holder, or None.
    """

    services: Held_co
    shared: InstallationServices
    actor: Actor
    query: MultiMapping[str]
    known: Callable[[], Awaitable[Collection[str]]]
    sees: Callable[[], Awaitable[Visible]] = _sees_everything
    is_person: bool = False
    holder: Holder | None = None

    @property
    def registry(self) -> Registry:
        """Return the registry. Raises Refusal 503 with the reason while the registry cannot be read."""
        return self.shared.require_registry()

    def check_confirmed(self, text: str, what: str) -> None:
        """Raise Invalid if a person's request does not confirm the deletion with `text`."""
        if self.is_person and self.query.get("confirm", "") != text:
            raise Invalid(f"confirm must be the exact {what}")

    async def find_view(self, word: str) -> View:
        """Return the view with this id or name. Raises Invalid if the caller may not see such a view."""
        try:
            return self.registry.views.require_by_id_or_name(word, (await self.sees()).can_see_view)
        except NotThere:
            raise Invalid(NO_VIEW) from None


@dataclass(frozen=True, kw_only=True)
class ByPeople:
    """
    The addresses below the operator API at which people manage a resource. `reads` and `changes` are the
    required permission sets.

    `names` and `words` replace the default operation names and summaries, by operation. `new` is the body
    type for creation, if it differs from that of keys. `is_shown_when_deleted`: a deletion returns the id
    under the root key. `is_confirmed`: a deletion must repeat the name. `repeated` are query parameters for
    reading a single resource. With `in_turn`, reads wait for a turn.
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
    The addresses at which keys manage a resource. `id` is the path parameter, and `group` is the first part
    of the scopes.

    `names`, `scopes` and `words` replace the default operation names, scopes and summaries, by operation.
    `is_bare_when_made`: creation and change return the resource without its root key. Operations in `by_hand`
    have rows at their own handlers. `repeated` are query parameters for reading a single resource. With
    `in_turn`, reads wait for a turn.
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


class ManagedResource(Generic[Row, Held]):
    """
    The declaration of a resource, and its operations. A resource that the caller may not see behaves as if it
    did not exist.

    The second type parameter is the type of the services that its rules use, or `object` if they use none.

    `noun` appears in operation names, and `root` is the JSON key of a single resource. `new` and `changes`
    decode bodies, `item` is a row of the list, and `one` is the answer for a single resource. `files` declares the
    file with its rows. A search finds rows by their `searched` fields, and none if there are no such fields.
    """

    noun: str
    lists: List[Any]
    new: type[msgspec.Struct]
    changes: type[msgspec.Struct]
    item: type[msgspec.Struct]
    one: type[msgspec.Struct]
    table: type[ManagedTable[Row]]
    has_dimensions: bool = False  # whether fields of the resource name dimensions of the ledger
    people: ByPeople | None = None
    keys: ByKeys | None = None
    files: InFiles | NotInFiles
    searched: tuple[str, ...] = ()

    # -- rules of the resource
    # ---------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self.noun

    def table_in(self, registry: Registry) -> ManagedTable[Row]:
        return registry.declared_table(self.table)

    async def visibility_test(self, asking: Asker[Held]) -> Sees[Row]:
        """Return a test for the rows that the caller may see."""
        return sees_everything

    async def displayed_row(self, asking: Asker[Held], row: Row) -> Any:
        """Convert a row to its form in lists."""
        return row

    async def draft_fields(self, asking: Asker[Held], given: Any) -> dict[str, Any]:
        """Convert a body to the fields of a draft. Only fields that the body states are included."""
        return given_fields(given)

    async def check_fields(self, asking: Asker[Held], fields: Mapping[str, Any], before: Row | None) -> None:
        """Raise if this caller may not state these fields. `before` is None for a new row."""

    def server_fields(self, asking: Asker[Held], given: Any) -> Mapping[str, Any]:
        """Return the fields of a new row that its draft lacks, such as a stated id or the creator."""
        return {}

    async def add_requested_data(self, asking: Asker[Held], page: Answer) -> Answer:
        """Add to a page of the list the data that the query requests."""
        return page

    # -- operations; `word` is the id or name in the path
    # ------------------------------------------------------------

    async def stored_rows(self, asking: Asker[Held]) -> list[Row]:
        """Return the rows that the caller may see."""
        sees = await self.visibility_test(asking)
        return [row for row in self.table_in(asking.registry).all() if sees(row)]

    async def visible_rows(self, asking: Asker[Held]) -> Rows[Any]:
        return MemoryRows([await self.displayed_row(asking, row) for row in await self.stored_rows(asking)])

    async def names(self, asking: Asker[Held]) -> Iterator[Named]:
        rows = await self.stored_rows(asking)
        return (Named(row.id, [getattr(row, name) for name in self.searched]) for row in rows)

    async def create(self, asking: Asker[Held], given: Any) -> Answer:
        return await self.complete_write(asking, await self.create_row(asking, given))

    async def create_row(self, asking: Asker[Held], given: Any) -> Row:
        """Check a body and store its row."""
        fields = await self.draft_fields(asking, given)
        await self.check_fields(asking, fields, None)
        return await self.insert_row(asking, fields, self.server_fields(asking, given))

    async def insert_row(self, asking: Asker[Held], fields: Mapping[str, Any], own: Mapping[str, Any]) -> Row:
        table = self.table_in(asking.registry)
        row: Row = await table.create(
            table.draft(**fields),
            most=table.most or asking.shared.most(table.limit),
            known=await self._known_dimensions(asking),
            actor=asking.actor,
            sees=await self.visibility_test(asking),
            **own,
        )
        return row

    async def show(self, asking: Asker[Held], word: str) -> Answer:
        return await self.row_answer(asking, await self.find(asking, word))

    async def change(self, asking: Asker[Held], word: str, given: Any) -> Answer:
        before = await self.find(asking, word)
        fields = await self.draft_fields(asking, given)
        await self.check_fields(asking, fields, before)
        changed = await self.update_row(asking, before, fields, version=getattr(given, "version", None))
        return await self.complete_write(asking, changed)

    async def update_row(
        self, asking: Asker[Held], before: Row, fields: Mapping[str, Any], *, version: str | None = None
    ) -> Row:
        row: Row = await self.table_in(asking.registry).change(
            before.id,
            fields,
            version=version,
            known=await self._known_dimensions(asking),
            actor=asking.actor,
            sees=await self.visibility_test(asking),
        )
        return row

    async def delete(self, asking: Asker[Held], word: str) -> str:
        """Delete a row and return its id."""
        row = await self.find(asking, word)
        await self.table_in(asking.registry).delete(row.id, actor=asking.actor)
        return row.id

    async def find(self, asking: Asker[Held], word: str) -> Row:
        """
        Return the row with an id. A person may use the row's name instead. Raises NotThere if the caller may
        not see such a row.
        """
        table, sees = self.table_in(asking.registry), await self.visibility_test(asking)
        if asking.is_person and isinstance(table, NamedTable):
            named_row: Row = table.require_by_id_or_name(word, sees)
            return named_row
        row = table.get(word)
        if not sees(row):
            raise NotThere(f"there is no {table.kind.noun} with this id")
        return row

    async def complete_write(self, asking: Asker[Held], row: Row) -> Answer:
        """Return the answer about a row that was created or changed."""
        return await self.row_answer(asking, row)

    async def row_answer(self, asking: Asker[Held], row: Row) -> Answer:
        return {self.root: self.lists.show(await self.displayed_row(asking, row))}

    async def _known_dimensions(self, asking: Asker[Held]) -> Collection[str]:
        return await asking.known() if self.has_dimensions else ()


def call_summaries(noun: str) -> Mapping[str, str]:
    singular = with_article(noun)
    return {
        LIST: f"List {noun.replace('_', ' ')}s",
        CREATE: f"Create {singular}",
        SHOW: f"Show {singular}",
        CHANGE: f"Change {singular}",
        DELETE: f"Delete {singular}",
    }


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun.replace('_', ' ')}"
