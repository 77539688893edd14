"""
Spans of frameworks around calls, such as agents, tools and templates, whose names resemble those of calls.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import NOT_AI, UNRECOGNISED_AI
from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import ENCODINGS, normalised, only, records, said, span, traces

USAGE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20}
FAILED = {"code": 2}


def test_langsmiths_templates_and_retrievers_are_no_calls() -> None:
    """
    LangSmith's exporter names a prompt template `chat` and a retriever `embeddings`. They are no calls, as
    their kind of run shows.
    """
    outcome = normalised(
        traces(
            span(
                1,
                {
                    "langsmith.span.kind": "prompt",
                    "gen_ai.operation.name": "chat",
                    "gen_ai.system": "langchain",
                },
            ),
            span(2, {"langsmith.span.kind": "retriever", "gen_ai.operation.name": "embeddings"}),
            span(3, {"langsmith.span.kind": "embedding", "gen_ai.operation.name": "embeddings", **USAGE}),
            span(4, {"langsmith.span.kind": "llm", "gen_ai.operation.name": "chat", **USAGE}),
        )
    )
    assert ["embeddings", "chat"] == [record.operation for record in outcome.records]  # type: ignore[union-attr]
    assert {NOT_AI: 2} == dict(outcome.ignored)


def test_openllmetrys_unknown_request_type_says_nothing() -> None:
    """
    OpenLLMetry's Mistral instrumentation writes the request type "unknown" for asynchronous calls. A span
    with usage is a call, and a span without usage is not.
    """
    call = {"llm.request.type": "unknown", "gen_ai.system": "MistralAI", "gen_ai.usage.prompt_tokens": 7}
    record = only(
        traces(span(1, call), span(2, {"llm.request.type": "unknown", "gen_ai.system": "MistralAI"}))
    )
    assert record.source == "openllmetry"
    assert record.operation == "chat"
    assert record.provider == "mistral_ai"
    assert record.input_tokens == 7


@pytest.mark.parametrize(
    "kind", [{"traceloop.span.kind": "agent"}, {"traceloop.span.kind": "tool"}, {"gen_ai.span.kind": "AGENT"}]
)
def test_an_agent_that_names_no_operation_is_no_call(kind: dict[str, str]) -> None:
    """
    An agent span is not a call, whether it failed or repeats the sums of its calls. The calls below it count.
    """
    call = {"llm.request.type": "chat", "gen_ai.request.model": "m", **USAGE}
    agent = {**kind, "gen_ai.request.model": "m", **USAGE}
    payload = traces(span(1, call), span(2, agent, parent=1, status=FAILED), span(3, call, parent=2))
    assert ["ok", "ok"] == [record.status for record in records(payload)]


@pytest.mark.parametrize("operation", [{}, {"gen_ai.operation.name": "chat"}])
def test_call_that_names_a_requested_tool_stays_a_call(operation: dict[str, str]) -> None:
    """
    The span of a call may name the tool that the model asks for, as OpenLIT's spans do. It is a call, not a tool
    between two calls.
    """
    call = {**operation, "gen_ai.request.model": "m", **USAGE, "gen_ai.tool.name": "search"}
    outcome = normalised(traces(span(1, {**call, "gen_ai.usage.cost": 0.1}), span(2, call, parent=1)))
    assert ["0.1"] == [record.cost for record in outcome.records]  # type: ignore[union-attr]


def test_the_first_google_adk_nests_an_agent_under_a_call() -> None:
    """
    In the first Google ADK, the span of an agent is below a call, because that call handed control to the
    agent. The agent's span has a name and no attributes.
    """
    call = {"gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": "gemini-2.5-pro", **USAGE}
    payload = traces(
        span(1, call, name="call_llm"),
        span(2, {}, name="agent_run [booker]", parent=1),
        span(3, call, name="call_llm", parent=2),
        scope="gcp.vertex.agent",
    )
    assert [100, 100] == [record.input_tokens for record in records(payload)]


def test_spring_ais_tools_part_calls() -> None:
    """A tool that queries a model makes a call of its own."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.usage.input_tokens": "100"}
    tool = {"spring.ai.kind": "tool_call", "gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}
    assert 2 == len(records(traces(span(1, call), span(2, tool, parent=1), span(3, call, parent=2))))


def test_a_span_of_logfire_that_has_only_begun_is_no_call() -> None:
    """Logfire sends a pending span in a separate request before the call has ended. It is not a call."""
    pending = {
        "logfire.span_type": "pending_span",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
    }
    outcome = normalised(traces(span(2, pending, parent=1), scope="pydantic-ai"))
    assert outcome.records == []
    assert dict(outcome.ignored) == {NOT_AI: 1}


def logfire(kind: str, response: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    """Create the attributes of Logfire's OpenAI instrumentation, with prompts and answers."""
    prompt = [{"role": "user", "content": "CANARY"}]
    return {
        "logfire.span_type": kind,
        "gen_ai.provider.name": "openai",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "request_data": json.dumps({"messages": prompt, "model": "gpt-4o", **request}),
        **(
            {}
            if response is None
            else {"response_data": json.dumps({"message": {"content": "CANARY"}, **response})}
        ),
    }


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_stream_of_logfires_is_one_call(encoding: str) -> None:
    """
    Logfire reports a streamed call by a span at the start and a log at the end. Only the log has the usage,
    inside its answer. Both are one call.
    """
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 30,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    payload = traces(
        span(1, logfire("span", stream=True)),
        span(2, logfire("log", {"usage": usage}, stream=True)),
        scope="logfire",
    )
    record = only(payload, encoding=encoding)
    assert {
        "source": "pydantic_ai",
        "provider": "openai",
        "operation": "chat",
        "request_model": "gpt-4o",
        "input_tokens": 90,
        "output_tokens": 30,
        "cache_read_tokens": 64,
        "reasoning_tokens": 12,
        "status": "ok",
    } == said(record)


@pytest.mark.parametrize("named", [{}, {"gen_ai.operation.name": "chat"}])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_stream_of_logfire_5_is_one_call(encoding: str, named: dict[str, str]) -> None:
    """
    Logfire 5 reports a streamed call by two spans, which are one call. The span of the request does not say
    that it starts a stream. The report of the stream has the usage as an object.
    """
    usage = json.dumps({"input_tokens": 120, "output_tokens": 20, "cache_read_input_tokens": 1000})
    request = {
        name: value for name, value in logfire("span").items() if name != "gen_ai.operation.name"
    } | named
    report = request | {
        "logfire.span_type": "log",
        "usage": usage,
        "gen_ai.request.model": "claude-sonnet-4-5",
    }
    payload = traces(span(1, request), span(2, report, name="streaming response"), scope="logfire.anthropic")
    record = only(payload, encoding=encoding)
    assert record.source == "pydantic_ai"
    assert record.input_tokens == 1120
    assert record.output_tokens == 20
    assert record.cache_read_tokens == 1000


SDK_CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-sonnet-4-5"}
COUNTED = {"gen_ai.usage.input_tokens": 1120, "gen_ai.usage.output_tokens": 20}
IDENTIFIED = {"gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQrStUv"}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sdk", [{}, IDENTIFIED, COUNTED, {**COUNTED, **IDENTIFIED}])
@pytest.mark.parametrize("parent", [None, 90])
def test_the_sdks_span_below_a_stream_of_logfire_5_repeats_it(
    parent: int | None, sdk: dict[str, Any], turned: bool
) -> None:
    """
    The SDK's span is below the request's span, and the stream's report is next to it. The SDK's span repeats
    the call. Two streams are two calls.
    """
    usage = json.dumps({"input_tokens": 120, "output_tokens": 20, "cache_read_input_tokens": 1000})
    request = {**logfire("span"), "gen_ai.request.model": "claude-sonnet-4-5"}
    report = {**request, "logfire.span_type": "log", "usage": usage}
    spans: list[dict[str, Any]] = []
    for number, start in enumerate((NOW, NOW + 9 * SECOND)):
        ours, name = 10 * number, "streaming response"
        own: dict[str, Any] = {**SDK_CALL, **sdk}
        if "gen_ai.response.id" in own:
            own["gen_ai.response.id"] += str(number)
        spans.append(span(ours + 1, request, parent=parent, start=start))
        spans.append(span(ours + 2, own, parent=ours + 1, start=start + 1))
        spans.append(span(ours + 3, report, parent=parent, start=start + SECOND, name=name))
    found = records(traces(*(reversed(spans) if turned else spans), scope="logfire.anthropic"))
    assert [(1120, 20, 1000)] * 2 == [(r.input_tokens, r.output_tokens, r.cache_read_tokens) for r in found]


@pytest.mark.parametrize("turned", [False, True])
def test_without_a_parent_the_report_of_a_stream_is_a_trace_of_its_own(turned: bool) -> None:
    """
    Without a parent, the report of a stream is in a separate trace. Of three parallel streams, two have equal
    counts. Each report repeats one of the SDK's spans.
    """
    spans: list[dict[str, Any]] = []
    for number, output in enumerate((20, 20, 30)):
        counted = COUNTED | {"gen_ai.usage.output_tokens": output}
        usage = json.dumps({"input_tokens": 120, "output_tokens": output, "cache_read_input_tokens": 1000})
        request = {**logfire("span"), "gen_ai.request.model": "claude-sonnet-4-5"}
        report = {**request, "logfire.span_type": "log", "usage": usage}
        own = {**SDK_CALL, **counted, "gen_ai.response.id": f"msg_01AbCdEfGhIjKlMnOpQr{number}"}
        ours, trace, another = 10 * number, f"{2 * number + 1:032x}", f"{2 * number + 2:032x}"
        spans.append(span(ours + 1, request, start=NOW, traceId=trace))
        spans.append(span(ours + 2, own, parent=ours + 1, start=NOW + 1, traceId=trace))
        spans.append(span(ours + 3, report, start=NOW + SECOND, name="streaming response", traceId=another))
    found = records(traces(*(reversed(spans) if turned else spans), scope="logfire.anthropic"))
    assert [20, 20, 30] == sorted(record.output_tokens or 0 for record in found)
    assert {1000} == {record.cache_read_tokens for record in found}
    assert 3 == len({record.request_id for record in found})


def test_the_sdks_span_below_a_stream_without_a_report_stays() -> None:
    """An abandoned stream has no report, so the SDK's span is the only record of the call."""
    spans = [span(1, logfire("span")), span(2, {**SDK_CALL, **COUNTED}, parent=1)]
    assert [1120] == [record.input_tokens for record in records(traces(*spans, scope="logfire.anthropic"))]


@pytest.mark.parametrize(
    "answer",
    [{"response_data": '{"usage": {"prompt_tokens": 7}}'}, {"gen_ai.response.id": "chatcmpl-1"}, USAGE],
)
def test_a_request_of_logfire_5_with_an_answer_is_a_call(answer: dict[str, Any]) -> None:
    """A request span of Logfire 5 that has an answer is a call, because it was not streamed."""
    assert 1 == len(records(traces(span(1, {**logfire("span"), **answer}), scope="logfire.openai")))


def test_a_stream_of_logfires_that_never_began_is_a_failed_call() -> None:
    """A stream of Logfire that never began has no log, so its span is a failed call."""
    payload = traces(span(1, logfire("span", stream=True), status=FAILED), scope="logfire")
    assert ["error"] == [record.status for record in records(payload)]


@pytest.mark.parametrize(
    "response", [None, {}, {"usage": None}, {"usage": {"total_tokens": 3}}, {"usage": [1]}]
)
def test_a_call_of_logfires_without_a_stream_needs_no_answer(response: dict[str, Any] | None) -> None:
    """A Logfire call without a stream needs no answer, because the attributes of its span have the counts."""
    call = {**logfire("span", response), **USAGE}
    record = only(traces(span(1, call), scope="logfire"))
    assert record.input_tokens == 100
    assert record.output_tokens == 20
    assert record.cache_read_tokens is None


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("anthropic/claude-sonnet-4", 1000),
        ("claude-sonnet-4", 1600),
        ("us.anthropic.claude-sonnet-4-v1:0", 1600),
    ],
)
def test_strands_over_litellm_counts_as_openai_does(model: str, expected: int) -> None:
    """
    Strands over LiteLLM counts as OpenAI does: its input includes cached tokens, even for Anthropic. Its
    model names start with a vendor.
    """
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "strands-agents",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.cache_read_input_tokens": 600,
    }
    assert expected == only(traces(span(1, call), scope="strands.telemetry.tracer")).input_tokens


