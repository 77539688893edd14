"""
Metric points of the token and cost families: deltas become records, cumulative points go to the log as they are.

What counts stands in `families`; what a cumulative point adds to the one before is the log's to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal

from gateway.normalise.options import Options
from gateway.normalise.otlp import families, semconv, shapes
from gateway.normalise.otlp.decoding.model import Point, Resource, Scope
from gateway.normalise.otlp.families import Family
from gateway.normalise.otlp.products import tollhouse, tollhouse_points
from gateway.normalise.otlp.senders import Senders
from gateway.normalise.otlp.series import SeriesKeys
from gateway.normalise.otlp.shapes import shape_of
from gateway.normalise.otlp.sources import OTEL, source_of
from gateway.normalise.outcome import IMPLAUSIBLE, MERGED, NOT_AI, UNRECOGNISED_AI, Outcome
from gateway.normalise.reading import vocabulary as words
from spool.identity import Identity, of_point
from spool.log.values import CounterPoint
from spool.record import UsageMetric

UNCHANGED = "unchanged"  # a counter that did not move
SMALLEST_COST = Decimal("1e-12")  # below it are the left-overs of sums in doubles

MODEL = ("gen_ai.response.model", "gen_ai.request.model", "model")
_TWIN = "gen_ai.client.token.usage"
_SUCCESSORS = "gen_ai.client.inference.usage."  # the conventions' counters of 2026, in the place of the histogram
_WITH_TWIN = frozenset({"gemini_cli", "qwen_code"})  # they count the same tokens under a name of their own


class Metrics:
    """The metric side of one payload: takes points, fills the outcome."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._series = SeriesKeys()
        self._meter: tuple[Resource, Scope] | None = None
        self._counted: dict[str, str] = {}  # by kind of token: which of the two families of the meter counts it

    def take(self, place: int, point: Point) -> None:
        """Every point ends up in exactly one term of the books."""
        if tollhouse.MARK in point.attributes:
            tollhouse_points.take(place, point, self._outcome)
            return
        family = families.find(point.name)
        if family is None:
            self._ignore(point)
            return
        try:
            self._count(point, family)
        except words.Implausible as error:
            self._outcome.reject(place, IMPLAUSIBLE, f"data point {place}: {error}")

    def settle(self, ended: frozenset[str]) -> Iterator[None]:
        """Traces are nothing to it."""
        return iter(())

    def finish(self) -> None:
        """No point waits for another."""

    def _ignore(self, point: Point) -> None:
        if families.is_repeat(point.name):
            self._outcome.ignored[MERGED] += 1
        elif families.looks_like_usage(point.name, point.unit, names_a_model=_model(point) is not None):
            self._unrecognised(point)
        else:
            self._outcome.ignored[NOT_AI] += 1

    def _unrecognised(self, point: Point) -> None:
        self._outcome.ignored[UNRECOGNISED_AI] += 1
        self._outcome.show_shape(point.attributes, of=(point.name,))

    def _count(self, point: Point, family: Family) -> None:
        source = _source(point, family)
        if source in _WITH_TWIN and point.name == _TWIN:
            self._outcome.ignored[MERGED] += 1
            return
        token_type = _token_type(family, point)
        if token_type == families.TOTAL or (token_type is not None and self._is_repeated(point, token_type)):
            self._outcome.ignored[MERGED] += 1
        elif token_type is None and family.unit == families.TOKENS:
            self._unrecognised(point)
        else:
            self._keep(point, source, family, token_type)

    def _is_repeated(self, point: Point, token_type: str) -> bool:
        """Whether a meter counts the same tokens in the old family and in the new one: the first to come counts."""
        if point.name != _TWIN and not point.name.startswith(_SUCCESSORS):
            return False
        meter = (point.resource, point.scope)
        if meter != self._meter:  # the same one in the next piece of a large payload is equal, not identical
            self._meter, self._counted = meter, {}
        family = _TWIN if point.name == _TWIN else _SUCCESSORS
        return self._counted.setdefault(token_type, family) != family

    def _keep(self, point: Point, source: str, family: Family, token_type: str | None) -> None:
        value: int | Decimal
        if family.unit == families.TOKENS:
            value = families.tokens(point.value)
        else:
            value = families.money(point.value) / family.divisor
        record = UsageMetric(
            id=b"",
            source=source,
            name=point.name,
            model=_model(point),
            token_type=token_type,
            unit=family.unit,
        )
        self._senders.sign(record, point.resource, point.attributes)
        series = self._series.of(point)
        if point.cumulative:
            counter = CounterPoint(series, point.start_time, point.time, value, record)
            self._outcome.add_point(counter, device=self._senders.device)
        elif value == 0 or (isinstance(value, Decimal) and value < SMALLEST_COST):
            self._outcome.ignored[UNCHANGED] += 1
        else:
            record.value = value if isinstance(value, int) else words.plain(value)
            record.start_time = point.start_time or None
            record.end_time = point.time or None
            why = {"value": f"delta of {point.name}"}
            self._outcome.add(record, _identity(series, point), why, device=self._senders.device)


def _source(point: Point, family: Family) -> str:
    source = family.source or source_of(point.resource, point.scope)
    if source == OTEL and shape_of(point.attributes).marks & shapes.KONG:
        return "kong"  # its service name is the operator's to change, its points name routes and consumers
    return source


def _model(point: Point) -> str | None:
    return semconv.first_text(point.attributes, MODEL)


def _token_type(family: Family, point: Point) -> str | None:
    if family.token_type is not None or not family.type_keys:
        return family.token_type
    said = semconv.first_text(point.attributes, family.type_keys)
    if said is None or len(said) > families.LONGEST_TYPE:
        return None
    return family.types.get(said, said)


def _identity(series: bytes, point: Point) -> Identity:
    if not point.time:  # without it every point of the series would be taken for the same one
        return Identity(os.urandom(16), certain=False)
    return Identity(of_point(series, point.start_time, point.time))
