from __future__ import annotations

import pytest

from gateway.normalise.reading import operations


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
def test_operation_is_read_from_the_end_of_a_path(path: str | None, expected: str | None) -> None:
    """The end of a path shows the operation. The query of the path is ignored."""
    assert expected == operations.operation_of_path(path)
