"""
Which metric points count: the families of tokens or money that products declare, and of their points sums that
only grow and histograms' sums with a stated temporality. And the key of a series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes, Point, Resource, Scope
from gateway.normalise.otlp.product import MONEY_UNIT, MetricFamily, Product
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.outcome import NOT_AI
from gateway.normalise.reading import values
from gateway.normalise.reading.ai_names import is_other_use

LONGEST_TYPE = 64

_ANY_PART = "*"  # in a name: any part between two dots
_NAMED = [(name, (product, family)) for product in PRODUCTS for name, family in product.metrics.items()]
_FAMILIES = {name: found for name, found in _NAMED if _ANY_PART not in name}
_PATTERNS = [
    (re.compile("[^.]+".join(map(re.escape, name.split(_ANY_PART)))), found)
    for name, found in _NAMED
    if _ANY_PART in name
]
# Inference servers: their counters cover every call they served, also calls that other sources report.
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
_USAGE_UNITS = frozenset(
    {"", "1", "token", "tokens", "credit", "credits", "acu", "aiu"}
)  # without their braces
_CURRENCY = re.compile(r"[A-Z]{3}")  # ISO 4217
_NO_USAGE_UNITS = frozenset({"s", "ms", "us", "ns", "min", "h", "By", "%"})
_OTHER_UNIT = re.compile(r"_(seconds|milliseconds|bytes|ratio|percent)(_total)?$")  # where Prometheus says it
_AI_BEGINNINGS = ("gen_ai.", "llm.", "ai.")


def find_family(name: str) -> tuple[Product, MetricFamily] | None:
    """Return the product and the family that declare a metric name. None if the metric is not about usage."""
    if (found := _FAMILIES.get(name)) is not None:
        return found
    return next((family for pattern, family in _PATTERNS if pattern.fullmatch(name)), None)


def name_of(point: Point) -> str:
    """The metric's name as its product has it, also where its user chose a part of it."""
    naming = _NAMING.get(point.scope.name)
    return point.name if naming is None else naming(point.name)


def foreign_currency(point: Point) -> str | None:
    """The currency of an amount that is not dollars; None for dollars, and where none is stated."""
    stated = (values.text(point.attributes.get(semconv.CURRENCY)) or point.unit).upper()
    return stated if _CURRENCY.fullmatch(stated) and stated != MONEY_UNIT else None


def unit_of(point: Point, family: MetricFamily) -> str:
    """The unit of the point's values: that of its family, or the currency that the point states."""
    return (foreign_currency(point) or family.unit) if family.unit == MONEY_UNIT else family.unit


def is_repeat(name: str) -> bool:
    """True if a metric repeats what one of the families counts."""
    return _REPEATS.fullmatch(name) is not None


def looks_like_usage(name: str, unit: str, *, names_a_model: bool = False) -> bool:
    """True if a metric of no family could be one that we ought to know: it counts tokens, money or credits."""
    if unit in _NO_USAGE_UNITS or _OTHER_UNIT.search(name) or not _USAGE_WORD.search(name):
        return False
    if names_a_model or name.startswith(_AI_BEGINNINGS):
        return True
    is_usage = unit.strip("{}").lower() in _USAGE_UNITS or _CURRENCY.fullmatch(unit) is not None
    return is_usage and not is_other_use(name)


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


KEY_BYTES = 16


class SeriesKeys:
    """Keys for the points of one payload; the resource's share is hashed once for neighbours."""

    def __init__(self) -> None:
        self._resource: Resource | None = None
        self._prefix = blake2b(digest_size=KEY_BYTES)

    def of(self, point: Point) -> bytes:
        """Resource, scope, name, unit, attributes and start time; the same in JSON and in protobuf."""
        if point.resource is not self._resource:
            self._resource = point.resource
            self._prefix = blake2b(canonical(point.resource.attributes), digest_size=KEY_BYTES)
        key = self._prefix.copy()
        for text in (point.scope.name, point.scope.version, point.name, point.unit):
            key.update(_tagged(b"s", text.encode("utf-8", "surrogatepass")))
        key.update(canonical(point.attributes))
        key.update(point.apart)
        key.update(b"@%d" % point.start_time)
        return key.digest()


def apart(outside: Mapping[str, object]) -> bytes:
    """A hash of attributes that may not be read: it distinguishes two series and reveals neither."""
    return blake2b(canonical(outside), digest_size=KEY_BYTES).digest() if outside else b""


def canonical(value: object) -> bytes:
    """An attribute value as bytes that no other value shares: tagged with type and length, keys sorted."""
    if isinstance(value, str):
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bool):
        return b"b1" if value else b"b0"
    if isinstance(value, int):
        return _tagged(b"i", b"%d" % value)
    if isinstance(value, float):
        return _tagged(b"d", repr(value).encode())
    if isinstance(value, Mapping):
        return _tagged(b"m", b"".join(_members(value)))
    if isinstance(value, list | tuple):
        return _tagged(b"l", b"".join(map(canonical, value)))
    return b"n"


def _members(attributes: Mapping[str, object]) -> Iterator[bytes]:
    for name in sorted(attributes):
        yield canonical(name)
        yield canonical(attributes[name])


def _tagged(tag: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(content), content)
