"""What a decoder yields at a time: a piece of a payload, so that the event loop gets its turn between two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.normalise.outcome import Reject

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

MAX_PIECE = 512 * 1024  # bytes of payload behind one piece
LARGE_BODY = 8 * MAX_PIECE  # bytes from which it pays to look ahead for the ends of traces


class Malformed(ValueError):
    """One item that cannot be read. Its message names a field."""


class Piece(msgspec.Struct, Generic[T], kw_only=True):
    """`received` counts what is in `items`, `rejects` and `ignored` together."""

    received: int = 0
    items: list[tuple[int, T]] = []  # place in the payload (from 0) and item
    rejects: list[Reject] = []  # malformed items; their neighbours are kept
    ignored: dict[str, int] = {}  # points that cannot count, by reason
    ended: frozenset[str] = frozenset()  # of a large payload: traces that no later piece holds a span of


class ItemReader(Protocol[T_contra]):
    """
    The reader of one signal: `SpanReader`, `LogReader` or `PointReader`, made of an outcome and options.

    Every item taken ends up in the outcome's books, at once or in `finish`.
    """

    def take(self, place: int, item: T_contra) -> None: ...

    def settle(self, ended: frozenset[str]) -> Iterable[None]:
        """Book the calls of traces of which no later piece holds a span."""

    def finish(self) -> Iterable[None] | None:
        """Book what is left; a reader with much to book yields to give the event loop its turn."""


class TraceEnds:
    """How many spans of each trace are still to come: filled by one walk over a payload, emptied by the next."""

    def __init__(self) -> None:
        self._to_come: Counter[bytes] = Counter()

    def note(self, trace_id: bytes) -> None:
        """A span of a trace."""
        self._to_come[trace_id] += 1

    def mark_ended(self, part: Piece[Any]) -> None:
        """Set the traces that end with a piece of spans."""
        ended: list[str] = []
        for trace, count in Counter(
            span.trace_id for _, span in part.items if span.trace_id is not None
        ).items():
            key = bytes.fromhex(trace)
            self._to_come[key] -= count
            if self._to_come[key] == 0:  # one that was rejected never comes, and its trace waits for the end
                del self._to_come[key]
                ended.append(trace)
        part.ended = frozenset(ended)
