"""Log entries of proxies with AI features: Bifrost, APISIX, Higress and agentgateway."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import IMPLAUSIBLE, NOT_AI
from spool.identity import dedup_key_of_parts
from spool.record import rfc3339
from tests.gateway.normalise.formats.payloads import case, one, read
from tests.gateway.normalise.outcomes import inferences
from tests.rounds import reduced


def test_bifrost_errors_and_several_calls() -> None:
    """
    Each Bifrost span of kind `llm.call` is a call. The span's own ids are its dedup key, as for spans that
    Bifrost sends over OTLP.
    """
    trace = case("bifrost", "trace-offset-times")
    span = trace["Spans"][2]
    failed = span | {
        "SpanID": "aaaaaaaaaaaaaaaa",
        "Status": "error",
        "Attributes": span["Attributes"] | {"error.type": "timeout"},
    }
    outcome = read(None, trace | {"Spans": [*trace["Spans"], failed, None, 3]})
    assert outcome.received == 6
    assert dict(outcome.ignored) == {NOT_AI: 4}
    assert ["ok", "error"] == [record.status for record in inferences(outcome)]
    assert dedup_key_of_parts(4, trace["TraceID"], "aaaaaaaaaaaaaaaa") == outcome.records[1].id


@pytest.mark.parametrize(
    ("name", "expected"),
    [("embedding text-embedding-3-small", "embeddings"), ("list_models x", "list_models")],
)
def test_bifrost_operations_have_opentelemetrys_names(name: str, expected: str) -> None:
    """
    The first word of Bifrost's operation is replaced by OpenTelemetry's name if there is one. Otherwise
    the word stays.
    """
    trace = case("bifrost", "trace-offset-times")
    call = next(span for span in trace["Spans"] if span["Kind"] == "llm.call")
    assert expected == one("bifrost", trace | {"Spans": [call | {"Name": name}]}).operation


def test_bifrost_bad_spans_cost_no_other() -> None:
    """Each span of a Bifrost trace is a separate item, so only bad spans are rejected."""
    trace = case("bifrost", "trace-offset-times")
    span = trace["Spans"][2]
    bad = span | {"SpanID": "b", "Attributes": span["Attributes"] | {"gen_ai.usage.prompt_tokens": -1}}
    outcome = read(None, trace | {"Spans": [bad, span]})
    assert [span["SpanID"]] == [record.span_id for record in inferences(outcome)]
    assert [(0, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]


@pytest.mark.timeout(120)
def test_bifrost_names_of_a_trace_without_end_are_not_written_to_every_span() -> None:
    """
    Names of a trace are stored once, not for every span. A name of one megabyte, copied to 20,000 spans,
    would take 20 GB.
    """
    trace = case("bifrost", "trace-offset-times")
    call = trace["Spans"][2]
    outcome = read(
        "bifrost",
        trace | {"TraceID": "x" * 4_000_000, "Spans": [call, *[{"Kind": "x"}] * reduced(20_000, by=4)]},
    )
    assert [(None, call["SpanID"])] == [(record.trace_id, record.span_id) for record in inferences(outcome)]


@pytest.mark.parametrize(
    "names",
    [
        (
            "input_tokens",
            "output_tokens",
            "cache_read.input_tokens",
            "cache_creation.input_tokens",
            "reasoning.output_tokens",
        ),
        (
            "prompt_tokens",
            "completion_tokens",
            "prompt_token_details.cached_read_tokens",
            "prompt_token_details.cached_write_tokens",
            "completion_token_details.reasoning_tokens",
        ),
    ],
)
def test_bifrost_counts_under_newer_and_older_names(names: tuple[str, ...]) -> None:
    """Bifrost's releases renamed the counts. The tokens of a call do not depend on the release."""
    trace = case("bifrost", "trace-offset-times")
    usage = {f"gen_ai.usage.{name}": number for name, number in zip(names, (100, 50, 20, 10, 5), strict=True)}
    older = {"gen_ai.request.model": "gpt-4o-mini", "gen_ai.virtual_key_name": "vk"}
    trace["Spans"] = [trace["Spans"][2] | {"Name": "llm.call", "Attributes": usage | older}]
    record = one(None, trace)
    assert record.input_tokens == 100
    assert record.output_tokens == 50
    assert record.cache_read_tokens == 20
    assert record.cache_write_tokens == 10
    assert record.reasoning_tokens == 5
    assert record.api_key == "vk"
    assert record.operation is None


