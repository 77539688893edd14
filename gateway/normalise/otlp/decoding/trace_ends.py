"""
Where the traces of a large payload end: what has ended need not wait in memory for the rest of the body.

A decoder walks ahead and counts the spans of each trace; each piece is then marked with the traces of which
it holds the last.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from gateway.normalise.otlp.decoding.pieces import MAX_PIECE, Piece

LARGE = 8 * MAX_PIECE  # bytes from which it pays to look ahead


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
