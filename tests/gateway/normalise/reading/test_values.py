"""The rules that every format shares: counts, money, times, providers, model names, paths and free metadata."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED
from gateway.normalise.reading import metadata, models, operations, tags, times, tokens, values
from spool.record import Inference, rfc3339


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0),
        (7, 7),
        (Decimal("150.0"), 150),
        ("23", 23),
        ("150.0", 150),
        ("", None),
        ("-", None),
        ("None", None),
    ],
)
def test_counts_are_whole_numbers_or_unknown(value: Any, expected: int | None) -> None:
    """Numbers as text and as floats become integers; what stands for nothing is never 0."""
    assert expected == values.count(value, "tokens")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1, IMPLAUSIBLE),
        (Decimal("1.5"), IMPLAUSIBLE),
        (2 * 10**9, IMPLAUSIBLE),
        (Decimal("1e999"), IMPLAUSIBLE),
        ("many", MALFORMED),
        (True, MALFORMED),
        ({}, MALFORMED),
        ("1e99999999999999999999", IMPLAUSIBLE),
    ],
)
def test_counts_that_cannot_be_are_refused_by_field(value: Any, reason: str) -> None:
    """The message names the field and never the value."""
    with pytest.raises(values.BadValue) as refused:
        values.count(value, "usage.tokens")
    assert reason == refused.value.reason
    assert refused.value.message.startswith("usage.tokens ")
    assert str(value) not in refused.value.message or value in (-1,)


@pytest.mark.parametrize("value", ["x" * 3000, Decimal("1." + "1" * 3000), 10**3000, True, ["x"], ""])
def test_what_no_name_can_be_says_nothing(value: Any) -> None:
    """Longer than any id, whatever it was written as; no scalar; empty."""
    assert values.text(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("0.00024839999999999997"), "0.00024839999999999997"),
        (Decimal("1.8e-07"), "0.00000018"),
        (0, "0"),
        (Decimal("0.0"), "0"),
        (Decimal("-0.0"), "0"),
        ("0.00001635", "0.00001635"),
        (160, "160"),
        (Decimal("1.50"), "1.5"),
        (Decimal("100"), "100"),
        (None, None),
        ("", None),
        (Decimal("2E+2"), "200"),
    ],
)
def test_money_keeps_its_digits_in_plain_notation(value: Any, expected: str | None) -> None:
    """No binary float, no exponent, no zeros that say nothing."""
    assert expected == values.money(value, "cost")


@pytest.mark.parametrize("value", [-1, Decimal("1e-99"), Decimal("1e20"), Decimal("0." + "1" * 200), "free", [1]])
def test_money_that_cannot_be_is_refused(value: Any) -> None:
    """A negative price, one beyond all prices, one of more digits than any sum, and words."""
    with pytest.raises(values.BadValue):
        values.money(value, "cost")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1795158582.098113"), "2026-11-20T07:09:42.098113Z"),
        ("1795158582.098113", "2026-11-20T07:09:42.098113Z"),
        (1763632810001, "2025-11-20T10:00:10.001Z"),
        (1763632810001000000, "2025-11-20T10:00:10.001Z"),
        ("2025-05-26T14:13:16.469836-07:00", "2025-05-26T21:13:16.469836Z"),
        ("2026-06-29T17:34:38.450939+05:30", "2026-06-29T12:04:38.450939Z"),
        ("2025-09-02 10:14:51.000000 UTC", "2025-09-02T10:14:51Z"),
        ("2025-11-04T09:12:33.4567890Z", "2025-11-04T09:12:33.456789Z"),
        ("2025-11-04T09:12:33.1234567Z", "2025-11-04T09:12:33.1234567Z"),
        ("2025-01-02 03:04:05.678901", "2025-01-02T03:04:05.678901Z"),
        ("2025-01-02T03:04Z", "2025-01-02T03:04:00Z"),
        (0, None),
        (None, None),
        ("", None),
        ("yesterday", None),
        (-5, None),
        (10**30, None),
        ("2025-13-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
        (True, None),
        ({}, None),
    ],
)
def test_times_are_exact_whatever_their_form(value: Any, expected: str | None) -> None:
    """Nonsense is no time: the call is kept all the same."""
    assert expected == rfc3339(times.instant(value))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("804ms", 804_000_000),
        ("1.5s", 1_500_000_000),
        ("350us", 350_000),
        ("1m2s", 62_000_000_000),
        ("12", 12_000_000),
        (7, 7_000_000),
        ("soon", None),
        ("5 parsecs", None),
        ("-3s", None),
        pytest.param("9" * 10**6, None, id="a million digits"),
    ],
)
def test_durations_carry_their_unit(written: Any, expected: int | None) -> None:
    """agentgateway's notation; a bare number is milliseconds."""
    assert expected == times.duration(written)


