"""
Frameworks and agents, with their own or other tracing, against a provider with a journal.

A record differs from the journal only where the client omits or changes a figure before sending. A function
or comment here describes each difference, and its test fails when the client repairs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.clients.conftest import WITH_EVENTS, Stand
from tests.clients.journal import Call, assert_same, without

pytestmark = pytest.mark.clients

# returns what a client should report for the calls of one program
Told = Callable[[str, list[Call]], list[Call]]


PARTS = ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
totals = without(*PARTS)
no_tokens = without("input_tokens", "output_tokens", *PARTS)


def unchanged(_: str, calls: list[Call]) -> list[Call]:
    return calls


def ag2(name: str, calls: list[Call]) -> list[Call]:
    """
    AG2's spans omit cache writes, and the provider of failures. For Claude, the underlying library's
    span reports everything.
    """
    forgotten = without("provider") if name == "failures" else without("cache_write_tokens")
    return [call if call.provider == "anthropic" else forgotten(call) for call in calls]


def ag2_openinference(name: str, calls: list[Call]) -> list[Call]:
    """The Anthropic library's retries after a failure are within one span."""
    return calls[:2] if name == "failures" else calls


def langchain(name: str, calls: list[Call]) -> list[Call]:
    return [] if name == "embeddings" else calls  # this client does not trace embeddings


def openai_agents(_: str, calls: list[Call]) -> list[Call]:
    """The SDK reports only the two totals for chat completions."""
    return [totals(call) if call.request_model == "gpt-4o" else call for call in calls]


def strands(_: str, calls: list[Call]) -> list[Call]:
    return [without("reasoning_tokens")(call) for call in calls]


def llama_index(name: str, calls: list[Call]) -> list[Call]:
    """
    LlamaIndex omits cache writes. It reports only the two totals for responses, and no tokens for their streams.
    """
    reported = [
        totals(call) if call.request_model == "gpt-5" else without("cache_write_tokens")(call)
        for call in calls
    ]
    if name == "streams":
        reported = [without("input_tokens", "output_tokens")(call) for call in reported]
    return reported


def google_adk(_: str, calls: list[Call]) -> list[Call]:
    """
    ADK has one operation name, and its own name for Gemini's platform. It adds LiteLLM's reasoning to the
    output a second time.
    """
    return [_of_gemini(call) if call.provider == "gcp.gen_ai" else _of_litellm(call) for call in calls]


def _of_gemini(call: Call) -> Call:
    return replace(call, provider="gcp.gemini")


def _of_litellm(call: Call) -> Call:
    made = call.output_tokens and call.output_tokens + (call.reasoning_tokens or 0)
    return replace(call, operation="generate_content", output_tokens=made, cache_write_tokens=None)


def google_adk_openinference(name: str, calls: list[Call]) -> list[Call]:
    """
    If a turn has several responses, only events report those before the last one. LiteLLM's reasoning is part
    of the reported total.
    """
    return [
        _of_gemini(call) if call.provider == "gcp.gen_ai" else without("cache_write_tokens")(call)
        for call in calls
    ]


def beeai(name: str, calls: list[Call]) -> list[Call]:
    """BeeAI omits reasoning, and reports 0 output tokens for embeddings."""
    reported = [without("reasoning_tokens")(call) for call in calls]
    return [replace(call, output_tokens=0) for call in reported] if name == "embeddings" else reported


def agno(_: str, calls: list[Call]) -> list[Call]:
    return [without("reasoning_tokens")(call) for call in calls]


def smolagents(name: str, calls: list[Call]) -> list[Call]:
    """smolagents reports the two totals, and no provider for failures."""
    return [replace(totals(call), provider=None if name == "failures" else call.provider) for call in calls]


def autogen(name: str, calls: list[Call]) -> list[Call]:
    """
    AutoGen itself reports only the two totals, or 0 without usage. With nested instrumentation, the library's
    spans report the rest.
    """
    reported = calls if name == "nested" else [totals(call) for call in calls]
    return [_with_zeros(call) if call.status == "ok" else call for call in reported]


def _with_zeros(call: Call) -> Call:
    return replace(call, input_tokens=call.input_tokens or 0, output_tokens=call.output_tokens or 0)


def haystack(name: str, calls: list[Call]) -> list[Call]:
    """Haystack reports neither model nor provider of a failure."""
    if name == "failures":
        return [replace(call, provider=None) for call in calls]
    return [_of_haystack(call) for call in calls]


def _of_haystack(call: Call) -> Call:
    """
    Haystack reports two totals for OpenAI's chat, one for responses, which counts as input, and no tokens for
    embeddings. Anthropic's library reports its own calls.
    """
    if call.provider == "anthropic":
        return call
    if call.request_model == "gpt-4o":
        return totals(call)
    total = (call.input_tokens or 0) + (call.output_tokens or 0)
    return no_tokens(call) if call.operation == "embeddings" else replace(no_tokens(call), input_tokens=total)


