"""
Frameworks and wrappers in Node, with their own or other tracing, against a provider with a journal.

A record differs from the journal only where the client omits or changes a figure before sending. A function
or comment here describes each difference, and its test fails when the client repairs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, without
from tests.documents import connect_page

pytestmark = pytest.mark.clients

Told = Callable[[list[Call]], list[Call]]  # returns what a client should report for the calls of its programs
no_figures = without(
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"
)


def openai_agents_js(calls: list[Call]) -> list[Call]:
    """
    For a streamed chat completion the library's span has neither figures nor id, so it counts as a call in
    addition to the agent's.
    """
    _, streamed = (call for call in calls[:4] if call.request_model == "gpt-4o")
    return [*calls, no_figures(streamed)]


def genkit(calls: list[Call]) -> list[Call]:
    """Genkit has one name for Gemini's platform, and reports no figures for embeddings."""
    return [_of_genkit(call) for call in calls]


def _of_genkit(call: Call) -> Call:
    if call.operation == "embeddings":
        return no_figures(call)
    return replace(call, operation="chat", provider="gcp.gemini") if call.provider == "gcp.gen_ai" else call


def langfuse_js(calls: list[Call]) -> list[Call]:
    """Langfuse reports embeddings as generations without figures."""
    return [
        replace(call, operation="chat", input_tokens=None) if call.operation == "embeddings" else call
        for call in calls
    ]


def strands_js(calls: list[Call]) -> list[Call]:
    """
    Strands omits reasoning and cache writes of OpenAI's models. For Claude, the Anthropic library's span
    reports everything.
    """
    forgotten = without("cache_write_tokens", "reasoning_tokens")
    return [call if call.provider == "anthropic" else forgotten(call) for call in calls]


def voltagent(calls: list[Call]) -> list[Call]:
    """
    VoltAgent reports the calls of a run with tools as one sum, and no cache writes. A run whose answer is not
    the wanted object failed.
    """
    answers, tools, objects, failures, nested = (
        calls[:8],
        calls[8:16],
        calls[16:20],
        calls[20:24],
        calls[24:],
    )
    sums = [_summed(pair) for pair in zip(tools[::2], tools[1::2], strict=True)]
    failed = [replace(call, status="error") for call in objects]
    outer = [_summed(pair) for pair in zip(nested[::3], nested[2::3], strict=True)]
    return [_of_voltagent(call) for call in [*answers, *sums, *failed, *failures, *outer, *nested[1::3]]]


def _of_voltagent(call: Call) -> Call:
    reasoning = call.reasoning_tokens if call.input_tokens is None else call.reasoning_tokens or 0
    return replace(call, operation="chat", cache_write_tokens=None, reasoning_tokens=reasoning)


def _summed(calls: tuple[Call, ...]) -> Call:
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")
    sums: dict[str, Any] = {name: sum(getattr(call, name) or 0 for call in calls) for name in names}
    return replace(calls[0], **sums)


def google_adk_js(calls: list[Call]) -> list[Call]:
    """The span of a failure names neither a model nor a provider, and answers have no operation."""
    return [
        replace(call, operation="chat") if call.status == "ok" else without("provider")(call)
        for call in calls
    ]


def unchanged(calls: list[Call]) -> list[Call]:
    return calls


CLIENTS: dict[str, tuple[Told, tuple[str, ...]]] = {
    "langchain_js": (unchanged, ("answers", "streams", "tools", "failures", "together")),
    "strands_js": (strands_js, ("answers", "streams", "tools", "failures", "together")),
    "voltagent": (voltagent, ("answers", "streams", "tools", "objects", "failures", "nested")),
    "google_adk_js": (google_adk_js, ("answers", "streams", "tools", "failures")),
    "openai_agents_js": (openai_agents_js, ("answers", "streams", "tools", "failures")),
    "genkit": (genkit, ("answers", "streams", "tools", "failures", "embeddings")),
    "langfuse_js": (
        langfuse_js,
        ("chat", "stream", "silent_stream", "responses", "tools", "failures", "embeddings"),
    ),
}
# each framework reports its own names of model and its own ids
NO_NAMES: dict[str, Any] = dict.fromkeys(("request_model", "response_model", "request_id"))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_records_are_the_journal(stand: Stand, client: str) -> None:
    """Each call has one record with its tokens and status, as far as the client reports them."""
    told, names = CLIENTS[client]
    langfuse = connect_page("langfuse").environment(url=stand.url, key=stand.key)
    stand.command(["node", f"{client}.mjs", *names], environments.node(client), **langfuse)
    calls = stand.calls()
    assert calls
    expected = [replace(call, **NO_NAMES) for call in told(calls)]
    assert_same(expected, ({**one, **NO_NAMES} for one in stand.records()))
    stand.keep(client, "all", expected)
