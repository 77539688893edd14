"""
Decoding of OTLP/JSON requests in steps. A small body is parsed at once. In a large body or a large item, the
positions of the parts are found first, and unused parts are never decoded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES
from gateway.normalise.otlp.decoding import json_schema as schema
from gateway.normalise.otlp.decoding.json_schema import LARGE, attributes_from_pairs
from gateway.normalise.otlp.decoding.pieces import MAX_PIECE, Malformed
from gateway.normalise.otlp.model import READ_EVENTS, Attributes
from gateway.normalise.payload.body_limits import LARGEST_VALUE, BodyReadLimits
from gateway.normalise.payload.items import remove_byte_order_mark
from gateway.normalise.payload.json_cut import JsonItem, JsonScanner, error_offset

Names = tuple[str, str, str]  # names of the members that lead to the items
JsonScopes = list[tuple[int, schema.JsonScope | None, Sequence[JsonItem]]]
T = TypeVar("T")

WHOLE = 1024 * 1024  # maximum bytes that are parsed at once
_MANY = 1024  # attributes read before the event loop gets a turn
_LARGEST_EVENT = 128 * 1024  # maximum bytes of an event, more than any stack trace has
_WRONG_TYPE = "has the wrong type for OTLP"


class LargeItem(NamedTuple):
    text: bytes  # JSON text of the item, with only its small members
    attributes: Attributes
    events: list[schema.JsonEvent]


def collect_entries(
    body: bytes,
    decoder: msgspec.json.Decoder[Any],
    names: Names,
    read_limits: BodyReadLimits,
    *,
    into: list[tuple[int, schema.JsonResource | None, JsonScopes]],
) -> Iterator[None]:
    """
    Append each resource of a body with its scopes to `into`. Yields after each step.

    Raises BadPayload if the body is not a request, and Refusal if it has too many items.
    """
    body = remove_byte_order_mark(body)
    yield from _require_utf8(body)
    body = rewrite_snake_case_names(body)
    if len(body) > WHOLE:
        try:
            yield from _cut_request_into_entries(body, names, read_limits, into)
        except BadPayload:
            repaired = replace_lone_surrogates(body)
            if repaired is None:
                raise
            into.clear()
            yield from _cut_request_into_entries(repaired, names, read_limits, into)
        return
    outer, middle, items = names
    request = _decode_request_body(body, decoder, outer)
    _refuse_members_of_other_signals(outer, lambda member: bytes(getattr(request, member)))
    groups = getattr(request, outer) or ()
    count = len(groups)
    for i, entry in enumerate(groups):
        if entry is not None:
            inner = getattr(entry, middle) or ()
            count += len(inner)
            scopes: JsonScopes = []
            for j, scope in enumerate(inner):
                if scope is not None:
                    scope_items = getattr(scope, items) or ()
                    scopes.append((j, scope.scope, scope_items))
                    count += len(scope_items)
            into.append((i, entry.resource, scopes))
    read_limits.count_items(count, len(body))


def decode_large_item(raw: JsonItem, read_limits: BodyReadLimits) -> Generator[None, None, LargeItem]:
    """Decode a large item, member by member. Raises Malformed or BadPayload if a large member is invalid."""
    cut = JsonScanner(bytes(raw), read_limits.limits_for_next_pass())
    read = {
        name: partial(cut.locate_array_elements, place_in_message=f".{name.decode()}")
        for name in (b"attributes", b"events")
    }
    members = yield from run_yielding_each_step(cut.read_document(partial(cut.read_members, read=read)))
    attributes: Attributes = {}
    pairs: list[schema.KeyValue | None] = []
    for element in members.pop(b"attributes", ()):
        pairs.append(_decode_attribute_if_small(element))
        if len(pairs) == _MANY:
            attributes.update(attributes_from_pairs(pairs))
            pairs.clear()
        if read_limits.count_work_and_check_turn(0):
            yield
    attributes.update(attributes_from_pairs(pairs))
    events: list[schema.JsonEvent] = []
    for element in members.pop(b"events", ()):
        size = memoryview(element).nbytes
        if read_limits.count_work_and_check_turn(size):
            yield
        event = decode_item(element, schema.EVENT, ".events") if size <= _LARGEST_EVENT else None
        if event is not None and event.name in READ_EVENTS:
            events.append(event)
    return LargeItem(encode_small_members(members), attributes, events)


def encode_small_members(members: Mapping[bytes, memoryview]) -> bytes:
    """Encode members as a JSON object, without those that are larger than any field that is read."""
    encoded = [b'"%b":%b' % (name, bytes(value)) for name, value in members.items() if len(value) <= LARGE]
    return b"{" + b",".join(encoded) + b"}"


def decode_item(raw: JsonItem | bytes, decoder: msgspec.json.Decoder[T], field: str = "") -> T:
    """Decode an item of JSON. Raises Malformed, with `field` in the message."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise Malformed(f"{field}.{_path_in_error(error)}: {_WRONG_TYPE}") from None
    except msgspec.DecodeError:
        raise Malformed(f"{field}: not valid JSON, or text that is not valid Unicode") from None


