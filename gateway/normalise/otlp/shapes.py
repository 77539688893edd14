"""
Shapes of items: everything that the attribute names of an item show, by the names that products and
conventions declare.

Each name has its facts: the tables in which a product or a convention declares it. The facts of an item's
names are its shape's key, so an undeclared name costs only one look-up. A cached token count has ten
spellings, and a span uses one or two of them. Later code searches only the spellings in the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import replace

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import AttributeNamesByField, Names, SpanFields, TelemetryProduct
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.usage_objects import fields_of_usage_object
from gateway.normalise.reading.ai_names import is_ai_name
from spool.caches import CachedResults, SeenKeys, remove_oldest_eighth


def _attribute_names_of_field(field: str) -> Names:
    own = [name for product in PRODUCTS for name in product.names.get(field, ())]
    return (*semconv.FIELDS[field], *own)


FIELD_NAMES: dict[str, Names] = {field: _attribute_names_of_field(field) for field in semconv.FIELDS}
TAG_LISTS: Names = tuple([name for product in PRODUCTS for name in product.tag_lists])
METADATA_BEGINNINGS: Names = tuple([beginning for product in PRODUCTS for beginning in product.metadata])
QUOTED_METADATA: Names = tuple(
    [beginning for product in PRODUCTS if product.quotes_metadata for beginning in product.metadata]
)
NO_METADATA: Names = tuple([beginning for product in PRODUCTS for beginning in product.no_metadata])


CONTAINERS: dict[str, Callable[[Any], SpanFields]] = {
    **{name: read for product in PRODUCTS for name, read in product.containers.items()},
    **{name: fields_of_usage_object for product in PRODUCTS for name in product.texts},
}
_MARK_BEGINNINGS = tuple([beginning for product in PRODUCTS for beginning in product.mark_beginnings])
# Names that a reading reads although no table lists them (see `spans.readings`)
_FURTHER = (
    *semconv.PLAIN_MODEL,
    semconv.CLOUD,
    *[name for product in PRODUCTS for names in product.own_names.values() for name in names],
)
# fields of AttributeNamesByField that are True if an attribute of the item is in the table of the field
_FLAGS = "names_tool", "names_operation", "names_end_user"
ShapeEffect = tuple[str, Any]  # effect of an attribute name on the shape: field and value


def _shape_effects_by_field() -> Iterator[tuple[str, list[ShapeEffect]]]:
    for field, names in {**FIELD_NAMES, "containers": CONTAINERS}.items():
        yield field, [(name, name) for name in names]
    kinds = {kind.attribute: kind for product in PRODUCTS for kind in product.kinds}
    yield "kinds", list(kinds.items())
    yield "meters", [(name, (meter, name)) for name, meter in semconv.METERS.items()]
    tags = semconv.NAMED_TAGS.items()
    yield "named_tags", [(name, (tag, name)) for tag, names in tags for name in names]
    weak = [(product, *mark) for product in PRODUCTS for mark in product.weak_marks.items()]
    yield "weak_marks", [(name, (product, holds)) for product, name, holds in weak]
    yield "taken_by", [(name, product) for product in PRODUCTS for name in product.taken_marks]
    yield "product", [(name, product) for product in PRODUCTS for name in product.marks]
    yield "names_tool", [("gen_ai.tool.name", True)]
    yield "names_operation", [(name, True) for name in semconv.OPERATION]
    yield "names_end_user", [(name, True) for name in (semconv.END_USER, semconv.PRINCIPAL)]


class NameFacts:
    """
    The facts about an attribute name: its product and use. They are compared by identity. A name that a
    product declares has an instance of its own. All other names with equal facts share one instance.
    """

    __slots__ = ("entries", "is_ai", "is_metadata", "product")

    def __init__(self, product: int | None, is_metadata: bool, is_ai: bool) -> None:
        # effects of the name: field of AttributeNamesByField, rank of the name in this field, and value
        self.entries: list[tuple[str, int, Any]] = []
        self.product = product  # index of the product to which the beginning of the name belongs
        self.is_metadata = is_metadata
        self.is_ai = is_ai  # True if this is the name of a model or a token count


def _name_facts_values(name: str) -> tuple[int | None, bool, bool]:
    product = None
    if name.startswith(_MARK_BEGINNINGS):
        product = next(
            place for place, product in enumerate(PRODUCTS) if name.startswith(product.mark_beginnings)
        )
    return product, _metadata_attribute_and_tag_name(name) is not None, is_ai_name(name)


def _metadata_attribute_and_tag_name(name: str) -> tuple[str, str | None] | None:
    if name == semconv.METADATA_JSON or name in TAG_LISTS:
        return name, None
    if not name.startswith(METADATA_BEGINNINGS) or name.startswith(NO_METADATA):
        return None
    beginning = next(beginning for beginning in METADATA_BEGINNINGS if name.startswith(beginning))
    return name, name[len(beginning) :]


def _build_declared_facts() -> dict[str, NameFacts]:
    declared = {
        name: NameFacts(*_name_facts_values(name)) for name in (*_FURTHER, *TAG_LISTS, semconv.METADATA_JSON)
    }
    for field, entries in _shape_effects_by_field():
        for rank, (name, value) in enumerate(entries):
            if name not in declared:
                declared[name] = NameFacts(*_name_facts_values(name))
            declared[name].entries.append((field, rank, value))
    return declared


DECLARED: Final = _build_declared_facts()
BEGINNINGS: Final = (*_MARK_BEGINNINGS, *METADATA_BEGINNINGS)
# facts that stand for most names that no rule declares
_PLAIN: Final = NameFacts(None, is_metadata=False, is_ai=False)
_others: dict[tuple[int | None, bool, bool], NameFacts] = {(None, False, False): _PLAIN}


def _find_or_build_name_facts(name: str) -> NameFacts:
    if (declared := DECLARED.get(name)) is not None:
        return declared
    if not name.startswith(BEGINNINGS) and not is_ai_name(name):
        return _PLAIN
    form = _name_facts_values(name)
    return _others.get(form) or _others.setdefault(form, NameFacts(*form))


_facts = CachedResults(_find_or_build_name_facts)
_facts_by_name = _facts.__getitem__
_metadata = CachedResults(_metadata_attribute_and_tag_name).__getitem__

_MOST_SHAPES = 4096
# maximum names in all cached shapes together, because senders choose the names of an item
_MOST_KEYS = 1 << 17
_shapes: dict[frozenset[NameFacts], AttributeNamesByField] = {}
_keys = 0  # number of names in all cached shapes, including shapes deleted since the cache was last full


# The shapes of items with few names, by these names, because one look-up takes a third of the time of one for each name
_by_names: dict[Names, AttributeNamesByField] = {}
_seen_keys = SeenKeys()  # seen keys that are not in `_by_names`, so that only recurring ones are stored there
_seen_shapes = SeenKeys()  # seen keys that are not in `_shapes`, so that only recurring ones are stored there
_FEW = 64
_SHORT = 4096  # maximum characters of the names of an item in `_by_names`


def find_or_build_shape(attributes: Attributes) -> AttributeNamesByField:
    names = tuple(attributes)
    return _by_names.get(names) or _find_or_build_shape_of_new_names(names)


def _find_or_build_shape_of_new_names(names: Names) -> AttributeNamesByField:
    facts = frozenset(map(_facts_by_name, names))
    shape = _shapes.get(facts) or _find_or_remember_shape(facts)
    if (
        len(names) <= _FEW
        and _seen_keys.add_and_return_whether_known(names)
        and sum(map(len, names)) <= _SHORT
    ):
        if len(_by_names) >= _MOST_SHAPES:
            remove_oldest_eighth(_by_names)
        _by_names[names] = shape
    return shape


def _find_or_remember_shape(facts: frozenset[NameFacts]) -> AttributeNamesByField:
    global _keys
    shape = _build_shape(facts)
    if not _seen_shapes.add_and_return_whether_known(facts):
        return shape
    _keys += len(facts)
    if len(_shapes) >= _MOST_SHAPES or _keys > _MOST_KEYS:
        remove_oldest_eighth(_shapes)
        _keys = sum(map(len, list(_shapes))) + len(facts)
    _shapes[facts] = shape
    return shape


def _build_shape(facts: Set[NameFacts]) -> AttributeNamesByField:
    found: dict[str, Any] = {}
    places: list[int] = []
    has_metadata = names_ai = False
    for each in facts:
        for field, rank, value in each.entries:
            if field in found:
                found[field].append((rank, value))
            else:
                found[field] = [(rank, value)]
        if each.product is not None:
            places.append(each.product)
        has_metadata = has_metadata or each.is_metadata
        names_ai = names_ai or each.is_ai
    for field, ranked in found.items():
        if len(ranked) == 1:
            found[field] = (ranked[0][1],)
        else:
            ranked.sort(key=itemgetter(0))
            found[field] = tuple([value for _, value in ranked])
    for flag in _FLAGS:
        if flag in found:
            found[flag] = True
    if "product" in found:
        places += [PRODUCTS.index(product) for product in found.pop("product")]
    if "taken_by" in found:
        found["taken_by"] = tuple(dict.fromkeys(found["taken_by"]))
    if "named_tags" in found:
        tags: dict[str, Names] = {}
        for tag, name in found["named_tags"]:
            tags[tag] = (*tags.get(tag, ()), name)
        found["named_tags"] = tuple(tags.items())
    return AttributeNamesByField(
        **found,
        has_metadata=has_metadata,
        product=PRODUCTS[min(places)] if places else None,
        deciding_kind=next((kind for kind in found.get("kinds", ()) if kind.operation is not None), None),
        names_ai=names_ai,
        own={},
        readings={},
    )


def shape_with_product_names(
    attribute_names: AttributeNamesByField, product: TelemetryProduct, attributes: Attributes
) -> AttributeNamesByField:
    """
    Return the attribute names of an item of `product`, in which the product's own names replace the shared
    ones.
    """
    own_variant = attribute_names.own.get(product)
    if own_variant is None:
        names = {
            field: _names_that_occur(table, attributes.keys()) for field, table in product.own_names.items()
        }
        own_variant = attribute_names.own[product] = replace(attribute_names, **names, own={}, readings={})
    return own_variant


def _names_that_occur(table: Iterable[str], names: Set[str]) -> Names:
    return tuple([name for name in table if name in names])


def attributes_with_tags(attributes: Attributes) -> Iterator[tuple[str, str | None]]:
    """
    Yield each attribute that becomes a tag, with the tag's name, in the order of the attributes. The name is
    None for an attribute that holds several tags.
    """
    return filter(None, map(_metadata, attributes))
