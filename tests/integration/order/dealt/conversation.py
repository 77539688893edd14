"""The reports of made-up clients, item by item, with the true sums of their calls."""

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
    An item of a request.

    `calls` has a set of names for each reported call. Two reports of a call share a name, or a third report
    has a name of each. It is empty if the item reports no call.
    """

    format: str
    payload: Any  # an export request (OTLP), or one item (all other formats)
    calls: tuple[frozenset[str], ...] = ()
    sender: str = ""

    @property
    def root(self) -> str | None:
        return next((name for name in ROOTS if name in self.payload), None)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The true sums of one model's calls, independent of repeats and order."""

    calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    counted: int = 0  # number of tokens that only counters report
    # Some reports lack these values. Therefore they are certain only if all reports arrived while the
    # record was open.
    cache_read_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Decimal = Decimal(0)  # the cost that the reporters state

    def plus(self, other: Truth) -> Truth:
        return Truth(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Conversation:
    """
    The items of one family of clients, and the truth by model. `again` is what a report adds if it remains
    a separate record.
    """

    name: str
    items: Sequence[Item]
    truth: Mapping[str, Truth]
    again: Truth = Truth(calls=1)

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.truth.values())


def request_of(items: Sequence[Item], *, as_protobuf: bool = False) -> Request:
    """Build one request from items of one sender."""
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
    """Return whether a sender may put both items into one request."""
    return (one.format, one.sender) == (other.format, other.sender) and one.format != "helicone"
