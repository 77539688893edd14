"""Bifrost: one span per attempt, with older names of the conventions."""

from __future__ import annotations

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import Product, SpanDialect

_SDK = "telemetry.sdk.name"


def _names_sdk(span: Span) -> bool:
    return str(span.attributes[_SDK]) == "bifrost"


def _refine(span: Span, call: SpanCall) -> None:
    call.is_attempt = span.name.startswith("retry.attempt")


PRODUCT = Product(
    source="bifrost",
    is_gateway=True,
    scopes=("bifrost",),
    sdks=("bifrost",),
    weak_marks={_SDK: _names_sdk},
    zero_cost_is_unknown=True,
    spans=SpanDialect(refine=_refine),
    names={"team": ("gen_ai.team_id",), "api_key": ("gen_ai.virtual_key_name",)},
)
