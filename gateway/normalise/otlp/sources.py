"""Which product sends under an instrumentation scope or a resource: what all three signals share."""

from __future__ import annotations

from functools import lru_cache

from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.model import Resource, Scope
from gateway.normalise.otlp.product import Product
from gateway.normalise.otlp.products import PRODUCTS

_SDKS = {sdk: product for product in PRODUCTS for sdk in product.sdks}
_SCOPES = {scope: product for product in PRODUCTS for scope in product.scopes}
_SCOPE_BEGINNINGS = tuple(
    [(beginning, product) for product in PRODUCTS for beginning in product.scope_beginnings]
)
_SERVICES = {service: product for product in PRODUCTS for service in product.services}
_LONGEST = 64  # longer than any name above


def sender_of(resource: Resource, scope: Scope) -> Product:
    """The product by SDK, scope or service name; OTEL when none of them is known."""
    sdk = resource.attributes.get("telemetry.sdk.name")
    if isinstance(sdk, str) and sdk in _SDKS:
        return _SDKS[sdk]
    if (product := _by_scope(scope.name[:_LONGEST])) is not None:
        return product
    service = resource.attributes.get("service.name")
    return _SERVICES.get(service, OTEL) if isinstance(service, str) else OTEL


@lru_cache(maxsize=1024)
def _by_scope(name: str) -> Product | None:
    if (product := _SCOPES.get(name)) is not None:
        return product
    return next((product for beginning, product in _SCOPE_BEGINNINGS if name.startswith(beginning)), None)
