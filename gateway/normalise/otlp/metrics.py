"""
Conversion of token and cost metrics to records. Delta points become records at once. Cumulative points go to
the log unchanged.

Only families that products declare are counted, and only monotonic sums and histogram sums with a known
temporality. Each series has a key. The log computes the increase of a cumulative point since the previous point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from hashlib import blake2b

from gateway.normalise.otlp import metric_rules, semconv
from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.metric_rules import parse_cost_without_rounding, parse_token_count
from gateway.normalise.otlp.model import Attributes, MetricPoint, Resource, Scope
from gateway.normalise.otlp.product import MONEY_UNIT, TOKEN_UNIT, MetricFamily, TelemetryProduct
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.senders import Senders, product_of_sender
from gateway.normalise.otlp.shapes import find_or_build_shape
from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI, ReadOptions, ReadOutcome
from gateway.normalise.reading import values
from gateway.normalise.reading.ai_names import is_model_attribute, is_usage_word_of_other_meaning
from gateway.normalise.reading.token_metrics import TOKEN_USAGE
from spool.identity import RecordIdentity, dedup_key_of_metric_point, random_identity
from spool.log.values import CounterPoint
from spool.meters import meter_name_of_modality
from spool.record import UsageMetric, decimal_text

LONGEST_TYPE = 64

_ANY_PART = "*"  # in a metric name, matches any part between two dots
_NAMED = [(name, (product, family)) for product in PRODUCTS for name, family in product.metrics.items()]
_FAMILIES = {name: family for name, family in _NAMED if _ANY_PART not in name}
_PATTERNS = [
    (re.compile("[^.]+".join(map(re.escape, name.split(_ANY_PART)))), family)
    for name, family in _NAMED
    if _ANY_PART in name
]
# Sources whose counters cover every call that a server processed, so other sources may report the same calls.
SERVERS = frozenset(
    product.source for product in PRODUCTS if any(f.is_served for f in product.metrics.values())
)
_NAMING = {
    scope: product.metric_name
    for product in PRODUCTS
    if product.metric_name is not None
    for scope in product.scopes
}
_REPEATS = re.compile("|".join([pattern for product in PRODUCTS for pattern in product.repeated_metrics]))

_USAGE_WORD = re.compile(r"(^|[._:])(tokens?|cost|credits?|acu|aiu)([._:]|$)")
# units that token counts may have, without the braces around them
_USAGE_UNITS = frozenset({"", "1", "token", "tokens", "credit", "credits", "acu", "aiu"})
_CURRENCY = re.compile(r"[A-Z]{3}")  # ISO 4217
_NO_USAGE_UNITS = frozenset({"s", "ms", "us", "ns", "min", "h", "By", "%"})
# Matches the endings of metrics that count neither tokens nor money.
_OTHER_UNIT = re.compile(r"_(seconds|milliseconds|bytes|ratio|percent)(_total)?$")
_AI_BEGINNINGS = ("gen_ai.", "llm.", "ai.")

UNCHANGED = "unchanged"  # reason for ignoring a point: the counter did not increase
# Matches a token type that is safe to show, because it is a plain word.
_PLAIN_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,31}", re.IGNORECASE)
SMALLEST_COST = Decimal("1e-12")  # smaller amounts than this are rounding errors of floating-point sums

MODEL = ("gen_ai.response.model", "gen_ai.request.model", "model")
MODALITY = "gen_ai.token.modality"
_WHOLES = {
    metric_rules.INPUT: "input",
    metric_rules.INPUT_UNCACHED: "input",
    metric_rules.OUTPUT: "output",
    metric_rules.OUTPUT_VISIBLE: "output",
    metric_rules.CACHE_READ: "cache_read",
}


def find_metric_family(name: str) -> tuple[TelemetryProduct, MetricFamily] | None:
    if (exact_match := _FAMILIES.get(name)) is not None:
        return exact_match
    return next((family for pattern, family in _PATTERNS if pattern.fullmatch(name)), None)


def declared_metric_name(point: MetricPoint) -> str:
    """
    Return the name of a point's metric as products declare it. The sent name may have a prefix that the user
    chose.
    """
    naming = _NAMING.get(point.scope.name)
    return point.name if naming is None else naming(point.name)


def non_dollar_currency(point: MetricPoint) -> str | None:
    stated = (values.text_or_none(point.attributes.get(semconv.CURRENCY)) or point.unit).upper()
    return stated if _CURRENCY.fullmatch(stated) and stated != MONEY_UNIT else None


def unit_of_point(point: MetricPoint, family: MetricFamily) -> str:
    return (non_dollar_currency(point) or family.unit) if family.unit == MONEY_UNIT else family.unit


def is_metric_repeating_other_reports(name: str) -> bool:
    return _REPEATS.fullmatch(name) is not None


def is_probably_usage_metric(name: str, unit: str, *, names_a_model: bool = False) -> bool:
    """
    Return whether a metric may count usage. If Tollhouse has no rule for such a metric, it is shown to an
    operator as unrecognized.
    """
    if unit in _NO_USAGE_UNITS or _OTHER_UNIT.search(name) or not _USAGE_WORD.search(name):
        return False
    if names_a_model or name.startswith(_AI_BEGINNINGS):
        return True
    is_usage = unit.strip("{}").lower() in _USAGE_UNITS or _CURRENCY.fullmatch(unit) is not None
    return is_usage and not is_usage_word_of_other_meaning(name)


CANNOT_COUNT = NOT_AI
DELTA, CUMULATIVE = 1, 2
TOLLHOUSE = "tollhouse"  # scope name of Tollhouse's own telemetry
_NO_RECORDED_VALUE = 1
_HISTOGRAMS = frozenset({"histogram", "exponential_histogram"})


class CounterPoints:
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
        self.is_read = False  # whether points of this metric are counted or shown to operators

    def set_kind(self, kind: str, temporality: int, monotonic: bool) -> None:
        """
        Note the metric's kind. Sums are counted only if they are monotonic.

        There is one exception: if another Tollhouse sends a sum that may fall, it is counted, because a
        decrease corrects an earlier count. A metric that cannot be counted is still read and shown if its
        name looks like usage.
        """
        self._may_fall = kind == "sum" and not monotonic
        may_count = not self._may_fall or self._scope.name == TOLLHOUSE
        is_counter = kind in _HISTOGRAMS or (kind == "sum" and may_count)
        counts = is_counter and temporality in (DELTA, CUMULATIVE)
        self._cannot_count = (
            "" if counts and not self._may_fall else _reason_not_countable(kind, may_fall=self._may_fall)
        )
        self.is_read = counts or is_probably_usage_metric(self._name, self._unit)
        self._cumulative = temporality == CUMULATIVE

    def build_point(
        self,
        *,
        flags: int,
        start_time: int,
        time: int,
        value: int | float | None,
        attributes: Attributes,
        outside: Mapping[str, object],
    ) -> MetricPoint | None:
        """
        Return a point, or None if it states no finite value. Histogram buckets do not replace a value.

        `outside` are the attributes that were not decoded into `attributes`.
        """
        if value is None or flags & _NO_RECORDED_VALUE or not math.isfinite(value):
            return None
        return MetricPoint(
            self._resource,
            self._scope,
            self._name,
            self._unit,
            self._cumulative,
            start_time,
            time,
            value,
            attributes,
            hash_of_undecoded_attributes(outside),
            self._may_fall,
            self._cannot_count,
        )


def _reason_not_countable(kind: str, *, may_fall: bool) -> str:
    if may_fall:
        return "a sum that may fall"
    return "without temporality" if kind == "sum" or kind in _HISTOGRAMS else f"a {kind}"


KEY_BYTES = 16


class SeriesKeys:
    """
    Computes the keys of metric series. The metric's part of a key is hashed once for consecutive points.
    """

    def __init__(self) -> None:
        self._resource: Resource | None = None
        self._of_resource = b""
        self._metric: tuple[str, str, str, str] | None = None
        self._prefix = blake2b(digest_size=KEY_BYTES)

    def series_key(self, point: MetricPoint) -> bytes:
        """Return the key of a point's series. JSON and protobuf give the same key."""
        metric = (point.scope.name, point.scope.version, point.name, point.unit)
        if point.resource is not self._resource or metric != self._metric:
            self._begin_metric(point.resource, metric)
        key = self._prefix.copy()
        key.update(b"%b%b@%d" % (encode_canonically(point.attributes), point.apart, point.start_time))
        return key.digest()

    def _begin_metric(self, resource: Resource, metric: tuple[str, str, str, str]) -> None:
        if resource is not self._resource:
            self._resource, self._of_resource = resource, encode_canonically(resource.attributes)
        self._metric = metric
        self._prefix = blake2b(self._of_resource, digest_size=KEY_BYTES)
        self._prefix.update(b"".join(map(encode_canonically, metric)))


