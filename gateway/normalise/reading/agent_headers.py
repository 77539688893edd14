"""Headers in which coding assistants state their session and their agent to a gateway, as the gateway reports them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.normalise.reading.assistants import (
    CLAUDE_CODE_SESSION,
    CODEX_SESSION,
    CODEX_THREAD,
    CODEX_TURN,
    COPILOT_INITIATOR,
    OPENCODE_SESSION,
)
from gateway.normalise.reading.request_ids import RequestIdHeaders
from gateway.normalise.reading.values import first_text, struct_or_empty, text_or_none
from spool.identity import has_unique_id_form
from spool.record import Inference


def _declare_header_field(name: str) -> Any:
    return msgspec.field(name=name, default=None)


class CodexTurn(msgspec.Struct):
    """
    The turn that Codex describes in a header. `thread_id` is the conversation. A sub-agent has a thread of
    its own.
    """

    thread_id: Any = None
    session_id: Any = None


class AgentHeaders(RequestIdHeaders):
    """
    The headers of a request and its response that identify an assistant's session and agent, as gateways log
    them in one object. Requests of Claude Code's main agent state only the session.
    """

    of_claude_code: Any = _declare_header_field(CLAUDE_CODE_SESSION)
    of_opencode: Any = _declare_header_field(OPENCODE_SESSION)
    codex_thread: Any = _declare_header_field(CODEX_THREAD)
    codex_session: Any = _declare_header_field(CODEX_SESSION)
    codex_turn: Any = _declare_header_field(CODEX_TURN)
    initiator: Any = _declare_header_field(COPILOT_INITIATOR)
    agent: Any = _declare_header_field("x-claude-code-agent-id")
    parent_agent: Any = _declare_header_field("x-claude-code-parent-agent-id")

    @property
    def session_id(self) -> str | None:
        """
        Return the session id. Other programs may use the headers with short names for other ids. So, except
        in Claude Code's header, an id needs a form that is unique everywhere, such as a UUID.
        """
        if self.of_claude_code is not None:
            return text_or_none(self.of_claude_code)
        turn = CodexTurn() if self.codex_turn is None else struct_or_empty(self.codex_turn, CodexTurn)
        stated = (self.of_opencode, self.codex_thread, self.codex_session, turn.thread_id, turn.session_id)
        session = first_text(*stated)
        return session if session is not None and has_unique_id_form(session) else None

    def fill_session_and_run(self, record: Inference) -> None:
        record.session = self.session_id
        self.fill_run(record)

    def fill_run(self, record: Inference) -> None:
        if self.agent is not None:
            record.run, record.parent_run = text_or_none(self.agent), text_or_none(self.parent_agent)


NO_HEADERS = AgentHeaders()
_NAMES = {
    field.encode_name: field.name
    for field in msgspec.structs.fields(AgentHeaders)
    if field.name not in (*RequestIdHeaders.__struct_fields__, "codex_turn")
}
_WRITTEN = re.compile(rf"""['"]({"|".join(_NAMES)})['"]: ?['"]([\w-]+)['"]""")
# Matches the thread id in the header of Codex. The header is itself JSON, so its quotes may be escaped.
_CODEX_THREAD = re.compile(rf"""['"]{CODEX_TURN}['"]: ?['"]{{.{{,1024}}?\\*"thread_id\\*": ?\\*"([\w-]+)""")


def parse_headers_in_text(headers: Any) -> AgentHeaders:
    """Parse headers that the gateway wrote into one text, as JSON or as a literal of Python."""
    if not isinstance(headers, str):
        return NO_HEADERS
    found = {_NAMES[name]: value for name, value in _WRITTEN.findall(headers)}
    if (thread := _CODEX_THREAD.search(headers)) is not None:
        found.setdefault("codex_thread", thread[1])
    return AgentHeaders(**found)
