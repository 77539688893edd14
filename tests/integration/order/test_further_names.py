"""Reports of one call without its id: they join by another shared name, whichever arrives first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import Request, told_in_every_order, told_in_memory

DETAILS = "gen_ai.client.inference.operation.details"
EVENTS_SCOPE = "opentelemetry.instrumentation.genai.langchain"
SDK_SCOPE = "com.anthropic.sdk.python"
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-haiku-4-5",
    "gen_ai.usage.input_tokens": 610,
    "gen_ai.usage.output_tokens": 33,
}
UNCOUNTED = {name: value for name, value in CALL.items() if "usage" not in name}
ANSWERED = {**CALL, "gen_ai.response.id": "msg_0a0b0c0d0e0f0a0b0c0d"}


def as_traces(*spans: dict[str, Any], scope: str) -> Request:
    return Request(
        "otlp/traces", json.dumps(traces(*spans, scope=scope, resource={"service.name": "desk"})).encode()
    )


def event(number: int, attributes: dict[str, Any], *, scope: str = EVENTS_SCOPE) -> Request:
    record = {
        "timeUnixNano": str(NOW + SECOND),
        "traceId": f"{1:032x}",
        "spanId": f"{number:016x}",
        "eventName": DETAILS,
        "attributes": [attribute(name, value) for name, value in attributes.items()],
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": scope}, "logRecords": [record]}]}]}
    return Request("otlp/logs", json.dumps(logs).encode())


def assert_one_call(requests: Sequence[Request], **said: Any) -> None:
    """Check that every order makes one call with these values, also with a stop in between."""
    for rows, _ in told_in_every_order(requests, times=1):
        assert [said] == [{name: row[name] for name in said} for row in rows]


def nested(inner: dict[str, Any], **outer: Any) -> Request:
    """Return LangChain's span above the span of the provider's SDK, in one request."""
    return as_traces(span(1, CALL, **outer), span(2, inner, parent=1), scope=EVENTS_SCOPE)


def test_the_event_of_a_dropped_twin_is_its_call() -> None:
    """
    If an outer span is dropped because it repeats the inner one, the event with the ids of the outer span still
    belongs to the same call.
    """
    assert_one_call(
        [nested(ANSWERED), event(1, CALL)], request_id="msg_0a0b0c0d0e0f0a0b0c0d", input_tokens=610
    )


def test_the_event_of_a_failure_is_no_second_one() -> None:
    """
    If a call fails, neither span has the id of an answer. The event of the failure still belongs to the same call.
    """
    failed = {**UNCOUNTED, "error.type": "overloaded_error"}
    spans = as_traces(span(1, failed), span(2, failed, parent=1), scope=EVENTS_SCOPE)
    assert_one_call([spans, event(1, failed)], status="error", error_type="overloaded_error")


def test_an_event_without_the_id_of_its_span_is_its_call() -> None:
    """In a stream, the span has the id of the answer and the event does not. They are still one call."""
    alone = as_traces(span(1, ANSWERED), scope=EVENTS_SCOPE)
    assert_one_call([alone, event(1, CALL)], request_id="msg_0a0b0c0d0e0f0a0b0c0d")


# --- LiteLLM ------------------------------------------------------------------------------------------------

CALL_ID = "3f1d2c4b-0000-4000-8000-0000000000aa"
TRACE = f"{1:032x}"
EMBEDDING = {
    "model": "text-embedding-3-small",
    "prompt_tokens": 41,
    "completion_tokens": 0,
    "total_tokens": 41,
}


def phoenix(number: int, **changes: Any) -> Request:
    said = {
        "openinference.span.kind": "EMBEDDING",
        "llm.request.type": "aembedding",
        "llm.model_name": "text-embedding-3-small",
        "llm.token_count.prompt": 41,
        "litellm.trace_id": TRACE,
    }
    return as_traces(span(number, said, **changes), scope="litellm")


def otel(number: int, call_id: str = CALL_ID, **changes: Any) -> Request:
    said = {
        "gen_ai.operation.name": "aembedding",
        "gen_ai.request.model": "text-embedding-3-small",
        "gen_ai.response.id": call_id,
        "litellm.call_id": call_id,
        "gen_ai.usage.input_tokens": 41,
    }
    return as_traces(span(number, said, **changes), scope="litellm")


def callback(**changes: Any) -> Request:
    said = {
        "id": CALL_ID, "litellm_call_id": CALL_ID, "trace_id": TRACE, "call_type": "aembedding", "status": "success",
        "custom_llm_provider": "openai", "startTime": NOW / SECOND, "endTime": NOW / SECOND + 1, **EMBEDDING,
    }  # fmt: skip
    return Request("litellm", json.dumps({**said, **changes}).encode())


def cloud_event(**changes: Any) -> Request:
    said = {
        "specversion": "1.0", "type": "litellm_tokens", "id": CALL_ID, "time": "2026-03-02T09:00:01Z",
        "source": "litellm-proxy", "data": EMBEDDING,
    }  # fmt: skip
    return Request("openmeter", json.dumps({**said, **changes}).encode())


def test_two_litellm_callbacks_and_a_log_are_one_embedding() -> None:
    """
    A call of LiteLLM for one embedding has two callbacks and a log. One callback states only the trace, the other
    only the call id, and the log both. All three are one record.
    """
    assert_one_call([phoenix(1), otel(2), callback()], input_tokens=41, operation="embeddings")


@pytest.mark.parametrize("other", [otel(2, start=NOW + 1_000_000), phoenix(2, start=NOW + 1_000_000)])
def test_two_embeddings_a_millisecond_apart_are_two(other: Request) -> None:
    """The same text is embedded twice in one trace, a millisecond apart. These are two calls."""
    for order in permutations([phoenix(1), other]):
        assert 2 == len(told_in_memory(order)[0])


def test_a_cloud_event_with_the_id_of_litellms_call_is_that_call() -> None:
    """OpenMeter's event has only the end time, and uses LiteLLM's call id as the answer's id."""
    assert_one_call([callback(), cloud_event()], input_tokens=41)
    assert_one_call([otel(2), cloud_event()], input_tokens=41)


