"""Schemas of responses in `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = "Mapping[str, Any]"

TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
BYTES: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}


def closed_object_schema(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None
) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def schema_with_description(schema: Schema, meaning: str) -> Schema:
    return {**schema, "description": meaning}


def open_object_schema(properties: Mapping[str, Schema]) -> Schema:
    """An object that may have other fields, too."""
    return {**OBJECT, "properties": properties}


def array_schema(items: Schema) -> Schema:
    return {"type": "array", "items": items}
