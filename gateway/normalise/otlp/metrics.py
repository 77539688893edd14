"""
Metric points of the token and cost families: deltas become records, cumulative points go to the log as they are.

What counts is in `metric_points`; what a cumulative point adds to the one before is worked out by the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from gateway.normalise.options import Options
from gateway.normalise.otlp import metric_rules, semconv
from gateway.normalise.otlp.conventions import OTEL, TOKEN_USAGE
from gateway.normalise.otlp.metric_points import (
    LONGEST_TYPE,
    SeriesKeys,
    find_family,
    foreign_currency,
    is_repeat,
    looks_like_usage,
    name_of,
    unit_of,
)
from gateway.normalise.otlp.metric_rules import money_of, tokens_of
from gateway.normalise.otlp.model import Point, Resource, Scope
from gateway.normalise.otlp.product import MONEY_UNIT, TOKEN_UNIT, MetricFamily, Product
from gateway.normalise.otlp.senders import Senders, sender_of
from gateway.normalise.otlp.shapes import shape_of
from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI, Outcome
from gateway.normalise.reading import values
from gateway.normalise.reading.ai_names import names_model
from spool.identity import Identity, no_identity, of_point
from spool.log.values import CounterPoint
from spool.meters import of_modality
from spool.record import UsageMetric, decimal_text

UNCHANGED = "unchanged"  # a counter that did not move
_PLAIN_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,31}", re.IGNORECASE)  # a kind of token that may be shown
SMALLEST_COST = Decimal("1e-12")  # below it are the left-overs of sums in doubles

MODEL = ("gen_ai.response.model", "gen_ai.request.model", "model")
MODALITY = "gen_ai.token.modality"
_WHOLES = {
    metric_rules.INPUT: "input",
    metric_rules.INPUT_UNCACHED: "input",
    metric_rules.OUTPUT: "output",
    metric_rules.OUTPUT_VISIBLE: "output",
    metric_rules.CACHE_READ: "cache_read",
}


class PointReader:
    """The metric side of one payload: takes points, fills the outcome."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._counted = options.counted
        self._series = SeriesKeys()
        self._meter: tuple[Resource, Scope] | None = None
        self._counted_by: dict[str, str] = {}  # by kind of token: the family of the meter that counts it

    def take(self, place: int, point: Point) -> None:
        """Every point ends up in exactly one term of the books."""
        for product in shape_of(point.attributes).taken_by:
            take = product.take_point
            if take is not None and take(place, point, self._outcome, tags={}, device=None):
                return
        if point.cannot_count:
            self._ignore(point)
            return
        family_of_product = find_family(name_of(point))
        if family_of_product is None:
            self._ignore(point)
            return
        product, family = family_of_product
        try:
            self._count(point, _sender(point) if product is OTEL else product, family)
        except values.BadValue as error:
            self._outcome.reject(place, error.reason, f"data point {place}: {error}")

    def settle(self, ended: frozenset[str]) -> Iterator[None]:
        """Points are not held by trace."""
        return iter(())

    def finish(self) -> None:
        """Do nothing: no point waits for another."""

    def _ignore(self, point: Point) -> None:
        name = name_of(point)
        if is_repeat(name):
            self._merge(point, "repeats what another metric of its sender counts")
        elif point.cannot_count and find_family(name) is not None:
            self._unrecognised(point, point.cannot_count)
        elif looks_like_usage(point.name, point.unit, names_a_model=any(map(names_model, point.attributes))):
            self._unrecognised(point, *filter(None, [point.cannot_count]))
        else:
            self._outcome.ignored[NOT_AI] += 1

    def _merge(self, point: Point, because: str) -> None:
        self._outcome.ignored[MERGED] += 1
        self._outcome.drop(f"data point of {point.name}", because)

    def _unrecognised(self, point: Point, *because: str) -> None:
        self._outcome.ignored[UNRECOGNISED_AI] += 1
        self._outcome.show_shape(point.attributes, of=(point.name, *because))

    def _count(self, point: Point, product: Product, family: MetricFamily) -> None:
        if product.repeats_token_usage and point.name == TOKEN_USAGE:
            self._merge(point, f"repeats what {product.source} counts by a metric of its own")
            return
        token_type = _token_type(family, point)
        if token_type is None and family.unit == TOKEN_UNIT:
            self._unrecognised(point)
        elif (
            family.unit == MONEY_UNIT
            and (stated := foreign_currency(point))
            and not semconv.is_currency(stated)
        ):
            self._unrecognised(point, f"in {stated}")
        elif token_type is not None and token_type not in metric_rules.KNOWN:
            self._unrecognised(point, *([token_type] if _PLAIN_WORD.fullmatch(token_type) else []))
        elif token_type == metric_rules.TOTAL:
            self._merge(point, "repeats the sum of the other types of tokens")
        elif self._is_repeated(point, family, token_type):
            self._merge(point, "repeats what the same meter counts under another name")
        else:
            self._keep(point, product, family, token_type)

    def _is_repeated(self, point: Point, family: MetricFamily, token_type: str | None) -> bool:
        """True if the meter counts these tokens in the other of two families: the first to come counts."""
        if token_type is None or family.one_of is None:
            return False
        meter = (point.resource, point.scope)
        if meter != self._meter:  # the same one in the next piece of a large payload is equal, not identical
            self._meter, self._counted_by = meter, {}
        return self._counted_by.setdefault(token_type, family.one_of) != family.one_of

    def _keep(self, point: Point, product: Product, family: MetricFamily, token_type: str | None) -> None:
        value: int | Decimal
        if family.unit == TOKEN_UNIT:
            value = tokens_of(point.value)
        else:
            value = money_of(point.value) / family.divisor
        record = UsageMetric(
            id=b"",
            source=product.source,
            name=name_of(point),
            model=_model(point, family),
            token_type=token_type,
            unit=unit_of(point, family),
            shadow=family.repeats_calls and product.source not in self._counted,
            meter=_meter(point, token_type),
        )
        self._senders.sign(record, product, point.resource, point.attributes)
        series = self._series.of(point)
        if point.cumulative:
            counter = CounterPoint(series, point.start_time, point.time, value, record)
            self._outcome.add_point(counter, device=self._senders.device)
        elif value == 0 or (isinstance(value, Decimal) and value < SMALLEST_COST):
            self._outcome.ignored[UNCHANGED] += 1
        else:
            record.value = value if isinstance(value, int) else decimal_text(value)
            record.start_time = point.start_time or None
            record.end_time = point.time or None
            why = {"value": f"delta of {point.name}"}
            self._outcome.add(record, _identity(series, point), why, device=self._senders.device)


