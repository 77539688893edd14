"""
From what is stated of a new resource follow what may be changed of it and what is answered about it.

A field stands once, with its type and its words: they are in `/openapi.json`, in the page of fields and in
the help of the command. An answer has the declared fields and no others.
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
    How a command states a field, where it is not `--FIELD` with the field's words as its help.

    `is_by_hand`: the command has a way of its own.
    """

    name: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    is_by_hand: bool = False


def words(text: str) -> msgspec.Meta:
    """Describe a field in a sentence: `Annotated[str, words("...")]`."""
    return msgspec.Meta(description=text)


_WITH_VERSION = """
    What is left out stays as it is. With the `version` that was read, the change is refused if
    somebody else made one since.
    """
# What is answered of every resource that tells its versions, beside its own.
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
    The struct of a change: every field of a new one, which may be left out.

    Fields of `once` are stated when it is made and never after; those of `types` have another type.
    """
    fields: list[Any] = []
    if has_version:
        fields.append(("version", str | None, None))
    for each in msgspec.structs.fields(new):
        if each.name not in once:
            fields.append((each.name, (types or {}).get(each.name, each.type) | UnsetType, UNSET))
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
    The struct of an answer: its id, every field of a new one, and what is `answered` beside.

    A field whose type has UnsetType is left out at times.
    """
    stated = {each.name: each.type for each in msgspec.structs.fields(new) if each.name not in without}
    return _answered(f"{_noun(new)}Item", about, {"id": str, **stated, **(types or {}), **answered})


def one_of(new: type[msgspec.Struct], item: Any, about: str = "", **beside: Any) -> Any:
    """The struct of an answer about one: its item under its noun, and what is told beside it."""
    noun = _noun(new)
    return _answered(f"One{noun}", about, {_snake_case(noun): item, **beside})


def _answered(name: str, about: str, members: Mapping[str, Any]) -> Any:
    fields = [
        (field, kind, UNSET) if _may_be_left_out(kind) else (field, kind) for field, kind in members.items()
    ]
    return msgspec.defstruct(name, fields, kw_only=True, namespace={"__doc__": about} if about else None)


def _noun(new: type[msgspec.Struct]) -> str:
    """Return `ScheduledReport` of `NewScheduledReport`."""
    return new.__name__.removeprefix("New")


def _snake_case(noun: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", noun).lower()


def answer(item: Any, row: object, **given: Any) -> dict[str, Any]:
    """
    The answer about a row: each declared field as it is `given`, else as the row has it.

    TypeError for a field that is given and not declared, AttributeError for one that nobody has.
    """
    own = {
        name: getattr(row, name)
        for name, default in zip(item.__struct_fields__, _defaults(item), strict=True)
        if name not in given and default is not UNSET
    }
    shown: dict[str, Any] = msgspec.to_builtins(item(**own, **given))
    return shown


def stated(given: msgspec.Struct, **to: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the stated fields by the names of a draft, lists as tuples; `to` converts a field to its stored form."""
    values = {name: getattr(given, name) for name in given.__struct_fields__ if name != "version"}
    return {name: to.get(name, _stored)(value) for name, value in values.items() if value is not UNSET}


def _stored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _may_be_left_out(kind: Any) -> bool:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return UnsetType in get_args(plain)


@cache
def _defaults(item: Any) -> list[Any]:
    """Computed once an item: msgspec evaluates the annotations each time, and a page has a thousand rows."""
    found = {each.name: each.default for each in msgspec.structs.fields(item)}
    return [found[name] for name in item.__struct_fields__]
