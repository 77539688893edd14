"""What made-up clients tell of their calls, item by item, and beside it what is true of these calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.integration.order.running import Request

TRACES = "otlp/traces"
ROOTS = ("resourceSpans", "resourceLogs", "resourceMetrics")


@dataclass(frozen=True, eq=False)
class Item:
    """
    What a sender tells at once.

    `calls` are, of each call that it tells, the names under which others may know it: two reports of a call
    have one in common, or a third has one of each. Empty for what tells none.
    """

    format: str
    payload: Any  # of OTLP an export request, else an item of the format
    calls: tuple[frozenset[str], ...] = ()
    sender: str = ""

    @property
    def root(self) -> str | None:
        return next((name for name in ROOTS if name in self.payload), None)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Of the calls of one model: what is summed, however often and in whatever order they are told."""

    calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    counted: int = 0  # tokens that counters alone tell
    # What some of the reports leave out: known to be true where all came while the record was open.
    cache_read_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Decimal = Decimal(0)  # as reporters tell it

    def plus(self, other: Truth) -> Truth:
        return Truth(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Conversation:
    """Items of one family of clients, and the truth by model; `again` is what a report adds that stays apart."""

    name: str
    items: Sequence[Item]
    truth: Mapping[str, Truth]
    again: Truth = Truth(calls=1)

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.truth.values())


def request_of(items: Sequence[Item], *, as_protobuf: bool = False) -> Request:
    """One request of items of one sender."""
    format, root = items[0].format, items[0].root
    if root is not None:
        payload = {root: [entry for item in items for entry in item.payload[root]]}
        if as_protobuf and format == TRACES:
            return Request(format, in_protobuf(payload))
        return Request(format, json.dumps(payload).encode())
    payloads = [item.payload for item in items]
    if format == "langfuse":
        return Request(format, json.dumps({"batch": payloads}).encode())
    return Request(format, json.dumps(payloads if len(payloads) > 1 else payloads[0]).encode())


def may_share(one: Item, other: Item) -> bool:
    """Whether a sender may tell both in one request."""
    return (one.format, one.sender) == (other.format, other.sender) and one.format != "helicone"
