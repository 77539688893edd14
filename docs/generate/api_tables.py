"""Tables of the parameters and fields of an operation, from the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from docs.generate import api_words as words
from docs.generate.repeats import FieldRow, ShownAt, ShownTable

MAX_VALUES = 12  # maximum number of values of an enumeration that are shown
MAX_DEPTH = 3  # maximum levels of fields below a body
_TYPES = {"string": "text", "boolean": "true or false", "array": "list"}
_ITEMS_OF = {
    "costs": "calls",
    "tail": "records",
    "audit": "changes",
    "configuration": "settings",
    "people": "people",
}
_SHOWN = {  # lists and objects that are named by another noun than their field
    "billed_invoices": "invoices", "statements": "provider bills", "audit": "audit rows",
    "statement_pulls": "fetched reports", "partial_refusals": "rejections in responses with a 2xx",
    "conflicts": "conflicts between reports", "ignored": "ignored items", "dead": "rejected records",
    "unknown": "deliveries that were sent but never answered", "billing_drop": "rows of the hourly file",
    "unenrolled": "devices that are not enrolled", "tokens": "enrolment tokens",
}  # fmt: skip
LIST_PARTS = ("pagination", "filtering", "sorting")  # of an answer
_LIST_PARAMETERS = ("limit", "cursor", "sort_key", "sort_order")
_MIN_SHARED = 4  # rows that are worth a link instead of a repetition


class FieldContext(NamedTuple):
    """What the tables of an operation need: the schemas of the OpenAPI document, and what was shown before."""

    schemas: Mapping[str, Any]
    shown: ShownTable
    at: ShownAt
    item: str = "item"  # noun of the resource that an operation is about


def parameters(path: str, found: Sequence[Mapping[str, Any]], context: FieldContext) -> list[str]:
    """Return the table of the parameters of an operation."""
    by_name = {parameter["name"]: parameter for parameter in found}
    is_list = {"limit", "sort_key"} <= by_name.keys()
    stated = _LIST_PARAMETERS if is_list else ()
    others = [each for each in found if each["name"] not in stated and not _is_id(each)]
    rows, rest = context.shown.fold_table(list(_parameter_rows(path, others)), context.at)
    lines = [str(row) for row in rows]
    if is_list:
        lines.append(_list_row(by_name))
    title = ["| parameter | in | type | meaning |", "|---|---|---|---|"] if lines else []
    return _table(title, lines, rest)


def _is_id(parameter: Mapping[str, Any]) -> bool:
    """Return whether the page of the HTTP API explains the parameter for all operations."""
    return parameter["in"] == "path" and bool(re.fullmatch("id|name|.*_id", parameter["name"]))


def _list_row(parameters: Mapping[str, Mapping[str, Any]]) -> str:
    names = ", ".join(f"`{name}`" for name in _LIST_PARAMETERS)
    limit, keys = (parameters[name]["schema"] for name in ("limit", "sort_key"))
    bounds = f"1-{limit['maximum']:,} items, default {limit['default']:,}"
    return f"| {names} | query | | [List](../http-api.md#lists): {bounds}; sorted by {_type(keys)}. |"


def _table(title: Sequence[str], lines: Sequence[str], rest: str) -> list[str]:
    return [*(["", *title, *lines] if lines else []), *(["", rest] if rest else [])]


def _parameter_rows(path: str, parameters: Iterable[Mapping[str, Any]]) -> Iterator[FieldRow]:
    for parameter in parameters:
        name, place, schema = parameter["name"], parameter["in"], parameter["schema"]
        required = ", required" if parameter.get("required") and place != "path" else ""
        repeated = ", may repeat" if "items" in schema else ""
        kind = f"{place}{required} | {_type(schema.get('items', schema))}{_bounds(schema)}{repeated}"
        meaning = parameter.get("description") or _meaning(path, name, place, is_repeated=bool(repeated))
        yield FieldRow(name, kind, "", meaning)


def _meaning(path: str, name: str, place: str, *, is_repeated: bool) -> str:
    if place == "path":
        return words.PATH[name]
    if not is_repeated or name in words.NOT_FILTERS:
        return words.QUERY.get(f"{path.rpartition('/')[2]}.{name}") or words.QUERY[name]
    shown = name.replace("_", " ").replace("api key", "API key")
    items = _ITEMS_OF.get(path.rpartition("/")[2]) or re.sub("y$", "ie", item_of(path)) + "s"
    if items.endswith(f"{shown}s"):
        return f"Only this {shown}."
    return words.FILTERS.get(name, f"Only items with this {shown}.").replace("Only items", f"Only {items}")


def item_of(path: str) -> str:
    """Return the noun of the resource that a path is about, such as `key` for `/keys/{name}/rotate`."""
    segments = [segment for segment in path.split("/") if segment.endswith("s")]
    areas = {"/v1/ai-control-plane": "device", "/{path": "message", "/v2/optimize": "recommendations"}
    of_area = next((noun for area, noun in areas.items() if path.startswith(area)), "item")
    return (_singular(segments[-1]) if segments else of_area).replace("sign in way", "sign-in")


def _singular(segment: str) -> str:
    name = re.sub("ies$", "y", segment.replace("-", " ").replace("_", " "))
    return name.removesuffix("s") if name != "dead" else "rejected record"


def _bounds(schema: Mapping[str, Any]) -> str:
    bounds = ""
    if "minimum" in schema and "maximum" in schema:
        bounds += f", {schema['minimum']:,} to {schema['maximum']:,}"
    if "default" in schema:
        bounds += f", default {schema['default']}"
    return bounds


def table(title: str, schema: Mapping[str, Any], context: FieldContext, *, is_body: bool) -> list[str]:
    """Return the table of the fields of a body. Fields that a page explains already are links."""
    rows, rest = list(_fields(schema, context, "", is_body=is_body)), ""
    if is_body:
        rows, rest = context.shown.fold_table(rows, context.at)
    lines = [str(row) for row in context.shown.fold_objects(rows, context.at)]
    return _table([f"| {title} | type | meaning |", "|---|---|---|"], lines, rest)


def _fields(
    schema: Mapping[str, Any], context: FieldContext, prefix: str, *, is_body: bool
) -> Iterator[FieldRow]:
    """Yield a row for each field, and for the fields of objects in it; a list is shown as `name[]`."""
    held = _resolved(schema, context.schemas)
    if held.get("type") == "array":
        yield from _fields(held.get("items", {}), context, prefix + "[]", is_body=is_body)
        return
    for name, field in held.get("properties", {}).items():
        if name in LIST_PARTS and not prefix and not is_body:
            continue
        inner = _resolved(field, context.schemas)
        notes = ["required"] if is_body and name in held.get("required", ()) else []
        if field.get("default") not in (None, "", [], {}):
            notes.append(f"default `{json.dumps(field['default'])}`")
        place = f"{prefix}.{name}" if prefix else name
        description = field.get("description") or inner.get("description")
        if not description and "properties" in _resolved(inner.get("items", inner), context.schemas):
            description = _words_of_object(name, inner)
        if not description:
            raise ValueError(
                f"{context.at.heading}: {held.get('title', '')}.{place} has no words: declare it with words(...) or "
                "described(...)"
            )
        meaning = from_page(" ".join(description.split()))
        yield FieldRow(place, _type(field), ", ".join(notes), meaning)
        if place.count(".") + 1 < MAX_DEPTH:
            yield from _fields(inner, context, place, is_body=is_body)


def from_page(text: str) -> str:
    """
    Return `text` with links that work from docs/reference/api. Its links are written for docs/reference.
    """
    return text.replace("](../", "](../../").replace("](http-api", "](../http-api")


def _words_of_object(name: str, field: Mapping[str, Any]) -> str:
    """Return the meaning of an object, or a list of objects, whose fields follow."""
    each = ", each" if field.get("type") == "array" else ","
    return f"The {_SHOWN.get(name) or name.replace('_', ' ')}{each} with the fields below."


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return the schema that a reference names. The reference may be one of two alternatives if the other
    one is null.
    """
    if "$ref" in schema:
        named: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]]
        return named
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolved(choices[0], schemas) if len(choices) == 1 else schema


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_type(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(kinds) + (" or null" if len(kinds) < len(schema["anyOf"]) else "")
    if "$ref" in schema:
        return "object"
    if "enum" in schema:
        values = [f"`{value}`" for value in schema["enum"]]
        more = len(values) - MAX_VALUES
        return ", ".join(values[:MAX_VALUES]) + (f" and {more} more" if more > 0 else "")
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(str(_TYPES.get(name, name)) for name in kind)
    if kind == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    return _TYPES.get(kind, str(kind))
