"""
What a name stands for: the providers and models of a record in the words of a rate card. Pure tables and spellings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# OpenTelemetry's provider names and other common spellings; what is not here is tried as it is.
_PROVIDERS = {
    "amazon": "aws",
    "amazon-bedrock": "aws",
    "aws-bedrock": "aws",
    "aws-bedrock-converse": "aws",
    "az-ai-inference": "azure",
    "azure-ai": "azure",
    "azure-ai-foundry": "azure",
    "azure-ai-inference": "azure",
    "azure-ai-openai": "azure",
    "azure-openai": "azure",
    "azure-openai-responses": "azure",
    "bedrock": "aws",
    "bedrock-anthropic": "aws",
    "bedrock-converse": "aws",
    "claude": "anthropic",
    "cohere-chat": "cohere",
    "copilot": "github-copilot",
    "fireworks-ai": "fireworks",
    "gcp-anthropic": "google",
    "gcp-gemini": "google",
    "gcp-gen-ai": "google",
    "gcp-vertex-ai": "google",
    "gcp-vertexai": "google",
    "gemini": "google",
    "gemini-api": "google",
    "github": "github-copilot",
    "google-ai-studio": "google",
    "google-genai": "google",
    "google-generative-ai": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "google-vertex-ai": "google",
    "grok": "x-ai",
    "meta-llama": "meta",
    "mistral-ai": "mistral",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "moonshot-ai": "moonshotai",
    "novita-ai": "novita",
    "open-router": "openrouter",
    "perplexity-ai": "perplexity",
    "together-ai": "together",
    "togetherai": "together",
    "vertex-ai": "google",
    "vertex-anthropic": "google",
    "vertexai": "google",
    "voyage": "voyageai",
    "voyage-ai": "voyageai",
    "workers-ai": "cloudflare",
    "xai": "x-ai",
    "z-ai": "zai",
    "zhipu": "zhipuai",
}

# Vercel's AI SDK adds what was called: `groq.chat`, `vertex.anthropic.messages`.
_CALLED = re.compile(r"\.(?:chat|responses|messages|completion|embedding|text-embedding|textembedding|image)$")

# Who serves a model on own machines pays no price a card knows.
SELF_HOSTED = frozenset({
    "hosted-vllm", "vllm", "ollama", "ollama-chat", "lm-studio", "lmstudio", "llamafile", "llama-cpp", "llamacpp",
    "localai", "local", "sglang", "tgi", "triton", "mlx", "oobabooga", "xinference", "infinity", "transformers",
})  # fmt: skip

# Beginnings of model names that tell their maker. `gpt-oss` is open: whoever runs it sets its price.
_MAKERS = (
    ("gpt-oss", None),
    ("claude", "anthropic"),
    ("gpt-", "openai"), ("chatgpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"),
    ("text-embedding-3", "openai"), ("text-embedding-ada", "openai"), ("computer-use-preview", "openai"),
    ("codex-", "openai"), ("davinci", "openai"), ("babbage", "openai"),
    ("gemini", "google"), ("text-embedding-00", "google"),
    ("grok", "x-ai"),
    ("command", "cohere"), ("embed-", "cohere"),
    ("sonar", "perplexity"),
    ("mistral-", "mistral"), ("codestral", "mistral"), ("magistral", "mistral"), ("ministral", "mistral"),
    ("devstral", "mistral"), ("pixtral", "mistral"), ("open-mi", "mistral"),
    ("deepseek", "deepseek"),
    ("kimi", "moonshotai"), ("moonshot", "moonshotai"),
    ("glm-", "zhipuai"),
    ("minimax-", "minimax"),
    ("voyage-", "voyageai"),
)  # fmt: skip

# Their models are sold at one price wherever they are sold; for open models a price elsewhere says nothing.
CLOSED = frozenset({"anthropic", "openai", "google", "x-ai", "cohere", "perplexity"})

_BEDROCK = re.compile(
    r"(?:[a-z-]{2,10}\.)?(ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen|writer)\.(.+)"
)
_BEDROCK_VERSION = re.compile(r"-v\d+(?::\d+)?(?::\w+)?$")
_DATED = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?([0-2]\d|3[01])$")
_LATEST = re.compile(r"(?:-latest|@latest|@default|:latest)$")


def spelled(provider: str) -> str:
    """A provider's name in the card's spelling."""
    name = _CALLED.sub("", provider.lower()).replace("_", "-").replace(".", "-").replace(" ", "-")
    return _PROVIDERS.get(name, name)


def maker(model: str) -> str | None:
    """Whose model this is, by the beginning of its name."""
    return next((provider for beginning, provider in _MAKERS if model.startswith(beginning)), None)


def named_in(model: str) -> str | None:
    """The provider that a model's name states itself: a first segment before `/`, or the form of a Bedrock id."""
    head, slash, _ = model.partition("/")
    if slash:
        return spelled(head)
    return "aws" if _BEDROCK.fullmatch(model) else None


def spellings(model: str) -> Iterator[str]:
    """The names under which a card may know a model, the most exact first."""
    name = model.lower()
    yield name
    if name.startswith("arn:") or "models/" in name:
        name = name.rpartition("/")[2]
        yield name
    while "/" in name:
        name = name.partition("/")[2]
        yield name
    if bedrock := _BEDROCK.fullmatch(name):
        name = _BEDROCK_VERSION.sub("", bedrock.group(2))
        yield name
    if dated := _DATED.search(name):
        yield f"{name[: dated.start()]}-{'-'.join(dated.groups())}"
        name = name[: dated.start()]
        yield name
    if latest := _LATEST.search(name):
        yield name[: latest.start()]
