"""Span dialects that the example cases do not cover: each product's attributes and the expected record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.otlp.model import DETAILS, OF_CALL
from gateway.normalise.outcome import GUARD, NOT_AI, UNRECOGNISED_AI
from spool.identity import call_identity
from spool.record import Inference
from tests.gateway.normalise.formats.payloads import read
from tests.gateway.normalise.otlp.items import NOW, SECOND, log, read_logs
from tests.gateway.normalise.otlp.payloads import (
    ENCODINGS,
    attribute,
    normalised,
    only,
    records,
    said,
    span,
    traces,
)
from tests.gateway.normalise.outcomes import inferences

OPENAI = {"provider": "openai", "request_model": "gpt-4o", "operation": "chat", "status": "ok"}
OCR = {"gen_ai.operation.name": "ocr", "gen_ai.request.model": "m"}
USAGE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_langsmith_writes_details_as_the_text_of_a_dict(encoding: str) -> None:
    """
    LangSmith writes cached and reasoning tokens inside the text of a Python dict. Thread and tags
    have LangSmith's names.
    """
    payload = traces(
        span(
            1,
            {
                "langsmith.span.kind": "llm",
                "gen_ai.operation.name": "chat",
                "gen_ai.system": "anthropic",
                "gen_ai.request.model": "claude-sonnet-4-5",
                "gen_ai.usage.input_tokens": 3000,
                "gen_ai.usage.output_tokens": 400,
                "gen_ai.usage.total_tokens": 3400,
                "gen_ai.usage.input_token_details": "{'cache_read': 2048, 'cache_creation': 512, 'audio': None}",
                "gen_ai.usage.output_token_details": "{'reasoning': 128}",
                "langsmith.metadata.thread_id": "thread-1",
                "langsmith.metadata.tier": "gold",
                "langsmith.span.tags": "beta,eu",
            },
            parent=2,
        ),
        span(
            2,
            {
                "langsmith.span.kind": "chain",
                "gen_ai.operation.name": "chain",
                "gen_ai.usage.input_tokens": 3000,
            },
        ),
        scope="langsmith",
        resource={"service.name": "bot"},
    )
    assert {
        "source": "langsmith",
        "provider": "anthropic",
        "operation": "chat",
        "request_model": "claude-sonnet-4-5",
        "input_tokens": 3000,
        "output_tokens": 400,
        "cache_read_tokens": 2048,
        "cache_write_tokens": 512,
        "reasoning_tokens": 128,
        "status": "ok",
        "session": "thread-1",
        "tags": {"service": "bot", "tier": "gold", "tags": "beta,eu"},
    } == said(only(payload, encoding=encoding))


def test_mlflow_quotes_its_texts() -> None:
    """MLflow writes type, model and provider as JSON strings, and usage and cost as JSON objects."""
    call = {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.llm.model": '"gpt-4o"',
        "mlflow.llm.provider": '"openai"',
        "mlflow.chat.tokenUsage": json.dumps(
            {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57, "cache_read_input_tokens": 32}
        ),
        "mlflow.llm.cost": json.dumps({"input_cost": 0.1, "output_cost": 0.2, "total_cost": 0.3}),
        "mlflow.spanInputs": '{"messages": []}',
    }
    payload = traces(
        span(1, call, parent=2),
        span(2, {"mlflow.spanType": '"AGENT"', "mlflow.trace.tokenUsage": '{"input_tokens": 50}'}),
    )
    assert {
        "source": "mlflow",
        **OPENAI,
        "input_tokens": 50,
        "output_tokens": 7,
        "cache_read_tokens": 32,
        "cost": "0.3",
        "run": "0000000000000002",
    } == said(only(payload))


@pytest.mark.parametrize(
    ("provider", "expected"), [("anthropic", 1100), ("aws.bedrock", 1100), ("openai", 1000)]
)
def test_openlit_counts_as_the_provider_does(provider: str, expected: int) -> None:
    """
    OpenLIT passes on the provider's count: only for Anthropic and Bedrock, the input excludes cached tokens.
    """
    payload = traces(
        span(
            1,
            {
                "telemetry.sdk.name": "openlit",
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": "m",
                "gen_ai.usage.input_tokens": 1000,
                "gen_ai.usage.output_tokens": 5,
                "gen_ai.usage.cache_read.input_tokens": 100,
                "gen_ai.client.token.usage": 1005,
                "gen_ai.usage.cost": 0.0021,
            },
        ),
        resource={
            "service.name": "default",
            "telemetry.sdk.name": "openlit",
            "deployment.environment": "prod",
        },
    )
    assert {
        "source": "openlit",
        "input_tokens": expected,
        "cost": "0.0021",
        "tags": {"service": "default", "environment": "prod"},
    } == said(only(payload), "source", "input_tokens", "cost", "tags")


def test_cloudflares_spans_are_calls_without_tokens_too() -> None:
    """
    Cloudflare's spans are calls even without tokens: an image has only a cost. A tool operation is not a call.
    """
    image = {
        "gen_ai.model.provider": "workers-ai",
        "gen_ai.request.model": "@cf/flux",
        "gen_ai.usage.cost": 0.004,
    }
    record = only(traces(span(1, image)))
    assert record.source == "cloudflare"
    assert record.operation == "chat"
    assert record.input_tokens is None
    assert record.cost == "0.004"
    assert [] == records(traces(span(1, image | {"gen_ai.operation.name": "execute_tool"})))


def test_vllm_names_no_provider() -> None:
    """vLLM's span names no provider. It has the response model and a request id, which callers may choose."""
    record = only(
        traces(
            span(
                1,
                {
                    "gen_ai.request.id": "chatcmpl-7f00000000000000000000aa",
                    "gen_ai.response.model": "meta-llama/Llama-3.1-8B-Instruct",
                    "gen_ai.usage.prompt_tokens": 31,
                    "gen_ai.usage.completion_tokens": 9,
                    "gen_ai.usage.cached_tokens": 16,
                    "gen_ai.latency.e2e": 0.4,
                },
                name="llm_request",
            ),
            scope="vllm.llm_engine",
        )
    )
    assert {
        "source": "vllm",
        "provider": "vllm",
        "operation": "chat",
        "request_id": "chatcmpl-7f00000000000000000000aa",
        "response_model": "meta-llama/Llama-3.1-8B-Instruct",
        "input_tokens": 31,
        "output_tokens": 9,
        "cache_read_tokens": 16,
        "status": "ok",
    } == said(record)


