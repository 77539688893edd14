"""One AI call as a format found it, and the rules that every format's calls share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gateway.normalise.payload import items as payload
from gateway.normalise.payload.unfolding import Unfolding
from gateway.normalise.reading.error_types import first_readable
from gateway.normalise.reading.usage import Tokens
from gateway.normalise.reading.values import BadValue, status_code, text
from spool.identity import Identity
from spool.record import Inference

# They write 0 when they do not know the price; every other source is taken at its word.
_ZERO_IS_UNKNOWN = frozenset({"litellm", "kong", "portkey", "helicone", "cloudflare"})


class Call(NamedTuple):
    record: Inference
    identity: Identity
    left_out: int = 0  # metadata that may not become a tag


class Format(NamedTuple):
    """
    A gateway's format: `calls` reads one item; no calls means that it was understood and was none.

    `calls` gets an `event`, and raises `BadValue` when a figure cannot be what its field is for, or yields it when the
    item's other calls are good. `unwrap` takes the envelopes off an item of the body, `unfold` those that are packed.
    """

    name: str
    event: type[msgspec.Struct]
    calls: Callable[[Any], Iterable[Call | BadValue]]
    unwrap: Callable[[payload.Raw], Iterator[payload.Raw]] | None = None
    unfold: Callable[[payload.Raw, Unfolding], Iterator[payload.Raw | Unreadable]] | None = None
    ignored_as: Callable[[Any], str] | None = None  # why an item that is no call was passed over
    origins: Mapping[str, str] = MappingProxyType({})  # record field -> the payload's field, for `explain --why`


class Unreadable(NamedTuple):
    """An item whose envelope could not be taken off."""

    message: str

    def __len__(self) -> int:
        return len(self.message)


def count_tokens(record: Inference, tokens: Tokens) -> None:
    record.input_tokens, record.output_tokens = tokens.input, tokens.output
    record.cache_read_tokens, record.cache_write_tokens = tokens.cache_read, tokens.cache_write
    record.reasoning_tokens = tokens.reasoning


def known_cost(record: Inference, cost: str | None) -> str | None:
    """The cost, or None for a 0 that only says that the source had no price."""
    if cost == "0" and record.status == "ok" and record.source in _ZERO_IS_UNKNOWN:
        return None if record.input_tokens or record.output_tokens else cost
    return cost


def fail(record: Inference, *types: Any) -> None:
    """An error of the first of these types that is machine-readable."""
    record.status = "error"
    record.error_type = first_readable(text(value) for value in types)


def fail_by_status(record: Inference, status: Any) -> bool:
    """An error when the HTTP status says so."""
    code = status_code(status)
    if code is None or code < 400:
        return False
    fail(record, code)
    return True


def is_call(record: Inference) -> bool:
    """What holds no model and no tokens is none."""
    return bool(record.request_model or record.response_model or record.input_tokens or record.output_tokens)
