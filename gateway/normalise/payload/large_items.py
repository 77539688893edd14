"""
Items of a megabyte and more: values that no field can hold are left out before they are decoded.

A list of a million empty lists takes thirty times its bytes once it is decoded, and means nothing where a
number or a name belongs. The bodies and prompts that make honest items large are not read anyway, and text
stays as it is.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from gateway.normalise.payload import items as payload

LARGE: Final = 1024 * 1024
MAX_VALUE: Final = 256 * 1024  # of one that is no text: far more than any metadata


def slim(raw: payload.Raw, type: type[msgspec.Struct]) -> msgspec.Raw:
    """The members that `type` reads, without those too large for their field. Raises one of UNREADABLE."""
    shape = _shape(type)
    members = payload.decode(raw, shape.decoder)
    kept = {}
    for name, rule in shape.rules.items():
        value = _read(getattr(members, name), rule)
        if value is not None:
            kept[rule.name] = value
    return msgspec.Raw(msgspec.json.encode(kept))


class _FieldRule(NamedTuple):
    """One field: its name in the payload, the object it may be, and whether anything may stand there."""

    name: str
    inner: type[msgspec.Struct] | None
    is_open: bool


class _Shape(NamedTuple):
    decoder: msgspec.json.Decoder[Any]
    rules: dict[str, _FieldRule]


def _read(value: msgspec.Raw, rule: _FieldRule) -> msgspec.Raw | None:
    if len(value) <= MAX_VALUE:
        return value if len(value) else None
    begin = bytes(memoryview(value)[:1])
    if begin == b"{" and rule.inner is not None:
        return slim(value, rule.inner)
    is_noise = begin != b'"' and (rule.is_open or rule.inner is not None)
    return None if is_noise else value


@cache
def _shape(type: type[msgspec.Struct]) -> _Shape:
    fields = msgspec.structs.fields(type)
    members = msgspec.defstruct(
        "Members",
        [(field.name, msgspec.Raw, msgspec.Raw()) for field in fields],
        rename={field.name: field.encode_name for field in fields},
    )
    rules = {}
    for field in fields:
        rules[field.name] = _FieldRule(field.encode_name, struct_in(field.type), _is_open(field.type))
    return _Shape(msgspec.json.Decoder(members), rules)


def _is_open(annotation: Any) -> bool:
    return annotation is Any or get_origin(annotation) is dict


def struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """The object that a field may hold, if it may hold one."""
    options = getattr(annotation, "__args__", (annotation,))
    return next((one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