@pytest.mark.parametrize(
    ("written", "model", "expected"),
    [
        ("azure", None, "azure.ai.openai"),
        ("AZURE-OPENAI", None, "azure.ai.openai"),
        ("azure_ai", None, "azure.ai.inference"),
        ("bedrock", None, "aws.bedrock"),
        ("google-vertex-ai", None, "gcp.vertex_ai"),
        ("google", None, "gcp.gemini"),
        ("xai", None, "x_ai"),
        ("cohere_chat", None, "cohere"),
        ("watsonx", None, "ibm.watsonx.ai"),
        ("Hosted_VLLM", "gpt-4o", "hosted_vllm"),
        ("", "gpt-4o", "openai"),
        ("-", "claude-sonnet-4-5", "anthropic"),
        ("default/tars/route/x", "gpt-4o-mini", "openai"),
        (None, "bedrock/whatever", "aws.bedrock"),
        (None, "us.anthropic.claude-haiku-4-5-20251001-v1:0", "aws.bedrock"),
        (None, "global.amazon.nova-2", "aws.bedrock"),
        (None, "gemini-2.5-pro", "gcp.gen_ai"),
        (None, "codestral-2", "mistral_ai"),
        (None, "command-r", "cohere"),
        (None, "deepseek-chat", "deepseek"),
        (None, "grok-4", "x_ai"),
        (None, "sonar-pro", "perplexity"),
        (None, "o3-mini", "openai"),
        (None, "qwen-turbo", None),
        (None, None, None),
        (None, "@cf/meta/llama", None),
    ],
)
def test_the_provider_is_stated_or_told_by_the_model(written: Any, model: Any, expected: str | None) -> None:
    """A route's path states nothing, and no record is dropped for want of a provider."""
    assert expected == models.provider(written, model)


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("openai/gpt-4o", None, "gpt-4o"),
        ("hosted_vllm/llama", "hosted_vllm", "llama"),
        ("hosted_vllm/llama", "openai", "hosted_vllm/llama"),
        ("bedrock/converse/us.meta.llama", None, "us.meta.llama"),
        ("bedrock/invoke/x", "bedrock", "x"),
        ("@cf/meta/llama-3.1-8b-instruct", "workers-ai", "@cf/meta/llama-3.1-8b-instruct"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude", None, "us.anthropic.claude"),
        ("bedrock/arn:aws:bedrock:us-east-1:1:provisioned-model/abc", "bedrock", "abc"),
        ("sao10k/l3-stheno-8b", "infermatic", "sao10k/l3-stheno-8b"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("", "openai", None),
        ("openai/", "openai", "openai/"),
    ],
)
def test_a_model_loses_only_its_providers_segment(model: str, provider: str | None, expected: str | None) -> None:
    """Any other segment is part of the name; of an ARN the last part is the name."""
    assert expected == models.model_name(model, provider)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions?x=1", "chat"),
        ("https://api.anthropic.com/v1/messages", "chat"),
        ("chat/completions", "chat"),
        ("/v1/responses", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/images/generations", "image_generation"),
        ("/v1/audio/transcriptions", "transcription"),
        ("/v1/audio/speech", "speech"),
        ("/v1beta/models/g:streamGenerateContent", "generate_content"),
        ("/model/x/converse", "chat"),
        ("/ai/chat", None),
        ("", None),
        (None, None),
    ],
)
def test_an_operation_is_told_by_the_end_of_a_path(path: str | None, expected: str | None) -> None:
    """Its query does not count."""
    assert expected == operations.of_path(path)


def test_openai_totals_include_the_cache() -> None:
    """The cache read is a part, not an addition."""
    said = tokens.Usage(prompt_tokens=100, completion_tokens=5, prompt_tokens_details=tokens.Details(cached_tokens=90))
    assert tokens.Tokens(100, 5, 90, None, None) == tokens.of_usage(said)


def test_anthropic_totals_leave_the_cache_out() -> None:
    """Both kinds of cache go into the input."""
    said = tokens.Usage(
        input_tokens=2, output_tokens=5, cache_read_input_tokens=95500, cache_creation_input_tokens=1310
    )
    assert tokens.Tokens(96812, 5, 95500, 1310, None) == tokens.of_usage(said)


