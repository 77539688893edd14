"""
Payloads of real clients: spans that are not calls, failures with a good status, sources of spans, and prices.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import NOT_AI
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, records, span, traces

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}
USAGE = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 80}
LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4o"}
COUNTED = {"llm.token_count.prompt": 1200, "llm.token_count.completion": 80}


@pytest.mark.parametrize("kind", [LLM, {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.llm.model": '"gpt-4o"'}])
def test_a_prepared_request_of_llamaindex_is_no_call(kind: dict[str, str]) -> None:
    """The LlamaIndex span of a method that only prepares a request is no call."""
    outcome = normalised(traces(span(1, kind, name="OpenAI._prepare_chat_with_tools")))
    assert outcome.records == []
    assert dict(outcome.ignored) == {NOT_AI: 1}
    assert 1 == len(records(traces(span(1, kind, name="OpenAI.chat"))))


def test_what_counts_is_a_call_whatever_its_name() -> None:
    """A span with usage is never ignored because of its name."""
    assert 1 == len(records(traces(span(1, {**LLM, **COUNTED}, name="OpenAI._prepare_chat_with_tools"))))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ({"gen_ai.response.finish_reasons": ["error"]}, "error"),
        ({"gen_ai.response.finish_reasons": ["error", "error"]}, "error"),
        ({"gen_ai.response.finish_reasons": '["error"]'}, "error"),
        ({"ai.response.finishReason": "error"}, "error"),
        ({"gen_ai.response.finish_reasons": ["stop", "error"]}, "ok"),
        ({"gen_ai.response.finish_reasons": ["stop"]}, "ok"),
        ({"gen_ai.response.finish_reasons": []}, "ok"),
    ],
)
def test_a_call_that_finished_in_error_failed(reasons: dict[str, Any], status: str, encoding: str) -> None:
    """
    A call that ended with the finish reason "error" failed. Mastra reports a failure only by this reason.
    """
    found = records(traces(span(1, {**CHAT, **reasons}), span(2, {**CHAT, **reasons})), encoding=encoding)
    assert [status, status] == [record.status for record in found]


def raised(number: int, attributes: dict[str, Any]) -> dict[str, Any]:
    kind = {"key": "exception.type", "value": {"stringValue": "RateLimitError"}}
    return span(number, attributes, events=[{"name": "exception", "attributes": [kind]}])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_exception_without_an_answer_is_a_failure(encoding: str) -> None:
    """
    An exception without an answer is a failure. LangSmith for JavaScript leaves the status good in this case.
    """
    llm = {"langsmith.span.kind": "llm", **CHAT}
    record = only(traces(raised(1, llm)), encoding=encoding)
    assert record.status == "error"
    assert record.error_type == "RateLimitError"
    unnamed = {name: value for name, value in llm.items() if name != "gen_ai.operation.name"}
    assert "error" == only(traces(raised(1, unnamed)), encoding=encoding).status


@pytest.mark.parametrize(
    "answer", [USAGE, {"gen_ai.response.id": "chatcmpl-1"}, {"gen_ai.response.model": "gpt-4o-1"}]
)
def test_exception_with_an_answer_is_no_failure(answer: dict[str, Any]) -> None:
    """
    An exception next to an answer is no failure, because the code that processed the answer may have raised it.
    """
    assert "ok" == only(traces(raised(1, {**CHAT, **answer}))).status


def test_model_of_mlflows_failures_is_read_from_the_arguments() -> None:
    """
    For failed calls, MLflow states the model only in the arguments, as JSON text. For successful calls, the
    model's own attribute has priority.
    """
    failed = {"mlflow.spanType": '"CHAT_MODEL"', "model": '"gpt-4o-mini"'}
    record = only(traces(span(1, failed, status={"code": 2})))
    assert record.request_model == "gpt-4o-mini"
    assert record.provider == "openai"
    assert record.status == "error"
    assert "gpt-4o" == only(traces(span(1, {**failed, "mlflow.llm.model": '"gpt-4o"'}))).request_model


def test_spans_of_litellms_scope_are_litellms_whatever_marks_them() -> None:
    """
    Spans with LiteLLM's scope are LiteLLM's, although its integrations for Langfuse and Arize use
    OpenInference's names. They have the response id.
    """
    call = {**LLM, **COUNTED, "llm.response.id": "chatcmpl-A1B2C3D4E5F6G7H8I9", "llm.cost.total": 0.0}
    record = only(traces(span(1, call), scope="litellm"))
    assert record.source == "litellm"
    assert record.request_id == "chatcmpl-A1B2C3D4E5F6G7H8I9"
    assert record.input_tokens == 1200
    assert record.output_tokens == 80
    assert record.cost is None
    assert (
        "openinference" == only(traces(span(1, call), scope="openinference.instrumentation.litellm")).source
    )


def test_a_response_id_of_openinference_joins_reports() -> None:
    """A span of the conventions with the same response id as an OpenInference span is the same call."""
    ours = only(traces(span(1, {**LLM, "llm.response.id": "chatcmpl-A1B2C3D4E5F6G7H8I9"})))
    theirs = only(traces(span(2, {**CHAT, "gen_ai.response.id": "chatcmpl-A1B2C3D4E5F6G7H8I9"})))
    assert ours.id == theirs.id


def test_requested_model_of_openinference_has_priority() -> None:
    """
    If OpenInference states two names of the model, the requested one has priority, because the older name may
    be the model that answered.
    """
    call = {
        **LLM,
        **COUNTED,
        "llm.request.model_name": "gpt-4o-mini",
        "llm.response.model_name": "gpt-4o-mini-1",
    }
    record = only(traces(span(1, call)))
    assert record.request_model == "gpt-4o-mini"
    assert record.response_model == "gpt-4o-mini-1"


def test_no_price_is_no_cost_of_openlits() -> None:
    """
    OpenLIT writes a cost of 0 if it has no price, so 0 is unknown. A failed call or a call without tokens
    really costs nothing.
    """
    free = {**CHAT, "gen_ai.usage.cost": 0.0}
    assert None is only(traces(span(1, {**free, **USAGE}), scope="openlit")).cost
    assert "0" == only(traces(span(1, {**free, **USAGE}, status={"code": 2}), scope="openlit")).cost
    assert "0" == only(traces(span(1, {**free, **USAGE}))).cost
    assert "0" == only(traces(span(1, free), scope="openlit")).cost
