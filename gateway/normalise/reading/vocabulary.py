"""
The words that every OTLP dialect shares: attribute names by canonical field, strongest first, and how a value is read.

Pure tables and pure functions over one attribute dict; knows no signal, no span and no source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec

from gateway.normalise.otlp.decoding.model import Attributes
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.error_types import first_readable

MAX_TOKENS = 1_000_000_000  # more than any model can take: a wrong unit or a time stamp
MAX_TEXT = 2048  # a longer text is no name, id or model; as for the formats, or an id would be one here and not there

# --- Tokens: first present name wins, names never add up ------------------------------------------------------------

_USAGE = "gen_ai.usage."

INPUT = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens",
    "ai.usage.inputTokens", "ai.usage.promptTokens", "ai.usage.tokens",
    "gen_ai.response.input_tokens",  # Portkey's first gen_ai traces
    "gen_ai.response.prompt_tokens",  # Semantic Kernel's first ones
)  # fmt: skip
OUTPUT = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
    "llm.usage.completion_tokens", "ai.usage.outputTokens", "ai.usage.completionTokens",
    "gen_ai.response.output_tokens", "gen_ai.response.completion_tokens",
)  # fmt: skip
CACHE_READ = (
    *(_USAGE + name for name in (
        "cache_read.input_tokens", "cache_read_input_tokens", "details.cache_read_tokens",
        "details.cache_read_input_tokens", "input_tokens.cached", "prompt_tokens_details.cached_tokens",
        "prompt_token_details.cached_read_tokens", "cached_tokens", "input_tokens_details.cached_tokens",
        "cache_read_tokens", "details.cached_tokens", "details.cached_content_tokens",
    )),
    "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
    "ai.usage.inputTokenDetails.cacheReadTokens",
)  # fmt: skip
CACHE_WRITE = (
    *(_USAGE + name for name in (
        "cache_write.input_tokens", "cache_creation.input_tokens", "cache_creation_input_tokens",
        "cache_write_input_tokens", "details.cache_write_tokens", "details.cache_creation_input_tokens",
        "input_tokens.cache_write", "prompt_token_details.cached_write_tokens", "cache_write_tokens",
        "cache_creation_tokens", "prompt_tokens_details.cache_creation_tokens",
    )),
    "llm.token_count.prompt_details.cache_write", "ai.usage.inputTokenDetails.cacheWriteTokens",
)  # fmt: skip
REASONING = (
    *(_USAGE + name for name in (
        "reasoning.output_tokens", "reasoning_tokens", "output_tokens.reasoning",
        "completion_tokens_details.reasoning_tokens", "completion_token_details.reasoning_tokens",
        "details.reasoning_tokens", "experimental.reasoning_tokens", "output_tokens_details.reasoning_tokens",
        "details.thoughts_tokens",
    )),
    "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
    "ai.usage.outputTokenDetails.reasoningTokens",
)  # fmt: skip
TOTAL = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total", "ai.usage.totalTokens")

# --- Other fields ---------------------------------------------------------------------------------------------------

REQUEST_MODEL = (
    "gen_ai.request.model", "llm.model_name", "llm.request.model_name", "embedding.model_name", "reranker.model_name",
    "ai.model.id", "langfuse.observation.model.name",
)  # fmt: skip
RESPONSE_MODEL = ("gen_ai.response.model", "ai.response.model", "llm.response.model_name")
PROVIDER = (
    "gen_ai.provider.name", "llm.provider", "gen_ai.system", "llm.system", "ai.model.provider", "gen_ai.model.provider",
)  # fmt: skip
REQUEST_ID = (
    "gen_ai.response.id", "ai.response.id", "request_id", "response_id", "gen_ai.request.id", "client_request_id",
    "gen_ai.thread.run.id",
)  # fmt: skip
# Of these, who gave the id: the provider, or somebody who may give it twice.
RESPONSE_ID = ("gen_ai.response.id", "ai.response.id", "response_id")
SHARED_ID = ("request_id", "gen_ai.request.id", "client_request_id")
COST = (
    "cost_usd", "cost_usd_micros", "gen_ai.usage.cost", "gen_ai.usage.total_cost", "gen_ai.cost.total_cost",
    "llm.cost.total", "operation.cost", "agw.ai.usage.cost.total", "totalCost",
    "litellm.cost.total",
)  # fmt: skip
ERROR_TYPE = ("error.type", "gen_ai.error.type")
HTTP_STATUS = ("status_code", "http.response.status_code")

# --- Identity -------------------------------------------------------------------------------------------------------

END_USER = "metadata.user_api_key_end_user_id"
PRINCIPAL = "metadata.user_api_key_user_id"
USER = (
    "user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId", PRINCIPAL, "llm.user", END_USER, "user.account_id",
    "kong.auth.consumer.name", "jwt.sub", "user",
)  # fmt: skip
CLAUDE_USER = ("user.account_uuid", "user.account_id", "user.id")
TEAM = ("team.id", "team", "metadata.user_api_key_team_id", "gen_ai.team_id", "litellm.team.id")
SESSION = (
    "session.id", "gen_ai.conversation.id", "conversation.id", "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId", "gcp.vertex.agent.session_id", "langfuse.session.id",
    "langsmith.metadata.thread_id", "spring.ai.chat.client.conversation.id", "gen_ai.thread.id",
)  # fmt: skip
API_KEY = (
    "metadata.user_api_key_alias", "trace.metadata.openrouter.api_key_name", "gen_ai.virtual_key_name",
)  # fmt: skip
# The resource is the last place, and only under the names that can be meant for everything the process sends.
RESOURCE_USER = ("user.id", "enduser.id")
RESOURCE_TEAM = ("team.id", "team")
RESOURCE_SESSION = ("session.id",)
RESOURCE_DEVICE = ("device.id",)
RESOURCE_DEVICE_OR_HOST = ("device.id", "host.id")

# --- Tags -----------------------------------------------------------------------------------------------------------

NAMED_TAGS: dict[str, tuple[str, ...]] = {
    "environment": ("langfuse.environment", "deployment.environment.name", "deployment.environment", "env"),
    "agent": ("gen_ai.agent.name", "agent.name"),
    "organization": ("organization.id",),
    "department": ("department",),
    "cost_center": ("cost_center",),
    "device": ("device.id", "host.id", "installation.id"),
}
CLAUDE_TAGS = ("query_source", "effort", "speed")
TAG_LISTS = ("tag.tags", "langfuse.trace.tags", "langsmith.span.tags")
METADATA_JSON = "metadata"  # OpenInference: a JSON object as text
METADATA_BEGINNINGS = (
    "traceloop.association.properties.", "ai.telemetry.metadata.", "langfuse.trace.metadata.",
    "langfuse.observation.metadata.", "langsmith.metadata.", "trace.metadata.",
)  # fmt: skip
NO_METADATA = ("trace.metadata.openrouter.", "trace.metadata.provider_responses")
IDENTITY_KEYS = frozenset({
    "user", "user_id", "userId", "user_name", "userName", "username", "session", "session_id", "sessionId", "thread_id",
    "threadId",
})  # fmt: skip

# --- Providers, operations ------------------------------------------------------------------------------------------

PROVIDERS = {
    "azure": "azure.ai.openai", "azure_openai": "azure.ai.openai", "azure-openai": "azure.ai.openai",
    "azure.openai": "azure.ai.openai", "az.ai.openai": "azure.ai.openai", "az.ai.agents": "azure.ai.openai",
    "az.ai.inference": "azure.ai.inference",
    "bedrock": "aws.bedrock", "aws": "aws.bedrock", "bedrock_converse": "aws.bedrock",
    "amazon-bedrock": "aws.bedrock", "aws.anthropic": "aws.bedrock",
    "gemini": "gcp.gemini", "google.generative-ai": "gcp.gemini", "google_genai": "gcp.gemini",
    "vertex_ai": "gcp.vertex_ai", "vertexai": "gcp.vertex_ai", "vertex": "gcp.vertex_ai",
    "google": "gcp.gen_ai", "mistral": "mistral_ai", "mistralai": "mistral_ai", "xai": "x_ai",
    "openai-native": "openai",
}  # fmt: skip
_PROVIDER_BEGINNINGS = (("google.vertex", "gcp.vertex_ai"), ("openai.", "openai"), ("anthropic.", "anthropic"))
FRAMEWORKS = frozenset({"strands-agents", "gcp.vertex.agent", "spring_ai", "langchain"})

CHAT, TEXT_COMPLETION, EMBEDDINGS, RERANK = "chat", "text_completion", "embeddings", "rerank"
OPERATIONS = {
    "chat": CHAT, "text_completion": TEXT_COMPLETION, "generate_content": "generate_content",
    "embeddings": EMBEDDINGS, "rerank": RERANK, "completion": CHAT, "acompletion": CHAT, "responses": CHAT,
    "aresponses": CHAT, "messages": CHAT, "anthropic_messages": CHAT, "embedding": EMBEDDINGS, "aembedding": EMBEDDINGS,
    "arerank": RERANK,
    "chat.completions": CHAT, "text.completions": TEXT_COMPLETION,  # Semantic Kernel
    "chat_completions": CHAT,  # Logfire
}  # fmt: skip
# Steps around calls; some of them repeat the calls' sums.
NO_CALLS = frozenset({
    "invoke_agent", "create_agent", "agent_step", "execute_tool", "execute_event_loop_cycle", "invoke_workflow", "plan",
    "retrieval", "framework", "fetch_response", "chain", "agent", "tool", "retriever", "prompt", "parser", "llm_call",
})  # fmt: skip

ABSENT = frozenset({"", "none", "undefined", "null"})
_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_BEDROCK = re.compile(
    r"(?:(?:us|eu|apac|global|us-gov|jp|au|ca)\.)?"
    r"(?:anthropic|amazon|meta|mistral|cohere|ai21|stability|deepseek|openai|qwen|writer|twelvelabs|luma|nvidia"
    r"|minimax|moonshotai?|google|zai)\.[a-z]"
)
_OPENAI = re.compile(r"(?:ft:)?(?:gpt-|chatgpt-|o1|o3|o4|text-embedding-(?:3|ada))")

# What a model is called, or how tokens are counted, in attributes of senders that nobody has described yet.
_AI_NAME = re.compile(r"(?:gen_ai|llm|ai)\.(?:usage|request|response|system|provider|operation|token_count|model)")
_TOKEN_COUNT = re.compile(
    r"(?:^|[._])(?:(?:input|output|prompt|completion|total|cached?)_?[tT]okens?(?:[._]|$)|model(?:_name|_id)?$)"
    r"|tokens(?:In|Out)$"
)
_LARGEST_DURATION_MS = Decimal(10) ** 10  # four months


class Implausible(ValueError):
    """A number that no call can have: negative, fractional or absurd. It is never billed."""


def text(value: Any) -> str | None:
    """A value read as text; None for what stands for nothing, and for what is too long to be a name."""
    if type(value) is str:
        return None if value in ABSENT or len(value) > MAX_TEXT else value
    return None if value is None else tag_rules.text_of(value)


def first(attributes: Attributes, names: Iterable[str]) -> Any:
    """The value of the first name that says something, else None."""
    for name in names:
        value = attributes.get(name)
        if value is not None and not (type(value) is str and value in ABSENT):
            return value
    return None


def first_text(attributes: Attributes, names: Iterable[str]) -> str | None:
    """The text of the first name that says something, else None."""
    for name in names:
        value = attributes.get(name)
        if type(value) is str:
            if value not in ABSENT and len(value) <= MAX_TEXT:
                return value
        elif value is not None and (words := tag_rules.text_of(value)) is not None:
            return words
    return None


def first_name(attributes: Attributes, names: Iterable[str]) -> str | None:
    """The name that `first` would take the value of: what an explanation cites."""
    return next((name for name in names if first(attributes, (name,)) is not None), None)


def count(value: Any) -> int | None:
    """A token count as int; None when it is no number, NaN or infinite. Implausible: negative, fractional, absurd."""
    if type(value) is int:
        number: int | float = value
    else:
        parsed = _number(value)
        if parsed is None:
            return None
        number = parsed
    if 0 <= number <= MAX_TOKENS and number == int(number):
        return int(number)
    raise Implausible("a token count that is negative, fractional or above 10^9")


def first_count(attributes: Attributes, names: Iterable[str]) -> int | None:
    """The token count under the first name that says something, else None."""
    for name in names:
        value = attributes.get(name)
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            return value
        if value is not None and not (type(value) is str and value in ABSENT):
            return count(value)
    return None


def money(value: Any) -> str | None:
    """Decimal text of an amount, from the shortest text of a double, without exponent or trailing zeros."""
    if type(value) is float:
        if not math.isfinite(value):
            return None
        digits = repr(value)
    elif type(value) is int:
        digits = str(value)
    elif type(value) is str and _NUMBER.fullmatch(value):
        digits = value.strip()
    else:
        return None
    return plain(Decimal(digits))


def plain(amount: Decimal) -> str:
    """An amount without exponent or trailing zeros. Implausible: negative, or of a size that no cost has."""
    if amount.is_zero():
        return "0"
    if amount < 0 or not -40 < amount.adjusted() < 15:
        raise Implausible("a cost that is negative or absurd")
    digits = f"{amount:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def cost_of(attributes: Attributes, names: Iterable[str] = COST) -> str | None:
    """The reported cost of a call, in dollars."""
    for name in names:
        if name in attributes and (amount := money(attributes[name])) is not None:
            return plain(Decimal(amount).scaleb(-6)) if name == "cost_usd_micros" else amount
    return None


def nanoseconds(milliseconds: Any) -> int | None:
    """A duration that came in milliseconds; None when it is no number, or none that a call can take."""
    number = _number(milliseconds) if type(milliseconds) is not int else milliseconds
    if number is None or not 0 <= number <= _LARGEST_DURATION_MS:
        return None
    return int(Decimal(str(number)).scaleb(6))


def error_type(attributes: Attributes, exception: str | None = None) -> str:
    """The machine-readable type of a failure, never a message; `exception` is that of a span's exception event."""
    own = (text(attributes.get(name)) for name in ERROR_TYPE)
    others = (text(attributes.get(name)) for name in ("exception.type", "error_type", *HTTP_STATUS))
    return first_readable((*own, exception, *others))


