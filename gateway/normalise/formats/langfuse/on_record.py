"""
Generations that are on record: a later word on one of them is the same call and no half, so it is handed to the log.

While the record is open the log fills in what it left null; what comes after that it counts as late.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from gateway.normalise.formats.langfuse.events import Generation, recorded
from spool.identity import Identity
from spool.record import Inference


class OnRecord(NamedTuple):
    """What was said of a generation, and the identity that it has whatever else is said."""

    generation: Generation
    identity: Identity
    at: float  # when it was first recorded
    trace_key: bytes | None


class Told:
    """By key, oldest first; bounded like the window, and not kept across a restart: open records end with it."""

    def __init__(self, *, window_s: float, hold_s: float, max_told: int) -> None:
        self._window_s = window_s
        self._hold_s = hold_s
        self._max_told = max_told
        self._told: OrderedDict[bytes, OnRecord] = OrderedDict()
        self._of_trace: dict[bytes, dict[bytes, None]] = {}

    def add(self, key: bytes, trace_key: bytes | None, record: Inference, identity: Identity, now: float) -> None:
        """A record was kept, or amended: it is open since the first time."""
        if (known := self._told.get(key)) is not None:
            self._forget_trace(key, known)
        at = now if known is None else known.at
        self._told[key] = OnRecord(recorded(record), identity, at, trace_key)
        if trace_key is not None:
            self._of_trace.setdefault(trace_key, {})[key] = None

    def find(self, key: bytes) -> OnRecord | None:
        return self._told.get(key)

    def open_of(self, trace_key: bytes, now: float) -> Sequence[OnRecord]:
        """The generations of a trace whose records may still be open."""
        known = [self._told[key] for key in self._of_trace.get(trace_key, ())]
        return [told for told in known if now - told.at < self._hold_s]

    def forget_old(self, now: float) -> None:
        while self._told:
            key, oldest = next(iter(self._told.items()))
            if len(self._told) <= self._max_told and now - oldest.at < self._window_s:
                break
            del self._told[key]
            self._forget_trace(key, oldest)

    def _forget_trace(self, key: bytes, told: OnRecord) -> None:
        if told.trace_key is not None:
            keys = self._of_trace[told.trace_key]
            del keys[key]
            if not keys:
                del self._of_trace[told.trace_key]
