"""
Instrumentations of the OpenAI and Anthropic libraries, and Pydantic AI, against a provider with a journal.

A record differs from the journal only where the client omits or changes a figure before sending. A comment
here describes each difference, and its test fails when the client repairs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.clients.conftest import WITH_EVENTS, Stand
from tests.clients.journal import Call, assert_same, without

pytestmark = pytest.mark.clients

OPENAI = ("chat", "stream", "silent_stream", "responses", "tools", "failures", "retry", "embeddings")
ANTHROPIC = ("messages", "raw_stream", "managed_stream", "message_tools", "message_failures")
# returns what a client should report for the calls of one program
Told = Callable[[str, list[Call]], list[Call]]


def openai_v2(name: str, calls: list[Call]) -> list[Call]:
    if name == "responses":
        return []  # this instrumentation traces only chat completions and embeddings
    # The client has no attributes for cached and reasoning tokens.
    silent = without("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    return [silent(call) for call in _without_retries(name, calls)]


def openllmetry(name: str, calls: list[Call]) -> list[Call]:
    reported = _without_retries(name, calls)
    if name in ANTHROPIC:
        return reported  # the library's own span has the same response id and arrives first, so it becomes the record
    # The client has no attribute for OpenAI's cache writes.
    reported = [without("cache_write_tokens")(call) for call in reported]
    if "stream" in name:
        # the client reads the number of reasoning tokens only from responses without streaming
        reported = [without("reasoning_tokens")(call) for call in reported]
    if name == "embeddings":
        # The client reports 0 where the provider reported nothing.
        reported = [replace(call, cache_read_tokens=0) for call in reported]
    return reported


def openinference(name: str, calls: list[Call]) -> list[Call]:
    reported = _without_retries(name, calls)
    if name in ANTHROPIC:
        # the library's own spans have the same response id, nested or in another trace
        return reported
    # The client reports one model name: the provider's, if there is one. The response id is inside
    # the response text.
    return [replace(_in_its_words(call), response_model=None) for call in reported]


def genai(name: str, calls: list[Call]) -> list[Call]:
    return _without_retries(name, calls)


def pydantic_ai(_: str, calls: list[Call]) -> list[Call]:
    return calls


CLIENTS: dict[str, tuple[Told, tuple[str, ...]]] = {
    "openai_v2": (openai_v2, OPENAI),
    "genai": (genai, OPENAI + ANTHROPIC),
    "openllmetry": (openllmetry, OPENAI + ANTHROPIC),
    "openinference": (openinference, OPENAI + ANTHROPIC),
    "pydantic_ai": (pydantic_ai, ("answers", "streams", "tools", "failures", "embeddings")),
}
RUNS = [(client, name) for client, (_, names) in CLIENTS.items() for name in names]


@pytest.mark.parametrize(("client", "name"), RUNS)
def test_the_records_are_the_journal(stand: Stand, client: str, name: str) -> None:
    """Each call has one record with its ids, models, tokens and status, as far as the client reports them."""
    stand.run(client, f"with_{client}.py", name, **(WITH_EVENTS if client == "genai" else {}))
    calls = stand.calls()
    told, _ = CLIENTS[client]
    assert calls
    records = stand.records()
    assert_same(told(name, calls), records)
    stand.keep(client, name, told(name, calls))
    unpriced = [one for one in records if one["input_tokens"] and one["cost_source"] == "none"]
    assert [] == unpriced


def _without_retries(name: str, calls: list[Call]) -> list[Call]:
    """The library's retry is within one span, so the failed first attempt is not reported."""
    if name != "retry":
        return calls
    failed, answered = calls
    assert failed.status == "error"
    assert answered.status == "ok"
    return [answered]


def _in_its_words(call: Call) -> Call:
    return replace(call, request_model=call.response_model or call.request_model)
