"""Spring AI reports spans and counters of the same calls through Micrometer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, without

pytestmark = pytest.mark.clients

NAMES = ("chat", "stream", "tools", "failures", "embeddings")


def told(client: str, name: str, calls: list[Call]) -> list[Call]:
    """
    Return the tokens that Spring AI reports. Cached tokens are missing in version 1 and in streams, and
    Anthropic's input then excludes them.
    """
    if client == "spring_ai_2":
        return [_uncached(call) if name == "stream" else _with_cache(call) for call in calls]
    kept = [_uncached(call) for call in calls]
    # Version 1 adds the tokens of the previous call to those of the call that sends a tool's result.
    if name == "tools":
        kept = [_summed(call, kept[place - 1]) if place % 2 else call for place, call in enumerate(kept)]
    return kept


def of_version_1(stand: Stand, provider: str) -> dict[str, str]:
    return {
        "spring.ai.openai.base-url": provider,
        "spring.ai.openai.chat.options.model": "gpt-4o",
        "spring.ai.openai.chat.options.stream-usage": "true",
        "spring.ai.anthropic.chat.options.model": "claude-sonnet-4-5",
        "management.otlp.tracing.endpoint": f"{stand.url}/v1/traces",
        "management.otlp.tracing.headers.authorization": stand.key,
    }


def of_version_2(stand: Stand, provider: str) -> dict[str, str]:
    return {
        "spring.ai.openai.base-url": f"{provider}/v1",
        "spring.ai.openai.chat.model": "gpt-4o",
        "spring.ai.openai.chat.stream-options.include-usage": "true",
        "spring.ai.anthropic.chat.model": "claude-sonnet-4-5",
        "management.opentelemetry.tracing.export.otlp.endpoint": f"{stand.url}/v1/traces",
        "management.opentelemetry.tracing.export.otlp.headers.authorization": stand.key,
    }


def _with_cache(call: Call) -> Call:
    """Return the call without what version 2 leaves out: reasoning tokens, and OpenAI's cache writes."""
    missing = (
        ("reasoning_tokens",) if call.provider == "anthropic" else ("reasoning_tokens", "cache_write_tokens")
    )
    return without(*missing)(call)


def _uncached(call: Call) -> Call:
    kept = without("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")(call)
    if call.provider == "anthropic" and call.input_tokens is not None:
        cached = (call.cache_read_tokens or 0) + (call.cache_write_tokens or 0)
        kept = replace(kept, input_tokens=call.input_tokens - cached)
    return kept


def _summed(call: Call, before: Call) -> Call:
    given = (call.input_tokens or 0) + (before.input_tokens or 0)
    made = (call.output_tokens or 0) + (before.output_tokens or 0)
    return replace(call, input_tokens=given, output_tokens=made)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("client", ["spring_ai", "spring_ai_2"])
def test_the_records_are_the_journal(stand: Stand, tmp_path: Path, client: str, name: str) -> None:
    """Each call has one record, as far as Spring AI reports it."""
    provider = stand.provider.url + ("/fail-400" if name == "failures" else "")
    settings = {
        "spring.main.web-application-type": "none",
        "spring.main.banner-mode": "off",
        "spring.application.name": "shop",
        "spring.ai.openai.api-key": "sk-fake",
        "spring.ai.openai.embedding.options.model": "text-embedding-3-small",
        "spring.ai.anthropic.base-url": provider,
        "spring.ai.anthropic.api-key": "sk-ant-fake",
        "management.tracing.sampling.probability": "1.0",
        "management.otlp.metrics.export.url": f"{stand.url}/v1/metrics",
        "management.otlp.metrics.export.headers.authorization": stand.key,
        **(of_version_1 if client == "spring_ai" else of_version_2)(stand, provider),
    }
    options = [f"--{option}={value}" for option, value in settings.items()]
    command = environments.java(client, sources_of="spring_ai")
    stand.program([*command, "client.SpringAi", name, *options], tmp_path, {})
    calls = stand.calls()
    assert calls
    expected = told(client, name, calls)
    assert_same(expected, stand.records())
    stand.keep(client, name, expected, tmp_path)
