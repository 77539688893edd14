"""Names of models: the provider, the maker, and the name without a gateway's prefix."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from gateway.normalise.reading.values import text_or_none
from spool import providers
from spool.caches import cache_by_text

# prefixes of model names, with the provider that makes these models
_MAKERS = (
    (("claude",), "anthropic"),
    (("gemini", "text-embedding-00"), "gcp.gen_ai"),
    (("gpt-", "ft:gpt-", "chatgpt-", "o1", "o3", "o4", "text-embedding-", "dall-e", "whisper", "tts",
      "computer-use-preview", "codex-", "davinci", "babbage"), "openai"),
    (("mistral-", "codestral", "magistral", "ministral", "devstral", "pixtral", "voxtral", "open-mi"), "mistral_ai"),
    (("command", "embed-"), "cohere"),
    (("deepseek",), "deepseek"),
    (("grok",), "x_ai"),
    (("sonar",), "perplexity"),
    (("kimi", "moonshot"), "moonshot_ai"),
    (("glm-",), "zhipuai"),
    (("minimax-",), "minimax"),
    (("voyage-",), "voyageai"),
)  # fmt: skip

# `us.anthropic.claude-sonnet-4-5-20250929-v1:0` consists of a region, the maker, and the maker's name of the model
BEDROCK_ID: Final = re.compile(
    r"(?:(?:[a-z]{2}(?:-gov)?|apac|global)\.)?"
    r"(?:ai21|amazon|anthropic|cohere|deepseek|google|luma|meta|minimax|mistral|moonshot(?:ai)?|nvidia|openai"
    r"|qwen|stability|twelvelabs|writer|zai)"
    r"\.(?P<model>[a-z].*)"
)

# Makers whose names are part of model names at other sellers, such as `mistralai/Mixtral-8x7B` at Together
_SOLD_BY_OTHERS = frozenset({"amazon", "mistralai", "moonshotai"})


def stated_or_model_provider(written: Any, model: Any) -> str | None:
    """
    Return the stated provider. If none is stated, or if the value is a path (has a `/`), return the model's
    provider.
    """
    stated = stated_provider(written)
    if stated is not None:
        return stated
    model_text = text_or_none(model)
    return None if model_text is None else provider_of_model(model_text)


def stated_provider(written: Any) -> str | None:
    """
    Return the canonical name of the stated provider. Return None if none is stated, or if the value is a
    route's path.
    """
    stated = text_or_none(written)
    return None if stated is None or "/" in stated else providers.canonical_provider_name(stated)


@cache_by_text(2048)
def provider_of_model(model: str) -> str | None:
    """
    Return the provider of a model by its name: the first segment, the form of a Bedrock id, or the maker.
    """
    name = model.lower().removeprefix("models/")
    if name.startswith("arn:aws") and ":bedrock" in name:
        return "aws.bedrock"
    segment, slash, _rest = name.partition("/")
    if slash and _is_standard_provider(segment):
        return providers.canonical_provider_name(segment)
    return "aws.bedrock" if BEDROCK_ID.match(name) else maker_of_model(name)


def maker_of_model(model: str) -> str | None:
    """Return the maker of a model by the beginning of its name. `model` must be in lower case."""
    return next((provider for beginnings, provider in _MAKERS if model.startswith(beginnings)), None)


def model_without_prefix(model: Any, written_provider: Any = None) -> str | None:
    """
    Return a model name without a provider prefix. From an ARN, only the text after the last slash stays.
    """
    model_text = text_or_none(model)
    return (
        None
        if model_text is None
        else text_or_none(_remove_provider_prefix(model_text, text_or_none(written_provider)))
    )


@lru_cache(maxsize=1024)
def _remove_provider_prefix(model: str, stated: str | None) -> str:
    if model.startswith("arn:"):
        return model.rpartition("/")[2]
    segment, slash, rest = model.partition("/")
    if not slash or not rest or not _is_provider_prefix(segment.lower(), stated):
        return model
    if providers.canonical_provider_name(segment) == "aws.bedrock":
        rest = rest.removeprefix("converse/").removeprefix("invoke/")
        return rest.rpartition("/")[2] if rest.startswith("arn:") else rest
    return rest


def _is_provider_prefix(segment: str, stated: str | None) -> bool:
    if stated is not None and segment == stated.lower():
        return True
    return segment not in _SOLD_BY_OTHERS and _is_standard_provider(segment)


def _is_standard_provider(segment: str) -> bool:
    row = providers.find_provider(segment)
    return row is not None and row.standard