def run_yielding_each_step(work: Generator[bytes, None, T]) -> Generator[None, None, T]:
    """
    Run work to its end and return its result. Yields after each step, so that the event loop can do other
    work.
    """
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        yield


def _decode_attribute_if_small(element: JsonItem) -> schema.KeyValue | None:
    size = memoryview(element).nbytes
    if size > LARGE:
        named_pair = decode_item(element, schema.NAMED, ".attributes")
        if size > LARGEST_VALUE or RULES[named_pair.key or ""] is not admission.REDUCED:
            return None
    return decode_item(element, schema.KEY_VALUE, ".attributes")


def _cut_request_into_entries(
    body: bytes,
    names: Names,
    read_limits: BodyReadLimits,
    into: list[tuple[int, schema.JsonResource | None, JsonScopes]],
) -> Iterator[None]:
    cut = JsonScanner(body, read_limits.limits_for_next_pass())
    outer, middle, items = (name.encode() for name in names)
    scope = partial(
        cut.read_members,
        read={items: partial(cut.locate_array_elements, place_in_message=names[2])},
        where=names[1],
    )
    entry = partial(
        cut.read_members,
        read={middle: partial(cut.read_elements, read=scope, where=names[1])},
        where=names[0],
    )
    request = partial(cut.read_members, read={outer: partial(cut.read_elements, read=entry, where=names[0])})
    members = yield from run_yielding_each_step(cut.read_document(request))
    _refuse_members_of_other_signals(names[0], lambda member: bytes(members.get(member.encode(), b"")[:3]))
    for i, outer_member in enumerate(members.get(outer, ())):
        scopes: JsonScopes = []
        for j, inner in enumerate(outer_member.get(middle, ())):
            scope_members = _decode_resource_or_scope(
                inner.get(b"scope"), schema.SCOPE, f"{names[0]}[{i}].{names[1]}[{j}].scope"
            )
            scope_items = inner.get(items, ())
            scopes.append((j, scope_members, scope_items))
            read_limits.count_items(1 + len(scope_items), 0)
            if read_limits.count_work_and_check_turn(0):
                yield
        into.append(
            (
                i,
                _decode_resource_or_scope(
                    outer_member.get(b"resource"), schema.RESOURCE, f"{names[0]}[{i}].resource"
                ),
                scopes,
            )
        )


def _refuse_members_of_other_signals(own: str, start_of_member: Callable[[str], bytes]) -> None:
    for member, address in schema.SIGNAL_ADDRESSES.items():
        if member != own and start_of_member(member) not in (b"", b"[]", b"nul", b"null"):
            raise BadPayload(f"this body has {member}: send it to {address}")


def _decode_resource_or_scope(
    value: memoryview | None, decoder: msgspec.json.Decoder[T], where: str
) -> T | None:
    if value is None:
        return None
    if len(value) > MAX_PIECE:
        raise Refusal(
            413, "body_too_large", f"{where} is larger than {MAX_PIECE} bytes; send fewer attributes."
        )
    try:
        return decode_item(value, decoder)
    except Malformed as error:
        raise BadPayload(f"{where}{error}") from None


def _require_utf8(body: bytes) -> Iterator[None]:
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), MAX_PIECE):
        end = start + MAX_PIECE
        try:
            decoder.decode(body[start:end], final=end >= len(body))
        except UnicodeDecodeError as error:
            raise BadPayload(f"body: not UTF-8 near byte {start + error.start}") from None
        if end < len(body):
            yield


