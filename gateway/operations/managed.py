"""
Resources that people, and partly keys, list, create, read, change and delete. Their operations are
written once, here.

A resource declares its fields, its table and its list, and overrides the rules that differ. `ByPeople` and
`ByKeys` declare its addresses, which `build_people_rows` and `build_key_rows` in `gateway.operations.people` create,
and `ByCommands` its commands, which `build_resource_group` in `gateway.cli.operator.resources` creates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from gateway.core.fields import given_fields
from gateway.core.visibility import EVERYTHING, WHOLE, VisibilityRules
from gateway.http.lists import ListDefinition, MemoryRows, Rows, SearchableObject
from gateway.operations.files.declared import NoResourceFiles, ResourceFiles
from spool.errors import Invalid, NotThere
from spool.registry.document_table import ManagedDocument, ManagedTable, NamedTable, Sees, sees_everything
from spool.registry.views import NO_VIEW, SavedView

if TYPE_CHECKING:
    from multidict import MultiMapping

    from gateway.operations.requests.operation_requests import OperationServices
    from spool.ledger.ledger import Ledger
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.registry.roles import RoleHolder

JsonAnswer = Mapping[str, object]
Held = TypeVar("Held")
Held_co = TypeVar("Held_co", covariant=True)
Row = TypeVar("Row", bound=ManagedDocument)

LIST, CREATE, SHOW, CHANGE, DELETE = "list", "create", "show", "change", "delete"  # operations of a resource


class HasLedger(Protocol):
    """The services of a resource that needs only the totals."""

    @property
    def ledger(self) -> Ledger: ...


async def _sees_everything() -> VisibilityRules:
    return EVERYTHING


@dataclass(frozen=True, kw_only=True)
class OperationCaller(Generic[Held_co]):
    """
    The caller of an operation: a person, a key, or a command on the server's machine.

    `sees` returns which calls, and which results from them, the caller may see. `known` returns the
    dimensions that the caller may name. Only people may refer to resources by name, and only people must
    confirm deletions. `holder` is the person as a role holder, or None.
    """

    services: Held_co
    shared: OperationServices
    actor: Actor
    query: MultiMapping[str]
    known: Callable[[], Awaitable[Collection[str]]]
    sees: Callable[[], Awaitable[VisibilityRules]] = _sees_everything
    is_person: bool = False
    holder: RoleHolder | None = None

    @property
    def registry(self) -> Registry:
        """Return the registry. Raises Refusal 503 with the reason while the registry cannot be read."""
        return self.shared.require_registry()

    def check_confirmed(self, expected_text: str, value_name: str) -> None:
        """Raise Invalid if a person's request does not confirm the deletion with `expected_text`."""
        if self.is_person and self.query.get("confirm", "") != expected_text:
            raise Invalid(f"confirm must be the exact {value_name}")

    async def find_view(self, id_or_name: str) -> SavedView:
        """Return the view with this id or name. Raises Invalid if the caller may not see such a view."""
        try:
            return self.registry.views.require_by_id_or_name(id_or_name, (await self.sees()).can_see_view)
        except NotThere:
            raise Invalid(NO_VIEW) from None


