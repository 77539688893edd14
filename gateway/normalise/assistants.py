"""The coding assistants, by the source of their records."""

from __future__ import annotations

from collections.abc import Mapping

ASSISTANTS_BY_SOURCE: Mapping[str, str] = {  # name of an assistant by source of records
    "claude_code": "claude-code",
    "codex": "codex",
    "copilot_chat": "copilot",
    "copilot_cli": "copilot",
    "gemini_cli": "gemini-cli",
    "qwen_code": "qwen-code",
    "opencode": "opencode",
}
# (source, service) -> assistant, if other programs use the same library, so the source is not enough.
_ASSISTANTS_OF_LIBRARIES: Mapping[tuple[str, str], str] = {("vercel_ai", "opencode"): "opencode"}
# The list is closed, because each name becomes a label of metrics.
ASSISTANTS = tuple(dict.fromkeys(ASSISTANTS_BY_SOURCE.values()))


def assistant_of_source(source: str, service: str | None = None) -> str | None:
    return ASSISTANTS_BY_SOURCE.get(source) or _ASSISTANTS_OF_LIBRARIES.get((source, service or ""))
