"""The Vercel AI SDK in Node, OTLP over HTTP in JSON: the inner spans are the calls, and each counts once."""

from __future__ import annotations

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, without

pytestmark = pytest.mark.clients

NAMES = ("generate", "stream", "loop", "failures", "embeddings")


def told(version: str, name: str, call: Call) -> Call:
    if call.operation == "embeddings":
        return without("response_model")(call)  # the embedding spans of this library have only one model name
    if version == "5" and call.provider == "openai":
        # The library's version 5 has no attribute for OpenAI's cache writes. Its generateText has none for
        # cached and reasoning tokens.
        missing = ("cache_write_tokens",) if name == "stream" else ("cache_read_tokens", "reasoning_tokens")
        return without("cache_write_tokens", *missing)(call)
    return call


@pytest.mark.parametrize("version", ["5", "6"])
@pytest.mark.parametrize("name", NAMES)
def test_the_records_are_the_journal(stand: Stand, version: str, name: str) -> None:
    """
    Streams, tool loops, failures and embeddings of three kinds of model have records, as far as the
    SDK reports them.
    """
    stand.command(["node", "vercel_ai.mjs", version, name], environments.node("vercel_ai"))
    calls, records = stand.calls(), stand.records()
    assert calls
    expected = [told(version, name, call) for call in calls]
    assert_same(expected, records)
    stand.keep(f"vercel_ai_{version}", name, expected)
    if name in ("generate", "stream", "loop"):
        assert {("ada", "gold")} == {(one["user"], one["tags"]["tier"]) for one in records}