def test_bifrost_writes_one_span_for_each_attempt() -> None:
    """
    Bifrost writes a span for each attempt, with old names and no operation. A failed attempt and its fallback
    are two calls, and plug-in spans are no calls.
    """
    base = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.virtual_key_name": "ci",
    }
    failed = {**base, "gen_ai.error.type": "rate_limit_error"}
    good = {
        **base,
        "gen_ai.usage.prompt_tokens": 90,
        "gen_ai.usage.completion_tokens": 30,
        "gen_ai.usage.prompt_token_details.cached_read_tokens": 64,
        "gen_ai.usage.completion_token_details.reasoning_tokens": 12,
        "gen_ai.usage.cost": 0.001,
        "gen_ai.team_id": "search",
    }
    found = records(
        traces(
            span(1, failed, parent=4, name="llm.call"),
            span(2, good, parent=4, name="llm.call"),
            span(3, {"plugin.name": "governance"}, parent=4, name="plugin.governance"),
            span(4, {"http.route": "/v1/chat/completions"}, name="POST"),
            resource={"telemetry.sdk.name": "bifrost"},
        )
    )
    assert [("error", "rate_limit_error", None, "bifrost"), ("ok", None, 90, "bifrost")] == [
        (record.status, record.error_type, record.input_tokens, record.source) for record in found
    ]
    assert {
        "cache_read_tokens": 64,
        "reasoning_tokens": 12,
        "cost": "0.001",
        "team": "search",
        "api_key": "ci",
    } == said(found[1], "cache_read_tokens", "reasoning_tokens", "cost", "team", "api_key")


def test_kong_knows_the_consumer_on_the_request_span() -> None:
    """Kong's consumer is read from the HTTP span above the call's span."""
    record = only(
        traces(
            span(1, {"kong.auth.consumer.name": "alice", "http.route": "/chat"}, name="kong"),
            span(
                2,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "azure",
                    "gen_ai.request.model": "gpt-4o",
                    **USAGE,
                    "gen_ai.usage.cost": 0.0,
                },
                parent=1,
                name="kong.gen_ai",
            ),
            scope="kong-internal",
        )
    )
    assert {"source": "kong", "provider": "azure.ai.openai", "user": "alice", "cost": None} == said(
        record, "source", "provider", "user", "cost"
    )


@pytest.mark.parametrize(("said_input", "expected"), [(40, 1940), (1940, 1940)])
def test_agentgateway_before_and_after_its_change(said_input: int, expected: int) -> None:
    """
    Releases of agentgateway differ in whether the input includes the cache. If the input is below the cache,
    the release is an old one.
    """
    record = only(
        traces(
            span(
                1,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "anthropic",
                    "gen_ai.request.model": "claude-haiku-4-5",
                    "gen_ai.usage.input_tokens": said_input,
                    "gen_ai.usage.output_tokens": 60,
                    "gen_ai.usage.cache_read.input_tokens": 1500,
                    "gen_ai.usage.cache_creation.input_tokens": 400,
                    "agw.ai.usage.cost.total": "0.00420",
                    "jwt.sub": "svc-7",
                },
            )
        )
    )
    assert {"source": "agentgateway", "input_tokens": expected, "cost": "0.0042", "user": "svc-7"} == said(
        record, "source", "input_tokens", "cost", "user"
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_azure_agents_give_one_record_for_each_run(encoding: str) -> None:
    """
    An Azure agent's run is one record, although every poll of the run repeats its usage. The poll that ends last is
    kept, under the run's id.
    """
    run = {
        "az.namespace": "Microsoft.CognitiveServices",
        "gen_ai.system": "az.ai.agents",
        "gen_ai.thread.id": "thread_1",
        "gen_ai.response.model": "gpt-4o",
        "gen_ai.response.id": "msg-7",
    }
    usage = {"gen_ai.usage.input_tokens": 210, "gen_ai.usage.output_tokens": 33}
    outcome = normalised(
        traces(
            span(1, {**run, "gen_ai.operation.name": "create_thread"}),
            span(2, {**run, "gen_ai.thread.run.id": "run_abc", "gen_ai.operation.name": "start_thread_run"}),
            span(
                3,
                {**run, **usage, "gen_ai.thread.run.id": "run_abc"},
                name="get_thread_run",
                end=NOW + 9 * SECOND,
            ),
            span(
                4,
                {**run, **usage, "gen_ai.thread.run.id": "run_abc"},
                name="get_thread_run",
                end=NOW + 5 * SECOND,
            ),
            span(5, {**run, **usage, "gen_ai.thread.run.id": "run_def"}, name="process_thread_run"),
        ),
        encoding=encoding,
    )
    assert [("run_abc", f"{3:016x}"), ("run_def", f"{5:016x}")] == [
        (record.request_id, record.span_id) for record in inferences(outcome)
    ]
    assert {
        "source": "azure_ai",
        "operation": "invoke_agent",
        "provider": "azure.ai.openai",
        "session": "thread_1",
        "response_model": "gpt-4o",
        "input_tokens": 210,
    } == said(
        outcome.records[0],  # type: ignore[arg-type]
        "source", "operation", "provider", "session", "response_model", "input_tokens",
    )  # fmt: skip
    assert {"merged": 1, "not_ai": 2} == dict(outcome.ignored)


def vercel(**attributes: Any) -> dict[str, Any]:
    return {
        "ai.operationId": "ai.streamText.doStream",
        "ai.model.provider": "anthropic.messages",
        "ai.model.id": "claude-sonnet-4-5",
        "ai.usage.outputTokens": 40,
    } | {name.replace("__", "."): value for name, value in attributes.items()}


def test_vercel_6_says_what_is_cached() -> None:
    """
    If Vercel's AI SDK 6 writes `inputTokenDetails`, the input includes cached tokens, even for Anthropic.
    """
    record = only(
        traces(
            span(
                1,
                vercel(
                    ai__usage__inputTokens=5000,
                    ai__usage__inputTokenDetails__noCacheTokens=1000,
                    ai__usage__inputTokenDetails__cacheReadTokens=3000,
                    ai__usage__inputTokenDetails__cacheWriteTokens=1000,
                    ai__usage__outputTokenDetails__reasoningTokens=16,
                ),
            ),
            scope="ai",
        )
    )
    assert record.input_tokens == 5000
    assert record.cache_read_tokens == 3000
    assert record.cache_write_tokens == 1000
    assert record.reasoning_tokens == 16


def test_vercel_5_generate_text_hides_the_cache_in_provider_metadata() -> None:
    """
    In version 5 of Vercel's AI SDK, `generateText` reports cached tokens only inside Anthropic's usage object.
    """
    metadata = {
        "anthropic": {
            "usage": {"input_tokens": 7, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50},
            "cacheCreationInputTokens": 50,
        }
    }
    attributes = vercel(
        ai__usage__promptTokens=7,
        ai__usage__completionTokens=40,
        ai__response__providerMetadata=json.dumps(metadata),
    )
    attributes["ai.operationId"] = "ai.generateText.doGenerate"
    record = only(traces(span(1, attributes), scope="ai"))
    assert record.input_tokens == 957
    assert record.cache_read_tokens == 900
    assert record.cache_write_tokens == 50


@pytest.mark.parametrize(
    ("provider", "metadata", "expected"),
    [
        (
            "anthropic",
            {"anthropic": {"cacheReadInputTokens": 900, "cacheCreationInputTokens": 50}},
            (957, 900, 50, None),
        ),
        ("amazon-bedrock", {"bedrock": {"usage": {"cacheWriteInputTokens": 50}}}, (57, None, 50, None)),
        ("vertex.anthropic.messages", {"anthropic": {"cacheCreationInputTokens": 5}}, (12, None, 5, None)),
        ("openai.chat", {"openai": {"cachedPromptTokens": 4, "reasoningTokens": 30}}, (7, 4, None, 30)),
        (
            "deepseek.chat",
            {"deepseek": {"promptCacheHitTokens": 0, "promptCacheMissTokens": 7}},
            (7, 0, None, None),
        ),
        ("openai.chat", {"openai": {"cachedPromptTokens": None}}, (7, None, None, None)),
    ],
)
def test_vercel_4_and_5_know_more_in_provider_metadata(
    provider: str, metadata: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    """
    In versions 4 and 5, values that the usage object lacks are in the provider metadata. Each provider has
    its own names there.
    """
    attributes = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.provider": provider,
        "ai.model.id": "m",
        "ai.usage.promptTokens": 7,
        "ai.usage.completionTokens": 40,
        "ai.response.providerMetadata": json.dumps(metadata),
    }
    record = only(traces(span(1, attributes), scope="ai"))
    assert expected == (
        record.input_tokens, record.cache_read_tokens, record.cache_write_tokens, record.reasoning_tokens,
    )  # fmt: skip


def test_vercel_7_speaks_the_conventions() -> None:
    """
    Version 7 uses the names of the conventions under the scope gen_ai. Only its chat spans count, not the
    steps and the agent around them.
    """
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic.messages",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 80,
        "gen_ai.usage.output_tokens": 9,
    }
    agent = {**chat, "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    record = only(
        traces(
            span(1, agent),
            span(2, {**chat, "gen_ai.operation.name": "agent_step"}, parent=1),
            span(3, chat, parent=2),
            scope="gen_ai",
        )
    )
    assert record.source == "vercel_ai"
    assert record.provider == "anthropic"
    assert record.input_tokens == 100
    assert record.tags == {"agent": "planner"}