@dataclass(frozen=True, kw_only=True)
class ByPeople:
    """
    The addresses below the operator API at which people manage a resource. `reads` and `changes` are the
    required permission sets.

    `names` and `words` replace the default operation names and summaries, by operation. `new` is the body
    type for creation, if it differs from the one at the addresses for keys. `is_shown_when_deleted`: a
    deletion returns the id under the root key. `is_confirmed`: a deletion must repeat the name. `repeated`
    are query parameters for reading a single resource. With `in_turn`, reads of one person or key run one at
    a time.
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
    have handlers of their own. `repeated` are query parameters for reading a single resource. With `in_turn`,
    reads of one person or key run one at a time.
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


@dataclass(frozen=True, kw_only=True)
class ByCommands:
    """
    The command group of a resource. `columns` are those of its list as a table. `words` and `filters` replace the
    default help of a command, by operation, and of an option of the list, by filter.
    """

    help: str
    columns: tuple[str, ...]
    words: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)


class ManagedResource(Generic[Row, Held]):
    """
    The declaration of a resource, and its operations. A resource that the caller may not see behaves as if it
    did not exist.

    The second type parameter is the type of the services that its rules use, or `object` if they use none.

    `noun` appears in operation names. `new` and `changes` decode bodies, `item` is a row of the list, and
    `one` is the answer for a single resource. `files` declares how resource files list it. A search finds
    rows by their `searched` fields, and none if there are no such fields.
    """

    noun: str
    lists: ListDefinition[Any]
    new: type[msgspec.Struct]
    changes: type[msgspec.Struct]
    item: type[msgspec.Struct]
    one: type[msgspec.Struct]
    table: type[ManagedTable[Row]]
    has_dimensions: bool = False  # whether fields of the resource name dimensions of the ledger
    people: ByPeople | None = None
    keys: ByKeys | None = None
    commands: ByCommands | None = None  # None for a resource whose commands are written by hand
    files: ResourceFiles | NoResourceFiles
    searched: tuple[str, ...] = ()

    # -- rules of the resource
    # ---------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self.noun

    def table_in(self, registry: Registry) -> ManagedTable[Row]:
        return registry.declared_table(self.table)

    async def visibility_test(self, caller: OperationCaller[Held]) -> Sees[Row]:
        return sees_everything

    async def convert_row_for_lists(self, caller: OperationCaller[Held], row: Row) -> Any:
        """Convert a row to its form in lists."""
        return row

    async def draft_fields(self, caller: OperationCaller[Held], new_values: Any) -> dict[str, Any]:
        """Convert a body to a draft's fields. Only fields that the body states are included."""
        return given_fields(new_values)

    async def check_fields(
        self, caller: OperationCaller[Held], fields: Mapping[str, Any], before: Row | None
    ) -> None:
        """Raise if this caller may not state these fields. `before` is None for a new row."""

    def fields_set_by_server(self, caller: OperationCaller[Held], new_values: Any) -> Mapping[str, Any]:
        """Return the fields of a new row that its draft lacks, such as a stated id or the creator."""
        return {}

    async def add_requested_data(self, caller: OperationCaller[Held], page: JsonAnswer) -> JsonAnswer:
        """Add to a page of the list the data that the query requests."""
        return page

    # -- operations; `word` is the id or name in the path
    # ------------------------------------------------------------

    async def stored_rows(self, caller: OperationCaller[Held]) -> list[Row]:
        """Return the rows that the caller may see."""
        sees = await self.visibility_test(caller)
        return [row for row in self.table_in(caller.registry).all() if sees(row)]

    async def visible_rows(self, caller: OperationCaller[Held]) -> Rows[Any]:
        return MemoryRows(
            [await self.convert_row_for_lists(caller, row) for row in await self.stored_rows(caller)]
        )

    async def searchable_objects(self, caller: OperationCaller[Held]) -> Iterator[SearchableObject]:
        rows = await self.stored_rows(caller)
        return (SearchableObject(row.id, [getattr(row, name) for name in self.searched]) for row in rows)

    async def create(self, caller: OperationCaller[Held], new_values: Any) -> JsonAnswer:
        return await self.finish_write_and_answer(caller, await self.create_row(caller, new_values))

    async def create_row(self, caller: OperationCaller[Held], new_values: Any) -> Row:
        """Check a body and store its row."""
        fields = await self.draft_fields(caller, new_values)
        await self.check_fields(caller, fields, None)
        return await self.insert_row(caller, fields, self.fields_set_by_server(caller, new_values))

    async def insert_row(
        self, caller: OperationCaller[Held], fields: Mapping[str, Any], server_fields: Mapping[str, Any]
    ) -> Row:
        table = self.table_in(caller.registry)
        row: Row = await table.create(
            table.draft(**fields),
            max_rows=table.most or caller.shared.most(table.limit),
            known_dimensions=await self._known_dimensions(caller),
            actor=caller.actor,
            can_see_row=await self.visibility_test(caller),
            **server_fields,
        )
        return row

    async def show(self, caller: OperationCaller[Held], id_or_name: str) -> JsonAnswer:
        return await self.row_answer(caller, await self.find(caller, id_or_name))

    async def change(self, caller: OperationCaller[Held], id_or_name: str, new_values: Any) -> JsonAnswer:
        before = await self.find(caller, id_or_name)
        fields = await self.draft_fields(caller, new_values)
        await self.check_fields(caller, fields, before)
        changed = await self.update_row(caller, before, fields, version=getattr(new_values, "version", None))
        return await self.finish_write_and_answer(caller, changed)

    async def update_row(
        self,
        caller: OperationCaller[Held],
        before: Row,
        fields: Mapping[str, Any],
        *,
        version: str | None = None,
    ) -> Row:
        row: Row = await self.table_in(caller.registry).change(
            before.id,
            fields,
            version=version,
            known_dimensions=await self._known_dimensions(caller),
            actor=caller.actor,
            can_see_row=await self.visibility_test(caller),
        )
        return row

    async def delete(self, caller: OperationCaller[Held], id_or_name: str) -> str:
        row = await self.find(caller, id_or_name)
        await self.table_in(caller.registry).delete(row.id, actor=caller.actor)
        return row.id

    async def find(self, caller: OperationCaller[Held], id_or_name: str) -> Row:
        """
        Return the row with an id. A person may use the row's name instead. Raises NotThere if the caller may
        not see such a row.
        """
        table, sees = self.table_in(caller.registry), await self.visibility_test(caller)
        if caller.is_person and isinstance(table, NamedTable):
            named_row: Row = table.require_by_id_or_name(id_or_name, sees)
            return named_row
        row = table.get(id_or_name)
        if not sees(row):
            raise NotThere(f"there is no {table.kind.noun} with this id")
        return row

    async def finish_write_and_answer(self, caller: OperationCaller[Held], row: Row) -> JsonAnswer:
        """Return the answer about a row that was created or changed."""
        return await self.row_answer(caller, row)

    async def row_answer(self, caller: OperationCaller[Held], row: Row) -> JsonAnswer:
        return {self.root: self.lists.show(await self.convert_row_for_lists(caller, row))}

    async def _known_dimensions(self, caller: OperationCaller[Held]) -> Collection[str]:
        return await caller.known() if self.has_dimensions else ()


def operation_summaries(noun: str) -> Mapping[str, str]:
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
