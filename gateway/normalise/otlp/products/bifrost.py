"""Bifrost: one span per attempt, with older names of the GenAI conventions."""

from __future__ import annotations

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import SpanDialect, TelemetryProduct

_SDK = "telemetry.sdk.name"


def _is_span_of_bifrost(span: Span) -> bool:
    return str(span.attributes[_SDK]) == "bifrost"


def _mark_if_retry(span: Span, call: SpanCall) -> None:
    call.is_attempt = span.name.startswith("retry.attempt")


PRODUCT = TelemetryProduct(
    source="bifrost",
    is_gateway=True,
    scopes=("bifrost",),
    sdks=("bifrost",),
    weak_marks={_SDK: _is_span_of_bifrost},
    zero_cost_is_unknown=True,
    spans=SpanDialect(refine=_mark_if_retry),
    names={"team": ("gen_ai.team_id",), "api_key": ("gen_ai.virtual_key_name",)},
)
