"""Azure AI: spans of the Inference SDK and of agent runs. Each poll of a run repeats the usage of the run."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import has_token_counts, operation_by_span_name
from gateway.normalise.reading import values

_SYSTEM = "gen_ai.system"
_AGENTS, _INFERENCE = "az.ai.agents", "az.ai.inference"
_RUN_ID = "gen_ai.thread.run.id"


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    if span.attributes.get(_SYSTEM) != _AGENTS:
        return operation_by_span_name(span, attribute_names)
    run = values.text_or_none(span.attributes.get(_RUN_ID))
    return "invoke_agent" if run is not None and has_token_counts(span, attribute_names) else None


def _set_run_id_and_remove_placeholder_model(span: Span, call: SpanCall) -> None:
    record = call.record
    call.run_id = values.text_or_none(span.attributes.get(_RUN_ID))
    if span.attributes.get(_SYSTEM) == _AGENTS:
        record.request_id = call.run_id
    elif record.request_model == "chat":  # "chat" is what the SDK writes if the caller names no model
        record.request_model = None


def _response_id_or_id_of_several_calls(attributes: Attributes) -> tuple[str | None, str | None]:
    return semconv.response_id_or_id_of_several_calls(attributes, (_RUN_ID, *semconv.RESPONSE_ID))


def _is_azure_span(span: Span) -> bool:
    return span.attributes[_SYSTEM] in (_AGENTS, _INFERENCE)


PRODUCT = TelemetryProduct(
    source="azure_ai",
    names={"request_id": (_RUN_ID,)},
    weak_marks={_SYSTEM: _is_azure_span},
    spans=SpanDialect(
        operation=_operation_if_call,
        ids=_response_id_or_id_of_several_calls,
        refine=_set_run_id_and_remove_placeholder_model,
    ),
)
