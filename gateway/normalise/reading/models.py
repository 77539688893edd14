"""Who served a call and which model it was: the provider table, and model names without a gateway's prefix."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from gateway.normalise.reading.values import text

# OpenTelemetry's values of gen_ai.provider.name, then what gateways write for them.
PROVIDERS = {
    name: name
    for name in (
        "anthropic", "aws.bedrock", "azure.ai.inference", "azure.ai.openai", "cohere", "deepseek", "gcp.gemini",
        "gcp.gen_ai", "gcp.vertex_ai", "groq", "ibm.watsonx.ai", "mistral_ai", "openai", "perplexity", "x_ai",
    )
} | {
    "azure": "azure.ai.openai", "azure-openai": "azure.ai.openai", "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock", "aws-bedrock": "aws.bedrock", "vertex_ai": "gcp.vertex_ai",
    "vertex-ai": "gcp.vertex_ai", "google-vertex-ai": "gcp.vertex_ai", "gemini": "gcp.gemini",
    "google": "gcp.gemini", "google-ai-studio": "gcp.gemini", "mistral": "mistral_ai", "mistral-ai": "mistral_ai",
    "xai": "x_ai", "x-ai": "x_ai", "grok": "x_ai", "cohere_chat": "cohere", "watsonx": "ibm.watsonx.ai",
    "perplexity-ai": "perplexity",
}  # fmt: skip

_BEDROCK_ID = re.compile(
    r"(?:[a-z]{2}(?:-gov)?\.|apac\.|global\.)?"
    r"(?:anthropic|amazon|meta|cohere|mistral|ai21|deepseek|stability|qwen|openai|writer|twelvelabs|luma|nvidia"
    r"|minimax|moonshot(?:ai)?|google|zai)\.[a-z]"
)
_BEGINNINGS = (
    (("gpt-", "o1", "o3", "o4", "chatgpt-", "text-embedding-", "dall-e", "gpt-image", "whisper", "tts"), "openai"),
    (("claude-",), "anthropic"),
    (("gemini-",), "gcp.gen_ai"),
    (("mistral-", "codestral", "magistral"), "mistral_ai"),
    (("command",), "cohere"),
    (("deepseek-",), "deepseek"),
    (("grok-",), "x_ai"),
    (("sonar",), "perplexity"),
)


def provider(written: Any, model: Any) -> str | None:
    """What the source states, in OpenTelemetry's words; what is empty or a route's path is told by the model."""
    stated = text(written)
    if stated is not None and "/" not in stated:
        return PROVIDERS.get(stated.lower(), stated.lower())
    named = text(model)
    return None if named is None else _of_model(named.lower())


@lru_cache(maxsize=1024)
def _name(model: str, stated: str | None) -> str:
    if model.startswith("arn:"):
        return model.rpartition("/")[2]
    segment, slash, rest = model.partition("/")
    if not slash or not rest:
        return model
    lower = segment.lower()
    if lower not in PROVIDERS and (stated is None or lower != stated.lower()):
        return model
    if PROVIDERS.get(lower) == "aws.bedrock":
        rest = rest.removeprefix("converse/").removeprefix("invoke/")
        return rest.rpartition("/")[2] if rest.startswith("arn:") else rest
    return rest


def model_name(model: Any, written_provider: Any = None) -> str | None:
    """The name without its provider's segment; of an ARN the part after the last slash."""
    named = text(model)
    return None if named is None else text(_name(named, text(written_provider)))


@lru_cache(maxsize=1024)
def _of_model(model: str) -> str | None:
    if model.startswith("arn:aws") and ":bedrock:" in model:
        return "aws.bedrock"
    segment, slash, _rest = model.partition("/")
    if slash and segment in PROVIDERS:
        return PROVIDERS[segment]
    if _BEDROCK_ID.match(model):
        return "aws.bedrock"
    return next((name for beginnings, name in _BEGINNINGS if model.startswith(beginnings)), None)
