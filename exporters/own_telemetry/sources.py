"""What own telemetry is made of, as the gateway gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class OwnSample(Protocol):
    """One line of `/metrics`."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def value(self) -> float: ...


class OwnMetric(Protocol):
    """A metric of `/metrics` with all its lines; `type` is counter, histogram or gauge."""

    @property
    def name(self) -> str: ...
    @property
    def documentation(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def samples(self) -> Sequence[OwnSample]: ...


class Step(Protocol):
    """
    A part of a trace. `parent_id` is empty for the first; `kind` is OTLP's; times are nanoseconds since the
    epoch; `error` is the type of what it ended with.
    """

    name: str
    kind: int
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start: int
    end: int
    error: str
    attributes: dict[str, str | int]


class Tracer(Protocol):
    is_on: bool

    def trace(self, name: str, kind: int) -> AbstractContextManager[Step | None]:
        """The first step of a trace; None when this one is not kept."""
        ...

    def take(self) -> Sequence[Step]:
        """Return the steps that ended since the last call."""
        ...
