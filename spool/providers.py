"""
Providers of AI models: their names in records, in rate cards and on bills, and variants of these names. Pure.

Every receiver recognizes names by this table; prices and bills translate by it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Provider(NamedTuple):
    """
    A provider. `name`: OpenTelemetry's name for it, if there is one. Records contain this name for every
    variant.

    If not `standard`, the provider only has a rate card, and records keep the reported name. `spellings` are
    in lower case, with `-` for `_`, `.` and spaces.
    """

    name: str
    card: str  # name in rate cards
    display: str = ""  # name on bills; "" means `name`
    spellings: tuple[str, ...] = ()
    standard: bool = True


CURSOR = "cursor"
PROVIDERS = (
    Provider("anthropic", "anthropic", "Anthropic", ("claude",)),
    Provider("aws.bedrock", "aws", "Amazon Web Services", (
        "amazon", "amazon-bedrock", "aws", "aws-anthropic", "aws-bedrock-converse", "bedrock",
        "bedrock-anthropic", "bedrock-converse",
    )),
    Provider("azure.ai.inference", "azure", "Microsoft", ("az-ai-inference", "azure-ai", "azure-ai-foundry")),
    Provider("azure.ai.openai", "azure", "Microsoft", (
        "az-ai-agents", "az-ai-openai", "azure", "azure-openai", "azure-openai-responses", "azure-text",
    )),
    Provider("cohere", "cohere", "Cohere", ("cohere-chat",)),
    Provider("deepseek", "deepseek", "DeepSeek"),
    Provider("gcp.gemini", "google", "Google", (
        "gemini", "gemini-api", "google", "google-ai-studio", "google-genai", "google-generative-ai",
        "google-gla", "googleai",
    )),
    Provider("gcp.gen_ai", "google", "Google"),
    Provider("gcp.vertex_ai", "google", "Google Cloud", (
        "gcp-anthropic", "gcp-vertexai", "google-anthropic-vertex", "google-vertex", "google-vertex-ai",
        "google-vertexai", "vertex", "vertex-ai", "vertex-ai-beta", "vertex-anthropic", "vertexai",
    )),
    Provider("groq", "groq", "Groq"),
    Provider("ibm.watsonx.ai", "ibm", "IBM", ("ibm-watsonx", "watsonx", "watsonx-ai")),
    Provider("mistral_ai", "mistral", "Mistral AI", ("mistral", "mistralai")),
    Provider("moonshot_ai", "moonshotai", "Moonshot AI", ("moonshot", "moonshotai")),
    Provider("openai", "openai", "OpenAI", ("openai-native", "text-completion-openai")),
    Provider("perplexity", "perplexity", "Perplexity", ("perplexity-ai",)),
    Provider("x_ai", "x-ai", "xAI", ("grok", "xai")),
    # not among OpenTelemetry's names
    Provider("cloudflare", "cloudflare", spellings=("workers-ai",), standard=False),
    Provider(CURSOR, "cursor", "Cursor", standard=False),
    Provider("dashscope", "dashscope", "Alibaba Cloud", (
        "alibaba", "alibaba-cloud", "alibabacloud", "aliyun", "model-studio", "qwen",
    ), standard=False),
    Provider("fireworks", "fireworks", spellings=("fireworks-ai",), standard=False),
    Provider("github", "github-copilot", spellings=("copilot", "github-copilot"), standard=False),
    Provider("meta", "meta", spellings=("meta-llama",), standard=False),
    Provider("minimax", "minimax", standard=False),
    Provider("novita", "novita", spellings=("novita-ai",), standard=False),
    Provider("openrouter", "openrouter", spellings=("open-router",), standard=False),
    Provider("together", "together", spellings=("together-ai", "togetherai"), standard=False),
    Provider("voyageai", "voyageai", spellings=("voyage", "voyage-ai"), standard=False),
    Provider("zai", "zai", spellings=("z-ai",), standard=False),
    Provider("zhipuai", "zhipuai", spellings=("zhipu",), standard=False),
)  # fmt: skip

# Libraries, and Vercel's gateway, which are reported in place of the provider.
FRAMEWORKS = frozenset({"gateway", "gcp.vertex.agent", "langchain", "pi", "spring_ai", "strands-agents"})

# Model servers that people run themselves, without a price.
_SELF_HOSTED = frozenset({
    "hosted-vllm", "infinity", "llama-cpp", "llamacpp", "llamafile", "lm-studio", "lmstudio", "local",
    "localai", "mlx", "ollama", "ollama-chat", "oobabooga", "sglang", "tgi", "transformers", "triton", "vllm",
    "xinference",
})  # fmt: skip

# Sources that bill for their calls themselves, whichever provider runs the model.
BILLED_BY_SOURCE = {"cursor": CURSOR}

_SEPARATORS = str.maketrans("_. ", "---")
_BY_SPELLING = {
    spelling: provider
    for provider in PROVIDERS
    for spelling in (provider.name.translate(_SEPARATORS), *provider.spellings)
}
# the first provider of a card names the family
_FAMILIES = {provider.card: provider.display or provider.name for provider in reversed(PROVIDERS)}
# Vercel's AI SDK appends the kind of call: `groq.chat`, `vertex.anthropic.messages`.
_CALLED = re.compile(r"\.(?:chat|completion|image|messages|responses|(?:text-?)?embedding)$")
# beginnings of names such as `google.vertex.anthropic` and `openai.codex`
_BEGINNINGS = (("google.vertex", "google-vertex"), ("openai.", "openai"), ("anthropic.", "anthropic"))


@lru_cache(maxsize=2048)
def find_provider(provider_text: str) -> Provider | None:
    name = provider_text.lower()
    provider = _BY_SPELLING.get(_comparable_provider_name(name))
    if provider is None:
        spelling = next((spelling for beginning, spelling in _BEGINNINGS if name.startswith(beginning)), "")
        provider = _BY_SPELLING.get(spelling)
    return provider


@lru_cache(maxsize=2048)
def canonical_provider_name(written: str) -> str:
    provider = find_provider(written)
    return provider.name if provider is not None and provider.standard else written.lower()


def provider_name_in_rate_cards(provider_text: str) -> str:
    """Return the provider's name in rate cards. In an unknown name, words are joined by `-`."""
    provider = find_provider(provider_text)
    return _comparable_provider_name(provider_text.lower()) if provider is None else provider.card


def provider_display_name(provider_text: str) -> str:
    provider = find_provider(provider_text)
    return provider_text if provider is None or not provider.display else provider.display


@lru_cache(maxsize=2048)
def company_of_provider(written: str) -> str:
    """Return the name of the company that sells a model: Google for Vertex AI and for the Gemini API."""
    card = provider_name_in_rate_cards(written)
    return _FAMILIES.get(card, card)


def is_self_hosted(provider_text: str) -> bool:
    """Return whether the provider is a model server that people run themselves, without a listed price."""
    return _comparable_provider_name(provider_text.lower()) in _SELF_HOSTED


def _comparable_provider_name(name: str) -> str:
    return _CALLED.sub("", name).translate(_SEPARATORS)
