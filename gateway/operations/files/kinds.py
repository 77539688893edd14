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
from unicodedata import normalize

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import Metadata, StructType, Type

from gateway.core.fields import field_default
from gateway.core.visibility import SLICED
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.text import inspect_struct_type, json_defaults, to_json_form, without_defaults
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.list import RESOURCES
from gateway.operations.managed import ManagedResource, OperationCaller
from spool.errors import NotAllowed, NotThere
from spool.registry.document_table import ManagedTable, draft_fields
from spool.registry.keys import new_secret
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION
from spool.registry.registry import Registry
from spool.registry.roles import BUILTIN, Role
from spool.registry.views import SavedView

# Modules whose kinds of objects are no resources, or are resources with their fields in `spool`.
MODULES = (
    "gateway.operations.installation.org_context",
    "gateway.operations.installation.assistant_tools",
    "gateway.operations.money.recommendation_types",
    "gateway.operations.devices.tokens",
    "gateway.operations.clusters.in_files",
    "gateway.operations.bills.connections",
    "gateway.operations.money.channels",
    "gateway.operations.money.views",
    "gateway.operations.people.roles",
    "gateway.operations.people.keys",
)
Key = tuple[str, ...]
ObjectFields = dict[str, Any]
MoneyCaller: TypeAlias = OperationCaller[MoneyServices]
IdOf: TypeAlias = Callable[[str, str], str]


def object_label(key: Key) -> str:
    """Return the words for an object in messages, such as Search/Monthly."""
    return "/".join(part for part in key if part)