def test_opencode_uses_its_own_scope() -> None:
    """
    OpenCode's spans have OpenCode's own scope. The AI SDK's attributes identify the dialect under any scope.
    """
    record = only(traces(span(1, vercel(ai__usage__inputTokens=10)), scope="opencode"))
    assert record.source == "vercel_ai"
    assert record.operation == "chat"
    assert record.input_tokens == 10


def test_vercel_embeddings() -> None:
    """
    Of two nested embedding spans, only the inner doEmbed span counts. The embedMany span around it repeats it.
    """
    inner = {
        "ai.operationId": "ai.embedMany.doEmbed",
        "ai.model.provider": "openai.embedding",
        "ai.model.id": "text-embedding-3-small",
        "ai.usage.tokens": 12,
    }
    outer = {**inner, "ai.operationId": "ai.embedMany"}
    record = only(traces(span(1, outer), span(2, inner, parent=1), scope="ai"))
    assert record.operation == "embeddings"
    assert record.provider == "openai"
    assert record.input_tokens == 12
    assert record.output_tokens is None


def test_langfuse_5_writes_metadata_as_json() -> None:
    """
    Langfuse 5 writes metadata as JSON: quoted strings lose their quotes, and objects are dropped. A failed
    generation costs its reported 0.
    """
    record = only(
        traces(
            span(
                1,
                {
                    "langfuse.observation.type": "generation",
                    "langfuse.observation.model.name": "gpt-4o",
                    "langfuse.observation.cost_details": '{"input": 0.0, "output": 0.0, "total": 0.0}',
                    "langfuse.trace.metadata.tier": '"gold"',
                    "langfuse.trace.metadata.shard": "4",
                    "langfuse.observation.metadata.nested": '{"a": 1}',
                    "langfuse.trace.metadata.user_id": '"u"',
                    "user.id": "u-1",
                    "session.id": "s-1",
                },
                status={"code": 2},
            ),
            scope="langfuse-sdk",
            resource={"service.name": "unknown_service"},
        )
    )
    assert {
        "source": "langfuse",
        **OPENAI,
        "status": "error",
        "error_type": "_OTHER",
        "cost": "0",
        "user": "u-1",
        "session": "s-1",
        "tags": {"tier": "gold", "shard": "4"},
    } == said(record)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"input": 10, "output": 5, "input_cached_tokens": 90, "output_reasoning_tokens": 3},
            (100, 8, 90, None, 3),
        ),
        ({"input": 100, "output": 8, "total": 108, "input_cached_tokens": 90}, (100, 8, 90, None, None)),
        (
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 7,
            },
            (107, 5, 90, 7, None),
        ),
        (
            {"input_tokens": 100, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 90}},
            (100, 8, 90, None, None),
        ),
        ({"input": 12}, (12, None, None, None, None)),
        ({"input": 12, "audio_seconds": 1.5, "images": -1}, (12, None, None, None, None)),
    ],
)
def test_langfuse_buckets(usage: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    """Langfuse's buckets do not overlap, unless the total or OpenAI's form shows that they do."""
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.usage_details": json.dumps(usage),
    }
    record = only(traces(span(1, attributes), scope="langfuse-sdk"))
    assert expected == (
        record.input_tokens, record.output_tokens, record.cache_read_tokens, record.cache_write_tokens,
        record.reasoning_tokens,
    )  # fmt: skip


@pytest.mark.parametrize(("level", "status"), [("ERROR", "error"), ("WARNING", "ok"), ("DEFAULT", "ok")])
def test_langfuses_level_shows_a_failure(level: str, status: str) -> None:
    """Langfuse's level shows a failure, because its JavaScript SDK does not set the status of the span."""
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.level": level,
        "langfuse.observation.model.name": "gpt-4o",
    }
    record = only(traces(span(1, attributes), scope="langfuse-sdk"))
    assert record.status == status
    assert record.error_type == ("_OTHER" if status == "error" else None)


