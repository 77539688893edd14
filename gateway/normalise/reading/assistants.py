"""
Coding assistants, and how each states its session to a gateway that it calls.

The session joins the reports of assistant and gateway (`RelayedReport`). An assistant always has a relay. It
proves nothing by itself, because the gateway's log must state the same session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.normalise.reading.values import text_or_none


class AssistantSession(NamedTuple):
    """
    How an assistant states its session. `session` is the attribute of its telemetry that has the session.

    `carriers` are the headers in which it states the session to a gateway. The first one that a gateway logs
    counts. If there are none, and the gateway's log lost the response id, model and counts join the calls.
    """

    session: str
    carriers: tuple[str, ...] = ()

    def session_if_sent_to_gateways(self, attributes: Mapping[str, Any]) -> str | None:
        return text_or_none(attributes.get(self.session)) if self.carriers else None


CLAUDE_CODE_SESSION = "x-claude-code-session-id"
CODEX_TURN = "x-codex-turn-metadata"  # header with JSON; Codex states the session in it
CODEX_THREAD, CODEX_SESSION = "thread-id", "session-id"
OPENCODE_SESSION = "x-session-id"

ASSISTANTS: Mapping[str, AssistantSession] = {
    "claude_code": AssistantSession("session.id", (CLAUDE_CODE_SESSION,)),
    "codex": AssistantSession("conversation.id", (CODEX_THREAD, CODEX_SESSION, CODEX_TURN)),
    "copilot_chat": AssistantSession("gen_ai.conversation.id"),
    "copilot_cli": AssistantSession("gen_ai.conversation.id"),
    "gemini_cli": AssistantSession("session.id"),
    "opencode": AssistantSession("session.id", (OPENCODE_SESSION,)),
    "qwen_code": AssistantSession("session.id"),
}