def is_ai_name(name: str) -> bool:
    """Whether an attribute's name speaks of a model or of token counts."""
    return bool(_AI_NAME.match(name) or _TOKEN_COUNT.search(name))


def looks_like_ai(attributes: Attributes) -> bool:
    """Whether an item that no dialect took has names of models or token counts: an operator ought to see its shape."""
    return any(is_ai_name(name) for name in attributes)


@lru_cache(maxsize=1024)
def provider(name: str) -> str:
    """A provider's name in the words of OpenTelemetry; unknown names stay as they are, in lower case."""
    lower = name.lower()
    known = PROVIDERS.get(lower)
    if known is not None:
        return known
    return next((to for beginning, to in _PROVIDER_BEGINNINGS if lower.startswith(beginning)), lower)


def provider_of(attributes: Attributes, model: str | None, names: Iterable[str] = PROVIDER) -> str | None:
    """The stated provider unless it is a framework's name; else the one that the model's name gives away."""
    for name in names:
        stated = text(attributes.get(name))
        if stated is not None and (known := provider(stated)) not in FRAMEWORKS:
            return known
    return model_provider(model) if model else None


@lru_cache(maxsize=2048)
def model_provider(model: str) -> str | None:
    """Who serves a model of this name, when the name says so."""
    name = model.lower().removeprefix("models/")
    if name.startswith("claude"):
        return "anthropic"
    if name.startswith("arn:aws") or _BEDROCK.match(name):
        return "aws.bedrock"
    if _OPENAI.match(name):
        return "openai"
    if name.startswith("gemini"):
        return "gcp.gen_ai"
    vendor, slash, _ = name.partition("/")
    return provider(vendor) if slash and vendor else None


def names_vendor(model: str) -> bool:
    """Whether a model's name begins with its vendor's and a slash."""
    return "/" in model and not model.startswith("arn:")


def unquoted(value: Any) -> Any:
    """Langfuse SDKs from 5 on write metadata as JSON: a text in quotes is unquoted, what is nested stays nested."""
    if type(value) is str and value[:1] in ('"', "{", "["):
        try:
            return msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def json_object(value: Any) -> dict[str, Any]:
    """The object in a JSON text; empty when it is none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def is_email(name: str) -> bool:
    """Attributes that hold an e-mail address are never read."""
    return "email" in name.lower()


def _number(value: Any) -> int | float | None:
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is str and _NUMBER.fullmatch(value):
        try:
            exact = Decimal(value.strip())
        except InvalidOperation:
            return None
        return int(exact) if exact == exact.to_integral_value() and exact.adjusted() < 30 else float(exact)
    return None