def dspy(name: str, calls: list[Call]) -> list[Call]:
    """
    DSPy itself reports no tokens, whatever is below its own engine. LiteLLM's spans omit OpenAI's cache
    writes, and report 0 for Anthropic's reasoning.
    """
    if name not in ("nested", "litellm_engine"):
        return [no_tokens(call) for call in calls]
    return [_of_litellm_below(call) if call.status == "ok" else call for call in calls]


def mirascope(_: str, calls: list[Call]) -> list[Call]:
    """Mirascope has one operation name. It reports 0 for OpenAI's cache writes and Anthropic's reasoning."""
    return [_of_mirascope(call) if call.status == "ok" else replace(call, operation="chat") for call in calls]


def _of_mirascope(call: Call) -> Call:
    written = call.cache_write_tokens if call.provider == "anthropic" else 0
    return replace(
        call, operation="chat", cache_write_tokens=written, reasoning_tokens=call.reasoning_tokens or 0
    )


def mlflow(name: str, calls: list[Call]) -> list[Call]:
    """MLflow reports no tokens for Anthropic's raw streams, and does not report managed streams at all."""
    if name != "streams":
        return calls
    *openai, raw, _managed = calls
    return [*openai, no_tokens(raw)]


def _of_litellm_below(call: Call) -> Call:
    if call.provider == "anthropic":
        return replace(call, reasoning_tokens=0)
    return without("cache_write_tokens")(call)


OPENAI = ("chat", "stream", "responses", "tools", "failures", "embeddings")
ANTHROPIC = ("messages", "raw_stream", "managed_stream", "message_tools", "message_failures")
AGENTS = ("answers", "streams", "tools", "failures")
CLIENTS: dict[str, tuple[Told, tuple[str, ...]]] = {
    "ag2": (ag2, AGENTS),
    "ag2_openinference": (ag2_openinference, AGENTS),
    "logfire": (unchanged, OPENAI + ANTHROPIC),
    "langchain": (langchain, (*AGENTS, "embeddings")),
    "langsmith": (langchain, (*AGENTS, "embeddings")),
    "openai_agents": (openai_agents, (*AGENTS, "delegation", "handoffs")),
    "strands": (strands, ("answers", "tools", "failures")),
    "llama_index": (llama_index, AGENTS),
    "google_adk": (google_adk, AGENTS),
    "google_adk_openinference": (google_adk_openinference, AGENTS),
    "beeai": (beeai, (*AGENTS, "embeddings")),
    "genai_langchain": (langchain, (*AGENTS, "embeddings")),
    "genai_openai_agents": (unchanged, (*AGENTS, "delegation", "handoffs")),
    "agno": (agno, ("answers", "streams", "tools")),
    "smolagents": (smolagents, AGENTS),
    "autogen": (autogen, (*AGENTS, "nested")),
    "haystack": (haystack, (*AGENTS, "embeddings")),
    "crewai": (unchanged, AGENTS),
    "mirascope": (mirascope, (*AGENTS, "functions")),
    "mlflow": (mlflow, (*AGENTS, "embeddings")),
    "dspy": (dspy, ("answers", "predictions", "failures", "nested", "own_engine", "litellm_engine")),
}
# each framework reports its own names of model and its own ids
NO_NAMES: dict[str, Any] = dict.fromkeys(("request_model", "response_model", "request_id"))
RUNS = [(client, name) for client, (_, names) in CLIENTS.items() for name in names]


@pytest.mark.parametrize(("client", "name"), RUNS)
def test_the_records_are_the_journal(stand: Stand, client: str, name: str) -> None:
    """Each call has one record with its tokens and status, as far as the client reports them."""
    stand.run(
        client, f"frameworks/with_{client}.py", name, **(WITH_EVENTS if client.startswith("genai") else {})
    )
    calls = stand.calls()
    assert calls
    told, _ = CLIENTS[client]
    # The client's events and spans have different operation names.
    unnamed = NO_NAMES | ({"operation": ""} if client == "google_adk_openinference" else {})
    expected = [replace(call, **unnamed) for call in told(name, calls)]
    assert_same(expected, ({**one, **unnamed} for one in stand.records()))
    stand.keep(client, name, expected)


def test_logfires_stream_report_in_a_separate_request_is_merged(stand: Stand) -> None:
    """
    Batches of a busy process may be split anywhere. The Anthropic library's span in another request is still
    the same call.
    """
    names = ("raw_stream", "managed_stream")
    stand.run("logfire", "frameworks/with_logfire.py", *names, OTEL_BSP_MAX_EXPORT_BATCH_SIZE="1")
    expected = [replace(call, **NO_NAMES) for call in stand.calls()]
    assert len(names) == len(expected)
    assert_same(expected, ({**one, **NO_NAMES} for one in stand.records()))
    stand.keep("logfire", "streams_one_by_one", expected)
