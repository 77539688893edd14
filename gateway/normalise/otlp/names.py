"""The names of each field, strongest first: the conventions', then each product's in order of precedence."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.product import Names
from gateway.normalise.otlp.products import PRODUCTS


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