class ObjectFileHandler(ABC):
    """
    A kind of objects in files, such as budgets. `new` has an object's fields, except those in `without`.
    `action` is the part of its audit actions before the dot.

    `makes_secrets`: a new object without `secret_file` gets a new secret, which is written to a file.
    """

    files: ResourceFiles
    noun: str
    action: str
    new: type[msgspec.Struct]
    reads: str  # permission set that a person needs to see the object
    changes: str  # permission set that a person needs to create, change or delete it
    without: ClassVar[tuple[str, ...]] = ()
    has_secret: ClassVar[bool] = False
    makes_secrets: ClassVar[bool] = False
    is_found_by_name: ClassVar[bool] = False  # whether other objects store its name instead of its id
    # whether objects of this kind define dimensions that other kinds may name
    defines_dimensions: ClassVar[bool] = False

    @abstractmethod
    async def rows_by_id(self, registry: Registry) -> Mapping[str, Any]:
        """Return the objects by id."""

    @abstractmethod
    async def find(self, registry: Registry, id: str) -> Any:
        """Return the object with an id."""

    async def find_visible(
        self, caller: MoneyCaller, id_or_name: str, *, has_limited_data_access: bool
    ) -> Any:
        """Return the object with an id or a name. Raises NotThere unless the person may see it."""
        found = {} if has_limited_data_access else await self.rows_by_id(caller.registry)
        for id, row in found.items():
            if id_or_name in (
                id,
                object_label(self.object_key_of_fields(await self.file_fields(caller.registry, row))),
            ):
                return row
        raise NotThere(f"there is no {self.noun} with this id or name")

    def known_names(self, registry: Registry) -> Collection[str]:
        """Return names to which objects may refer although no file and no stored object has them."""
        return ()

    def new_secret(self) -> str:
        return new_secret()

    async def check_objects_agree(self, caller: MoneyCaller) -> None:
        """Raise InvalidDefinition if the objects contradict each other after all changes."""
        return

    def id_of(self, row: Any) -> str:
        return str(row.id)

    async def file_fields(self, registry: Registry, row: Any) -> ObjectFields:
        """Return all fields of an object, with the names of other objects in place of their ids."""
        return {name: to_json_form(getattr(row, name)) for name in self.field_names}

    def creation_body(self, fields: Mapping[str, Any], id_of: IdOf) -> msgspec.Struct:
        """Return the body that creates an object with these fields."""
        return msgspec.convert(fields, self.new)

    def has_only_default_values(self, registry: Registry, row: Any, values: Mapping[str, Any]) -> bool:
        """Return whether the given values equal the defaults, so that a file need not state these fields."""
        return all(self.defaults.get(name, NODEFAULT) == value for name, value in values.items())

    @abstractmethod
    async def create(self, caller: MoneyCaller, new_values: Any, secret: str | None) -> str:
        """Create an object and return its id."""

    @abstractmethod
    async def change(self, caller: MoneyCaller, row: Any, new_values: Any, secret: str | None) -> None:
        """Change an object to these fields and this secret. None means that its secret stays."""

    @abstractmethod
    async def delete(self, caller: MoneyCaller, row: Any) -> None: ...

    def remark_in_apply_plan(self, row: Any) -> str:
        """Return a remark about a changed object for people who plan to apply files, or ""."""
        return ""

    def named_values(self, fields: Mapping[str, Any]) -> Any:
        """Return the values in which an object may name dimensions. Raises InvalidDefinition for an unreadable text."""
        return fields

    def broken_reason(self, row: Any, known_dimensions: Collection[str]) -> str:
        """Return why an object cannot be used, such as a dimension that no longer exists, or ""."""
        return ""

    def secret_version(self, row: Any) -> object:
        """Return a value that changes whenever the secret of the object changes."""
        return None

    def needs_secret(self, row: Any) -> bool:
        """Return whether the file must name the secret of an object."""
        return False

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.__struct_fields__ if name not in self.without)

    @cached_property
    def file_struct(self) -> type[msgspec.Struct]:
        """Return the class of an object as a file states it. References to other objects are names."""
        return self._struct_of_objects_in_files(())

    def _struct_of_objects_in_files(self, fields_with_names: Collection[str]) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for field in msgspec.structs.fields(self.new):
            kind = str if field.name in fields_with_names else field.type
            if field.name in self.field_names:
                fields.append((field.name, kind) if field.required else (field.name, kind, None))
        return msgspec.defstruct(f"{self.new.__name__}InFile", fields, kw_only=True)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        return {name: value for name, value in json_defaults(self.new).items() if name in self.field_names}

    @cached_property
    def types(self) -> Mapping[str, Type]:
        return {field.name: field.type for field in inspect_struct_type(self.file_struct).fields}

    def normalized_setting_value(self, name: str, value: Any) -> Any:
        """Return the value in a form in which equal settings are equal."""
        form = without_defaults(value, self.types[name])
        return (
            sorted(form, key=msgspec.json.Encoder(order="sorted").encode)
            if name in self.files.unordered
            else form
        )

    def object_key_of_fields(self, fields: Mapping[str, Any]) -> Key:
        return tuple(str(fields.get(name, self.defaults.get(name, ""))) for name in self.files.key)

    def normalized_key(self, key: Key) -> Key:
        """
        Return the key as it is compared: without outer spaces, in Unicode form NFC, and in lower case if the
        files ignore case.
        """
        texts = tuple(normalize("NFC", part.strip()) for part in key)
        return tuple(text.casefold() for text in texts) if self.files.ignores_case else texts


