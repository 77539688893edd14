"""
The kinds of objects that files describe. Kinds of resources are derived from the declaration of the resource.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from graphlib import TopologicalSorter
from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import Metadata, StructType, Type

from gateway.operations.files.declared import InFiles
from gateway.operations.files.text import defaults_of, plain, struct_of
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import Asker, ManagedResource
from spool.errors import NotAllowed
from spool.registry.document_table import stated
from spool.registry.registry import Registry
from spool.registry.roles import BUILTIN

# Modules with the declarations of resources and of other kinds.
MODULES = (
    "gateway.operations.money.channels",
    "gateway.operations.money.views",
    "gateway.operations.people.roles",
    "gateway.operations.people.keys",
    "gateway.operations.money.budgets",
    "gateway.operations.bills.plans",
    "gateway.operations.money.reports.declared",
    "gateway.operations.money.own_prices",
    "gateway.operations.records.event_mappings",
)
Key = tuple[str, ...]
Fields = dict[str, Any]  # the fields of an object in the form of JSON
Asking: TypeAlias = Asker[MoneyServices]
IdOf: TypeAlias = Callable[[str, str], str]


class FileKind(ABC):
    """
    A kind of objects in files. `new` has the fields of an object, except those in `without`, and `action` is the
    part of its audit actions before the dot.

    `makes_secrets`: a new object without `secret_file` gets a new secret, which is written to a file.
    """

    files: InFiles
    noun: str
    action: str
    new: type[msgspec.Struct]
    without: ClassVar[tuple[str, ...]] = ()
    has_secret: ClassVar[bool] = False
    makes_secrets: ClassVar[bool] = False
    is_found_by_name: ClassVar[bool] = False  # whether other objects store its name, not an id

    @abstractmethod
    def rows(self, registry: Registry) -> Mapping[str, Any]:
        """Return the objects by id."""

    @abstractmethod
    def find(self, registry: Registry, id: str) -> Any:
        """Return the object with an id."""

    def written(self, registry: Registry, row: Any) -> Fields:
        """Return all fields of an object, with the names of other objects in place of their ids."""
        return {name: plain(getattr(row, name)) for name in self.fields}

    def given(self, fields: Mapping[str, Any], id_of: IdOf) -> msgspec.Struct:
        """
        Return the body of a creation with these fields. `id_of` returns the id of the object in a file with a name.
        """
        return msgspec.convert(fields, self.new)

    def is_default(self, registry: Registry, row: Any, name: str, value: Any) -> bool:
        """Return whether an object without this field would be the same."""
        return bool(self.defaults.get(name, NODEFAULT) == value)

    @abstractmethod
    async def create(self, asking: Asking, given: Any, secret: str | None) -> str:
        """Create an object and return its id."""

    @abstractmethod
    async def change(self, asking: Asking, row: Any, given: Any, secret: str | None) -> None:
        """Give an object these fields, and this secret. None means that its secret stays."""

    @abstractmethod
    async def delete(self, asking: Asking, row: Any) -> None: ...

    def remark(self, row: Any) -> str:
        """Return a remark about an object for the plan, or ""."""
        return ""

    def secret_mark(self, row: Any) -> object:
        """Return a value that differs if the secret of an object differs."""
        return None

    def needs_secret(self, row: Any) -> bool:
        """Return whether the file must name the secret of an object."""
        return False

    @cached_property
    def fields(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.__struct_fields__ if name not in self.without)

    @cached_property
    def in_file(self) -> type[msgspec.Struct]:
        """The fields of an object in a file. Fields that name another object are texts."""
        return self._without_ids(())

    def _without_ids(self, named: Collection[str]) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for field in msgspec.structs.fields(self.new):
            kind = str if field.name in named else field.type
            if field.name in self.fields:
                fields.append((field.name, kind) if field.required else (field.name, kind, None))
        return msgspec.defstruct(f"{self.new.__name__}InFile", fields, kw_only=True)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the fields that have one, in the form of JSON."""
        return defaults_of(self.new)

    @cached_property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in struct_of(self.in_file).fields}

    def key_of(self, fields: Mapping[str, Any]) -> Key:
        return tuple(str(fields.get(name, self.defaults.get(name, ""))) for name in self.files.key)

    def matched(self, key: Key) -> Key:
        """Return the form of a key in which equal keys are equal."""
        return tuple(part.casefold() for part in key) if self.files.ignores_case else key


