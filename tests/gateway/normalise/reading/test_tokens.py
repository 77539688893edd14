"""Token counts: whether totals include cached and reasoning tokens, for each provider's usage object."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.payload.provider_bodies import DocumentPageCounts, ProviderBody
from gateway.normalise.reading.tokens import (
    CacheWrites,
    Details,
    Gemini,
    Tokens,
    Usage,
    normalise_counts,
    tokens_of_gemini,
    tokens_of_usage,
)

COUNT = st.one_of(st.none(), st.integers(0, 10_000))
COUNTS = st.builds(Tokens, COUNT, COUNT, COUNT, COUNT, COUNT, COUNT)


def test_without_a_hint_the_counts_are_inclusive() -> None:
    """As in OpenAI's counts, cached and reasoning tokens are parts of the reported totals."""
    said = Tokens(input=100, output=50, cache_read=80, cache_write=0, reasoning=30)
    assert said == normalise_counts(said)


def test_a_dialect_that_leaves_the_cache_out_gets_it_added() -> None:
    """In Anthropic's counts, cache reads and writes are not part of the input."""
    said = Tokens(input=6, output=412, cache_read=18735, cache_write=1761)
    assert 20502 == normalise_counts(said, without_cache=True).input


def test_a_total_shows_that_the_cache_is_outside() -> None:
    """If total = input + output + cache, the input excludes the cache."""
    said = Tokens(input=1000, output=50, cache_read=200, cache_write=100)
    assert [1300, 1000] == [normalise_counts(said, total=total).input for total in (1350, 1050)]


def test_a_total_shows_that_the_reasoning_is_outside() -> None:
    """If total = input + output + reasoning, the output excludes the reasoning."""
    said = Tokens(input=1000, output=50, reasoning=20)
    assert [70, 50] == [normalise_counts(said, total=total).output for total in (1070, 1050)]


def test_a_total_shows_that_both_are_outside() -> None:
    """If the total is the sum of all four parts, both cached and reasoning tokens were excluded."""
    said = Tokens(input=1000, output=50, cache_read=200, reasoning=20)
    assert Tokens(1200, 70, 200, None, 20) == normalise_counts(said, total=1270)


def test_total_of_a_known_dialect_does_not_add_twice() -> None:
    """
    If the dialect has already added the cache, a reasoning part of the same size is not added because
    of the total.
    """
    said = Tokens(input=10, output=50, cache_read=20, reasoning=20)
    assert Tokens(30, 50, 20, None, 20) == normalise_counts(said, total=80, without_cache=True)


def test_a_part_is_never_larger_than_the_whole() -> None:
    """
    If the cache exceeds the input, or reasoning exceeds the output, it was not included, so it is added.
    """
    assert Tokens(4896, 120, 4096, 0, None) == normalise_counts(Tokens(800, 120, 4096, 0, None))
    assert Tokens(10, 75, None, None, 50) == normalise_counts(Tokens(10, 25, None, None, 50))


def test_an_unknown_input_stays_unknown() -> None:
    """An unknown input stays unknown, because its parts do not give a total."""
    said = Tokens(cache_read=10, reasoning=5)
    assert said == normalise_counts(said, without_cache=True, without_reasoning=True)


@given(COUNTS, COUNT, st.booleans(), st.booleans())
def test_settled_counts_hold_their_parts(
    said: Tokens, total: int | None, cache: bool, reasoning: bool
) -> None:
    """
    For any counts, the result's input is at least the cache, its output is at least the reasoning, and
    neither is smaller than stated.
    """
    settled = normalise_counts(said, total=total, without_cache=cache, without_reasoning=reasoning)
    for whole, before, parts in (
        (settled.input, said.input, (said.cache_read or 0) + (said.cache_write or 0)),
        (settled.output, said.output, said.reasoning or 0),
    ):
        assert whole is None if before is None else whole is not None and whole >= max(before, parts)
    assert (settled.cache_write_1h or 0) <= (settled.cache_write or 0)