def test_langfuse_cost_is_the_sum_of_its_parts_without_a_total() -> None:
    """Without a total, the cost is the sum of its parts. The sum is decimal: 0.1 and 0.2 are 0.3."""
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.cost_details": '{"input": 0.1, "output": 0.2}',
    }
    assert "0.3" == only(traces(span(1, attributes), scope="langfuse-sdk")).cost


def test_claude_code_spans_count_under_their_own_names() -> None:
    """
    Claude Code's `llm_request` spans are calls, and their input excludes the cache. `result_tokens` of a tool
    span are not usage.
    """
    who = {"session.id": "s", "user.id": "anon-1", "user.account_uuid": "acct-1"}
    call = {
        **who,
        "span.type": "llm_request",
        "gen_ai.system": "anthropic",
        "gen_ai.request.model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "gen_ai.response.id": "req_011CXvnkSzvqhkLuNqTJYFnU",
        "request_id": "req_011CXvnkSzvqhkLuNqTJYFnU",
        "input_tokens": 6,
        "output_tokens": 412,
        "cache_read_tokens": 18735,
        "cache_creation_tokens": 1761,
        "query_source": "repl_main_thread",
        "attempt": 1,
        "success": True,
    }
    outcome = normalised(
        traces(
            span(1, {**who, "span.type": "interaction"}, name="claude_code.interaction"),
            span(2, call, parent=1, name="claude_code.llm_request"),
            span(3, {**who, "span.type": "tool", "result_tokens": 9}, parent=1, name="claude_code.tool"),
            scope="com.anthropic.claude_code.tracing",
            resource={"service.name": "claude-code"},
        )
    )
    (record,) = outcome.records
    assert {
        "source": "claude_code",
        "request_id": "req_011CXvnkSzvqhkLuNqTJYFnU",
        "provider": "aws.bedrock",
        "operation": "chat",
        "request_model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "input_tokens": 20502,
        "output_tokens": 412,
        "cache_read_tokens": 18735,
        "cache_write_tokens": 1761,
        "status": "ok",
        "user": "acct-1",
        "session": "s",
        "tags": {"service": "claude-code", "device": "anon-1", "query_source": "repl_main_thread"},
    } == said(record)  # type: ignore[arg-type]
    assert {"not_ai": 2} == dict(outcome.ignored)


def test_a_failed_claude_code_request() -> None:
    """A Claude Code request with `success = false` failed. Its error type is the HTTP status."""
    attributes = {
        "span.type": "llm_request",
        "model": "claude-opus-4-1",
        "success": False,
        "status_code": 529,
    }
    record = only(
        traces(span(1, attributes, name="claude_code.llm_request"), scope="com.anthropic.claude_code.tracing")
    )
    assert record.status == "error"
    assert record.error_type == "529"
    assert record.request_model == "claude-opus-4-1"
    assert record.provider == "anthropic"


@pytest.mark.parametrize(
    ("service", "name"),
    [("codex_cli_rs", "handle_responses"), ("gemini-cli", "llm_call"), ("qwen-code", "api")],
)
def test_spans_that_repeat_logs_never_count(service: str, name: str) -> None:
    """
    Spans of Codex, Gemini CLI and Qwen Code never count, because these products report the same calls
    as log events.
    """
    attributes = {**USAGE, "gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    outcome = normalised(traces(span(1, attributes, name=name), resource={"service.name": service}))
    assert outcome.records == []
    assert dict(outcome.ignored) == {"not_ai": 1}


def test_pydantic_ai_1_repeats_usage_on_the_run() -> None:
    """
    In Pydantic AI 1, the span of a run has usage and an agent name but no operation. It repeats its calls, so
    it does not count.
    """
    run = {"agent_name": "invoice", "model_name": "gpt-4o", "gen_ai.system": "openai", **USAGE}
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o",
        **USAGE,
    }
    record = only(traces(span(1, run), span(2, call, parent=1), scope="pydantic-ai"))
    assert record.source == "pydantic_ai"
    assert record.span_id == f"{2:016x}"


def test_openinference_agents_of_the_claude_agent_sdk_are_calls() -> None:
    """
    In the Claude Agent SDK under OpenInference, only AGENT spans have the usage, without the cache, so they
    are calls. Elsewhere, AGENT spans repeat their calls.
    """
    agent = {
        "openinference.span.kind": "AGENT",
        "llm.model_name": "claude-sonnet-4-5",
        "llm.token_count.prompt": 10,
        "llm.token_count.prompt_details.cache_read": 300,
        "llm.token_count.completion": 25,
        "llm.cost.total": 0.01,
    }
    record = only(traces(span(1, agent), scope="openinference.instrumentation.claude_agent_sdk"))
    assert record.operation == "invoke_agent"
    assert record.input_tokens == 310
    assert record.cost == "0.01"
    assert [] == records(traces(span(1, agent), scope="openinference.instrumentation.langchain"))


@pytest.mark.parametrize(
    ("version", "expected"), [("", 1300), ("0.1.12", 1300), ("0.1.13", 1000), ("0.2.0", 1000), ("1", 1300)]
)
def test_the_claude_agent_sdks_spans_hold_the_cache_since_0_1_13(version: str, expected: int) -> None:
    """
    Since version 0.1.13, the input in OpenInference's spans of the Claude Agent SDK includes the cache. The total
    is equal before and after, so only the version shows this.
    """
    agent = {
        "openinference.span.kind": "AGENT",
        "llm.token_count.prompt": 1000,
        "llm.token_count.prompt_details.cache_read": 300,
        "llm.token_count.completion": 25,
        "llm.token_count.total": 1025,
    }
    payload = traces(span(1, agent), scope="openinference.instrumentation.claude_agent_sdk")
    payload["resourceSpans"][0]["scopeSpans"][0]["scope"]["version"] = version
    assert expected == only(payload).input_tokens


def test_logfires_agents_of_the_claude_agent_sdk_are_calls() -> None:
    """
    In Logfire, the agent's span of the Claude Agent SDK has usage, cost and session, so it is the call. Its
    turns have intermediate counts, and its tools have none.
    """
    agent: dict[str, Any] = {
        "logfire.span_type": "span", "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "anthropic",
        "gen_ai.usage.input_tokens": 1300, "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.output_tokens": 25, "operation.cost": 0.01, "gen_ai.conversation.id": "s-1",
    }  # fmt: skip
    turn = {
        "logfire.span_type": "span", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic",
        "gen_ai.response.model": "claude-sonnet-4-5", "gen_ai.usage.partial.input_tokens": 700,
        "gen_ai.usage.partial.output_tokens": 1,
    }  # fmt: skip
    tool = {"logfire.span_type": "span", "gen_ai.operation.name": "execute_tool"}
    spans = [span(1, agent), span(2, turn, parent=1), span(3, tool, parent=1), span(4, turn, parent=1)]
    record = only(traces(*spans, scope="logfire.claude_agent_sdk"))
    assert record.source == "pydantic_ai"
    assert record.operation == "invoke_agent"
    assert record.session == "s-1"
    assert record.input_tokens == 1300
    assert record.cache_read_tokens == 300
    assert record.output_tokens == 25
    assert record.cost == "0.01"
    without_usage = {name: value for name, value in agent.items() if not name.startswith("gen_ai.usage.")}
    assert [] == records(traces(span(1, without_usage), scope="logfire.claude_agent_sdk"))


