"""Google's Agent Development Kit for JavaScript and Java: failures, and counts in the model's response."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, span, traces
from tests.gateway.normalise.outcomes import inferences

SCOPE = "gcp.vertex.agent"
USAGE = {
    "promptTokenCount": 300,
    "candidatesTokenCount": 40,
    "thoughtsTokenCount": 210,
    "totalTokenCount": 550,
}


def answered(response: dict[str, Any], **counts: int) -> dict[str, Any]:
    attributes = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gcp.vertex.agent.llm_response": json.dumps(response),
        **{f"gen_ai.usage.{name}_tokens": count for name, count in counts.items()},
    }
    return span(1, attributes, name="call_llm")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("resource", "code", "failures"),
    [
        ({}, 0, 1),
        ({"telemetry.sdk.language": "nodejs"}, 0, 1),
        ({"telemetry.sdk.language": "java"}, 0, 0),
        ({"telemetry.sdk.language": "java"}, 2, 1),
        ({"telemetry.sdk.language": "python"}, 0, 0),
        ({"telemetry.sdk.language": "python"}, 2, 0),
    ],
)
def test_a_span_without_attributes_is_a_failed_call(
    resource: dict[str, Any], code: int, failures: int, encoding: str
) -> None:
    """
    The ADK kits for JavaScript and Java write a span without attributes if a call raised an error. The kit for Java
    also states the error. In the kit for Python, another span is the call. A collector may add attributes of its
    own.
    """
    failed = span(1, {"shop.region": "west"}, name="call_llm", status={"code": code})
    spans = (failed, span(2, {}, name="invocation"))
    records = inferences(normalised(traces(*spans, scope=SCOPE, resource=resource), encoding=encoding))
    assert [("error", "_OTHER")] * failures == [(one.status, one.error_type) for one in records]


@pytest.mark.parametrize("spelling", ["errorCode", "error_code"])
@pytest.mark.parametrize(
    ("code", "status"), [("SAFETY", "error"), ("STOP", "ok"), ("MAX_TOKENS", "ok"), ("", "ok")]
)
def test_an_error_code_is_a_failure(spelling: str, code: str, status: str) -> None:
    """
    If an answer has no content, the ADK kit states the reason why the answer ended as an error code, even if it is
    a good reason such as STOP.
    """
    record = only(traces(answered({spelling: code, "usageMetadata": USAGE}, input=300), scope=SCOPE))
    assert (record.status, record.error_type) == (status, code if status == "error" else None)
    assert record.output_tokens == 250


def test_a_sentence_is_no_error_type() -> None:
    """Error types are names or codes, because a text may be content."""
    record = only(traces(answered({"errorCode": "What is the toll?"}, input=300), scope=SCOPE))
    assert record.error_type == "_OTHER"


def test_results_of_tools_are_input() -> None:
    """
    Results of tools count as input: the attribute of the span has only the tokens of the prompt, and the response
    has those of built-in tools as well.
    """
    usage = {**USAGE, "toolUsePromptTokenCount": 60, "totalTokenCount": 610}
    record = only(traces(answered({"usageMetadata": usage}, input=300, output=40), scope=SCOPE))
    assert (record.input_tokens, record.output_tokens, record.reasoning_tokens) == (360, 250, 210)


def test_without_the_response_the_attributes_count() -> None:
    """
    With `ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=false`, the response in the span is empty, so the counts of the
    attributes are used.
    """
    record = only(traces(answered({}, input=300, output=40), scope=SCOPE))
    assert (record.input_tokens, record.output_tokens) == (300, 40)


def test_the_kit_for_java_names_the_operation_after_the_span() -> None:
    """
    The kit for Java names the operation `call_llm`, like the span. This name is known, so the call is not shown as
    unrecognized.
    """
    attributes = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.operation.name": "call_llm",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 250,
        "gen_ai.usage.reasoning.output_tokens": 210,
    }
    record = only(traces(span(1, attributes, name="call_llm"), scope=SCOPE))
    assert (record.operation, record.input_tokens, record.output_tokens) == ("generate_content", 300, 250)
