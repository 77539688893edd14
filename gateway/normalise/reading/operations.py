"""
Operations under OpenTelemetry's names, recognized by operation names, LiteLLM's functions or request paths.
"""

from __future__ import annotations

from typing import Any

from gateway.normalise.reading.values import text_or_none
from spool.caches import cache_by_text

CHAT, COMPLETION, EMBEDDINGS, RERANK = "chat", "text_completion", "embeddings", "rerank"
REALTIME = "realtime_inference"
GENERATE, IMAGE, TRANSCRIPTION, SPEECH = "generate_content", "image_generation", "transcription", "speech"

# Operation by name. Any other name of a span means a step around calls.
BY_NAME = {
    "chat": CHAT, "text_completion": COMPLETION, "generate_content": GENERATE, "embeddings": EMBEDDINGS,
    "rerank": RERANK, REALTIME: REALTIME, IMAGE: IMAGE, TRANSCRIPTION: TRANSCRIPTION, SPEECH: SPEECH,
    # operations by the names of LiteLLM's functions
    "completion": CHAT, "acompletion": CHAT, "responses": CHAT, "aresponses": CHAT, "messages": CHAT,
    "anthropic_messages": CHAT, "aanthropic_messages": CHAT,
    "embedding": EMBEDDINGS, "aembedding": EMBEDDINGS, "arerank": RERANK,
    "chat.completions": CHAT, "text.completions": COMPLETION,  # Semantic Kernel
    "chat_completions": CHAT,  # Logfire
}  # fmt: skip

BILLED_BY_TOKENS = frozenset({CHAT, COMPLETION, GENERATE, EMBEDDINGS, REALTIME})

# operations by a part of their names, as in `aimage_generation` and `agenerate_content_stream`
_BY_PART = (
    ("text_completion", COMPLETION),
    ("embedding", EMBEDDINGS),
    ("image_generation", IMAGE),
    ("transcription", TRANSCRIPTION),
    ("speech", SPEECH),
    ("generate_content", GENERATE),
)

_BY_ENDING = (
    ("/chat/completions", CHAT),
    ("/messages", CHAT),
    ("/responses", CHAT),
    ("/converse", CHAT),
    ("/completions", COMPLETION),
    ("/embeddings", EMBEDDINGS),
    ("/images/generations", IMAGE),
    ("/audio/transcriptions", TRANSCRIPTION),
    ("/audio/speech", SPEECH),
    (":generateContent", GENERATE),
    (":streamGenerateContent", GENERATE),
)


@cache_by_text(256)
def operation_of_function_name(name: str) -> str | None:
    """Return the operation of an operation name or a LiteLLM function. Return None if it calls no model."""
    last = name.rpartition(".")[2]
    named = BY_NAME.get(name) or BY_NAME.get(last)
    return named or next((operation for part, operation in _BY_PART if part in last), None)


def operation_of_path(path: Any) -> str | None:
    """Return the operation of a request path or URL, or None. The query is ignored."""
    written = text_or_none(path)
    if written is None:
        return None
    bare = "/" + written.partition("?")[0].partition("#")[0].rstrip("/")
    return next((operation for ending, operation in _BY_ENDING if bare.endswith(ending)), None)
