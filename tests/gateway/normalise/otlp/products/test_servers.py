"""Model servers count all calls that they serve, including calls that other sources report."""

from __future__ import annotations

import pytest

from gateway.normalise.outcome import MERGED, ReadOptions
from spool.record import UsageMetric
from tests.gateway.normalise.otlp.items import point, read_points

SERVED = [
    ("vllm", "vllm:prompt_tokens", "input"),
    ("vllm", "vllm:generation_tokens", "output"),
    ("vllm", "vllm:prompt_tokens_cached", "cache_read"),
    ("sglang", "sglang:prompt_tokens", "input"),
    ("sglang", "sglang:generation_tokens", "output"),
    ("sglang", "sglang:cached_tokens", "cache_read"),
    ("tgi", "tgi_request_input_length", "input"),
    ("tgi", "tgi_request_generated_tokens", "output"),
    ("llama_cpp", "llamacpp:prompt_tokens", "input"),
    ("llama_cpp", "llamacpp:tokens_predicted", "output"),
    ("ollama", "ollama_tokens_processed", "input"),
    ("ollama", "ollama_tokens_generated", "output"),
]
REPEATS = [
    "vllm:prompt_tokens_by_source_total", "vllm:prefix_cache_hits_total", "vllm:iteration_tokens_total",
    "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:spec_decode_num_accepted_tokens_total",
    "sglang:prompt_tokens_histogram", "sglang:num_used_tokens", "sglang:token_usage", "tgi_request_max_new_tokens",
    "tgi_batch_current_max_tokens", "llamacpp:kv_cache_tokens", "ollama_tokens_per_second",
]  # fmt: skip


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize(("source", "name", "token_type"), SERVED)
def test_what_was_served_is_shown_and_not_counted(
    source: str, name: str, token_type: str, cumulative: bool, counted: bool
) -> None:
    """
    Counters of model servers are shown and not counted, because other sources may report the same calls. They
    count if the operator states that no other source does. Their names may have a colon and the suffix `_total`.
    """
    names = {f"{colon}{total}" for colon in (name, name.replace(":", "_")) for total in ("", "_total")}
    points = [
        point(each, 5, {"model_name": "qwen3", "engine": "0"}, cumulative=cumulative)
        for each in sorted(names)
    ]
    outcome = read_points(*points, options=ReadOptions(counted=frozenset([source] if counted else ["otel"])))
    found = [one for one in outcome.records if isinstance(one, UsageMetric)]
    found += [one.template for one in outcome.points]
    assert [(source, token_type, "qwen3", not counted)] * len(names) == [
        (one.source, one.token_type, one.model, one.shadow) for one in found
    ]


@pytest.mark.parametrize("why_not", ["", "a gauge"])
@pytest.mark.parametrize("name", REPEATS)
def test_further_figures_repeat_them(name: str, why_not: str) -> None:
    """
    Further metrics of these servers do not count: they are distributions, parts with other names,
    or cache capacity.
    """
    assert {MERGED: 1} == dict(read_points(point(name, 5, {"model_name": "m"}, cannot_count=why_not)).ignored)
