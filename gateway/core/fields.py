"""
The types of a resource. The fields of changes and answers are derived from the fields of a new resource.

A field is declared once, with its type and its description. The description appears in `/openapi.json`, in
the reference page and in the command help. An answer has exactly the declared fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType


@dataclass(frozen=True, slots=True)
class Option:
    """
    The command option of a field. It is needed if the option differs from `--FIELD` with the field's
    description as help.

    `is_by_hand`: the command defines the option itself.
    """

    name: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    is_by_hand: bool = False


def words(text: str) -> msgspec.Meta:
    """Describe a field: `Annotated[str, words("...")]`."""
    return msgspec.Meta(description=text)


_WITH_VERSION = """
    Omitted fields stay unchanged. With the `version` from your last read, the change is rejected if another
    change was made since.
    """
# Fields in every answer about a resource that has versions.
KEPT: Mapping[str, Any] = {
    "created": str,
    "last_updated": str,
    "version": Annotated[str, words("Changes with each edit; send it back with your edit.")],
}


def changes_of(
    new: type[msgspec.Struct],
    about: str = _WITH_VERSION,
    *,
    once: Collection[str] = (),
    types: Mapping[str, Any] | None = None,
    has_version: bool = True,
) -> Any:
    """
    Return the struct of a change: every field of a new resource, all optional.

    Fields in `once` cannot be changed later. Fields in `types` have another type.
    """
    fields: list[Any] = []
    if has_version:
        fields.append(("version", str | None, None))
    for field in msgspec.structs.fields(new):
        if field.name not in once:
            fields.append((field.name, (types or {}).get(field.name, field.type) | UnsetType, UNSET))
    name = f"{_noun(new)}Changes"
    return msgspec.defstruct(
        name, fields, kw_only=True, forbid_unknown_fields=True, namespace={"__doc__": about}
    )


def item_of(
    new: type[msgspec.Struct],
    about: str,
    *,
    answered: Mapping[str, Any],
    types: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> Any:
    """
    Return the struct of an answer: the id, the fields of a new resource and the fields in `answered`.

    An answer may lack a field whose type includes UnsetType.
    """
    stated = {field.name: field.type for field in msgspec.structs.fields(new) if field.name not in without}
    return _answered(f"{_noun(new)}Item", about, {"id": str, **stated, **(types or {}), **answered})


def one_of(new: type[msgspec.Struct], item: Any, about: str = "", **beside: Any) -> Any:
    """
    Return the struct of an answer about a single resource: its item under its noun, and the `beside` fields.
    """
    noun = _noun(new)
    return _answered(f"One{noun}", about, {_snake_case(noun): item, **beside})


def _answered(name: str, about: str, members: Mapping[str, Any]) -> Any:
    fields = [
        (field, kind, UNSET) if _may_be_left_out(kind) else (field, kind) for field, kind in members.items()
    ]
    return msgspec.defstruct(name, fields, kw_only=True, namespace={"__doc__": about} if about else None)


def _noun(new: type[msgspec.Struct]) -> str:
    """Return the resource's noun, such as `ScheduledReport` for `NewScheduledReport`."""
    return new.__name__.removeprefix("New")


def _snake_case(noun: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", noun).lower()


def answer(item: Any, row: object, **given: Any) -> dict[str, Any]:
    """
    Return the answer about a row. A field in `given` overrides the value of the row.

    Raises TypeError for a given field that is not declared, AttributeError for a declared field without a value.
    """
    row_values = {
        name: getattr(row, name)
        for name, default in zip(item.__struct_fields__, _defaults(item), strict=True)
        if name not in given and default is not UNSET
    }
    members: dict[str, Any] = msgspec.to_builtins(item(**row_values, **given))
    return members


def stated(given: msgspec.Struct, **to: Callable[[Any], Any]) -> dict[str, Any]:
    """
    Return the fields that a body states, under the names of a draft and with lists as tuples. `to` converts a
    field to its stored form.
    """
    values = {name: getattr(given, name) for name in given.__struct_fields__ if name != "version"}
    return {name: to.get(name, _stored)(value) for name, value in values.items() if value is not UNSET}


def _stored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _may_be_left_out(kind: Any) -> bool:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return UnsetType in get_args(plain)


@cache
def _defaults(item: Any) -> list[Any]:
    """
    Return the defaults of the fields. They are cached, because msgspec evaluates the annotations on each call.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(item)}
    return [defaults[name] for name in item.__struct_fields__]
