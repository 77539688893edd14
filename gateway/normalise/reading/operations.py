"""What a call did, told by the path that it went to."""

from __future__ import annotations

from typing import Any

from gateway.normalise.reading.values import text

CHAT, COMPLETION, EMBEDDINGS = "chat", "text_completion", "embeddings"
GENERATE, IMAGE, TRANSCRIPTION, SPEECH = "generate_content", "image_generation", "transcription", "speech"

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


def of_path(path: Any) -> str | None:
    """By the end of a path or URL, its query removed; None for any other path."""
    written = text(path)
    if written is None:
        return None
    bare = "/" + written.partition("?")[0].partition("#")[0].rstrip("/")
    return next((operation for ending, operation in _BY_ENDING if bare.endswith(ending)), None)