class ResourceFileHandler(ObjectFileHandler):
    """The kind of objects that a resource declares."""

    def __init__(self, resource: ManagedResource[Any, Any], files: ResourceFiles) -> None:
        self.resource = resource
        self.files = files
        self.noun = resource.noun.replace("_", " ")
        self.action = resource.noun
        self.new = resource.new
        self.reads = "" if resource.people is None else resource.people.reads
        self.changes = ORGANIZATION_ADMINISTRATION if resource.people is None else resource.people.changes

    async def find_visible(
        self, caller: MoneyCaller, id_or_name: str, *, has_limited_data_access: bool
    ) -> Any:
        people = self.resource.people
        if people is None or (has_limited_data_access and people.shows != SLICED):
            raise NotThere(f"there is no {self.noun} with this id or name")
        return await self.resource.find(caller, id_or_name)

    @cached_property
    def _id_fields(self) -> Sequence[str]:
        return [
            name for name in self.files.refers if not file_kinds()[self.files.refers[name]].is_found_by_name
        ]

    @cached_property
    def file_struct(self) -> type[msgspec.Struct]:
        return self._struct_of_objects_in_files(self._id_fields)

    async def rows_by_id(self, registry: Registry) -> Mapping[str, Any]:
        rows = [row for row in self.resource.table_in(registry).all() if row.id not in BUILTIN]
        return {row.id: row for row in sorted(rows, key=lambda row: (row.created, row.id))}

    async def find(self, registry: Registry, id: str) -> Any:
        return self.resource.table_in(registry).get(id)

    async def file_fields(self, registry: Registry, row: Any) -> ObjectFields:
        fields: ObjectFields = {}
        for name in self.field_names:
            if name in self._id_fields:
                target = file_kinds()[self.files.refers[name]]
                named = await target.find(registry, getattr(row, f"{name}_id"))
                fields[name] = getattr(named, target.files.key[0])
            else:
                fields[name] = to_json_form(getattr(row, name))
        return fields

    def creation_body(self, fields: Mapping[str, Any], id_of: IdOf) -> msgspec.Struct:
        ids = {
            name: id_of(self.files.refers[name], fields[name]) for name in self._id_fields if name in fields
        }
        shown = {name: {"id": id} if name in self._id_object_fields else id for name, id in ids.items()}
        return super().creation_body({**fields, **shown}, id_of)

    @cached_property
    def _id_object_fields(self) -> Collection[str]:
        kinds = {field.name: field.type for field in inspect_struct_type(self.new).fields}
        bare = {name: kind.type if isinstance(kind, Metadata) else kind for name, kind in kinds.items()}
        return [name for name in self._id_fields if isinstance(bare[name], StructType)]

    def has_only_default_values(self, registry: Registry, row: Any, values: Mapping[str, Any]) -> bool:
        if super().has_only_default_values(registry, row, values):
            return True
        table = self.resource.table_in(registry)
        is_checked = isinstance(table, ManagedTable) and table.draft is self.new
        if not is_checked or not values.keys() <= self.defaults.keys():
            return False
        draft = table.draft(**draft_fields(row, table.draft))
        defaults = {name: self._default_values[name] for name in values}
        try:
            return bool(table.check_draft(msgspec.structs.replace(draft, **defaults)) == draft)
        except NotAllowed:
            return False

    @cached_property
    def _default_values(self) -> Mapping[str, Any]:
        return {field.name: field_default(field) for field in msgspec.structs.fields(self.new)}

    async def create(self, caller: MoneyCaller, new_values: Any, secret: str | None) -> str:
        return str((await self.resource.create_row(caller, new_values)).id)

    async def change(self, caller: MoneyCaller, row: Any, new_values: Any, secret: str | None) -> None:
        fields = await self.resource.draft_fields(caller, new_values)
        changed = {name: value for name, value in fields.items() if value != getattr(row, name)}
        if changed:
            await self.resource.check_fields(caller, changed, row)
            await self.resource.update_row(caller, row, changed)

    async def delete(self, caller: MoneyCaller, row: Any) -> None:
        await self.resource.table_in(caller.registry).delete(row.id, actor=caller.actor)

    def broken_reason(self, row: Any, known_dimensions: Collection[str]) -> str:
        if isinstance(row, SavedView | Role):
            return row.broken_reason(known_dimensions) or ""
        return ""


@cache
def file_kinds() -> Mapping[str, ObjectFileHandler]:
    """
    Return the kinds by file. A kind comes after the kinds that it refers to, and after the kind that defines
    dimensions.
    """
    found: dict[str, ObjectFileHandler] = {}
    for module in map(import_module, (*MODULES, *(each.resource for each in RESOURCES.values()))):
        for value in vars(module).values():
            if isinstance(value, ObjectFileHandler):
                found[value.files.name] = value
            elif isinstance(value, ManagedResource) and isinstance(value.files, ResourceFiles):
                found[value.files.name] = ResourceFileHandler(value, value.files)
    refers = {name: [*kind.files.refers.values()] for name, kind in found.items()}
    for definer in [name for name, kind in found.items() if kind.defines_dimensions]:
        for name in [name for name in found if name not in (definer, *refers[definer])]:
            refers[name].append(definer)
    return {name: found[name] for name in TopologicalSorter(refers).static_order()}
