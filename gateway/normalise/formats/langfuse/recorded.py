"""
Generations that are on record: a later report on one of them is not partial, and goes to the log as the same call.

While the record is open the log fills in what it left null; what comes after that is counted as late there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gateway.normalise.formats.langfuse.generations import Generation, generation_of
from spool.clock import elapsed_s
from spool.identity import Identity
from spool.log.partial_reports import TOLD, TOLD_OF, PartialReport
from spool.record import Inference


class RecordedGeneration(NamedTuple):
    """What was reported of a generation, and the identity that it has whatever else is reported."""

    generation: Generation
    identity: Identity
    at: float  # when it was first recorded
    trace_key: bytes | None


class _Stored(msgspec.Struct, array_like=True):
    generation: Generation
    identity: Identity
    trace_key: bytes | None = None


class RecordedGenerations:
    """
    By key, oldest first; bounded like the merge window.

    A restart closes all records, so nothing is stored; where several processes share a log, what one of them
    records is stored for the others (`stored`).
    """

    def __init__(self, *, window_s: float, hold_s: float, max_generations: int) -> None:
        self._window_s = window_s
        self._hold_s = hold_s
        self._max_generations = max_generations
        self._by_key: OrderedDict[bytes, RecordedGeneration] = OrderedDict()
        self._of_trace: dict[bytes, dict[bytes, None]] = {}

    def add(
        self, key: bytes, trace_key: bytes | None, record: Inference, identity: Identity, now: float
    ) -> None:
        """A record was kept, or amended: it is open since the first time."""
        known = self._by_key.get(key)
        if known is not None:
            self._drop_from_trace(key, known)
        at = now if known is None else known.at
        self._by_key[key] = RecordedGeneration(generation_of(record), identity, at, trace_key)
        if trace_key is not None:
            self._of_trace.setdefault(trace_key, {})[key] = None

    def load(self, key: bytes, report: PartialReport) -> None:
        """Take up what another process recorded; msgspec.DecodeError if it cannot be read."""
        told = _stored.decode(report.body)
        self._by_key[key] = RecordedGeneration(told.generation, told.identity, report.at, told.trace_key)
        if told.trace_key is not None:
            self._of_trace.setdefault(told.trace_key, {})[key] = None

    def stored(self, key: bytes) -> list[PartialReport]:
        """
        A generation as it is stored for other processes, and the way to it from its trace.

        What stands under the trace itself changes with each: who reports on the trace at that moment reads again.
        """
        generation, identity, at, trace_key = self._by_key[key]
        reports = [PartialReport(TOLD + key, at, _encode(_Stored(generation, identity, trace_key)))]
        if trace_key is not None:
            reports.append(PartialReport(TOLD_OF + trace_key + key, at, b""))
            reports.append(PartialReport(TOLD_OF + trace_key, at, key))
        return reports

    def find(self, key: bytes) -> RecordedGeneration | None:
        return self._by_key.get(key)

    def open_of(self, trace_key: bytes, now: float) -> Sequence[RecordedGeneration]:
        """The generations of a trace whose records may still be open."""
        of_trace = [self._by_key[key] for key in self._of_trace.get(trace_key, ())]
        return [recorded for recorded in of_trace if now - recorded.at < self._hold_s]

    def drop_old(self, now: float) -> None:
        while self._by_key:
            key, oldest = next(iter(self._by_key.items()))
            if len(self._by_key) <= self._max_generations and elapsed_s(oldest.at, now) < self._window_s:
                break
            del self._by_key[key]
            self._drop_from_trace(key, oldest)

    def _drop_from_trace(self, key: bytes, recorded: RecordedGeneration) -> None:
        if recorded.trace_key is not None:
            keys = self._of_trace[recorded.trace_key]
            del keys[key]
            if not keys:
                del self._of_trace[recorded.trace_key]


_encode = msgspec.msgpack.Encoder().encode
_stored = msgspec.msgpack.Decoder(_Stored)