@pytest.mark.parametrize(
    ("kind", "usage", "expected"), [("RERANKER", True, ["rerank"]), ("RERANKER", False, [])]
)
def test_openinference_rerankers_count_only_with_tokens(kind: str, usage: bool, expected: list[str]) -> None:
    """A reranker span counts only with tokens, because a local reranker is not billed."""
    attributes: dict[str, Any] = {"openinference.span.kind": kind, "reranker.model_name": "rerank-3"}
    attributes |= {"llm.token_count.prompt": 7} if usage else {}
    assert expected == [record.operation for record in records(traces(span(1, attributes)))]


def test_openinference_finds_the_model_in_the_parameters() -> None:
    """
    If no attribute names the model, `model` in the JSON of the invocation parameters is used. Nothing else is
    read from them.
    """
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.invocation_parameters": '{"model": "gpt-4o", "tools": [{"secret": 1}]}',
        "llm.token_count.prompt": 3,
    }
    record = only(traces(span(1, attributes)))
    assert record.request_model == "gpt-4o"
    assert record.provider == "openai"


def litellm(**attributes: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "acompletion",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.id": "chatcmpl-AAAAAAAAAAAAAAAAAAAAAA",
        **USAGE,
    } | {name.replace("__", "."): value for name, value in attributes.items()}


def test_litellm_alias_zero_cost_and_usage_object() -> None:
    """
    In LiteLLM's spans, the caller's alias is not a response model, a cost of 0 is unknown, and cached tokens
    are in the usage object.
    """
    record = only(
        traces(
            span(
                1,
                litellm(
                    gen_ai__response__model="server-model",
                    litellm__model_group="server-model",
                    gen_ai__cost__total_cost=0.0,
                    metadata__usage_object=(
                        "{'prompt_tokens': 100, 'prompt_tokens_details': {'cached_tokens': 64, "
                        "'text_tokens': None},"
                        " 'cache_creation_input_tokens': 8, 'completion_tokens_details': "
                        "{'reasoning_tokens': 5}}"
                    ),
                    metadata__user_api_key_alias="ci",
                    metadata__user_api_key_user_id="u-1",
                    llm__user="end-1",
                ),
                name="litellm_request",
            ),
            span(2, {"llm.openai.usage": "{'total_tokens': 120}"}, parent=1, name="raw_gen_ai_request"),
            scope="litellm",
        )
    )
    assert {
        "source": "litellm",
        **OPENAI,
        "request_id": "chatcmpl-AAAAAAAAAAAAAAAAAAAAAA",
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 64,
        "cache_write_tokens": 8,
        "reasoning_tokens": 5,
        "user": "u-1",
        "api_key": "ci",
        "tags": {"end_user": "end-1"},
    } == said(record)


def test_litellm_call_id_identifies_no_call() -> None:
    """
    LiteLLM's call id identifies no call, because a failed attempt and its fallback share it and are two records.
    """
    call_id = {"gen_ai.response.id": "0f4c0a7e-1111-2222-3333-444455556666"}
    shared = {**litellm(), **call_id, "litellm.call_id": call_id["gen_ai.response.id"]}
    failed = {name: value for name, value in shared.items() if "usage" not in name}
    outcome = normalised(
        traces(span(1, failed, status={"code": 2}), span(2, shared, start=NOW + 20 * SECOND), scope="litellm")
    )
    assert 2 == len({identity.id for identity in outcome.identities})


def test_a_failure_that_names_no_response_is_known_by_its_call_id() -> None:
    """
    A failure without a response id is linked to logs by LiteLLM's call id. Newer spans have it, and the generic
    callback reports the same failure under it.
    """
    call_id = "0f4c0a7e-1111-2222-3333-444455556666"
    failed = {name: value for name, value in litellm(litellm__call_id=call_id).items() if "usage" not in name}
    del failed["gen_ai.response.id"]
    outcome = normalised(traces(span(1, failed, status={"code": 2}), scope="litellm"))
    (record,), (identity,) = outcome.records, outcome.identities
    assert isinstance(record, Inference)
    assert record.request_id == call_id
    assert record.status == "error"
    told = Inference(id=b"", source="litellm", status="error", start_time=record.start_time, input_tokens=0)
    assert call_identity(told, shared_id=call_id).id in {name for _, name in identity.links}


@pytest.mark.parametrize("call_type", ["aembedding", "acompletion", "aresponses"])
@pytest.mark.parametrize("name", ["litellm.trace_id", "litellm.call_id"])
def test_litellms_reports_without_its_id_share_a_name_with_its_log(name: str, call_type: str) -> None:
    """
    LiteLLM's reports without its own id share the trace id or the call id with its log. Some integrations
    write only one of them. A streamed answer has a different response id in each report.
    """
    log: dict[str, Any] = {
        "id": "31aec259-5224-4903-ad2a-91ade65c0987", "call_type": call_type, "custom_llm_provider": "openai",
        "model": "openai/gpt-4o", "prompt_tokens": 100, "completion_tokens": 20, "status": "success",
        "litellm.trace_id": "7b1f", "litellm.call_id": "31aec259-5224-4903-ad2a-91ade65c0987",
        "startTime": NOW / 1e9,
    }  # fmt: skip
    log |= {"trace_id": log.pop("litellm.trace_id"), "litellm_call_id": log.pop("litellm.call_id")}
    shared = {"litellm.trace_id": log["trace_id"], "litellm.call_id": log["litellm_call_id"]}[name]
    attributes = litellm() | {"gen_ai.operation.name": call_type, name: shared}
    attributes["gen_ai.response.id"] = "resp_AAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    failed = call_type == "acompletion"
    if failed:
        attributes = {
            key: value for key, value in attributes.items() if "usage" not in key and "response" not in key
        }
        log |= {"status": "failure", "prompt_tokens": 0, "completion_tokens": 0}
    code = {"code": 2} if failed else {}
    (of_span,) = normalised(traces(span(1, attributes, status=code), scope="litellm")).identities
    (of_log,) = read("litellm", log).identities
    assert not set(of_span.also).isdisjoint(of_log.also)
    # Two reports of one answer have different start times.
    other_id = "31aec259-5224-4903-ad2a-91ade65c0988"
    (later,) = read("litellm", log | {"startTime": NOW / 1e9 + 0.001, "litellm_call_id": other_id}).identities
    assert set(of_span.also).isdisjoint(later.also)


