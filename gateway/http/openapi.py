"""
The OpenAPI 3.1 document, from the table of addresses and the types that decode bodies, so it matches the
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from gateway.core.schemas import BOOLEAN, COUNT, TEXT, Schema, array_schema, closed_object_schema
from gateway.http.address import (
    API_KEY,
    API_KEY_HEADER,
    BASIC,
    BEARER,
    CSRF,
    CSRF_HEADER,
    KEY,
    SESSION,
    ApiAddress,
    Content,
)
from gateway.http.answers import JSON
from gateway.http.lists import ORDERS, Filter, ListDefinition
from gateway.http.requests import IDEMPOTENCY_KEY

_REF = "#/components/schemas/{name}"
# other types are text with a `format`
_JSON_TYPES = ("string", "integer", "number", "boolean")


def openapi_document(addresses: Sequence[ApiAddress], *, version: str) -> dict[str, Any]:
    """Return the OpenAPI document. Equal addresses give equal documents."""
    types = {kind: None for address in addresses for kind in _schema_types(address)}
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for address in addresses:
        for method, name in address.operation_ids_by_method.items():
            paths.setdefault(address.documented_path, {})[method.lower()] = _describe_operation(address, name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tollhouse", "version": version},
        "paths": paths,
        "components": {
            "schemas": {
                # orjson converts tuples to lists, because JSON has no tuples
                **orjson.loads(orjson.dumps(schemas)),
                "Error": _ERROR,
                "Pagination": _PAGINATION,
                "Filtering": _FILTERING,
                "Sorting": _SORTING,
            },
            "securitySchemes": {
                SESSION: {"type": "apiKey", "in": "cookie", "name": "tollhouse"},
                CSRF: {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
                KEY: {"type": "apiKey", "in": "header", "name": "Authorization"},
                API_KEY: {"type": "apiKey", "in": "header", "name": API_KEY_HEADER},
                BASIC: {"type": "http", "scheme": "basic"},
                BEARER: {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schema_types(address: ApiAddress) -> Iterator[type]:
    beside = address.lists.beside if address.lists else {}
    for content in (address.takes, address.errors, *address.gives.values(), {"": address.item}, beside):
        yield from (kind for kind in content.values() if isinstance(kind, type))


def _describe_operation(address: ApiAddress, name: str) -> dict[str, Any]:
    gives: Mapping[int, Content] = address.gives
    if address.lists:
        gives = {200: {JSON: _envelope_schema(address.lists, address.item), **gives.get(200, {})}}
    refusals = address.documented_refusals
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": address.summary,
        **({"description": address.documented_note} if address.documented_note else {}),
        "parameters": list(_describe_parameters(address)),
        "responses": {
            **{str(status): _describe_response("Done", content) for status, content in gives.items()},
            **{
                str(status): _describe_response(meaning, address.errors)
                for status, meaning in refusals.items()
            },
        },
        "security": address.security,
    }
    if address.takes:
        operation["requestBody"] = {"required": True, "content": _describe_content(address.takes)}
    return operation


def _describe_parameters(address: ApiAddress) -> Iterator[dict[str, Any]]:
    for name, values in address.path_parameters.items():
        schema = _value_schema("string", values) if values else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name in address.required:
        yield {"name": name, "in": "query", "required": True, "schema": TEXT}
    for name in address.optional:
        yield {"name": name, "in": "query", "schema": TEXT}
    for name in address.repeated:
        yield {"name": name, "in": "query", "explode": True, "schema": array_schema(TEXT)}
    if address.takes_idempotency_key:
        yield {"name": IDEMPOTENCY_KEY, "in": "header", "description": _ONE_BODY, "schema": TEXT}
    if address.lists and address.gives:
        yield {"name": "format", "in": "query", "schema": _value_schema("string", ("json", "csv"))}
    for parameter in _list_parameters(address.lists) if address.lists else ():
        if parameter["name"] not in address.required:
            yield parameter


def _describe_response(description: str, content: Content) -> dict[str, Any]:
    return (
        {"description": description, "content": _describe_content(content)}
        if content
        else {"description": description}
    )


def _describe_content(content: Content) -> dict[str, Any]:
    return {media: {"schema": _schema_of_kind(kind)} for media, kind in content.items()}


def _schema_of_kind(kind: type | Schema) -> Schema:
    return _schema_reference(kind.__name__) if isinstance(kind, type) else kind


def _list_parameters(list_definition: ListDefinition[Any]) -> list[dict[str, Any]]:
    filters = [_filter_parameter(name, filter_) for name, filter_ in list_definition.filters.items()]
    limit = {
        "type": "integer",
        "minimum": 1,
        "maximum": list_definition.max_limit,
        "default": list_definition.default_limit,
    }
    return [
        {"name": "limit", "in": "query", "schema": limit},
        {"name": "cursor", "in": "query", "schema": {"type": "string"}},
        {
            "name": "sort_key",
            "in": "query",
            "schema": {"type": "string", "enum": list(list_definition.sorts)},
        },
        {"name": "sort_order", "in": "query", "schema": {"type": "string", "enum": list(ORDERS)}},
        *filters,
    ]


def _filter_parameter(name: str, filter_: Filter[Any]) -> dict[str, Any]:
    schema = _value_schema(filter_.type, filter_.valid_values)
    if filter_.is_single:
        return {"name": name, "in": "query", "schema": schema}
    return {"name": name, "in": "query", "explode": True, "schema": array_schema(schema)}


def _value_schema(type: str, valid: Sequence[str]) -> dict[str, Any]:
    if type == "boolean":
        return {"type": "boolean"}  # a generated client cannot send the texts of an enumeration as booleans
    kind = {"type": type} if type in _JSON_TYPES else {"type": "string", "format": type}
    return {**kind, "enum": list(valid)} if valid else kind


def _envelope_schema(list_definition: ListDefinition[Any], item: type | Schema) -> Schema:
    properties = {
        list_definition.root: array_schema(_schema_of_kind(item)),
        **{name: _schema_of_kind(kind) for name, kind in list_definition.beside.items()},
        "pagination": _schema_reference("Pagination"),
        "filtering": _schema_reference("Filtering"),
        "sorting": _schema_reference("Sorting"),
    }
    return closed_object_schema(properties, list_definition.at_times)


def _schema_reference(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


_ONE_BODY = (
    "A text of your choice that identifies this body. The same body with the same key gets the first "
    "answer again and changes nothing. Another body with this key is rejected with 422. The key is "
    "remembered for spool.duplicate_window, per API key and path."
)
_CURSOR = {"type": ["string", "null"]}
_FAULT = closed_object_schema(
    {"error": TEXT, "value": TEXT, "path": array_schema({"type": ["string", "integer"]})}
)
_ERROR = closed_object_schema(
    {"error": closed_object_schema({"type": TEXT, "message": TEXT})}, {"errors": array_schema(_FAULT)}
)
_PAGINATION = closed_object_schema(
    {
        "page_count": COUNT,
        "item_count": COUNT,
        "total_count": COUNT,
        "cursor": closed_object_schema(
            {"next_cursor": _CURSOR, "previous_cursor": _CURSOR, "has_next": BOOLEAN, "has_previous": BOOLEAN}
        ),
    }
)
_FILTERING = closed_object_schema(
    {
        "available": array_schema(
            closed_object_schema(
                {"field": TEXT, "valid_values": array_schema(TEXT), "valid_types": array_schema(TEXT)}
            )
        ),
        "current": {"type": "object", "additionalProperties": array_schema(TEXT)},
    }
)
_SORTING = closed_object_schema(
    {
        "available": array_schema(TEXT),
        "current": array_schema(closed_object_schema({"sort_key": TEXT, "sort_order": TEXT})),
        "ordering": array_schema(TEXT),
    }
)
