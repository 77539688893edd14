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
    counts. If there are none, and the gateway's log lost the response id, model and counts join the calls, or
    the `program` that a gateway's log names.
    """

    session: str
    carriers: tuple[str, ...] = ()
    program: str | None = None

    def session_if_sent_to_gateways(self, attributes: Mapping[str, Any]) -> str | None:
        return text_or_none(attributes.get(self.session)) if self.carriers else None


CLAUDE_CODE_SESSION = "x-claude-code-session-id"
CODEX_TURN = "x-codex-turn-metadata"  # header with JSON; Codex states the session in it
CODEX_THREAD, CODEX_SESSION = "thread-id", "session-id"
OPENCODE_SESSION = "x-session-id"
COPILOT_INITIATOR = "x-initiator"
COPILOT, GEMINI_CLI, QWEN_CODE = "copilot", "GeminiCLI", "QwenCode"  # programs; some begin their user agents

ASSISTANTS: Mapping[str, AssistantSession] = {
    "claude_code": AssistantSession("session.id", (CLAUDE_CODE_SESSION,)),
    "codex": AssistantSession("conversation.id", (CODEX_THREAD, CODEX_SESSION, CODEX_TURN)),
    "copilot_chat": AssistantSession("gen_ai.conversation.id", program=COPILOT),
    "copilot_cli": AssistantSession("gen_ai.conversation.id", program=COPILOT),
    "gemini_cli": AssistantSession("session.id", program=GEMINI_CLI),
    "opencode": AssistantSession("session.id", (OPENCODE_SESSION,)),
    "qwen_code": AssistantSession("session.id", program=QWEN_CODE),
}


def program_of_request(*, user_agent: Any, initiator: Any) -> str | None:
    """
    Return the assistant that made a gateway's request, if it sends no session. Copilot has the user agent of an
    SDK, and a header that says who started the request.
    """
    if initiator is not None:
        return COPILOT
    stated = text_or_none(user_agent) or ""
    return next((program for program in (GEMINI_CLI, QWEN_CODE) if stated.startswith(program)), None)