def test_a_failed_attempt_under_the_same_id_is_a_call_of_its_own() -> None:
    """LiteLLM gives a failed attempt and its fallback the same id. They are two calls."""
    failed = callback(
        status="failure", error_information={"error_class": "Timeout"}, prompt_tokens=0, total_tokens=0
    )
    for order in permutations([failed, callback(), cloud_event()]):
        assert ["error", "ok"] == sorted(row["status"] for row in told_in_memory(order)[0])


# --- Google's Agent Development Kit -------------------------------------------------------------------------

ADK = "gcp.vertex.agent"
TURN = {"gen_ai.operation.name": "generate_content", "gen_ai.provider.name": "gcp.gemini"}


def answered(answer: str, input_tokens: int) -> dict[str, Any]:
    return {**TURN, f"{ADK}.event_id": answer, "gen_ai.usage.input_tokens": input_tokens}


@pytest.mark.parametrize(
    "marks", [{}, {"openinference.span.kind": "LLM", "llm.model_name": "gemini-2.5-flash"}]
)
def test_events_of_answers_that_share_a_span_are_calls_of_their_own(marks: dict[str, Any]) -> None:
    """
    Under OpenInference, each answer of a turn overwrites the previous one in the agent's span. The events of
    these answers are separate calls.
    """
    newest = {**answered("b", 1700), **marks, "gen_ai.request.model": "gemini-2.5-flash"}
    turn = as_traces(span(1, newest), scope=ADK)
    events = [event(1, answered("a", 1600), scope=ADK), event(1, answered("b", 1700), scope=ADK)]
    for rows, _ in told_in_every_order([turn, *events], times=1):
        assert [1600, 1700] == sorted(row["input_tokens"] for row in rows)


def test_an_event_without_the_id_of_an_answer_is_the_call_of_its_span() -> None:
    """An event without the id of an answer belongs to the call of its span, as the conventions say."""
    assert_one_call(
        [as_traces(span(1, TURN), scope=ADK), event(1, TURN, scope=ADK)], operation="generate_content"
    )
