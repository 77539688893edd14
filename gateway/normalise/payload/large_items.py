"""
Items of a megabyte and more. Values that no field can hold are removed before decoding.

A list of a million empty lists takes thirty times its bytes once decoded, and no field expects such a
value. Normal items are large because of bodies and prompts, which are never read. Text is kept up to the
size limit for text.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import LARGEST_VALUE
from gateway.normalise.payload.json_pieces import ValueEnds, stripped_piece

LARGE: Final = 1024 * 1024
MAX_VALUE: Final = 256 * 1024  # maximum bytes of a value that is not text, far more than any metadata needs

_anything = msgspec.json.Decoder()


def without_large_values(raw: payload.Raw, type: type[msgspec.Struct]) -> msgspec.Raw:
    """
    Return an object without the values that are too large for their field in `type`. Raises one of
    UNREADABLE.
    """
    text = payload.valid_object_text(raw)
    return _keep_declared_members(text, text.index(b"{"), type)


def _keep_declared_members(text: bytes, object_start: int, type: type[msgspec.Struct]) -> msgspec.Raw:
    rules = _field_rules(type)
    small_members = {}
    for name, begin, end in payload.member_positions(text, object_start):
        rule = rules.get(name)
        value = None if rule is None else _reduce_value(text, begin, end, rule)
        if value is not None:
            small_members[name] = value
    return msgspec.Raw(msgspec.json.encode(small_members))


class SmallValues:
    """Reads the small parts of a large value. All parts that it reads have at most LARGE bytes in total."""

    def __init__(self) -> None:
        self._left = LARGE

    def read_small_values(self, raw: payload.Raw, depth: int) -> Any:
        """
        Decode a value. An object that is too large is reduced to its small members. Any other large value
        becomes an empty list.

        `depth` is the number of nested levels to read. Raises one of UNREADABLE.
        """
        if len(raw) <= min(MAX_VALUE, self._left):
            self._left -= len(raw)
            return payload.decode_or_clean(raw, _anything)
        if depth and payload.first_byte(raw) == b"{":
            return {
                name: self.read_small_values(value, depth - 1)
                for name, value in payload.iterate_undecoded_members(raw)
            }
        return []


class _FieldRule(NamedTuple):
    inner: type[msgspec.Struct] | None
    is_open: bool

    @property
    def is_dropped_if_large(self) -> bool:
        return self.is_open or self.inner is not None


def _reduce_value(text: bytes, begin: int, end: int, rule: _FieldRule) -> msgspec.Raw | None:
    size, sign = end - begin, text[begin : begin + 1]
    if size > MAX_VALUE and sign == b"{" and rule.inner is not None:
        return _keep_declared_members(text, begin, rule.inner)
    is_noise = size > LARGEST_VALUE if sign == b'"' else size > MAX_VALUE and rule.is_dropped_if_large
    return None if is_noise or not size else stripped_piece(text, begin, end)


@cache
def _field_rules(type: type[msgspec.Struct]) -> dict[str, _FieldRule]:
    fields = msgspec.structs.fields(type)
    return {
        field.encode_name: _FieldRule(
            struct_in_annotation(field.type), field.type is Any or get_origin(field.type) is dict
        )
        for field in fields
    }


def struct_in_annotation(annotation: Any) -> type[msgspec.Struct] | None:
    options = getattr(annotation, "__args__", (annotation,))
    return next(
        (option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)),
        None,
    )


KEPT: Final = 16 * 1024  # maximum bytes of a value that is kept unchanged
DEEPEST: Final = 3  # levels to which members are inspected; large values below become null


def shorten_large_item(raw: payload.Raw, max_elements: int) -> payload.Raw:
    """
    Return a small outline of a large item: small values stay, large values become null, and lists are cut to
    `max_elements` elements.
    """
    if len(raw) < LARGE:
        return raw
    try:
        text = payload.valid_object_text(raw)
        return _shortened_json_value(text, text.index(b"{"), len(text), max_elements, DEEPEST)
    except payload.UNREADABLE:
        return b"null"


def _shortened_json_value(text: bytes, begin: int, end: int, max_items: int, depth: int) -> bytes:
    sign = text[begin : begin + 1]
    if end - begin <= KEPT:
        return text[begin:end]
    if depth and sign == b"{":
        members = payload.member_positions(text, begin)
        return b"{%b}" % b",".join(
            b"%b:%b"
            % (msgspec.json.encode(name), _shortened_json_value(text, at, stop, max_items, depth - 1))
            for name, at, stop in members
        )
    if depth and sign == b"[":
        return b"[%b]" % b",".join(_shortened_array_elements(text, begin, max_items, depth - 1))
    return b"null"


def _shortened_array_elements(text: bytes, begin: int, max_items: int, depth: int) -> list[bytes]:
    ends, outlines, offset = ValueEnds(text), list[bytes](), begin + 1
    while len(outlines) < max_items:
        offset = ends.start_of_value(offset)
        end = ends.end_of_value(offset)
        if end is None:
            break
        outlines.append(_shortened_json_value(text, offset, end, max_items, depth))
        offset = ends.start_of_value(end) + 1
        if text[offset - 1 : offset] != b",":
            break
    return outlines