def test_bifrost_without_a_call_is_none() -> None:
    """A Bifrost trace with only plugins and health checks gives no call."""
    assert {NOT_AI: 1} == dict(
        read("bifrost", case("bifrost", "trace-offset-times") | {"Spans": None}).ignored
    )


def test_apisix_entries_without_a_model_are_no_calls() -> None:
    """
    An APISIX entry without a model is not a call. The defaults in its summary are an empty string and "0".
    """
    entry = case("apisix", "http-logger-summary")[0]
    empty = dict.fromkeys(entry["llm_summary"], "") | {"prompt_tokens": "0", "completion_tokens": "0"}
    outcome = read(
        "apisix", [entry | {"llm_summary": empty}, {k: v for k, v in entry.items() if k != "llm_summary"}]
    )
    assert {NOT_AI: 2} == dict(outcome.ignored)


def test_apisix_names_the_end_user_and_the_consumer() -> None:
    """
    APISIX names the end user in addition to the consumer. The tags include the route and the service
    of the request.
    """
    entry = case("apisix", "http-logger-summary")[0]
    entry["llm_summary"]["end_user_id"] = "end"
    record = one("apisix", entry | {"service_id": "svc", "response": {"status": 401}})
    assert record.user == "consumer-a"
    assert record.error_type == "401"
    assert {"route": "ai-route", "service": "svc", "end_user": "end"} == record.tags


def test_higress_details_are_json_in_json() -> None:
    """Higress writes JSON as text in three levels. A dash in its place is not a call."""
    line = case("higress", "access-log-ai-log")
    log = json.loads(line["ai_log"]) | {
        "input_token_details": json.dumps({"cached_tokens": "4"}),
        "output_token_details": '{"reasoning_tokens": 60}',
        "consumer": "c-1",
    }
    outcome = read(None, [line | {"ai_log": json.dumps(log)}, line | {"ai_log": "-"}])
    (record,) = inferences(outcome)
    assert record.cache_read_tokens == 4
    assert record.reasoning_tokens == 60
    assert record.user == "c-1"
    assert {NOT_AI: 1} == dict(outcome.ignored)


def higress_line(outside: dict[str, Any] | None = None, **inside: Any) -> dict[str, Any]:
    line: dict[str, Any] = case("higress", "access-log-ai-log")
    return line | {"ai_log": json.dumps(json.loads(line["ai_log"]) | inside)} | (outside or {})


def test_higress_trace_and_consumer_are_read_outside_the_ai_log() -> None:
    """
    Higress writes trace and consumer outside `ai_log`: the trace by default, and the consumer if the
    operator configured it.
    """
    record = one(None, higress_line({"trace_id": "463ac35c9f6413ad48485a3953bb6124", "consumer": "c-1"}))
    assert record.trace_id == "463ac35c9f6413ad48485a3953bb6124"
    assert record.user == "c-1"
    unnamed = one(None, higress_line({"trace_id": "-", "consumer": "-"}))
    assert unnamed.trace_id is None
    assert unnamed.user is None


def test_higress_calls_are_known_by_the_providers_response_id() -> None:
    """
    A Higress call is identified by the provider's response id, which an SDK also reports. A short id
    identifies nothing, and the caller chooses the request id.
    """
    response_id = "chatcmpl-9Ri1u4Va0IOdj525McVFHn6RZJU9I"
    assert dedup_key_of_parts(2, response_id) == one(None, higress_line(chat_id=response_id)).id
    assert one(None, higress_line()).id == one(None, higress_line(chat_id="chatcmpl-7")).id


def test_higress_answers_out_of_its_own_cache_are_cached() -> None:
    """An answer from Higress's own cache counts as cached. A failed call never does."""
    assert "cached" == one(None, higress_line(cache_status="hit")).status
    assert "ok" == one(None, higress_line(cache_status="miss")).status
    assert "error" == one(None, higress_line({"response_code": "503"}, cache_status="hit")).status


