"""The list of products: complete, without duplicate claims, and in the right order."""

from __future__ import annotations

from pathlib import Path

import gateway.normalise.otlp.products as listed
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.semconv import FIELDS

ORDER = [product.source for product in PRODUCTS]


def test_every_module_of_a_product_is_listed() -> None:
    """
    Every product module is in the list. The module name is the product's source, and the position in the list
    is its rank.
    """
    modules = {path.stem for path in Path(listed.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules | {"otel"} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def test_no_two_products_claim_the_same_name() -> None:
    """
    A name that identifies a product is declared by only one product. Weaker marks may be shared, and the
    first product in the list counts.
    """
    tables = (
        "scopes",
        "scope_beginnings",
        "services",
        "sdks",
        "events",
        "metrics",
        "containers",
        "reductions",
    )
    for table in tables:
        names = [name for product in PRODUCTS for name in getattr(product, table)]
        assert len(names) == len(set(names)), table


def test_names_of_a_product_belong_to_fields_that_there_are() -> None:
    """
    Each name that a product declares is for a field that exists. Otherwise the name would have no effect.
    """
    declared = [
        (product.source, field) for product in PRODUCTS for field in (*product.names, *product.own_names)
    ]
    assert [] == [(source, field) for source, field in declared if field not in FIELDS]


def test_logfire_mark_is_weaker_than_every_other() -> None:
    """Logfire marks every span of its provider, so every other mark is stronger."""
    marked = [product.source for product in PRODUCTS if product.marks or product.mark_beginnings]
    assert marked[0] == "openinference"
    assert marked[-1] == "pydantic_ai"
