"""Whether an answer has exactly the fields and types that its operation declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType
from msgspec.structs import FieldInfo

from gateway.http.address import ApiAddress
from gateway.http.answers import JSON


def answer_problems(served_address: ApiAddress, answer: Any) -> Iterator[str]:
    """Yield each difference between the JSON answer of an operation and its declared type, if that is a struct."""
    kind: Any = (
        served_address.item
        if served_address.lists
        else served_address.gives.get(served_address.status, {}).get(JSON)
    )
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for value in answer[served_address.lists.root] if served_address.lists else [answer]:
            yield from _problems(value, kind, f"{served_address.name}: {kind.__name__}")
    for name, beside in served_address.lists.beside.items() if served_address.lists else ():
        if isinstance(beside, type):
            yield from _problems(answer[name], beside, f"{served_address.name}: {name}")


def _problems(value: Any, kind: Any, at: str) -> Iterator[str]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    found = [list(_problems_of_one(value, each, at)) for each in kinds if each is not UnsetType]
    if all(found):
        yield from min(found, key=len)


def _problems_of_one(value: Any, kind: Any, at: str) -> Iterator[str]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _field_problems(value, kind, at)
    elif get_origin(kind) in (list, tuple) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, get_args(kind)[0], f"{at}[{index}]")
    elif get_origin(kind) in (dict, Mapping) and isinstance(value, dict):
        for name, item in value.items():
            yield from _problems(item, get_args(kind)[1], f"{at}[{name!r}]")
    else:
        try:
            msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            yield f"{at} is {value!r}: {error}"


@cache
def _fields_by_name(kind: type[msgspec.Struct]) -> Mapping[str, FieldInfo]:
    """Return the fields of a type. This evaluates all annotations, so it is done once for each type."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _field_problems(value: Any, kind: type[msgspec.Struct], at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at} is {value!r}, and no object"
        return
    fields = _fields_by_name(kind)
    yield from (f"{at}.{name} is not declared" for name in value.keys() - fields.keys())
    for name, field in fields.items():
        if name in value:
            yield from _problems(value[name], field.type, f"{at}.{name}")
        elif field.required:
            yield f"{at}.{name} is missing"