class ResourceKind(FileKind):
    """The kind of a resource, which follows from the declaration of the resource."""

    def __init__(self, resource: ManagedResource[Any], files: InFiles) -> None:
        self._resource = resource
        self.files = files
        self.noun = resource.noun.replace("_", " ")
        self.action = resource.noun
        self.new = resource.new

    @cached_property
    def _named(self) -> Sequence[str]:
        """The fields that name an object by its id in storage."""
        return [name for name in self.files.refers if not KINDS()[self.files.refers[name]].is_found_by_name]

    @cached_property
    def in_file(self) -> type[msgspec.Struct]:
        return self._without_ids(self._named)

    def rows(self, registry: Registry) -> Mapping[str, Any]:
        rows = [row for row in self._resource.rows_in(registry).all() if row.id not in BUILTIN]
        return {row.id: row for row in sorted(rows, key=lambda row: (row.created, row.id))}

    def find(self, registry: Registry, id: str) -> Any:
        return self._resource.rows_in(registry).get(id)

    def written(self, registry: Registry, row: Any) -> Fields:
        fields: Fields = {}
        for name in self.fields:
            if name in self._named:
                target = KINDS()[self.files.refers[name]]
                named = target.find(registry, getattr(row, f"{name}_id"))
                fields[name] = target.key_of(target.written(registry, named))[0]
            else:
                fields[name] = plain(getattr(row, name))
        return fields

    def given(self, fields: Mapping[str, Any], id_of: IdOf) -> msgspec.Struct:
        ids = {name: id_of(self.files.refers[name], fields[name]) for name in self._named if name in fields}
        shown = {name: {"id": id} if name in self._of_ids else id for name, id in ids.items()}
        return super().given({**fields, **shown}, id_of)

    @cached_property
    def _of_ids(self) -> Collection[str]:
        """The fields whose value is an object with an id."""
        kinds = {field.name: field.type for field in struct_of(self.new).fields}
        bare = {name: kind.type if isinstance(kind, Metadata) else kind for name, kind in kinds.items()}
        return [name for name in self._named if isinstance(bare[name], StructType)]

    def is_default(self, registry: Registry, row: Any, name: str, value: Any) -> bool:
        if super().is_default(registry, row, name, value):
            return True
        table = self._resource.rows_in(registry)
        if name not in self.defaults or table.draft is not self.new:
            return False
        draft = table.draft(**stated(row, table.draft))
        [default] = [field.default for field in msgspec.structs.fields(self.new) if field.name == name]
        if default is NODEFAULT:
            default = self.defaults[name]
        try:
            return bool(table.checked(msgspec.structs.replace(draft, **{name: default})) == draft)
        except NotAllowed:
            return False

    async def create(self, asking: Asking, given: Any, secret: str | None) -> str:
        return str((await self._resource.stored(asking, given)).id)

    async def change(self, asking: Asking, row: Any, given: Any, secret: str | None) -> None:
        fields = await self._resource.fields(asking, given)
        changed = {name: value for name, value in fields.items() if value != getattr(row, name)}
        if changed:
            await self._resource.check(asking, changed, row)
            await self._resource.alter(asking, row, changed)

    async def delete(self, asking: Asking, row: Any) -> None:
        await self._resource.rows_in(asking.registry).delete(row.id, actor=asking.actor)


@cache
def KINDS() -> Mapping[str, FileKind]:
    """Return the kinds by file. A kind follows the kinds that it refers to."""
    found: dict[str, FileKind] = {}
    for module in map(import_module, MODULES):
        for value in vars(module).values():
            if isinstance(value, FileKind):
                found[value.files.name] = value
            elif isinstance(value, ManagedResource) and isinstance(value.files, InFiles):
                found[value.files.name] = ResourceKind(value, value.files)
    order = TopologicalSorter({name: set(kind.files.refers.values()) for name, kind in found.items()})
    return {name: found[name] for name in order.static_order()}
