"""The rules that the calls of every format share."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.normalise.reading.error_types import first_readable
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import provider_of_model
from gateway.normalise.reading.tokens import COUNT_CACHE_APART, Tokens, set_counts, settle
from gateway.normalise.reading.values import status_code, text
from spool.processing import MODES
from spool.record import Inference

_TIERS = tuple(MODES)  # compared one by one: a tier may be anything that JSON has


def column(name: str) -> Any:
    """A field of an event whose name in the payload is no Python name."""
    return msgspec.field(name=name, default=None)


def count_tokens(record: Inference, reported: Tokens, *, without_cache: bool = False) -> None:
    """Fill in the counts, with the cache inside the input and the reasoning inside the output."""
    set_counts(record, settle(reported, without_cache=without_cache))


def counts_cache_apart(path: Any, *models: Any) -> bool:
    """True if a request of this path was in a protocol whose input leaves the cache out: Anthropic's or Converse."""
    bare = "/" + (text(path) or "").partition("?")[0].rstrip("/")
    if bare.endswith("/converse"):
        return True
    makers = (provider_of_model(named) for model in models if (named := text(model)) is not None)
    return bare.endswith("/messages") and not COUNT_CACHE_APART.isdisjoint(makers)


def tag_tier(metadata: Metadata, *stated: Any) -> None:
    """A tag for the tier that served a call, if it is one that has prices of its own."""
    for value in stated:
        if value is not None and value in _TIERS:
            metadata.tag("service_tier", value)
            return


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
    """True if a record names a model or counts tokens."""
    return bool(record.request_model or record.response_model or record.input_tokens or record.output_tokens)
