"""Field names of OTLP/JSON in lowerCamelCase, also for senders that write the names of the .proto files."""

from __future__ import annotations

import re

from gateway.errors import BadPayload

_SEARCHED = 64 * 1024  # a sender keeps to one spelling, so the beginning is enough
_LARGEST = 4 * 1024 * 1024  # it is rewritten in one turn
_SNAKE = re.compile(
    rb'"(?:resource_(?:spans|logs|metrics)|scope_(?:spans|logs|metrics)|log_records|(?:trace|span|parent_span)_id'
    rb"|(?:start_|end_|observed_)?time_unix_nano|(?:string|int|double|bool|array|kvlist|bytes)_value|data_points"
    rb'|event_name|as_(?:int|double)|aggregation_temporality|is_monotonic|exponential_histogram)"\s*:'
)
_SIGNS = (b'_value"', b'_spans"', b'_logs"', b'_metrics"', b'_nano"')  # found faster than the pattern
_WORD = re.compile(rb"_([a-z])")


def in_camel_case(body: bytes) -> bytes:
    """The same body with the names that OTLP gives its fields."""
    beginning = body[:_SEARCHED]
    for sign in _SIGNS:
        if sign in beginning:
            break
    else:
        return body
    if not _SNAKE.search(beginning):
        return body
    if len(body) > _LARGEST:
        raise BadPayload("body: field names must be lowerCamelCase")
    return _SNAKE.sub(_renamed, body)


def _renamed(name: re.Match[bytes]) -> bytes:
    # Keys of attributes stand in values ("key": "trace_id"), and in text a quote is escaped: every name here
    # is the protocol's own.
    return _WORD.sub(lambda letter: letter[1].upper(), name[0])
