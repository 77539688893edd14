"""
The OpenAPI 3.1 document of all doors, made from the tables and types that answer the requests.

Bodies come from the structs that decode them and list parameters from the lists themselves, so neither can drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from gateway.http.address import Address, Content, Schema
from gateway.http.key_carriage import BASIC, BEARER, KEY
from gateway.http.lists import ORDERS, List
from gateway.operator.calls import Call
from gateway.operator.sign_in import CSRF, SAFE_METHODS

_REF = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request breaks a rule that the message states",
    "401": "Nobody is signed in, or the sign-in is wrong",
    "403": "The role, the CSRF token, the Host or the Origin does not allow it",
    "404": "There is no such thing",
    "409": "The name is taken, or the state of the thing does not allow it",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "Too many attempts; Retry-After says when to repeat",
    "503": "The house cannot do it now",
}
_JSON_TYPES = ("string", "integer", "number", "boolean")  # a parameter of any other type is text in its form
_OBJECT: Schema = {"type": "object"}
_CREATES = ("/keys", "/operators", "/sessions", "/console-links")


def document(calls: Sequence[Call], *, prefix: str, version: str, addresses: Sequence[Address] = ()) -> dict[str, Any]:
    """The whole document: operators' calls under `prefix`, and the doors' operations; equal ones give an equal one."""
    bodies = [call.takes for call in calls if call.takes is not None]
    types = [*bodies, *(kind for address in addresses for kind in _types(address))]
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(prefix + call.path, {})[call.method.lower()] = _operation(call)
    for address in addresses:
        for method, name in address.operations.items():
            paths.setdefault(address.documented_path, {})[method.lower()] = _address_operation(address, name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tollhouse", "version": version},
        "paths": paths,
        "components": {
            "schemas": {
                **orjson.loads(orjson.dumps(schemas)),  # defaults that are tuples become arrays
                "Error": _ERROR,
                "Pagination": _PAGINATION,
                "Filtering": _FILTERING,
                "Sorting": _SORTING,
            },
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "tollhouse"},
                "csrf": {"type": "apiKey", "in": "header", "name": CSRF},
                KEY: {"type": "apiKey", "in": "header", "name": "Authorization"},
                BASIC: {"type": "http", "scheme": "basic"},
                BEARER: {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(call: Call) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", call.path)
    ]
    parameters += _list_parameters(call.lists) if call.lists else []
    text: Schema = {"type": "string"}
    parameters += [{"name": name, "in": "query", "required": True, "schema": text} for name in call.query]
    parameters += [{"name": name, "in": "query", "schema": text} for name in call.optional]
    parameters += [
        {"name": name, "in": "query", "explode": True, "schema": {"type": "array", "items": text}}
        for name in call.repeated
    ]
    created = call.method == "POST" and call.path in _CREATES
    operation: dict[str, Any] = {
        "operationId": call.handler.__name__,
        "summary": call.summary,
        "parameters": parameters,
        "responses": {
            "201" if created else "200": _response("Done", _envelope(call.lists) if call.lists else {"type": "object"}),
            **{status: _response(words, _ref("Error")) for status, words in _ERRORS.items()},
        },
        "security": _security(call),
    }
    if call.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(_ref(call.takes.__name__))}
    return operation


def _types(address: Address) -> Iterator[type]:
    """The types that the document has to describe once."""
    for content in (address.takes, address.errors, *address.gives.values(), {"": address.item}):
        yield from (kind for kind in content.values() if isinstance(kind, type))


def _address_operation(address: Address, name: str) -> dict[str, Any]:
    path = [
        {"name": parameter, "in": "path", "required": True, "schema": _values("string", values)}
        for parameter, values in address.path_parameters.items()
    ]
    required = [{"name": n, "in": "query", "required": True, "schema": {"type": "string"}} for n in address.required]
    listed = _list_parameters(address.lists) if address.lists else []
    page = {200: {"application/json": _envelope(address.lists, address.item)}} if address.lists else {}
    gives: Mapping[int, Content] = {**address.gives, **page}
    made: dict[str, Any] = {
        "operationId": name,
        "summary": address.summary,
        "parameters": [*path, *required, *(one for one in listed if one["name"] not in address.required)],
        "responses": {
            **{str(status): _answer("Done", content) for status, content in gives.items()},
            **{
                str(status): _answer(address.documented_refusals[status], address.errors) for status in address.refusals
            },
        },
        "security": address.security,
    }
    if address.takes:
        made["requestBody"] = {"required": True, "content": _content(address.takes)}
    return made


def _answer(words: str, content: Content) -> dict[str, Any]:
    return {"description": words, "content": _content(content)} if content else {"description": words}


def _content(content: Content) -> dict[str, Any]:
    return {media: {"schema": _schema(kind)} for media, kind in content.items()}


def _schema(kind: type | Schema) -> Schema:
    return _ref(kind.__name__) if isinstance(kind, type) else kind


def _security(call: Call) -> list[dict[str, list[str]]]:
    if call.role is None:
        return []
    return [{"session": []}] if call.method in SAFE_METHODS else [{"session": [], "csrf": []}]


def _list_parameters(listed: List[Any]) -> list[dict[str, Any]]:
    filters = [
        {
            "name": name,
            "in": "query",
            "explode": True,
            "schema": {"type": "array", "items": _values(each.type, each.valid_values)},
        }
        for name, each in listed.filters.items()
    ]
    limit = {"type": "integer", "minimum": 1, "maximum": listed.max_limit, "default": listed.default_limit}
    return [
        {"name": "limit", "in": "query", "schema": limit},
        {"name": "cursor", "in": "query", "schema": {"type": "string"}},
        {"name": "sort_key", "in": "query", "schema": {"type": "string", "enum": list(listed.sorts)}},
        {"name": "sort_order", "in": "query", "schema": {"type": "string", "enum": list(ORDERS)}},
        *filters,
    ]


def _values(type: str, valid: Sequence[str]) -> dict[str, Any]:
    kind = {"type": type} if type in _JSON_TYPES else {"type": "string", "format": type}
    return {**kind, "enum": list(valid)} if valid else kind


def _envelope(listed: List[Any], item: type | Schema = _OBJECT) -> dict[str, Any]:
    properties = {
        listed.root: {"type": "array", "items": _schema(item)},
        "pagination": _ref("Pagination"),
        "filtering": _ref("Filtering"),
        "sorting": _ref("Sorting"),
    }
    return _object(properties)


def _response(words: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": _json(schema)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these properties, all of them required and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_CURSOR = {"type": ["string", "null"]}
_BOOLEAN = {"type": "boolean"}
_ERROR = _object({"error": _object({"type": _TEXT, "message": _TEXT})})
_PAGINATION = _object({
    "page_count": _COUNT,
    "item_count": _COUNT,
    "total_count": _COUNT,
    "cursor": _object({
        "next_cursor": _CURSOR, "previous_cursor": _CURSOR, "has_next": _BOOLEAN, "has_previous": _BOOLEAN,
    }),
})  # fmt: skip
_FILTERING = _object({
    "available": _array(_object({"field": _TEXT, "valid_values": _array(_TEXT), "valid_types": _array(_TEXT)})),
    "current": {"type": "object", "additionalProperties": _array(_TEXT)},
})  # fmt: skip
_SORTING = _object({
    "available": _array(_TEXT),
    "current": _array(_object({"sort_key": _TEXT, "sort_order": _TEXT})),
    "ordering": _array(_TEXT),
})  # fmt: skip
