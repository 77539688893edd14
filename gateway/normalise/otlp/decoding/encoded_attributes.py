"""
Attributes in protobuf's encoding into a dict: the hottest loop of the program, so most of it is done by hand.

Names repeat from span to span, and most values do. A KeyValue that came before is found by its bytes; one
whose name came before is read by hand; the first of each name is read by protobuf, and so is every layout
but the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES
from gateway.normalise.otlp.decoding import wire_view
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.names import FIELD_NAMES

Pair = tuple[str, Any]

_LEFT_OUT: Pair = ("", None)
_STRING, _INT, _DOUBLE = 0x0A, 0x18, 0x21  # heads of an AnyValue's fields


LARGE = (
    256 * 1024
)  # bytes of a pair that is not a plain text, from which it is not read: a list of millions of nothing
_NUMBERS = ("int_value", "bool_value", "double_value")
_unpack_double: Callable[[bytes, int], tuple[float]] = Struct("<d").unpack_from


class _Head(NamedTuple):
    """What is known of a name by the bytes that begin its KeyValues: 0a <length> name 12."""

    name: str
    is_left_out: bool  # as it is: dropped or reduced
    is_reduced: bool
    repeats: bool


class _Known(dict[bytes, Pair]):
    """KeyValues that came before, and what they say; never content."""

    def __missing__(self, raw: bytes) -> Pair:
        return _known_name(raw) or _any_layout(raw)


_known = _Known()
_read = _known.__getitem__
_heads: dict[bytes, _Head] = {}
_MOST_KNOWN = 8192
_LONGEST_KNOWN = 160
# New on nearly every span, so not worth remembering. Sessions, users and the other counts repeat.
_VARYING = frozenset(
    name for field in ("input", "total", "request_id", "cost") for name in FIELD_NAMES[field]
)


def attributes_of(encoded: Sequence[bytes]) -> Attributes:
    """
    Encoded KeyValues as a dict, without content; the last of a repeated name stays.

    DecodeError or UnicodeDecodeError for what is no KeyValue, content included.
    """
    # A slice, because protobuf's own containers take twice as long to walk over.
    attributes = dict(map(_read, encoded[:]))
    attributes.pop("", None)
    return attributes


def outside_of(encoded: Iterable[bytes], attributes: Attributes) -> dict[str, object]:
    """The texts, numbers and lists of texts that are not among the attributes read."""
    outside: dict[str, object] = {}
    for pair in map(_parsed, encoded):
        if pair.key and pair.key not in attributes and (found := _plain(pair.value)) is not None:
            outside[pair.key] = found
    return outside


def _plain(value: Any) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return _texts(value)
    return getattr(value, kind) if kind in ("string_value", *_NUMBERS) else None


def _known_name(raw: bytes) -> Pair | None:
    """A text or a small number under a name that came before; None for all else."""
    size = len(raw)
    if size < 6:
        return None
    at = raw[1] + 3  # where the value's length stands
    head = _heads.get(raw[:at])
    if head is None or size < at + 3:
        return None
    name, is_left_out, is_reduced, repeats = head
    value: Any = None
    length, kind = size - at - 1, raw[at + 1]
    if raw[at] >= 0x80:
        value = _long_text(raw, at)
    elif raw[at] != length:
        return None
    elif kind == _STRING:
        if raw[at + 2] == length - 2:
            value = raw[at + 3 :].decode()
    elif kind == _INT:
        value = _small_number(raw, length)
    elif kind == _DOUBLE and length == 9:
        value = _unpack_double(raw, at + 2)[0]
    if value is None:
        return None
    if is_left_out or (length > admission.MAX_VALUE and len(value) > admission.MAX_VALUE):
        return _reduced(name, value) if is_reduced else _LEFT_OUT
    pair = (name, value)
    if repeats:
        _remember(raw, pair)
    return pair


def _reduced(name: str, value: Any) -> Pair:
    kept = admission.reduced(name, value) if type(value) is str else None
    return _LEFT_OUT if kept is None else (name, kept)


def _small_number(raw: bytes, length: int) -> int | None:
    """The number at the end of a value of that length, of up to three bytes; None for all else."""
    last = raw[-1]
    if last >= 0x80:
        return None
    if length == 3:
        return raw[-2] & 0x7F | last << 7 if raw[-2] >= 0x80 else None
    if length == 2:
        return last
    if length == 4 and raw[-2] >= 0x80 and raw[-3] >= 0x80:
        return raw[-3] & 0x7F | (raw[-2] & 0x7F) << 7 | last << 14
    return None


def _long_text(raw: bytes, at: int) -> str | None:
    start = _behind_length(raw, at)
    if start is None or raw[start] != _STRING:
        return None
    start = _behind_length(raw, start + 1)
    return None if start is None else raw[start:].decode()


def _behind_length(raw: bytes, at: int) -> int | None:
    """Return the place behind a length that reaches exactly to the end of `raw`; None if it does not."""
    size = len(raw)
    length = shift = 0
    while at < size and shift < 35:
        byte = raw[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at if at + length == size and length else None
        shift += 7
    return None


def _any_layout(raw: bytes) -> Pair:
    """Any KeyValue, read by protobuf; also learns its name for `_known_name`."""
    message = _parsed(raw)
    name = message.key
    rule = RULES[name]
    value = None if rule is admission.DROPPED else _value(message.value, rule, name)
    pair = _LEFT_OUT if value is None else (name, value)
    if rule is not admission.WORDS:
        _learn(raw, name, rule)
    if (rule is admission.SCALAR and name not in _VARYING) or name in FIELD_NAMES["finish"]:
        _remember(raw, pair)
    return pair


def _parsed(raw: bytes) -> Any:
    """A KeyValue; of a large one that holds no text the key alone."""
    if len(raw) > LARGE:
        encoded = wire_view.EncodedKeyValue.FromString(raw)
        if encoded.value[:1] != b"\x0a":  # a text, for which one byte of it takes one byte
            return wire_view.KeyValue(key=encoded.key)
    return wire_view.KeyValue.FromString(raw)


def _learn(raw: bytes, name: str, rule: str) -> None:
    encoded = name.encode()
    head = b"\x0a%c%b\x12" % (len(encoded), encoded) if len(encoded) < 0x80 else b""
    if head and raw.startswith(head):
        if len(_heads) >= _MOST_KNOWN:
            _heads.clear()
        _heads[head] = _Head(
            name, rule is not admission.SCALAR, rule is admission.REDUCED, name not in _VARYING
        )


def _remember(raw: bytes, pair: Pair) -> None:
    if len(raw) <= _LONGEST_KNOWN:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[raw] = pair


def _value(value: Any, rule: str, name: str) -> Any:
    """An AnyValue as the rule allows; None for what stays outside."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        text = value.string_value
        if rule is admission.REDUCED:
            return admission.reduced(name, text)
        return None if len(text) > admission.MAX_VALUE else text
    if kind in _NUMBERS:
        return getattr(value, kind) if rule is admission.SCALAR else None
    if kind == "array_value" and rule is admission.WORDS:
        return _texts(value)
    return None


def _texts(value: Any) -> list[str] | None:
    return [part.string_value for part in value.array_value.values if part.string_value] or None