def test_agentgateways_time_is_the_end() -> None:
    """agentgateway states the end of a call. The start is the end minus the duration, in any unit."""
    line = case("agentgateway", "json-log-line")
    starts = {
        took: rfc3339(one("agentgateway", line | {"duration": took}).start_time)
        for took in ("1.25s", "250us", "0ms")
    }
    assert {
        "1.25s": "2026-02-11T10:00:00Z",
        "250us": "2026-02-11T10:00:01.24975Z",
        "0ms": "2026-02-11T10:00:01.25Z",
    } == starts


def test_agentgateway_before_august_2026_counted_without_the_cache() -> None:
    """
    Before August 2026, agentgateway's input excluded the cache. This is visible only if the input is smaller
    than its cached part.
    """
    line = case("agentgateway", "json-log-line") | {
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 20,
        "http.status": 500,
    }
    record = one("agentgateway", line)
    assert record.input_tokens == 110
    assert record.error_type == "500"


def test_agentgateway_mcp_lines_are_no_calls() -> None:
    """agentgateway's MCP lines have the same scope as calls but no model, so they are no calls."""
    line = {
        "scope": "request",
        "gateway": "g",
        "route": "r",
        "time": "2026-02-11T10:00:01Z",
        "mcp.method": "tools/call",
    }
    assert {NOT_AI: 1} == dict(read(None, line).ignored)


def test_bifrost_a_retry_is_an_attempt_with_tokens_of_its_own() -> None:
    """
    After a retry, the span of kind `llm.call` is only the first attempt. Each further attempt is a separate
    call with its own tokens.
    """
    trace = case("bifrost", "trace-offset-times")
    first = trace["Spans"][2] | {"Status": "error"}
    usage = {
        "gen_ai.usage.prompt_tokens": 8,
        "gen_ai.usage.completion_tokens": 9,
        "gen_ai.operation.name": "chat",
    }
    attempt = {
        name: first["Attributes"][name] for name in ("gen_ai.provider.name", "gen_ai.request.model")
    } | usage
    attempt |= {"gen_ai.response.service_tier": "flex"}
    ids = {"SpanID": "bbbbbbbbbbbbbbbb", "ParentID": first["SpanID"]}
    retry = first | ids | {"Name": "retry.attempt.1", "Kind": "retry", "Status": "ok", "Attributes": attempt}
    failed, answered = inferences(read(None, trace | {"Spans": [first, retry]}))
    assert failed.status == "error"
    assert answered.status == "ok"
    assert answered.operation == "chat"
    assert answered.input_tokens == 8
    assert answered.output_tokens == 9
    assert {"service_tier": "flex"} == answered.tags
    assert dedup_key_of_parts(4, trace["TraceID"], "bbbbbbbbbbbbbbbb") == answered.id


@pytest.mark.parametrize(
    ("uri", "model", "expected"),
    [
        ("/v1/messages", "claude-sonnet-4-5", 7316),
        ("/v1/messages?beta=true", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", 7316),
        ("/model/x/converse", "some-alias", 7316),
        ("/v1/messages", "gpt-4o", 5000),
        ("/v1/chat/completions", "claude-sonnet-4-5", 5000),
    ],
)
def test_apisix_passes_on_the_input_of_its_clients_protocol(uri: str, model: str, expected: int) -> None:
    """
    The input has the form of the client's protocol. Anthropic's and Bedrock's input excludes the cache. A
    translated answer has OpenAI's form, which includes it.
    """
    entry = case("apisix", "http-logger-summary")[0]
    entry["request"] |= {"uri": uri}
    entry["llm_summary"] |= {
        "request_model": model, "model": model, "prompt_tokens": "5000", "total_tokens": "5008",
        "cache_read_input_tokens": "2028", "cache_creation_input_tokens": "288",
    }  # fmt: skip
    record = one("apisix", entry)
    assert record.input_tokens == expected
    assert record.cache_read_tokens == 2028
    assert record.cache_write_tokens == 288