@pytest.mark.parametrize(
    "usage",
    [
        {"cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 4}},
        {"cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 4}},
        {"prompt_tokens": 10, "cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 4}},
        {
            "prompt_tokens": 10,
            "prompt_tokens_details": {
                "cache_creation_tokens": 9, "cache_creation_token_details": {"ephemeral_1h_input_tokens": 4},
            },
        },
        {
            "inputTokens": 1, "cacheWriteInputTokens": 9,
            "cacheDetails": [{"ttl": "1h", "inputTokens": 4}, {"ttl": "5m", "inputTokens": 5}],
        },
    ],
    ids=["anthropic", "anthropic, by kind alone", "anthropic in openai's names", "litellm", "converse"],
)  # fmt: skip
def test_one_hour_writes_are_counted_separately(usage: dict[str, Any]) -> None:
    """One-hour writes are counted separately. They are part of the cache writes and cost more."""
    tokens = tokens_of_usage(msgspec.convert(usage, Usage) if "inputTokens" not in usage else _decoded(usage))
    assert tokens.cache_write == 9
    assert tokens.cache_write_1h == 4


@pytest.mark.parametrize(
    "details", [5, "1h", [], [1, None], [{"ttl": "5m", "inputTokens": 9}], [{}] * 3, {"ttl": "1h"}]
)
def test_details_of_writes_may_be_anything(details: Any) -> None:
    """Without one-hour writes in the details, their number is unknown."""
    tokens = tokens_of_usage(
        _decoded({"inputTokens": 1, "cacheWriteInputTokens": 9, "cacheDetails": details})
    )
    assert tokens.cache_write == 9
    assert tokens.cache_write_1h is None


def _decoded(usage: dict[str, Any]) -> Usage:
    return msgspec.json.decode(json.dumps(usage), type=Usage)


def test_openai_totals_include_the_cache() -> None:
    """OpenAI's totals include the cache, so cache reads are not added."""
    said = Usage(prompt_tokens=100, completion_tokens=5, prompt_tokens_details=Details(cached_tokens=90))
    assert Tokens(100, 5, 90, None, None) == tokens_of_usage(said)


def test_anthropic_totals_leave_the_cache_out() -> None:
    """Anthropic's input excludes the cache, so cache reads and writes are added to it."""
    said = Usage(
        input_tokens=2, output_tokens=5, cache_read_input_tokens=95500, cache_creation_input_tokens=1310
    )
    assert Tokens(96812, 5, 95500, 1310, None) == tokens_of_usage(said)


def test_anthropic_cache_writes_of_both_kinds_are_one() -> None:
    """Without a total of cache writes, Anthropic's five-minute and one-hour writes are added up."""
    writes = CacheWrites(ephemeral_5m_input_tokens=3, ephemeral_1h_input_tokens=4)
    assert Tokens(17, 1, None, 7, None, 4) == tokens_of_usage(
        Usage(input_tokens=10, output_tokens=1, cache_creation=writes)
    )


def test_anthropics_thinking_makes_no_openai_usage_of_it() -> None:
    """
    Usage with details of the output is still recognized as Anthropic's. Its input excludes the cache, and
    thinking tokens are reasoning.
    """
    said = Usage(
        input_tokens=5000,
        output_tokens=200,
        cache_read_input_tokens=4000,
        output_tokens_details=Details(thinking_tokens=150),
    )
    assert Tokens(9000, 200, 4000, None, 150) == tokens_of_usage(said)


def test_openais_responses_without_details_of_the_input_keep_their_reasoning() -> None:
    """
    OpenAI's Responses usage without details of the input keeps its reasoning, and nothing is added to the input.
    """
    said = Usage(input_tokens=50, output_tokens=20, output_tokens_details=Details(reasoning_tokens=8))
    assert Tokens(50, 20, None, None, 8) == tokens_of_usage(said)


def test_geminis_tool_results_are_added_to_the_input() -> None:
    """
    Gemini's tool results are added to the input, because they are in the total but not in the prompt count.
    """
    said = Gemini(promptTokenCount=12, cachedContentTokenCount=4, toolUsePromptTokenCount=65)
    assert Tokens(77, None, 4, None, None, meters={"input_tool_tokens": 65}) == tokens_of_gemini(said)


def test_gemini_thinking_tokens_are_added_as_reasoning() -> None:
    """Gemini's thinking tokens are next to the candidates, and count as reasoning."""
    said = Gemini(promptTokenCount=2152, candidatesTokenCount=710, thoughtsTokenCount=844)
    assert Tokens(2152, 1554, None, None, 844) == tokens_of_gemini(said)


def test_an_input_smaller_than_its_own_cache_was_counted_without_it() -> None:
    """
    An input smaller than its own cache excluded the cache, so reads and writes are added. Otherwise
    the input stays.
    """
    assert 160 == normalise_counts(Tokens(10, 1, 100, 50)).input
    assert 150 == normalise_counts(Tokens(150, 1, 100, 50)).input


def test_total_shows_a_cache_outside_an_openai_named_input() -> None:
    """
    The total shows whether an input under OpenAI's names excludes the cache. For example, Portkey writes
    Anthropic's input as prompt tokens, but its total includes the cache.
    """
    usage = Usage(
        prompt_tokens=12, completion_tokens=40, cache_read_input_tokens=2028, cache_creation_input_tokens=288
    )
    # No total is stated. More cached tokens than input tokens show that the input excludes cached tokens.
    assert 2328 == tokens_of_usage(usage).input
    larger = msgspec.structs.replace(usage, prompt_tokens=3000)
    assert 3000 == tokens_of_usage(larger).input
    assert 5316 == tokens_of_usage(msgspec.structs.replace(larger, total_tokens=5356)).input
    assert 3000 == tokens_of_usage(msgspec.structs.replace(larger, total_tokens=3040)).input
    assert 3000 == tokens_of_usage(msgspec.structs.replace(larger, total_tokens=-1)).input


def test_a_total_of_no_cache_writes_gives_way_to_its_kinds() -> None:
    """
    If the total of cache writes is 0 but its kinds are not, the kinds count. LangChain writes such a total.
    """
    kinds = CacheWrites(ephemeral_5m_input_tokens=200, ephemeral_1h_input_tokens=88)
    usage = Usage(input_tokens=12, output_tokens=4, cache_creation_input_tokens=0, cache_creation=kinds)
    assert tokens_of_usage(usage).input == 300
    assert tokens_of_usage(usage).cache_write == 288
    nothing = msgspec.structs.replace(usage, cache_creation=CacheWrites())
    assert tokens_of_usage(nothing).input == 12
    assert tokens_of_usage(nothing).cache_write == 0


def test_geminis_thoughts_may_be_in_the_total_alone() -> None:
    """
    If Gemini's thinking tokens are only in the total, the part above prompt and candidates is reasoning and
    counts as output.
    """
    usage = Gemini(promptTokenCount=1120, candidatesTokenCount=53, totalTokenCount=1184)
    assert Tokens(1120, 64, reasoning=11) == tokens_of_gemini(usage)
    assert Tokens(1120, 53) == tokens_of_gemini(msgspec.structs.replace(usage, totalTokenCount=1173))


@pytest.mark.parametrize(
    "stated",
    [{"reasoning_tokens": 30}, {"completion_tokens_details": Details(reasoning_tokens=30)}],
    ids=["as told", "moved by a gateway"],
)
def test_perplexitys_citation_and_reasoning_tokens_are_added_to_the_completion(
    stated: dict[str, Any],
) -> None:
    """
    Perplexity's citation and reasoning tokens are added to the completion, even if they are fewer. The
    total excludes them.
    """
    told = tokens_of_usage(
        Usage(prompt_tokens=10, completion_tokens=100, total_tokens=110, citation_tokens=20, **stated)
    )
    assert told.input == 10
    assert told.output == 150
    assert told.reasoning == 30
    assert told.meters == {"output_citation_tokens": 20}


@pytest.mark.parametrize(
    ("processed", "annotated", "pages"), [(3, 0, 3), (3, 2, 3), (0, 2, 2)], ids=["plain", "some", "alone"]
)
def test_an_annotated_page_is_one_that_was_read(processed: int, annotated: int, pages: int) -> None:
    """An annotated page also counts as processed, because some deployments count only annotated pages."""
    body = ProviderBody(usage_info=DocumentPageCounts(processed, annotated))
    told = {"input_document_pages": pages, "input_annotated_document_pages": annotated}
    assert told == body.counted_tokens().meters
