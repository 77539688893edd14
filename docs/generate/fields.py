"""The fields of resources as Markdown, from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.http.openapi import document
from gateway.service.addresses.table import ADDRESSES

_HEAD = """# Fields

The fields of resources in requests and responses of the [HTTP API](http-api.md). To create a resource, send the fields
of its first table. To change it, send only the fields that change; all others keep their value.
"""
_NEW, _ITEM = "New", "Item"


def page() -> str:
    """
    Return the page: for each resource the fields of a request, then the additional fields of a response.
    """
    schemas = document(ADDRESSES, version="")["components"]["schemas"]
    names = [name for name, schema in schemas.items() if name.startswith(_NEW) and _has_words(schema)]
    return _HEAD + "".join(_resource(name.removeprefix(_NEW), schemas) for name in sorted(names))


def _has_words(schema: Mapping[str, Any]) -> bool:
    return any("description" in field for field in schema.get("properties", {}).values())


def _resource(name: str, schemas: Mapping[str, Any]) -> str:
    new = schemas[_NEW + name]
    item = schemas.get(name + _ITEM, new)  # responses of resources for people only have no schema
    answered = {field: kind for field, kind in item["properties"].items() if field not in new["properties"]}
    return "\n".join(
        [
            f"\n## {_NEW}{name}\n",
            "| field | type | default | |",
            "|---|---|---|---|",
            *_rows(new["properties"], required=new.get("required", ())),
            *_answered(answered),
            "",
        ]
    )


def _answered(fields: Mapping[str, Any]) -> Iterator[str]:
    if not fields:
        return
    yield from ("\nResponses also contain:\n", "| field | type | |", "|---|---|---|")
    for name, kind in fields.items():
        yield f"| `{name}` | {_type(kind)} | {kind.get('description', '')} |"


def _rows(fields: Mapping[str, Any], *, required: tuple[str, ...]) -> Iterator[str]:
    for name, field in fields.items():
        default = "required" if name in required else _default(field.get("default", {}))
        yield f"| `{name}` | {_type(field)} | {default} | {field.get('description', '')} |"


def _default(value: Any) -> str:
    if value is None:
        return "null"
    return (
        "empty" if value in ("", [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


def _type(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(sorted((_type(each) for each in field["anyOf"]), key="null".__eq__))
    if "$ref" in field:
        return f"`{field['$ref'].rpartition('/')[2]}`"
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    kind = field.get("type", "any")
    return f"{kind} of {_type(field['items'])}" if kind == "array" else str(kind)
