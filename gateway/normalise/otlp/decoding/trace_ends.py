"""
Where the traces of a large payload end: what has ended need not wait in memory for the rest of the body.

A decoder walks ahead and notes which trace is in which slice; each slice is then marked with the traces that
end in it.
"""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp.decoding.slices import MAX_SLICE, Slice

LARGE = 8 * MAX_SLICE  # bytes from which it pays to look ahead


class TraceEnds:
    """The last slice of each trace: filled by one walk over a payload, emptied by the next."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def note(self, trace_id: bytes, number: int) -> None:
        """A span of a trace, in the slice with this number; slices come in their order."""
        self._last[trace_id] = number

    def mark_ended(self, part: Slice[Any], number: int) -> None:
        """Set the traces that end with a slice of spans."""
        traces = {span.trace_id for _, span in part.items if span.trace_id is not None}
        part.ended = frozenset(trace for trace in traces if self._last.get(bytes.fromhex(trace)) == number)
        for trace in part.ended:
            del self._last[bytes.fromhex(trace)]
