"""
What an address takes and answers: the value that every door puts beside its handler, for `/openapi.json`.

Bodies are named by the types that decode them and lists by the lists themselves, so that neither can drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.http.answers import JSON, PROTOBUF
from gateway.http.lists import List

Schema = Mapping[str, Any]
Content = Mapping[str, type | Schema]  # media type -> the type of the body, or its schema

KEY, BASIC, BEARER = "key", "basic", "bearer"  # ways to carry a key

REFUSALS: Mapping[int, str] = {
    400: "The body or a parameter breaks a rule that the message states",
    401: "No key, or one that is unknown, disabled or deleted",
    403: "The key lacks the scope that the message names",
    404: "There is no such thing",
    408: "The body did not arrive in time",
    409: "The state of the thing does not allow it",
    410: "The device was revoked",
    413: "The body is over server.max_body_bytes after decompression",
    415: "The media type or the content coding is not taken here",
    429: "Over a limit; Retry-After says when to repeat",
    500: "Tollhouse made a mistake",
    503: "Nothing was kept; Retry-After says when to repeat",
}
READ = (400, 401, 403, 415, 429, 500, 503)
WRITE = (400, 401, 403, 408, 413, 415, 429, 500, 503)

ERROR = {"$ref": "#/components/schemas/Error"}
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
BYTES: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """
    One method of one address. `scope` None: no key is asked for. `query` are required parameters.

    `lists` makes the answer a page of that list; `item` is then the type of its rows.
    """

    method: str
    path: str
    name: str
    summary: str
    scope: str | None
    carriers: tuple[str, ...] = (KEY,)
    takes: Content = field(default_factory=dict)
    gives: Mapping[int, Content] = field(default_factory=dict)
    errors: Content = field(default_factory=lambda: {JSON: ERROR})
    refusals: tuple[int, ...] = WRITE
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of parameters in the path
    query: tuple[str, ...] = ()
    lists: List[Any] | None = None
    item: type | Schema = field(default_factory=lambda: OBJECT)


def closed(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def otlp_json(decoded: type) -> Schema:
    """A request of OTLP/JSON as far as its outermost type reads it; the rest is opentelemetry-proto's to say."""
    arrays = {name: {"type": ["array", "null"], "items": {"type": ["object", "null"]}} for name in _fields(decoded)}
    return {"type": "object", "properties": arrays}


def otlp(
    path: str,
    name: str,
    summary: str,
    *,
    scope: str,
    decoded: type | None,
    member: str | None,
    carriers: tuple[str, ...] = (KEY,),
) -> Operation:
    """An OTLP/HTTP address: both encodings in, the same encoding out, refusals as google.rpc.Status."""
    success = closed({}, {"partialSuccess": closed({member: TEXT, "errorMessage": TEXT})} if member else {})
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        scope=scope,
        carriers=carriers,
        takes={PROTOBUF: BYTES, JSON: otlp_json(decoded) if decoded else OBJECT},
        gives={200: {PROTOBUF: BYTES, JSON: success}},
        errors={PROTOBUF: BYTES, JSON: closed({"code": {"type": "integer"}, "message": TEXT})},
    )


def _fields(decoded: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = decoded.__struct_fields__
    return names
