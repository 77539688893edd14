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
    counts. If there are none, only encrypted response ids join its calls to those of a gateway.
    `knows_price`: the costs that it reports are the seller's, and not computed from a list of prices.
    """

    session: str
    carriers: tuple[str, ...] = ()
    knows_price: bool = False

    def session_if_sent_to_gateways(self, attributes: Mapping[str, Any]) -> str | None:
        return text_or_none(attributes.get(self.session)) if self.carriers else None


CLAUDE_CODE_SESSION = "x-claude-code-session-id"
CODEX_TURN = "x-codex-turn-metadata"  # header with JSON; Codex states the session in it
CODEX_THREAD, CODEX_SESSION = "thread-id", "session-id"
OPENCODE_SESSION = "x-session-id"

ASSISTANTS: Mapping[str, AssistantSession] = {
    "claude_code": AssistantSession("session.id", (CLAUDE_CODE_SESSION,)),
    "codex": AssistantSession("conversation.id", (CODEX_THREAD, CODEX_SESSION, CODEX_TURN)),
    "copilot_chat": AssistantSession("gen_ai.conversation.id", knows_price=True),
    "copilot_cli": AssistantSession("gen_ai.conversation.id", knows_price=True),
    "gemini_cli": AssistantSession("session.id"),
    "opencode": AssistantSession("session.id", (OPENCODE_SESSION,)),
    "qwen_code": AssistantSession("session.id"),
}
