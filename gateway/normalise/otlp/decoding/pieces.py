"""Pieces of a payload. Decoders yield items in pieces, and the event loop can run after each piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.normalise.outcome import RejectedPayloadItem

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

MAX_PIECE = 512 * 1024  # maximum bytes of one piece of a large payload
# bytes from which a first pass that finds the ends of traces saves more than it costs
LARGE_BODY = 8 * MAX_PIECE


class Malformed(ValueError):
    """Raised for an item of a payload that cannot be read. The message names a field."""


class PayloadPiece(msgspec.Struct, Generic[T], kw_only=True):
    """A part of a payload's items. `received` is the sum of `items`, `rejects` and `ignored`."""

    received: int = 0
    items: list[tuple[int, T]] = []  # items of the payload with their positions, from 0
    rejects: list[RejectedPayloadItem] = []  # rejected items; they do not affect other items
    ignored: dict[str, int] = {}  # number of points that cannot be counted, by reason
    ended: frozenset[str] = frozenset()  # traces that have no spans in later pieces (only for large payloads)


class ItemReader(Protocol[T_contra]):
    """
    Reads the items of one signal into an outcome: `SpanReader`, `OtlpLogReader` or `PointReader`.

    Every item is counted in the outcome, either when it is read or in `add_items_that_waited`.
    """

    def read_item(self, item_index: int, item: T_contra) -> None: ...

    def add_calls_of_ended_traces(self, ended: frozenset[str]) -> Iterable[None]:
        """Add the calls of traces that have no spans in later pieces of the payload."""

    def add_items_that_waited(self) -> Iterable[None] | None:
        """
        Add the items that waited for others. A reader with many items yields, so that the event loop can run.
        """


class TraceEnds:
    """The number of spans of each trace in later pieces. A first pass over the payload has counted them."""

    def __init__(self) -> None:
        self._to_come: Counter[bytes] = Counter()

    def count_span(self, trace_id: bytes) -> None:
        self._to_come[trace_id] += 1

    def mark_ended_traces(self, part: PayloadPiece[Any]) -> None:
        ended: list[str] = []
        for trace, count in Counter(
            span.trace_id for _, span in part.items if span.trace_id is not None
        ).items():
            key = bytes.fromhex(trace)
            self._to_come[key] -= count
            # if one of its spans was rejected, a trace stays open until the end of the payload
            if self._to_come[key] == 0:
                del self._to_come[key]
                ended.append(trace)
        part.ended = frozenset(ended)