def hash_of_undecoded_attributes(undecoded: Mapping[str, object]) -> bytes:
    """
    Return a hash that distinguishes two series by attributes that were not decoded, without revealing the
    attributes.
    """
    return blake2b(encode_canonically(undecoded), digest_size=KEY_BYTES).digest() if undecoded else b""


def encode_canonically(value: object) -> bytes:
    """
    Encode a value. Different values never give the same bytes, because the bytes have type and length. Keys
    are sorted.
    """
    if isinstance(value, str):
        return _encode_with_tag_and_length(b"s", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        members: list[bytes] = []
        for name in sorted(value):
            members += (encode_canonically(name), encode_canonically(value[name]))
        return _encode_with_tag_and_length(b"m", b"".join(members))
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, int):
        return _encode_with_tag_and_length(b"i", b"%d" % value)
    if isinstance(value, float):
        return _encode_with_tag_and_length(b"d", repr(value).encode())
    if isinstance(value, list | tuple):
        return _encode_with_tag_and_length(b"l", b"".join(map(encode_canonically, value)))
    return b"n"


def _encode_with_tag_and_length(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)


class PointReader:
    def __init__(self, outcome: ReadOutcome, options: ReadOptions) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._counted = options.counted
        self._series = SeriesKeys()
        self._meter: tuple[Resource, Scope] | None = None
        # token type -> family that counts it for the current meter
        self._counted_by: dict[str, str] = {}
        # points that count only if no other family of the current meter counts the same tokens
        self._held: list[tuple[int, MetricPoint, TelemetryProduct, MetricFamily]] = []

    def read_item(self, item_index: int, point: MetricPoint) -> None:
        """Read a point. It is counted exactly once in the outcome."""
        for product in find_or_build_shape(point.attributes).taken_by:
            take = product.take_point
            if take is not None and take(item_index, point, self._outcome, tags={}, device=None, version=""):
                return
        if point.cannot_count:
            self._ignore_point(point)
            return
        family_of_product = find_metric_family(declared_metric_name(point))
        if family_of_product is None:
            self._ignore_point(point)
            return
        product, family = family_of_product
        sender = _product_of_point(point) if product is OTEL else product
        if self._held and _resource_and_scope(point) != _resource_and_scope(self._held[0][1]):
            self.add_items_that_waited()
        if family.is_last:
            self._held.append((item_index, point, sender, family))
        else:
            self._count_point_or_reject(item_index, point, sender, family)

    def _count_point_or_reject(
        self, item_index: int, point: MetricPoint, product: TelemetryProduct, family: MetricFamily
    ) -> None:
        try:
            self._count_point(point, product, family)
        except values.BadValue as error:
            self._outcome.reject_item(item_index, error.reason, f"data point {item_index}: {error}")

    def add_calls_of_ended_traces(self, ended: frozenset[str]) -> Iterator[None]:
        return iter(())

    def add_items_that_waited(self) -> None:
        held, self._held = self._held, []
        for place, point, product, family in held:
            self._count_point_or_reject(place, point, product, family)

    def _ignore_point(self, point: MetricPoint) -> None:
        name = declared_metric_name(point)
        if is_metric_repeating_other_reports(name):
            self._ignore_as_repeat(point, "repeats the counts of another metric of the same sender")
        elif point.cannot_count and find_metric_family(name) is not None:
            self._ignore_as_unrecognised(point, point.cannot_count)
        elif is_probably_usage_metric(
            point.name, point.unit, names_a_model=any(map(is_model_attribute, point.attributes))
        ):
            self._ignore_as_unrecognised(point, *filter(None, [point.cannot_count]))
        else:
            self._outcome.ignored[NOT_AI] += 1

    def _ignore_as_repeat(self, point: MetricPoint, because: str) -> None:
        self._outcome.ignored[MERGED] += 1
        self._outcome.note_dropped_duplicate(f"data point of {point.name}", because)

    def _ignore_as_unrecognised(self, point: MetricPoint, *because: str) -> None:
        self._outcome.ignored[UNRECOGNISED_AI] += 1
        self._outcome.note_unrecognised_names(point.attributes, leading_names=(point.name, *because))

    def _count_point(self, point: MetricPoint, product: TelemetryProduct, family: MetricFamily) -> None:
        if product.repeats_token_usage and point.name == TOKEN_USAGE:
            self._ignore_as_repeat(point, f"repeats the counts of {product.source}'s own token metric")
            return
        token_type = _token_type_of_point(family, point)
        if token_type is None and family.unit == TOKEN_UNIT:
            self._ignore_as_unrecognised(point)
        elif (
            family.unit == MONEY_UNIT
            and (stated := non_dollar_currency(point))
            and not semconv.is_known_currency_code(stated)
        ):
            self._ignore_as_unrecognised(point, f"in {stated}")
        elif token_type is not None and token_type not in metric_rules.KNOWN:
            self._ignore_as_unrecognised(point, *([token_type] if _PLAIN_WORD.fullmatch(token_type) else []))
        elif token_type == metric_rules.TOTAL:
            self._ignore_as_repeat(point, "repeats the sum of the other token types")
        elif self._note_family_and_check_other_counts(point, family, token_type):
            self._ignore_as_repeat(
                point, "repeats counts that the same meter reports under another metric name"
            )
        else:
            self._add_counter_point(point, product, family, token_type)

    def _note_family_and_check_other_counts(
        self, point: MetricPoint, family: MetricFamily, token_type: str | None
    ) -> bool:
        """
        Return whether a point repeats tokens of another metric family of the sender. Of such families, the
        first to arrive counts.
        """
        if token_type is None or family.one_of is None:
            return False
        meter = _resource_and_scope(point)
        # compare by value, because the next piece of a large payload has equal but not identical objects
        if meter != self._meter:
            self._meter, self._counted_by = meter, {}
        return self._counted_by.setdefault(token_type, family.one_of) != family.one_of

    def _add_counter_point(
        self, point: MetricPoint, product: TelemetryProduct, family: MetricFamily, token_type: str | None
    ) -> None:
        value: int | Decimal
        if family.unit == TOKEN_UNIT:
            value = parse_token_count(point.value)
        else:
            value = parse_cost_without_rounding(point.value) / family.divisor
        record = UsageMetric(
            id=b"",
            source=product.source,
            name=declared_metric_name(point),
            model=_model_of_point(point, family),
            token_type=token_type,
            unit=unit_of_point(point, family),
            shadow=family.repeats_calls and product.source not in self._counted,
            meter=_meter_of_point(point, token_type),
        )
        self._senders.fill_caller_and_tags(record, product, point.resource, point.attributes)
        series = self._series.series_key(point)
        if point.cumulative:
            counter = CounterPoint(series, point.start_time, point.time, value, record)
            self._outcome.add_point(counter, device=self._senders.device)
        elif value == 0 or (isinstance(value, Decimal) and value < SMALLEST_COST):
            self._outcome.ignored[UNCHANGED] += 1
        else:
            record.value = value if isinstance(value, int) else decimal_text(value)
            record.start_time = point.start_time or None
            record.end_time = point.time or None
            why = {"value": f"the increase that the metric {point.name} reports"}
            self._outcome.add_record(
                record, _point_dedup_key(series, point), why, device=self._senders.device
            )


