"""
Traces of single requests and deliveries: names, times and statuses, never what was sent and never a key.

Somebody else sends them on (exporters.own_telemetry). Off until `is_on`. Memory is bounded: of each name one
trace a second is kept, and the newest MOST_STEPS steps until they are taken.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from spool.clock import Clock
from spool.record import NS

EVERY_S = 1.0
MOST_STEPS = 2000
INTERNAL, SERVER = 1, 2  # kinds of OTLP


@dataclass(kw_only=True, slots=True, eq=False)
class TracedStep:
    """`parent_id` is empty for the first step of a trace. `attributes` may be added to until it has ended."""

    traces: Traces = field(repr=False)
    name: str
    kind: int
    trace_id: bytes
    parent_id: bytes
    start: int  # nanoseconds since the epoch
    span_id: bytes = field(default_factory=lambda: os.urandom(8))
    end: int = 0  # 0 while it goes on
    error: str = ""  # the type of what it ended with
    attributes: dict[str, str | int] = field(default_factory=dict)


_NOT_KEPT = nullcontext()
_current: ContextVar[TracedStep | None] = ContextVar("traced_step", default=None)


class Traces:
    def __init__(self, clock: Clock) -> None:
        self.is_on = False
        self._clock = clock
        self._due: dict[str, float] = {}  # by name: when the next trace is kept
        self._ended: deque[TracedStep] = deque(maxlen=MOST_STEPS)

    def trace(self, name: str, kind: int) -> AbstractContextManager[TracedStep | None]:
        """The first step of a trace; None when this one is not kept. `name` must be one of a few."""
        if not self.is_on:
            return _NOT_KEPT
        now = self._clock.monotonic()
        if now < self._due.get(name, 0.0):
            return _NOT_KEPT
        self._due[name] = now + EVERY_S
        return self.keep(name, kind, trace_id=os.urandom(16), parent_id=b"")

    @contextmanager
    def keep(self, name: str, kind: int, *, trace_id: bytes, parent_id: bytes) -> Iterator[TracedStep]:
        """Trace one step; the error that ends it is noted and rises."""
        start = int(self._clock.now() * NS)
        began = self._clock.monotonic()
        begun = TracedStep(
            traces=self, name=name, kind=kind, trace_id=trace_id, parent_id=parent_id, start=start
        )
        outer = _current.set(begun)
        try:
            yield begun
        except BaseException as error:
            begun.error = type(error).__name__
            raise
        finally:
            _current.reset(outer)
            begun.end = start + int((self._clock.monotonic() - began) * NS)
            self._ended.append(begun)

    def take(self) -> Sequence[TracedStep]:
        """Return the steps that ended since the last call."""
        taken = tuple(self._ended)
        self._ended.clear()
        return taken


def step(name: str, kind: int = INTERNAL) -> AbstractContextManager[TracedStep | None]:
    """A step of the trace that goes on here; None when there is none."""
    outer = _current.get()
    if outer is None or outer.end:  # a task that was started within a trace outlives it
        return _NOT_KEPT
    return outer.traces.keep(name, kind, trace_id=outer.trace_id, parent_id=outer.span_id)
