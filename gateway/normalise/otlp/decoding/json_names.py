"""Field names of OTLP/JSON in lowerCamelCase, also for senders that write the names of the .proto files."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.errors import BadPayload

_SEARCHED = 64 * 1024  # a sender keeps to one spelling, so the beginning is enough
_LARGEST = 4 * 1024 * 1024  # rewriting holds the whole body as objects
_SNAKE = re.compile(
    rb'"(?:resource_(?:spans|logs|metrics)|scope_(?:spans|logs|metrics)|log_records|(?:trace|span|parent_span)_id'
    rb"|(?:start_|end_|observed_)?time_unix_nano|(?:string|int|double|bool|array|kvlist|bytes)_value|data_points"
    rb'|event_name|as_(?:int|double)|aggregation_temporality|is_monotonic|exponential_histogram)"\s*:'
)
_SIGNS = (b'_value"', b'_spans"', b'_logs"', b'_metrics"', b'_nano"')  # found faster than the pattern
_WORD = re.compile(r"_([a-z])")


def in_camel_case(body: bytes) -> bytes:
    """The same body with the names that OTLP gives its fields."""
    beginning = body[:_SEARCHED]
    if not any(sign in beginning for sign in _SIGNS) or not _SNAKE.search(beginning):
        return body
    if len(body) > _LARGEST:
        raise BadPayload("body: field names must be lowerCamelCase")
    try:
        return msgspec.json.encode(_renamed(msgspec.json.decode(body)))
    except (msgspec.DecodeError, RecursionError):
        return body  # the decoder says what is wrong with it


def _camel_case(name: str) -> str:
    return _WORD.sub(lambda match: match[1].upper(), name)


def _renamed(tree: Any) -> Any:
    # Keys of attributes stand in values ("key": "trace_id"), so every name here is the protocol's own.
    if isinstance(tree, dict):
        return {_camel_case(name): _renamed(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed(value) for value in tree]
    return tree
