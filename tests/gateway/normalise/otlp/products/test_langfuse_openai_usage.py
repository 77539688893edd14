"""OpenAI's usage objects, as the Langfuse SDK 5.0.4 forwards them. The totals include cached tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import only, said, span, traces

CHAT = {
    "prompt_tokens": 3011,
    "completion_tokens": 705,
    "total_tokens": 3716,
    "prompt_tokens_details": {"cache_write_tokens": 401, "cached_tokens": 1003},
    "completion_tokens_details": {"reasoning_tokens": 252},
}
RESPONSE = {
    "input_tokens": 3011,
    "input_tokens_details": {"cache_write_tokens": 401, "cached_tokens": 1003},
    "output_tokens": 705,
    "output_tokens_details": {"reasoning_tokens": 252},
    "total_tokens": 3716,
}


@pytest.mark.parametrize("usage", [CHAT, RESPONSE], ids=["chat", "responses"])
def test_the_cache_writes_are_a_part_of_the_input(usage: dict[str, Any]) -> None:
    """
    Cache writes are part of the input. Both OpenAI APIs put cache writes into the details, so nothing
    is added twice.
    """
    generation = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "gpt-5-2025-08-07",
        "langfuse.observation.usage_details": json.dumps(usage),
    }
    record = only(traces(span(1, generation, name="OpenAI-generation"), scope="langfuse-sdk"))
    assert {
        "input_tokens": 3011,
        "output_tokens": 705,
        "cache_read_tokens": 1003,
        "cache_write_tokens": 401,
        "reasoning_tokens": 252,
    } == said(
        record, "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"
    )
