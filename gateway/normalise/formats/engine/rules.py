"""The rules that the calls of every format share."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.normalise.reading.error_types import first_readable
from gateway.normalise.reading.tokens import Tokens, settle
from gateway.normalise.reading.values import status_code, text
from spool.record import Inference


def column(name: str) -> Any:
    """A field of an event whose name in the payload is no Python name."""
    return msgspec.field(name=name, default=None)


def count_tokens(record: Inference, reported: Tokens) -> None:
    """Fill in the counts, with the cache inside the input and the reasoning inside the output."""
    tokens = settle(reported)
    record.input_tokens, record.output_tokens = tokens.input, tokens.output
    record.cache_read_tokens, record.cache_write_tokens = tokens.cache_read, tokens.cache_write
    record.reasoning_tokens = tokens.reasoning


def known_cost(record: Inference, cost: str | None) -> str | None:
    """The cost, or None for a 0 of a gateway that writes 0 when it does not know the price."""
    is_unpriced = cost == "0" and record.status == "ok" and (record.input_tokens or record.output_tokens)
    return None if is_unpriced else cost


def fail(record: Inference, *types: Any) -> None:
    """Make it an error of the first of these types that is machine-readable."""
    record.status = "error"
    record.error_type = first_readable(text(value) for value in types)


def fail_by_status(record: Inference, status: Any) -> bool:
    """Make it an error when the HTTP status says so; whether it does."""
    code = status_code(status)
    if code is None or code < 400:
        return False
    fail(record, code)
    return True


def is_call(record: Inference) -> bool:
    """Whether it holds a model or tokens."""
    return bool(record.request_model or record.response_model or record.input_tokens or record.output_tokens)
