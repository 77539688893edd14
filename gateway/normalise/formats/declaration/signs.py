"""Signs by which a format is recognised: the top-level names of one item, and a look one level down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from gateway.normalise.payload import items as payload

Members = Mapping[str, payload.Raw]

OTLP_SIGNALS: Final = {
    "otlp/traces": ("resourceSpans", "resource_spans"),
    "otlp/metrics": ("resourceMetrics", "resource_metrics"),
    "otlp/logs": ("resourceLogs", "resource_logs"),
}
MAX_LOOKED_AT: Final = 4096  # items before a payload counts as unknown; APISIX sends 1,000 at once


def any_of(*names: str) -> Callable[[Members], bool]:
    return lambda members: any(name in members for name in names)


def all_of(*names: str) -> Callable[[Members], bool]:
    return lambda members: all(name in members for name in names)


def inside(members: Members, name: str) -> Iterator[Members]:
    """The members of the object under a name, or of each object of the list there."""
    if name in members:
        yield from map(payload.peek, islice(payload.array(members[name]), MAX_LOOKED_AT))


def any_inside(members: Members, name: str, *inner: str) -> bool:
    """Whether an object under a name has all of these members."""
    return any(one.keys() >= {*inner} for one in inside(members, name))