def test_an_answer_from_litellms_cache_is_the_call_of_its_generic_callback() -> None:
    """
    An embedding has no response id, so LiteLLM creates one. If the answer is from LiteLLM's cache, its span
    and the generic callback are still one call. The cost in the id is that of the first call.
    """
    hit = "52c0ba39-6957-4485-be9c-503ea1e243b2_cache_hit1795176930.663056"
    attributes = litellm(
        gen_ai__operation__name="aembedding",
        gen_ai__response__id=hit,
        litellm__call_id=hit.partition("_")[0],
        gen_ai__cost__total_cost=0.006022,
    )
    outcome = normalised(traces(span(1, attributes, name="litellm_request"), scope="litellm"))
    (record,), (identity,) = outcome.records, outcome.identities
    assert isinstance(record, Inference)
    assert record.status == "cached"
    assert record.operation == "embeddings"
    assert record.request_id == hit
    assert call_identity(Inference(id=b"", source="litellm", status="cached"), own_id=hit) == identity


def test_litellms_newer_spans() -> None:
    """LiteLLM's newer spans have new names for cost and team, and mark cache hits."""
    attributes = litellm(
        gen_ai__operation__name="chat",
        litellm__call_id="6a8f0f6e-57a4-4dd5-9c8e-0d9d8f3c1a2b",
        litellm__cost__total=0.0125,
        litellm__cost__input=0.01,
        litellm__team__id="search",
        litellm__cache_hit=False,
    )
    hit = {**attributes, "litellm.cache_hit": True, "litellm.cost.total": 0.0}
    outcome = normalised(traces(span(1, attributes), span(2, hit)))
    assert [("ok", "0.0125", "search"), ("cached", "0", "search")] == [
        (record.status, record.cost, record.team) for record in inferences(outcome)
    ]
    assert 2 == len({record.id for record in outcome.records})


def test_litellm_call_types_without_an_operation() -> None:
    """In LiteLLM, `llm.request.type` is a call type. Without an operation, "completion" is a chat."""
    attributes = litellm(llm__request__type="completion")
    del attributes["gen_ai.operation.name"]
    assert "chat" == only(traces(span(1, attributes), scope="litellm")).operation


@pytest.mark.parametrize(
    ("call_type", "operation"),
    [
        ("atext_completion", "text_completion"),
        ("agenerate_content_stream", "generate_content"),
        ("aimage_generation", "image_generation"),
        ("atranscription", "transcription"),
        ("aspeech", "speech"),
        ("arerank", "rerank"),
    ],
)
@pytest.mark.parametrize("name", ["gen_ai.operation.name", "llm.request.type"])
def test_litellm_calls_that_are_no_chats(name: str, call_type: str, operation: str) -> None:
    """
    Calls that are no chats are billed like chats. Their operations have the names of LiteLLM's logging payload.
    """
    attributes = litellm(gen_ai__cost__total_cost=0.04)
    del attributes["gen_ai.operation.name"]
    record = only(traces(span(1, {**attributes, name: call_type}), scope="litellm"))
    assert record.operation == operation
    assert record.cost == "0.04"


def test_litellms_management_calls_are_none() -> None:
    """LiteLLM's management calls, such as creating a batch or calling a tool, are no model calls."""
    attributes = [
        {"gen_ai.operation.name": name} for name in ("acreate_batch", "call_mcp_tool", "alist_files")
    ]
    assert [] == records(traces(*(span(n, a) for n, a in enumerate(attributes, start=1)), scope="litellm"))


def test_openllmetry_request_types() -> None:
    """In OpenLLMetry, the `llm.request.type` "completion" means a text completion."""
    attributes = {
        "llm.request.type": "completion",
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": "davinci",
    }
    record = only(traces(span(1, {**attributes, **USAGE})))
    assert record.operation == "text_completion"
    assert record.provider == "openai"
    assert record.source == "openllmetry"


def test_openllmetry_bedrock_counts_without_the_cache() -> None:
    """
    Under OpenLLMetry's scope that ends in `.bedrock`, the input is Bedrock's own count, which excludes the cache.
    """
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "AWS",
        "gen_ai.request.model": "anthropic.claude-3-5-sonnet-20241022-v2:0",
        "gen_ai.usage.input_tokens": 500,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.total_tokens": 509,
        "gen_ai.usage.cache_read.input_tokens": 100,
    }
    record = only(traces(span(1, attributes), scope="opentelemetry.instrumentation.bedrock"))
    assert record.source == "openllmetry"
    assert record.provider == "aws.bedrock"
    assert record.input_tokens == 600


def test_google_adk_2_holds_reasoning_in_the_output() -> None:
    """
    From version 2.3 on, Google ADK's reasoning has its final name. The total shows whether the output includes it.
    """
    attributes = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.operation.name": "generate_content",
        "gen_ai.request.model": "gemini-2.5-pro",
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 250,
        "gen_ai.usage.reasoning.output_tokens": 210,
        "gcp.vertex.agent.llm_response": '{"content": "x", "usage_metadata": {"total_token_count": 550}}',
    }
    record = only(traces(span(1, attributes), scope="gcp.vertex.agent"))
    assert record.output_tokens == 250
    assert record.reasoning_tokens == 210
    assert record.provider == "gcp.gen_ai"


def test_strands_over_openai_counts_as_openai_does() -> None:
    """Strands passes on the provider's counts. Over OpenAI, the input includes the cache."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "strands-agents",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read_input_tokens": 64,
    }
    record = only(traces(span(1, attributes), scope="strands.telemetry.tracer"))
    assert record.provider == "openai"
    assert record.input_tokens == 100
    assert record.cache_read_tokens == 64


def test_openrouter_adds_the_two_kinds_of_cache_writes() -> None:
    """If OpenRouter states no sum of cache writes, five-minute and one-hour writes are added."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "anthropic/claude-haiku-4.5",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.input_tokens.cache_write_5m": 300,
        "gen_ai.usage.input_tokens.cache_write_1h": 200,
        "trace.metadata.openrouter.api_key_name": "prod",
        "trace.metadata.provider_responses": "[]",
    }
    record = only(traces(span(1, attributes, name="LLM Generation"), scope="openrouter"))
    assert record.cache_write_tokens == 500
    assert record.cache_write_1h_tokens == 200
    assert record.provider == "anthropic"
    assert record.api_key == "prod"
    assert record.tags == {}