@pytest.mark.parametrize("provider", ["gen_ai.system", "gen_ai.provider.name"])
@pytest.mark.parametrize("scope", ["clients", "other"])
def test_strands_for_typescript_is_recognized_by_its_scope(provider: str, scope: str) -> None:
    """
    Spans of Strands for TypeScript are recognized by their scope, which has the name of the service. So has the
    provider, even if the resource has another name or none. The input of these spans leaves the cache out.
    """
    call = {
        "gen_ai.operation.name": "chat",
        provider: "clients",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.event.start_time": "2026-11-27T07:16:06.281Z",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.total_tokens": 1050,
        "gen_ai.usage.cache_read.input_tokens": 600,
        "gen_ai.usage.cache_read_input_tokens": 600,
    }
    resource = {"service.name": "unknown_service:node", "telemetry.sdk.language": "nodejs"}
    record = only(traces(span(1, call), scope=scope, resource=resource))
    expected = ("strands", "anthropic", 1600) if scope == "clients" else ("otel", "clients", 1000)
    assert expected == (record.source, record.provider, record.input_tokens)


def test_strands_puts_the_cache_into_the_input_since_1_54() -> None:
    """
    Since version 1.54, the input of Strands includes the cache. Strands then also writes the names of the
    conventions, for every provider.
    """
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "strands-agents",
        "gen_ai.request.model": "us.anthropic.claude-sonnet-4-20250514-v1:0",
        "gen_ai.usage.prompt_tokens": 1000,
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.total_tokens": 1050,
    }
    read = {"gen_ai.usage.cache_read.input_tokens": 600, "gen_ai.usage.cache_read_input_tokens": 600}
    written = {"gen_ai.usage.cache_creation.input_tokens": 200}
    for cache in (read, written, {**read, **written}):
        assert 1000 == only(traces(span(1, {**call, **cache}), scope="strands.telemetry.tracer")).input_tokens


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gen_ai.usage.input_tokens_details.cached_tokens", "cache_read_tokens"),
        ("gen_ai.usage.cache_read_tokens", "cache_read_tokens"),
        ("gen_ai.usage.cache_write_tokens", "cache_write_tokens"),
        ("gen_ai.usage.cache_creation_tokens", "cache_write_tokens"),
        ("gen_ai.usage.prompt_tokens_details.cache_creation_tokens", "cache_write_tokens"),
        ("gen_ai.usage.output_tokens_details.reasoning_tokens", "reasoning_tokens"),
        ("gen_ai.usage.details.cached_tokens", "cache_read_tokens"),
        ("gen_ai.usage.details.cached_content_tokens", "cache_read_tokens"),
        ("gen_ai.usage.details.thoughts_tokens", "reasoning_tokens"),
    ],
)
def test_parts_of_the_tokens_under_names_that_applications_choose(name: str, field: str) -> None:
    """
    Parts of token counts are read under further names: OpenAI's and Google's own names with a prefix, and
    short names of plug-ins and hand-written spans.
    """
    record = only(traces(span(1, {"gen_ai.operation.name": "chat", **USAGE, name: 8})))
    assert record.input_tokens == 100
    assert record.output_tokens == 20
    assert getattr(record, field) == 8


