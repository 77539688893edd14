"""OpenAI's own usage objects inside other products' payloads, with OpenAI's name for cache writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.normalise.formats.langfuse.events import batch, create, update
from tests.gateway.normalise.formats.payloads import case, one

# This is the usage of the Responses API, as the Langfuse SDK 2.60.10 forwards it.
RESPONSE = {
    "input_tokens": 3011,
    "output_tokens": 705,
    "total_tokens": 3716,
    "input_tokens_details": {
        "cache_write_tokens": 401,
        "cached_tokens": 1003,
        "cache_write_tokens_details": None,
    },
    "output_tokens_details": {"reasoning_tokens": 252},
}


def test_langfuse_passes_on_the_cache_writes() -> None:
    """Langfuse passes on cache writes. They are part of the input, so nothing is added."""
    record = one(
        None, batch(create(), update(usage={"total": 3716, "unit": "TOKENS"}, usageDetails=RESPONSE))
    )
    assert record.input_tokens == 3011
    assert record.output_tokens == 705
    assert record.cache_read_tokens == 1003
    assert record.cache_write_tokens == 401
    assert record.reasoning_tokens == 252


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"cached_tokens": 10, "cache_write_tokens": 7}, 7),
        ({"cached_tokens": 10, "cache_write_tokens": 7, "cache_creation_tokens": 7}, 7),
        ({"cached_tokens": 10, "cache_write_tokens": None}, None),
    ],
)
def test_litellm_writes_either_name_or_both(details: dict[str, Any], expected: int | None) -> None:
    """
    LiteLLM writes cache writes under either name or under both. The same count under two names counts once.
    """
    event = case("litellm", "slp-batch-array")[0]
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    event |= {"prompt_tokens": 100, "completion_tokens": 5}
    event["metadata"] |= {"usage_object": usage}
    record = one("litellm", event)
    assert record.input_tokens == 100
    assert record.cache_read_tokens == 10
    assert record.cache_write_tokens == expected
