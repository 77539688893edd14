"""Requests and answers that are composed from the examples of fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import UNSET

from gateway.core.fields import field_default
from gateway.http.address import ApiAddress
from gateway.http.answers import JSON
from gateway.http.lists import ListDefinition, one_page_envelope
from spool.listing import ListPage
from spool.registry.field_notes import Example, example_id

_PARAMETER = re.compile(r"([\w-]+)s/\{\w+\}")  # the id of a resource in a path, after its noun


def composed(
    rows: Sequence[ApiAddress], *, stored: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """
    Yield the name and the example of each operation whose answer has a type. Its stored members replace
    composed ones.

    Raises ValueError, with the name of the field, if a field has no example.
    """
    kinds = {row.documented_path: kind for row in rows if (kind := _answer_type(row))}
    for row in rows:
        for method in row.operation_ids_by_method:
            name = f"{method} {row.documented_path}"
            # a deletion has the fields of its resource
            kind = _answer_type(row) or kinds.get(row.documented_path)
            own = stored.get(name, {})
            if "answer" not in own and kind is not None:
                yield name, _operation(row, method, kind, own)


def _answer_type(served_address: ApiAddress) -> type[msgspec.Struct] | None:
    kind = (
        served_address.item
        if served_address.lists
        else next(iter(served_address.gives.values()), {}).get(JSON)
    )
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _operation(
    served_address: ApiAddress, method: str, kind: type[msgspec.Struct], own: Mapping[str, Any]
) -> Mapping[str, Any]:
    """
    Return the example of an operation, with its `own` members. If it has some, its answer has the fields that an
    answer may lack.
    """
    found = _PARAMETER.search(served_address.documented_path)
    id = _id_of(kind) or (example_id(found[1].replace("-", "_")) if found else "")
    has_sections = method == "GET" and not served_address.lists and bool(served_address.repeated)
    example = {"path": "", "status": next(iter(served_address.gives), 200)}
    if "path" not in own:
        query = ["limit=1"] if served_address.lists else []
        query += [f"{name}={_member(kind, 'name')}" for name in served_address.required]
        query += [
            f"{name}={field}" for name in served_address.repeated if has_sections for field in _optional(kind)
        ]
        path = _PARAMETER.sub(rf"\1s/{id}", served_address.documented_path)
        example["path"] = f"{path}?{'&'.join(query)}".removesuffix("?")
    if (body := served_address.takes.get(JSON)) is not None and "body" not in own:
        example["body"] = body_example(body)
    if own:
        shown: tuple[bool, ...] = (True, True)
    else:
        shown = (False,) if served_address.lists else (method in ("POST", "PATCH"), has_sections)
    answer = _answer(served_address, method, kind, id, optional=shown)
    return {**example, **own, "answer": {**answer, **own.get("beside", {})}}


def _id_of(kind: type[msgspec.Struct]) -> str:
    """Return the example of the id of a resource, or of the resource in an answer about it. "" without one."""
    members = {field.name: field.type for field in msgspec.structs.fields(kind)}
    inner = [_plain(member) for member in members.values()]
    found = _example(members["id"]) if "id" in members else None
    return (
        str(found.value)
        if found
        else next(
            (_id_of(each) for each in inner if isinstance(each, type) and issubclass(each, msgspec.Struct)),
            "",
        )
    )


def body_example(kind: Any) -> Mapping[str, Any]:
    """Return the body of a creation, or of a change if no field has to be stated."""
    examples = {field.name: (_example(field.type), field) for field in msgspec.structs.fields(kind)}
    if kind.__name__.endswith("Changes"):
        stated = {name: found.changed for name, (found, _) in examples.items() if found}
        return {name: value for name, value in stated.items() if value is not UNSET}
    return {
        name: found.value
        for name, (found, field) in examples.items()
        if found and found.value != field_default(field)
    }


def _answer(
    served_address: ApiAddress,
    method: str,
    kind: type[msgspec.Struct],
    id: str,
    *,
    optional: tuple[bool, ...],
) -> Any:
    if served_address.lists:
        return _page(served_address.lists, kind, id, optional=optional)
    schema = next(iter(served_address.gives.values()))[JSON]
    if not isinstance(schema, type):
        return _of_schema(schema, id)
    return _values(kind, is_change=method == "PATCH", optional=optional)


def _page(
    list_definition: ListDefinition[Any], kind: type[msgspec.Struct], id: str, *, optional: tuple[bool, ...]
) -> Mapping[str, Any]:
    page: ListPage[Any] = ListPage(rows=(), keys=(), before=False, after=False, total=1)
    beside = one_page_envelope(list_definition, page, limit=1)
    del beside["filtering"]["available"][1:]
    rows = {list_definition.root: [_values(kind, optional=optional)]}
    by_list = {
        name: _values(each, optional=optional) if isinstance(each, type) else _of_schema(each, id)
        for name, each in list_definition.beside.items()
    }
    return {**by_list, **rows, **beside}


def _values(
    kind: type[msgspec.Struct], *, is_change: bool = False, optional: tuple[bool, ...]
) -> Mapping[str, Any]:
    """
    Return an object with the example of each field.

    `optional`: whether fields that an answer may lack are included, for the object, then for objects in it.
    """
    has_optional, *below = optional
    values = {}
    for field in msgspec.structs.fields(kind):
        found, plain = _example(field.type), _plain(field.type)
        if field.default is UNSET and not (has_optional and found):
            continue
        if found:
            values[field.encode_name] = (
                found.changed if is_change and found.changed is not UNSET else found.value
            )
        elif (inner := _object_type(plain)) is not None:
            value = _values(inner, is_change=is_change, optional=tuple(below) or (has_optional,))
            values[field.encode_name] = [value] if _is_list(plain) else value
        else:
            raise ValueError(f"{kind.__name__}.{field.name} has no example: add example(...) to the field")
    return values


def _optional(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the fields with an example that an answer of this type, or an object in it, may lack."""
    for field in msgspec.structs.fields(kind):
        plain = _plain(field.type)
        for inner in (
            msgspec.structs.fields(plain) if isinstance(plain, type) and _example(field.type) is None else ()
        ):
            if inner.default is UNSET and _example(inner.type):
                yield inner.name


def _member(kind: type[msgspec.Struct], name: str) -> Any:
    return next(iter(_values(kind, optional=(False,)).values()))[name]


def _of_schema(schema: Mapping[str, Any], id: str) -> Any:
    """Return an object whose texts are all the id."""
    return (
        {name: _of_schema(each, id) for name, each in schema["properties"].items()}
        if "properties" in schema
        else id
    )


def _example(kind: Any) -> Example | None:
    """Return the example in a type. The type of a change is a union of the annotated type and UnsetType."""
    return next(
        (
            note
            for part in (kind, *get_args(kind))
            for note in get_args(part)[1:]
            if isinstance(note, Example)
        ),
        None,
    )


def _object_type(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is, lists, or allows beside null."""
    found = (each for part in (kind, *get_args(kind)) for each in (part, *get_args(part)))
    return next((each for each in found if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)


def _is_list(kind: Any) -> bool:
    return any(get_origin(each) is list for each in (kind, *get_args(kind)))


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