def _sender(point: Point) -> Product:
    sender = sender_of(point.resource, point.scope)
    marked = shape_of(point.attributes).product
    return marked if sender is OTEL and marked is not None and marked.marks_points else sender


def _model(point: Point, family: MetricFamily) -> str | None:
    return semconv.first_text(point.attributes, (*family.model, *MODEL) if family.model else MODEL)


def _token_type(family: MetricFamily, point: Point) -> str | None:
    if family.token_type is not None or not family.type_keys:
        return family.token_type
    stated = _declared_word(point, family) or semconv.first_text(point.attributes, family.type_keys)
    if stated is None or len(stated) > LONGEST_TYPE:
        return None
    return family.types.get(stated, stated)


def _meter(point: Point, token_type: str | None) -> str | None:
    """The meter of a series that has the tokens of one modality, or of tools' answers, apart."""
    if token_type == metric_rules.TOOL_INPUT:
        return "input_tool_tokens"
    modality = point.attributes.get(MODALITY)
    return None if modality is None else of_modality(_WHOLES.get(token_type or "", ""), modality)


def _declared_word(point: Point, family: MetricFamily) -> str | None:
    """A word of the family's own, also one that elsewhere says that nothing is stated (`none`)."""
    words = (point.attributes.get(name) for name in family.type_keys)
    return next((word for word in words if isinstance(word, str) and word in family.types), None)


def _identity(series: bytes, point: Point) -> Identity:
    if not point.time:  # without it every point of the series would be taken for the same one
        return no_identity()
    return Identity(of_point(series, point.start_time, point.time))
