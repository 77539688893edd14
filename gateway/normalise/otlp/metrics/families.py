"""
The metric families that count tokens or money, collected from the products.

Everything else that a metric can say of AI (durations, counts, per-call distributions of what a family
counts already) is not usage.
"""

from __future__ import annotations

import re

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Point
from gateway.normalise.otlp.product import MONEY_UNIT, MetricFamily, Product
from gateway.normalise.otlp.products import PRODUCTS
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
# Products that are servers of models: their counters have what they served, whoever tells the calls.
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
    """The family of a metric's name and the product that declares it; None when its points are no usage."""
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