def test_the_anthropic_sdk_under_openinference_is_one_call() -> None:
    """
    The Anthropic SDK's span below OpenInference's span is the same call. The innermost span is kept, with
    its response id.
    """
    outer = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "claude-sonnet-4-5",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 20,
        "user.id": "u-1",
    }
    inner = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
        **USAGE,
    }
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert record.request_id == "msg_01AbCdEfGhIjKlMnOpQrStUv"
    assert record.user == "u-1"


def test_copilot_is_github_when_nobody_is_named() -> None:
    """
    If Copilot's span names no provider, the provider is GitHub. Its cost is a multiplier, not an amount.
    """
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "github.copilot.cost": 1.0, **USAGE,
    }  # fmt: skip
    record = only(traces(span(1, attributes), scope="github.copilot"))
    assert record.source == "copilot_cli"
    assert record.provider == "github"
    assert record.cost is None


@pytest.mark.parametrize("absent", ["", "none", "undefined", "null"])
def test_words_for_nothing_are_absent(absent: str) -> None:
    """
    Words for "nothing" are absent values: Micrometer writes "none", JavaScript "undefined" and "null". They
    are no names, ids or errors.
    """
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": absent,
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": absent,
        "gen_ai.response.id": absent,
        "error.type": absent,
        "user.id": absent,
        "gen_ai.conversation.id": absent,
        "gen_ai.usage.input_tokens": "1003",
        "gen_ai.usage.cache_read.input_tokens": absent,
    }
    assert {"source": "otel", **OPENAI, "input_tokens": 1003} == said(only(traces(span(1, attributes))))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"gen_ai.request.model": "m", **USAGE}, "records"),
        ({"gen_ai.provider.name": "openai", **USAGE}, "records"),
        ({"gen_ai.request.model": "m", "error.type": "timeout"}, "records"),
        ({"gen_ai.request.model": "m"}, "unrecognised_ai"),
        (USAGE, "unrecognised_ai"),
        ({"model": "m", "input_tokens": 5}, "unrecognised_ai"),
        ({**OCR, "gen_ai.usage.details.input_document_pages": 3}, "unrecognised_ai"),
        ({**OCR, "gen_ai.usage.details.input_document_pages": 0}, "not_ai"),
        ({"usage.prompt_tokens": 5}, "unrecognised_ai"),
        ({"gen_ai.operation.name": "invoke_agent", **USAGE}, "not_ai"),
        ({"gen_ai.operation.name": "plan", "gen_ai.request.model": "m", **USAGE}, "not_ai"),
        ({"gen_ai.operation.name": "retrieval"}, "not_ai"),
        ({"http.request.method": "GET", "user.id": "u"}, "not_ai"),
        ({}, "not_ai"),
    ],
)
def test_what_is_a_call(attributes: dict[str, Any], expected: str) -> None:
    """
    Without an operation, a call needs a model or provider, plus usage or an error. Other AI-like spans are
    listed as unrecognized.
    """
    outcome = normalised(traces(span(1, attributes)))
    assert expected == ("records" if outcome.records else next(iter(outcome.ignored)))
    assert ([tuple(sorted(attributes))] if expected == "unrecognised_ai" else []) == outcome.unrecognised


@pytest.mark.parametrize("total", [-1, 1.5, 10**12, "NaN"])
def test_an_impossible_total_says_nothing(total: Any) -> None:
    """An impossible total is ignored, and the other counts are used."""
    call = {"gen_ai.operation.name": "chat", **USAGE, "gen_ai.usage.cache_read.input_tokens": 30}
    record = only(traces(span(1, {**call, "gen_ai.usage.total_tokens": total})))
    assert record.input_tokens == 100
    assert record.output_tokens == 20
    assert record.cache_read_tokens == 30


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gen_ai.usage.input_tokens", -1),
        ("gen_ai.usage.input_tokens", 1.5),
        ("gen_ai.usage.output_tokens", 2_000_000_000),
        ("gen_ai.usage.cache_read.input_tokens", "-3"),
        ("gen_ai.usage.cost", -0.01),
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_impossible_figures_are_rejected_alone(name: str, value: Any, encoding: str) -> None:
    """
    An impossible figure rejects its span as implausible. The other span is accepted, and no message
    contains a value.
    """
    bad = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **USAGE, name: value}
    outcome = normalised(
        traces(span(1, bad), span(2, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})),
        encoding=encoding,
    )
    assert [(0, "implausible")] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert str(value) not in outcome.rejects[0].message
    assert [f"{2:016x}"] == [record.span_id for record in outcome.records]  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_never_counts(value: str) -> None:
    """NaN and infinity are valid doubles in OTLP but never count as tokens."""
    encoded = span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    encoded["attributes"] += [
        {"key": "gen_ai.usage.input_tokens", "value": {"doubleValue": value}},
        {"key": "gen_ai.usage.cost", "value": {"doubleValue": value}},
    ]
    for encoding in ENCODINGS:
        record = only(traces(encoded), encoding=encoding)
        assert record.input_tokens is None
        assert record.cost is None


def test_the_error_type_of_a_span() -> None:
    """The error type of a span is error.type, or else the exception event, the HTTP status, or _OTHER."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    event = {
        "name": "exception",
        "attributes": [{"key": "exception.type", "value": {"stringValue": "openai.RateLimitError"}}],
    }
    failed: dict[str, Any] = {"status": {"code": 2}}
    found = records(
        traces(
            span(1, {**call, "error.type": "429"}, **failed, events=[event]),
            span(2, call, **failed, events=[{"name": "other"}, event]),
            span(3, {**call, "http.response.status_code": 503}, **failed),
            span(4, call, **failed),
        )
    )
    assert ["429", "openai.RateLimitError", "503", "_OTHER"] == [record.error_type for record in found]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", sorted(OF_CALL))
def test_a_span_event_states_what_its_span_leaves_out(name: str, encoding: str) -> None:
    """Usage in an event of the span is that of the span and of a log event. The span's own attributes count first."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.system": "openai"}
    usage = {**USAGE, "gen_ai.usage.total_tokens": 120, "gen_ai.usage.thoughts_tokens": 8}
    event = {"name": name, "attributes": [attribute(*pair) for pair in usage.items()]}
    on_span = only(traces(span(1, call | usage)), encoding=encoding)
    in_event = only(traces(span(1, call, events=[{"name": "other"}, event])), encoding=encoding)
    [logged] = inferences(read_logs(log(call | usage, event_name=DETAILS)))
    counts = {"input_tokens": 100, "output_tokens": 20, "reasoning_tokens": 8}
    assert on_span == in_event
    assert [counts] * 3 == [said(record, *counts) for record in (on_span, in_event, logged)]
    first = only(
        traces(span(1, call | {"gen_ai.usage.input_tokens": 110}, events=[event])), encoding=encoding
    )
    assert (110, 20) == (first.input_tokens, first.output_tokens)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"error.type": "I cannot tell you how to build a bomb"}, "_OTHER"),
        ({"error.type": "x" * 3000}, "_OTHER"),
        ({"error.type": "Too many requests", "gen_ai.error.type": "rate_limit"}, "rate_limit"),
        ({"error.type": "Service unavailable", "http.response.status_code": 503}, "503"),
        ({"error.type": "com.shop.Client$Timeout"}, "com.shop.Client$Timeout"),
    ],
)
def test_free_text_is_a_failure_and_no_error_type(stated: dict[str, Any], expected: str) -> None:
    """
    Free text shows a failure but is no error type, because it may quote a prompt and errors cannot be
    grouped by it.
    """
    record = only(traces(span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **stated})))
    assert record.status == "error"
    assert record.error_type == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", "anything"),
        ("note", "sk-proj-0123456789abcdef"),
        ("header", "Bearer abc"),
        ("masked", "ab****yz"),
    ],
)
def test_credentials_in_metadata_are_never_tags(name: str, value: str) -> None:
    """
    Credentials in metadata never become tags. Callers choose the names in metadata, and LiteLLM's alias may
    be the key itself.
    """
    attributes = {**USAGE, "gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    attributes |= {
        f"traceloop.association.properties.{name}": value,
        "metadata": json.dumps({name: value, "n": 1}),
    }
    attributes["metadata.user_api_key_alias"] = "sk-0123456789abcdef"
    record = only(traces(span(1, attributes)))
    assert record.api_key is None
    assert record.tags == {"n": "1"}


