"""Langfuse's usage buckets, in batches and in spans."""

from __future__ import annotations

import pytest

from gateway.normalise.reading.tokens import Tokens, is_token_bucket, tokens_of_buckets


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        pytest.param({"input": 10, "output": 5}, Tokens(10, 5, None, None, None), id="plain"),
        pytest.param(
            {"input": 10, "input_cached_tokens": 90, "output": 5, "output_reasoning_tokens": 7, "total": 112},
            Tokens(100, 12, 90, None, 7),
            id="apart",
        ),
        pytest.param(
            {"input": 100, "cache_read_input_tokens": 90, "output": 5, "total": 105},
            Tokens(100, 5, 90, None, None),
            id="the total says that they are inclusive",
        ),
        pytest.param(
            {"input": 3, "input_ephemeral_5m": 20, "input_ephemeral_1h": 7, "cache_read": 50},
            Tokens(80, None, 50, 27, None, 7),
            id="two kinds of cache writes, a cache that does not say input",
        ),
        pytest.param(
            {"input_tokens": 9, "total_tokens": 9}, Tokens(9, None, None, None, None), id="an embedding"
        ),
        pytest.param(
            {"total": 9}, Tokens(None, None, None, None, None), id="a total alone tells neither side"
        ),
        pytest.param({}, Tokens(None, None, None, None, None), id="nothing"),
    ],
)
def test_what_buckets_come_to(buckets: dict[str, int], expected: Tokens) -> None:
    """The parts of Langfuse's buckets are added up, unless the total shows that it already includes them."""
    assert expected == tokens_of_buckets(buckets)


def test_other_names_are_no_buckets() -> None:
    """Other names in the usage are no token buckets, because users add their own counts there."""
    assert ["input_audio", "total"] == [
        name for name in ("input_audio", "seconds", "tier", "total") if is_token_bucket(name)
    ]
