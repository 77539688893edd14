"""
Free metadata is bounded and never content (promise 4): the one place that decides what may become a tag.

At most 32 tags, names to 64 and values to 256 characters, scalars only, never under a content name.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from spool.record import MAX_TAGS

MAX_NAME = 64
MAX_VALUE = 256
LONGEST_CACHED = 256  # a name of megabytes is not worth its memory

_CONTENT = frozenset({
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
    "gen_ai.tool.definitions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "input.value",
    "output.value", "embedding.text", "traceloop.entity.input", "traceloop.entity.output",
    "langfuse.trace.input", "langfuse.trace.output", "langfuse.observation.input",
    "langfuse.observation.output", "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response",
    "mlflow.spanInputs", "mlflow.spanOutputs", "user_prompt", "prompt", "prompts", "completion",
    "completions", "message", "messages", "input", "output", "content", "request_text", "response_text",
    "request_body", "response_body", "system_prompt", "instructions", "ai.response.text",
    "ai.response.object", "ai.response.toolCalls", "ai.response.reasoning", "ai.response.providerMetadata",
    "ai.result.text", "ai.result.object", "ai.toolCall.args", "ai.toolCall.result", "ai.value", "ai.values",
    "ai.embedding", "ai.embeddings", "arguments", "args", "function_args", "tool_input", "tool_output",
    "tool_parameters", "tool_response", "error_message", "body", "headers", "traceback",
    "exception.stacktrace", "exception.message", "error.message", "text", "question", "answer", "choices",
    "candidates", "contents", "payload", "request_payload", "response_payload", "llm_request",
    "llm_response_text", "inputbodyjson", "outputbodyjson", "requestmessages", "responsemessages",
    "error_str", "statusmessage", "request", "response", "query", "user_query", "user_input", "user_message",
    "assistant_message", "chat_history", "history", "transcript", "input_text", "output_text", "tool_call",
    "tool_calls", "genkit:input", "genkit:output", "stack", "stacktrace", "stack_trace",
})  # fmt: skip
_CONTENT_BEGINNINGS = (
    "gen_ai.prompt", "gen_ai.completion", "ai.prompt", "llm.input_messages", "llm.output_messages",
    "llm.prompts", "llm.prompt_template", "llm.completions", "gcp.vertex.agent.tool_", "embedding.embeddings",
    "retrieval.documents", "gen_ai.content",
)  # fmt: skip
_CONTENT_ENDINGS = (
    ".content", ".contents", ".prompt", ".prompts", ".message", ".messages", ".input", ".inputs", ".output",
    ".outputs", ".completion", ".completions", ".arguments", ".system_instructions", ".prompt_json",
    ".completion_json", "_prompt", "_messages",
)  # fmt: skip
# Counters and names that begin or end like content and are none.
_NOT_CONTENT = ("gen_ai.prompt_caching", "gen_ai.prompt_tokens", "gen_ai.completion_token")

_SECRET_NAME = re.compile(
    r"(?:.*[._-])?"
    r"(?:authorization|api[_-]?key|cookie|password|passwd|secret|credentials?|access[_-]?token|token)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?:(?:Bearer|Basic)\s+\S+"
    r"|(?:sk|rk|pcsk|gsk|xai|pplx|csk)-\S{8,}"
    r"|(?:sk|rk|gsk|hf|r8|thd?|ghp|gho|ghs|ghu|github_pat|glpat)_\S{16,}"
    r"|(?:AKIA|ASIA|AIza)\w{12,}|xox[abprs]-\S+|ya29\.\S+|eyJ[\w-]+\.[\w-]+\.\S*"
    r"|\S{0,12}\.{3}\S{0,12})",
    re.IGNORECASE,
)


def is_content(name: str) -> bool:
    """Whether an attribute or metadata name stands for a prompt, an answer, an argument or the like."""
    return _is_content(name) if len(name) <= LONGEST_CACHED else _is_content.__wrapped__(name)


@lru_cache(maxsize=8192)
def _is_content(name: str) -> bool:
    if name in _CONTENT:
        return True
    if name.startswith(_NOT_CONTENT):
        return False
    lower = name.lower()
    return name.startswith(_CONTENT_BEGINNINGS) or lower.endswith(_CONTENT_ENDINGS) or lower in _CONTENT


@lru_cache(maxsize=8192)
def names_secret(name: str) -> bool:
    """Whether metadata of that name is a credential: callers put those there too."""
    return _SECRET_NAME.fullmatch(name) is not None


def is_secret(value: Any) -> bool:
    """Whether text looks like a credential, or like one that was masked in part."""
    if not isinstance(value, str):
        return False
    return _SECRET.fullmatch(value) is not None or ("***" in value and len(value.split()) == 1)


def text_of(value: Any) -> str | None:
    """A scalar as a tag's text: `true` is "true", a number is its JSON text; None if it is no scalar."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return msgspec.json.encode(value).decode()
    return None


def put(tags: dict[str, str], name: str, value: Any) -> bool:
    """Add a tag when it is allowed; False when it was left out, so that the caller counts it."""
    text = text_of(value)
    if text is None or not name or len(name) > MAX_NAME or len(text) > MAX_VALUE or is_content(name):
        return False
    if len(tags) >= MAX_TAGS and name not in tags:
        return False
    tags[name] = text
    return True