def test_anthropic_cache_writes_of_both_kinds_are_one() -> None:
    """Where there is no total, the 5-minute and the 1-hour writes are added."""
    writes = tokens.CacheWrites(ephemeral_5m_input_tokens=3, ephemeral_1h_input_tokens=4)
    assert tokens.Tokens(17, 1, None, 7, None) == tokens.of_usage(
        tokens.Usage(input_tokens=10, output_tokens=1, cache_creation=writes)
    )


def test_anthropics_thinking_makes_no_openai_usage_of_it() -> None:
    """It gives details of its output, too: the cache is still not in its input, and thinking is reasoning."""
    said = tokens.Usage(
        input_tokens=5000,
        output_tokens=200,
        cache_read_input_tokens=4000,
        output_tokens_details=tokens.Details(thinking_tokens=150),
    )
    assert tokens.Tokens(9000, 200, 4000, None, 150) == tokens.of_usage(said)


def test_openais_responses_without_details_of_the_input_keep_their_reasoning() -> None:
    """There is nothing to add to the input."""
    said = tokens.Usage(input_tokens=50, output_tokens=20, output_tokens_details=tokens.Details(reasoning_tokens=8))
    assert tokens.Tokens(50, 20, None, None, 8) == tokens.of_usage(said)


def test_what_tools_answered_goes_into_geminis_input_too() -> None:
    """It stands beside the prompt, and the total holds both."""
    said = tokens.Gemini(promptTokenCount=12, cachedContentTokenCount=4, toolUsePromptTokenCount=65)
    assert tokens.Tokens(77, None, 4, None, None) == tokens.of_gemini(said)


def test_gemini_thoughts_stand_beside_the_candidates() -> None:
    """And are the reasoning."""
    said = tokens.Gemini(promptTokenCount=2152, candidatesTokenCount=710, thoughtsTokenCount=844)
    assert tokens.Tokens(2152, 1554, None, None, 844) == tokens.of_gemini(said)


def test_an_input_smaller_than_its_own_cache_was_counted_without_it() -> None:
    """Then both kinds are added; otherwise the input is taken as it is."""
    assert 160 == tokens.settle(tokens.Tokens(10, 1, 100, 50)).input
    assert 150 == tokens.settle(tokens.Tokens(150, 1, 100, 50)).input


def test_metadata_names_who_and_leaves_tags() -> None:
    """A map fills user, team and session; scalars are tags; nesting, content, credentials and e-mail are left out."""
    record = Inference(id=b"", source="test")
    free = metadata.Metadata()
    free.learn(
        {
            "user_id": 7,
            "teamId": "search",
            "session": "s",
            "env": "prod",
            "test": True,
            "n": Decimal("1.5"),
            "none": None,
            "nested": {"a": 1},
            "prompt": "CANARY",
            "api_key": "CANARY",
            "note": "sk-abcdefghijklmnop",
            "x.content": "CANARY",
            "masked": "sk********pqr",
            "chat_history": "CANARY",
            "userEmail": "somebody at home",
        }
    )
    free.describe(record, principal="alice")
    assert ("alice", "search", "s") == (record.user, record.team, record.session)
    assert {"env": "prod", "test": "true", "n": "1.5", "end_user": "7"} == record.tags
    assert 8 == free.left_out


def test_names_of_any_length_are_not_remembered() -> None:
    """A sender could fill the memory with them."""
    free = metadata.Metadata()
    tags.names_secret.cache_clear()
    free.learn({"x" * 65: "1", "y" * 10**6: "1", "z": "1"})
    assert ({"z": "1"}, 2, 1) == (free.tags, free.left_out, tags.names_secret.cache_info().currsize)


def test_a_list_of_tags_is_cut_at_the_first_colon() -> None:
    """A bare word is true."""
    free = metadata.Metadata()
    free.label(["env:prod", "url:http://x", "beta", 3, {"a": 1}])
    assert {"env": "prod", "url": "http://x", "beta": "true"} == free.tags
    assert 2 == free.left_out


@pytest.mark.parametrize(
    "value",
    [
        "sk-proj-abcdefgh12345678",
        "sk-...abcd",
        "ab********xyz",
        "Bearer abc",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGci.eyJzdWIi.x",
    ],
)
def test_a_key_is_never_named_by_itself(value: str) -> None:
    """Nor by a part of it; the next name is taken."""
    assert "alias" == metadata.key_name(value, "alias")
    assert metadata.key_name(value) is None


@pytest.mark.parametrize(
    "value",
    ["alpha-prod-key", "941875b27e83f6bffca0a295a1195d0a1fa08445b0715d7e29feb88761962645", "fixture key", "my-vk"],
)
def test_an_alias_or_a_hash_names_a_key(value: str) -> None:
    """Neither looks like a credential."""
    assert value == metadata.key_name(value)
