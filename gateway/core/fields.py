"""
The types of a resource: fields of changes and answers are derived from those of a new resource.

A field is declared once. Its description appears in `/openapi.json`, in the reference page and in the command
help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from spool.registry.field_notes import Example, example, example_id, words

_WITH_VERSION = """
    Omitted fields stay unchanged. With the `version` from your last read, the change is rejected if another
    change was made since.
    """
_CREATED, _UPDATED = words("When the {item} was created."), words("When the {item} was last changed.")
_VERSION = words("The version of the {item}. Each edit changes it; send it back with your next edit.")
_READ_VERSION = words("The version that you read. A newer version rejects the change.")
# fields that Tollhouse adds to a resource with versions, with times in RFC 3339
KEPT: Mapping[str, Any] = {
    "created": Annotated[str, _CREATED, example("2026-11-27T01:45:14.016Z")],
    "last_updated": Annotated[str, _UPDATED, example("2026-11-27T01:45:14.016Z")],
    "version": Annotated[
        str, _VERSION, example("e2c0ceb8d0d8c5ac106bc6b5", changed="7edf03e3a74ddc0c294fe697")
    ],
}
# the same fields with times in epoch seconds as text
KEPT_IN_SECONDS: Mapping[str, Any] = {
    **KEPT,
    "created": Annotated[str, _CREATED, example("1795743905.009")],
    "last_updated": Annotated[str, _UPDATED, example("1795743905.009")],
}


def changes_struct(
    new: type[msgspec.Struct],
    doc: str = _WITH_VERSION,
    *,
    unchangeable_fields: Collection[str] = (),
    types_by_field: Mapping[str, Any] | None = None,
    has_version: bool = True,
) -> Any:
    """
    Return the struct of a change, with all fields optional.

    Fields in `unchangeable_fields` cannot be changed later. Fields in `types_by_field` have the type given there.
    """
    fields: list[Any] = []
    if has_version:
        fields.append(("version", Annotated[str | None, _READ_VERSION], None))
    for field in msgspec.structs.fields(new):
        if field.name not in unchangeable_fields:
            kind = _type_with_copied_annotations(
                field.type, (types_by_field or {}).get(field.name, field.type)
            )
            fields.append((field.name, kind | UnsetType, UNSET))
    name = f"{_resource_noun(new)}Changes"
    return msgspec.defstruct(
        name, fields, kw_only=True, forbid_unknown_fields=True, namespace={"__doc__": doc}
    )


def item_struct(
    new: type[msgspec.Struct],
    doc: str,
    *,
    answer_only_fields: Mapping[str, Any],
    types_by_field: Mapping[str, Any] | None = None,
    omitted_fields: Collection[str] = (),
    has_id: bool = True,
) -> Any:
    """
    Return the class that describes a stored resource in answers.

    A field in `types_by_field` has another type. It keeps the annotations (description, example) it has in `new`
    unless that type has its own. An answer may lack a field whose type includes UnsetType.
    """
    noun = _snake_case(_resource_noun(new))
    id_type = Annotated[str, words("The id of the {item}."), example(example_id(noun))]
    fields = {
        field.name: _with_default_example(field)
        for field in msgspec.structs.fields(new)
        if field.name not in omitted_fields
    }
    replaced = {
        name: _type_with_copied_annotations(fields.get(name), kind)
        for name, kind in (types_by_field or {}).items()
    }
    members = {**({"id": id_type} if has_id else {}), **fields, **replaced, **answer_only_fields}
    item = noun.replace("_", " ")
    return _define_answer_struct(
        f"{_resource_noun(new)}Item",
        doc,
        {name: _fill_item_name(kind, item) for name, kind in members.items()},
    )


def field_default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _with_default_example(field: msgspec.structs.FieldInfo) -> Any:
    default = field_default(field)
    notes = get_args(field.type)[1:] if get_origin(field.type) is Annotated else ()
    if default is msgspec.NODEFAULT or any(isinstance(note, Example) for note in notes):
        return field.type
    return Annotated[field.type, example(msgspec.json.decode(msgspec.json.encode(default)))]


def _type_with_copied_annotations(annotated_type: Any, bare_type: Any) -> Any:
    if get_origin(bare_type) is Annotated or get_origin(annotated_type) is not Annotated:
        return bare_type
    return Annotated[(bare_type, *get_args(annotated_type)[1:])]


def _fill_item_name(kind: Any, item: str) -> Any:
    if get_origin(kind) is not Annotated:
        return kind
    plain, *notes = get_args(kind)
    own = [
        words(note.description.replace("{item}", item))
        if isinstance(note, msgspec.Meta) and note.description
        else note
        for note in notes
    ]
    return Annotated[(plain, *own)]


def one_item_answer_struct(new: type[msgspec.Struct], item: Any, about: str = "", **beside: Any) -> Any:
    noun = _resource_noun(new)
    return _define_answer_struct(f"One{noun}", about, {_snake_case(noun): item, **beside})


def one_field_answer(name: str, **field: Any) -> Any:
    """Return the class of an answer with one field, for the row of an address. `name` is shown in `/openapi.json`."""
    return _define_answer_struct(name, "", field)


def _define_answer_struct(name: str, about: str, members: Mapping[str, Any]) -> Any:
    fields = [
        (field, kind, UNSET) if _may_be_left_out(kind) else (field, kind) for field, kind in members.items()
    ]
    return msgspec.defstruct(name, fields, kw_only=True, namespace={"__doc__": about} if about else None)


def _resource_noun(new: type[msgspec.Struct]) -> str:
    return new.__name__.removeprefix("New")


def _snake_case(noun: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", noun).lower()


def build_answer(answer_type: Any, row: object, **given: Any) -> dict[str, Any]:
    """
    Return an answer with a row's fields. `given` overrides values of the row.

    Raises TypeError for a given field that is not declared, AttributeError for a declared field without a
    value.
    """
    row_values = {
        name: getattr(row, name)
        for name, default in zip(answer_type.__struct_fields__, _struct_defaults(answer_type), strict=True)
        if name not in given and default is not UNSET
    }
    members: dict[str, Any] = msgspec.to_builtins(answer_type(**row_values, **given))
    return members


def given_fields(given: msgspec.Struct, **to: Callable[[Any], Any]) -> dict[str, Any]:
    """
    Return the stated fields for a draft, with lists as tuples. `to` converts a field to its stored form.
    """
    values = {name: getattr(given, name) for name in given.__struct_fields__ if name != "version"}
    return {name: to.get(name, _list_to_tuple)(value) for name, value in values.items() if value is not UNSET}


def _list_to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _may_be_left_out(kind: Any) -> bool:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return UnsetType in get_args(plain)


@cache
def _struct_defaults(item: Any) -> list[Any]:
    """Return the default values of fields, cached because msgspec evaluates the annotations on each call."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(item)}
    return [defaults[name] for name in item.__struct_fields__]
