"""LangChain4j in Quarkus, with the spans of its AI services and models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import assert_same, without

pytestmark = pytest.mark.clients


def test_the_records_are_the_journal(stand: Stand, tmp_path: Path) -> None:
    """
    Each call has one record, streamed or not. The spans have no tokens of a cache and no reasoning tokens. A failure
    is one span, although LangChain4j repeats the request.
    """
    command = environments.quarkus("quarkus_langchain4j")
    stand.program(command, tmp_path, stand.environment() | environments.of_java())
    *answered, failed, repeated = stand.calls()
    assert len(answered) == 2
    assert failed == repeated
    kept = without("cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    expected = [kept(call) for call in (*answered, failed)]
    assert_same(expected, stand.records())
    stand.keep("quarkus_langchain4j", "all", expected, tmp_path)