def _decode_request_body(body: bytes, decoder: msgspec.json.Decoder[Any], outer: str) -> Any:
    if not body:
        raise BadPayload(f"body: is empty; send an object with the array {outer}")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        path = _path_in_error(error)
        expected = "" if path else f"; send an object with the array {outer}"
        raise BadPayload(f"{path or 'body'}: {_WRONG_TYPE}{expected}") from None
    except msgspec.DecodeError as error:
        repaired = replace_lone_surrogates(body)
        if repaired is not None:
            return _decode_request_body(repaired, decoder, outer)
        if "trailing characters" in str(error):
            problem = f"more than one JSON document ({_position_of_error(error)})"
            raise BadPayload(f"body: {problem}; send one JSON document in each request") from None
        raise BadPayload(f"body: not valid JSON ({_position_of_error(error)})") from None
    except RecursionError:
        raise BadPayload("body: nested too deeply") from None


def _path_in_error(error: msgspec.ValidationError) -> str:
    # A message such as "Expected `int`, got `float` - at `$.status.code`" is cut to its path, so that no
    # value can leak.
    _, separator, path = str(error).rpartition("`$")
    return path.strip("`.") if separator else ""


def _position_of_error(error: msgspec.DecodeError) -> str:
    offset = error_offset(error)
    return "it ends too early" if offset is None else f"byte {offset}"


# Bytes at the start of a body that are searched for snake_case names. One sender writes all names in the same
# way.
_SEARCHED = 64 * 1024
# Maximum bytes of a body that is rewritten, because the event loop gets no turn meanwhile.
_LARGEST_REWRITTEN = 4 * 1024 * 1024
_SNAKE = re.compile(
    rb'"(?:resource_(?:spans|logs|metrics)|scope_(?:spans|logs|metrics)|log_records|(?:trace|span|parent_span)_id'
    rb"|(?:start_|end_|observed_)?time_unix_nano|(?:string|int|double|bool|array|kvlist|bytes)_value|data_points"
    rb'|event_name|as_(?:int|double)|aggregation_temporality|is_monotonic|exponential_histogram)"\s*:'
)
# bytes that each rewritten name contains; searching for them is faster than using the regular expression
_SIGNS = (b'_value"', b'_spans"', b'_logs"', b'_metrics"', b'_nano"')
_WORD = re.compile(rb"_([a-z])")


def rewrite_snake_case_names(body: bytes) -> bytes:
    beginning = body[:_SEARCHED]
    for sign in _SIGNS:
        if sign in beginning:
            break
    else:
        return body
    if not _SNAKE.search(beginning):
        return body
    if len(body) > _LARGEST_REWRITTEN:
        raise BadPayload("body: field names must be lowerCamelCase")
    return _SNAKE.sub(_camel_case_name, body)


def _camel_case_name(name: re.Match[bytes]) -> bytes:
    # Every match is a field name of the protocol, because attribute keys appear as values ("key": "trace_id")
    # and quotes in texts are escaped.
    return _WORD.sub(lambda letter: letter[1].upper(), name[0])


_ESCAPE = 6  # length in bytes of one JSON escape such as \ud800

_HEX = rb"[0-9a-fA-F][0-9a-fA-F]"
# The literal at the start is fast to search for. The pattern matches a whole pair or a lone surrogate.
_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB]%b(?:\\u[dD][c-fC-F]%b)?|[c-fC-F]%b)" % (_HEX, _HEX, _HEX))


def replace_lone_surrogates(body: bytes) -> bytes | None:
    """
    Replace escapes of lone surrogates by U+FFFD, because JSON parsers refuse them.

    Return None if the body has no such escape, or is too large to search.
    """
    if len(body) > _LARGEST_REWRITTEN:
        return None
    parts, done = [], 0
    for match in _SURROGATE.finditer(body):
        if len(match[0]) == _ESCAPE and not _is_escaped(body, match.start()):
            parts += [body[done : match.start()], rb"\ufffd"]
            done = match.end()
    return b"".join([*parts, body[done:]]) if parts else None


def _is_escaped(body: bytes, offset: int) -> bool:
    begin = offset
    while begin and body[begin - 1] == 0x5C:
        begin -= 1
    return (offset - begin) % 2 == 1
