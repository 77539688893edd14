"""Which metric points can count: sums that only grow and histograms' sums, with a stated temporality."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gateway.normalise.otlp.metrics.families import looks_like_usage
from gateway.normalise.otlp.metrics.series import apart
from gateway.normalise.otlp.model import Attributes, Point, Resource, Scope
from gateway.normalise.outcome import NOT_AI

CANNOT_COUNT = NOT_AI
DELTA, CUMULATIVE = 1, 2
TOLLHOUSE = "tollhouse"  # the scope of what another Tollhouse sends
_NO_RECORDED_VALUE = 1
_HISTOGRAMS = frozenset({"histogram", "exponential_histogram"})


class Countable:
    """One metric as its points are read, in either encoding."""

    __slots__ = (
        "_cannot_count",
        "_cumulative",
        "_may_fall",
        "_name",
        "_resource",
        "_scope",
        "_unit",
        "is_read",
    )

    def __init__(self, name: str, unit: str, resource: Resource, scope: Scope) -> None:
        self._name = name
        self._unit = unit
        self._resource = resource
        self._scope = scope
        self._cumulative = False
        self._may_fall = False
        self._cannot_count = ""
        self.is_read = False  # else its points are nothing that anybody wants to know

    def shape(self, kind: str, temporality: int, monotonic: bool) -> None:
        """
        Note the kind of all points of the metric. Gauges, summaries and sums that may fall count no usage.

        Those of another Tollhouse do count: they take back what it had counted. A metric that cannot count
        and is named like usage is read to be shown.
        """
        self._may_fall = kind == "sum" and not monotonic
        may_count = not self._may_fall or self._scope.name == TOLLHOUSE
        is_counter = kind in _HISTOGRAMS or (kind == "sum" and may_count)
        counts = is_counter and temporality in (DELTA, CUMULATIVE)
        self._cannot_count = "" if counts and not self._may_fall else _why_not(kind, may_fall=self._may_fall)
        self.is_read = counts or looks_like_usage(self._name, self._unit)
        self._cumulative = temporality == CUMULATIVE

    def point(
        self,
        *,
        flags: int,
        start_time: int,
        time: int,
        value: int | float | None,
        attributes: Attributes,
        outside: Mapping[str, object],
    ) -> Point | None:
        """
        The point, or None when it has no value: a histogram's buckets are no substitute for its sum.

        `outside`: the attributes that are not among `attributes`.
        """
        if value is None or flags & _NO_RECORDED_VALUE or not math.isfinite(value):
            return None
        return Point(
            self._resource,
            self._scope,
            self._name,
            self._unit,
            self._cumulative,
            start_time,
            time,
            value,
            attributes,
            apart(outside),
            self._may_fall,
            self._cannot_count,
        )


def _why_not(kind: str, *, may_fall: bool) -> str:
    if may_fall:
        return "a sum that may fall"
    return "without temporality" if kind == "sum" or kind in _HISTOGRAMS else f"a {kind}"
