"""
The signal of an OTLP/protobuf request, from the fields of its first item.

The three requests have the same outer fields, so a request of another signal may decode without an error, and
its items then look empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.errors import BadPayload
from gateway.normalise.payload.wire_fields import LENGTH_DELIMITED, field_tag_start_and_end

if TYPE_CHECKING:
    from gateway.normalise.otlp import Signal

_ITEM_PATH = ((1, LENGTH_DELIMITED), (2, LENGTH_DELIMITED), (2, LENGTH_DELIMITED))
_FIXED_64 = 1
_MAX_FIELDS = 64  # fields of a message that are read to find the next one
_ITEMS: dict[Signal, str] = {"traces": "spans", "metrics": "metrics", "logs": "log records"}

_Field = tuple[int, int]  # number and wire type


def refuse_protobuf_of_other_signal(signal: Signal, body: bytes) -> None:
    """
    Raise BadPayload if the first item of a request belongs to another signal. Use it only if no item of the
    request was read.
    """
    try:
        found = _signal_of_first_item(memoryview(body))
    except BadPayload:  # the decoder describes what is wrong with the bytes
        return
    if found is not None and found != signal:
        raise BadPayload(f"this body has {_ITEMS[found]}: send it to /v1/{found}")


def _signal_of_first_item(message: memoryview) -> Signal | None:
    for wanted in _ITEM_PATH:
        inner = _fields(message).get(wanted)
        if inner is None:
            return None
        message = inner
    fields = _fields(message)
    has_text = (1, LENGTH_DELIMITED) in fields
    if has_text and (
        (7, _FIXED_64) in fields or (8, _FIXED_64) in fields
    ):  # trace_id, with the start or the end
        return "traces"
    if (1, _FIXED_64) in fields or (11, _FIXED_64) in fields:  # time_unix_nano, observed_time_unix_nano
        return "logs"
    has_data = any((number, LENGTH_DELIMITED) in fields for number in (5, 7, 9, 10, 11))
    return "metrics" if has_text and has_data and not _has_ids(fields) else None


def _has_ids(fields: dict[_Field, memoryview]) -> bool:
    """Return whether fields 1 and 2 have the lengths of a trace id and a span id."""
    trace_id, span_id = fields.get((1, LENGTH_DELIMITED)), fields.get((2, LENGTH_DELIMITED))
    return trace_id is not None and span_id is not None and (len(trace_id), len(span_id)) == (16, 8)


def _fields(message: memoryview) -> dict[_Field, memoryview]:
    """Return the first payload of each kind of field, among the first _MAX_FIELDS fields."""
    fields: dict[_Field, memoryview] = {}
    position = 0
    for _ in range(_MAX_FIELDS):
        if position >= len(message):
            break
        tag, start, position = field_tag_start_and_end(message, position)
        fields.setdefault((tag >> 3, tag & 7), message[start:position])
    return fields
