"""The provider that a model's name shows, and the name without the prefix of a gateway."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.reading import models


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
def test_provider_is_stated_or_read_from_the_model_name(
    written: Any, model: Any, expected: str | None
) -> None:
    """
    The provider is the stated one, or else the model's name shows it. The path of a route is no provider. No
    record is dropped because its provider is unknown.
    """
    assert expected == models.stated_or_model_provider(written, model)


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
def test_a_model_loses_only_its_providers_segment(
    model: str, provider: str | None, expected: str | None
) -> None:
    """
    From a model's name, only the segment of its provider is removed. Any other segment is part of the name.
    For an ARN, the name is its last part.
    """
    assert expected == models.model_without_prefix(model, provider)


@pytest.mark.parametrize("model", ["amazon/nova-lite-v1", "mistralai/Mixtral-8x7B", "moonshotai/kimi-k2"])
def test_a_makers_segment_stays_where_another_provider_sells_the_model(model: str) -> None:
    """
    If another provider sells a model, the maker's segment stays in the name, because price lists have the
    model under that name.
    """
    assert model == models.model_without_prefix(model, "together_ai")
