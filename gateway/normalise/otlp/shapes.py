"""
Shapes of items: all facts that the attribute names of an item show, by the names that products
and conventions declare.

Items of one instrumentation have the same names, so a shape is computed once and then found by the names. A
cached token count has ten spellings, and a span uses one or two of them. Later code searches only the
spellings in the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any

from msgspec.structs import replace

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import AttributeShape, Fields, Names, Product
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.usage_objects import figures
from gateway.normalise.reading.ai_names import is_ai_name


def _names(field: str) -> Names:
    own = [name for product in PRODUCTS for name in product.names.get(field, ())]
    return (*semconv.FIELDS[field], *own)


FIELD_NAMES: dict[str, Names] = {field: _names(field) for field in semconv.FIELDS}
TAG_LISTS: Names = tuple([name for product in PRODUCTS for name in product.tag_lists])
METADATA_BEGINNINGS: Names = tuple([beginning for product in PRODUCTS for beginning in product.metadata])
QUOTED_METADATA: Names = tuple(
    [beginning for product in PRODUCTS if product.quotes_metadata for beginning in product.metadata]
)
NO_METADATA: Names = tuple([beginning for product in PRODUCTS for beginning in product.no_metadata])


CONTAINERS: dict[str, Callable[[Any], Fields]] = {
    **{name: read for product in PRODUCTS for name, read in product.containers.items()},
    **{name: figures for product in PRODUCTS for name in product.texts},
}
_KINDS = {kind.attribute: kind for product in PRODUCTS for kind in product.kinds}
_END_USER_NAMES = frozenset({semconv.END_USER, semconv.PRINCIPAL})

_TABLES: dict[str, Iterable[str]] = {**FIELD_NAMES, "containers": CONTAINERS}

_MARK_BEGINNINGS = tuple([beginning for product in PRODUCTS for beginning in product.mark_beginnings])
_MOST_SHAPES = 4096
# Limit of names in a cached shape. Shapes with more names are not cached, to limit memory.
_LONGEST_SHAPE = 128
_LARGEST_SHAPE = 8192  # limit in characters for all names of one cached shape
_shapes: dict[Names, AttributeShape] = {}


def shape_of(attributes: Attributes) -> AttributeShape:
    """
    Return the shape of one item, from the cache if possible. The cache is emptied when it is full, because
    senders may invent any number of names.
    """
    names = tuple(attributes)
    shape = _shapes.get(names)
    if shape is None:
        shape = _shape(names)
        if is_cached(names):
            if len(_shapes) >= _MOST_SHAPES:
                _shapes.clear()
            _shapes[names] = shape
    return shape


def is_cached(names: Names) -> bool:
    """Return True if these names are short enough for their shape to be cached."""
    return len(names) <= _LONGEST_SHAPE and sum(map(len, names)) <= _LARGEST_SHAPE


def _shape(names: Names) -> AttributeShape:
    present = frozenset(names)
    fields = {field: _present(table, present) for field, table in _TABLES.items()}
    kinds = tuple([kind for attribute, kind in _KINDS.items() if attribute in present])
    marked = [name for name in names if name.startswith(_MARK_BEGINNINGS)]
    named_tags = [(tag, _present(table, present)) for tag, table in semconv.NAMED_TAGS.items()]
    return AttributeShape(
        **fields,
        meters=tuple([(meter, name) for name, meter in semconv.METERS.items() if name in present]),
        named_tags=tuple([(tag, present_names) for tag, present_names in named_tags if present_names]),
        metadata=_metadata(names),
        product=next((product for product in PRODUCTS if _bears_mark(product, present, marked)), None),
        weak_marks=_weak_marks(present),
        kinds=kinds,
        deciding_kind=next((kind for kind in kinds if kind.operation is not None), None),
        taken_by=tuple([product for product in PRODUCTS if not present.isdisjoint(product.taken_marks)]),
        names_tool="gen_ai.tool.name" in present,
        names_operation=not present.isdisjoint(semconv.OPERATION),
        names_end_user=not present.isdisjoint(_END_USER_NAMES),
        names_ai=any(is_ai_name(name) for name in names),
        own={},
        readings={},
    )


def own_shape(shape: AttributeShape, product: Product, attributes: Attributes) -> AttributeShape:
    """Return the shape of an item for a product whose own names replace the shared names."""
    own_variant = shape.own.get(product)
    if own_variant is None:
        names = {field: _present(table, attributes.keys()) for field, table in product.own_names.items()}
        own_variant = shape.own[product] = replace(shape, **names, own={}, readings={})
    return own_variant


def _present(table: Iterable[str], names: Set[str]) -> Names:
    return tuple([name for name in table if name in names])


def _bears_mark(product: Product, present: frozenset[str], marked: Iterable[str]) -> bool:
    """
    Return True if an item has a product's mark. `marked` holds the names that start with the mark of any product.
    """
    return not present.isdisjoint(product.marks) or any(
        name.startswith(product.mark_beginnings) for name in marked
    )


def _weak_marks(names: frozenset[str]) -> tuple[Any, ...]:
    return tuple(
        [
            (product, holds)
            for product in PRODUCTS
            for name, holds in product.weak_marks.items()
            if name in names
        ]
    )


def _metadata(names: Names) -> tuple[tuple[str, str | None], ...]:
    name_pairs: list[tuple[str, str | None]] = []
    for name in names:
        if name == semconv.METADATA_JSON or name in TAG_LISTS:
            name_pairs.append((name, None))
        elif name.startswith(METADATA_BEGINNINGS) and not name.startswith(NO_METADATA):
            beginning = next(beginning for beginning in METADATA_BEGINNINGS if name.startswith(beginning))
            name_pairs.append((name, name[len(beginning) :]))
    return tuple(name_pairs)