@pytest.mark.parametrize(
    ("scope", "counted", "expected"),
    [
        ("strands.telemetry.tracer", USAGE, UNRECOGNISED_AI),
        ("openlit", {"gen_ai.usage.cost": 0.04}, UNRECOGNISED_AI),
        ("strands.telemetry.tracer", {"gen_ai.request.model": "m"}, NOT_AI),
        ("codex_otel", USAGE, NOT_AI),
    ],
)
def test_what_counts_under_an_unknown_operation_is_shown_whoever_sends(
    scope: str, counted: dict[str, Any], expected: str
) -> None:
    """
    A span with counts under an unknown operation is shown as unrecognized for any sender, because a known
    dialect may add operations. Spans that repeat logs are still ignored.
    """
    outcome = normalised(traces(span(1, {"gen_ai.operation.name": "image", **counted}), scope=scope))
    assert {expected: 1} == dict(outcome.ignored)


def test_pydantic_ai_over_gemini_leaves_the_thoughts_out() -> None:
    """
    Pydantic AI's output over Gemini excludes thinking tokens. This is visible if there are more thinking
    tokens than output tokens, and its own price confirms it.
    """
    call = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.system": "google-gla",
        "gen_ai.request.model": "gemini-2.5-flash",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 13,
        "gen_ai.usage.details.thoughts_tokens": 58,
        "operation.cost": 0.0001781,
    }
    record = only(traces(span(1, call), scope="pydantic-ai"))
    assert record.input_tokens == 2
    assert record.output_tokens == 71
    assert record.reasoning_tokens == 58
    assert record.cost == "0.0001781"


def test_semantic_kernels_first_names() -> None:
    """Releases of Semantic Kernel from 2024 have separate names for the operation and the tokens."""
    call = {
        "gen_ai.operation.name": "chat.completions",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.prompt_tokens": 16,
        "gen_ai.response.completion_tokens": 29,
    }
    record = only(traces(span(1, call), scope="Microsoft.SemanticKernel.Diagnostics"))
    assert record.operation == "chat"
    assert record.input_tokens == 16
    assert record.output_tokens == 29