@pytest.mark.parametrize(
    ("mark", "scope", "resource", "source"),
    [
        ({"metadata.user_api_key_hash": "h", "llm.request.type": "acompletion"}, "my-tracer", {}, "litellm"),
        ({"llm.request.type": "acompletion"}, "", {"service.name": "litellm"}, "litellm"),
        ({"spring.ai.kind": "chat"}, "", {}, "spring_ai"),
        ({}, "io.micrometer.tracing", {}, "spring_ai"),
        ({"logfire.span_type": "span"}, "opentelemetry.instrumentation.openai_v2", {}, "pydantic_ai"),
        ({"logfire.span_type": "span", "llm.request.type": "chat"}, "my-tracer", {}, "openllmetry"),
    ],
)
def test_a_tracers_name_may_be_the_operators(
    mark: dict[str, Any], scope: str, resource: dict[str, Any], source: str
) -> None:
    """If the operator chose the tracer's name, attributes that only this product writes identify it."""
    attributes = {**USAGE, "gen_ai.request.model": "gpt-4o", **mark}
    record = only(traces(span(1, attributes), scope=scope, resource=resource))
    assert record.source == source
    assert record.operation == "chat"


def test_openrouters_attempts_are_no_calls_under_any_scope() -> None:
    """
    OpenRouter's attempts are child spans with the same operation, and they arrive in separate requests. They
    are no calls, whatever the scope.
    """
    attributes = {**USAGE, "gen_ai.operation.name": "chat", "gen_ai.request.model": "openai/gpt-4o"}
    attributes |= {"trace.metadata.openrouter.provider_name": "OpenAI"}
    payload = traces(
        span(1, attributes, name="LLM Generation"), span(2, attributes, name="provider attempt 1: OpenAI")
    )
    assert "openrouter" == only(payload).source


@pytest.mark.parametrize(
    ("written", "operation"), [("chat.completions", "chat"), ("text.completions", "text_completion")]
)
def test_semantic_kernel_names_operations_in_its_own_words(written: str, operation: str) -> None:
    """
    Semantic Kernel's names of operations are read. Releases of two years write them, in .NET and in Python.
    """
    attributes = {
        **USAGE,
        "gen_ai.operation.name": written,
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o",
    }
    for scope in ("Microsoft.SemanticKernel.Diagnostics", "semantic_kernel.utils.telemetry"):
        assert operation == only(traces(span(1, attributes), scope=scope)).operation


def test_usage_under_an_unknown_operation_is_shown_to_the_operator() -> None:
    """
    Usage under an unknown operation is shown to the operator. Known operations of agents and tools are
    ignored without a report.
    """
    attributes = {**USAGE, "gen_ai.request.model": "gpt-4o"}
    names = ("daydream", "invoke_agent", "search_memory")
    spans = [span(n, {**attributes, "gen_ai.operation.name": name}) for n, name in enumerate(names, start=1)]
    assert {UNRECOGNISED_AI: 1, NOT_AI: 2} == normalised(traces(*spans)).ignored


@pytest.mark.parametrize(
    "name",
    [
        "openai.response.service_tier",
        "gen_ai.openai.response.service_tier",
        "gen_ai.response.service_tier",
        "gen_ai.usage.service_tier",
    ],
)
def test_a_tier_with_prices_of_its_own_is_a_tag(name: str) -> None:
    """
    A tier with a separate price becomes a tag. Batch and flex cost half. A standard tier, or one that was
    only requested, is no tag.
    """
    base = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", **USAGE}
    assert {"service_tier": "batch"} == only(traces(span(1, {**base, name: "batch"}))).tags
    assert {} == only(traces(span(1, {**base, name: "default"}))).tags
    assert {} == only(traces(span(1, {**base, "openai.request.service_tier": "flex"}))).tags


def test_bifrosts_retry_is_a_call_next_to_the_failed_attempt() -> None:
    """
    A retry of Bifrost is a call next to the attempt before it. The failed attempt has the answered
    attempt below it.
    """
    base = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}
    found = records(
        traces(
            span(1, {**base, "gen_ai.error.type": "server_error"}, name="llm.call", status={"code": 2}),
            span(2, {**base, **USAGE}, parent=1, name="retry.attempt.1"),
            resource={"telemetry.sdk.name": "bifrost"},
        )
    )
    assert [("error", None), ("ok", 100)] == [(record.status, record.input_tokens) for record in found]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "apply_guardrail", "gen_ai.provider.name": "aws.bedrock"},
        {"openinference.span.kind": "GUARDRAIL", "llm.token_count.prompt": 5},
        {"langfuse.observation.type": "guardrail"},
        {"traceloop.span.kind": "guardrail"},
        {"gen_ai.span.kind": "GUARDRAIL"},
    ],
)
def test_guards_without_a_model_are_counted_as_guards(attributes: dict[str, Any]) -> None:
    """The span of a guardrail is no call, and the accounting names it."""
    outcome = normalised(traces(span(1, attributes)))
    assert ([], {GUARD: 1}) == (outcome.records, outcome.ignored)
