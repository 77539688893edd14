"""Azure AI: the Inference SDK, and agent runs whose polls all repeat the usage of the run."""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.model import Span
from gateway.normalise.otlp.dialect import Dialect, by_operation_name, has_usage
from gateway.normalise.otlp.shapes import Shape
from gateway.normalise.reading import vocabulary as words
from spool.record import Inference

AGENTS, INFERENCE = "az.ai.agents", "az.ai.inference"
_RUN_ID = "gen_ai.thread.run.id"


def _operation(span: Span, shape: Shape) -> str | None:
    if span.attributes.get("gen_ai.system") != AGENTS:
        return by_operation_name(span, shape)
    run = words.text(span.attributes.get(_RUN_ID))
    return "invoke_agent" if run is not None and has_usage(span, shape) else None


def _refine(span: Span, record: Inference) -> None:
    if span.attributes.get("gen_ai.system") == AGENTS:
        record.request_id = words.text(span.attributes.get(_RUN_ID))
    elif record.request_model == "chat":  # what the SDK writes when its caller names no model
        record.request_model = None


AZURE_AI = Dialect(
    source="azure_ai",
    operation=_operation,
    refine=_refine,
    run_id=_RUN_ID,
    response_id=(_RUN_ID, *semconv.RESPONSE_ID),
)