def _resource_and_scope(point: MetricPoint) -> tuple[Resource, Scope]:
    return point.resource, point.scope


def _product_of_point(point: MetricPoint) -> TelemetryProduct:
    sender = product_of_sender(point.resource, point.scope)
    marked = find_or_build_shape(point.attributes).product
    return marked if sender is OTEL and marked is not None and marked.marks_points else sender


def _model_of_point(point: MetricPoint, family: MetricFamily) -> str | None:
    return semconv.first_text(point.attributes, (*family.model, *MODEL) if family.model else MODEL)


def _token_type_of_point(family: MetricFamily, point: MetricPoint) -> str | None:
    if family.token_type is not None or not family.type_keys:
        return family.token_type
    stated = _declared_token_type(point, family) or semconv.first_text(point.attributes, family.type_keys)
    if stated is None or len(stated) > LONGEST_TYPE:
        return None
    return family.types.get(stated, stated)


def _meter_of_point(point: MetricPoint, token_type: str | None) -> str | None:
    if token_type == metric_rules.TOOL_INPUT:
        return "input_tool_tokens"
    modality = point.attributes.get(MODALITY)
    return None if modality is None else meter_name_of_modality(_WHOLES.get(token_type or "", ""), modality)


def _declared_token_type(point: MetricPoint, family: MetricFamily) -> str | None:
    stated_types = (point.attributes.get(name) for name in family.type_keys)
    return next((word for word in stated_types if isinstance(word, str) and word in family.types), None)


def _point_dedup_key(series: bytes, point: MetricPoint) -> RecordIdentity:
    if not point.time:  # reject it: without a time, all points of the series would have the same dedup key
        return random_identity()
    return RecordIdentity(dedup_key_of_metric_point(series, point.start_time, point.time))
