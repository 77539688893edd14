"""Headers in which Claude Code states its session and its agent to a gateway, as the gateway reports them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.normalise.reading.request_ids import RequestIdHeaders
from gateway.normalise.reading.values import text
from spool.record import Inference

_PREFIX = "x-claude-code-"


def _header(name: str) -> Any:
    return msgspec.field(name=_PREFIX + name, default=None)


class AgentHeaders(RequestIdHeaders):
    """
    Headers of a request or a response, because gateways log both in one form. Requests of the main agent state only
    the session.
    """

    session: Any = _header("session-id")
    agent: Any = _header("agent-id")
    parent_agent: Any = _header("parent-agent-id")

    def describe(self, record: Inference) -> None:
        """Fill in the session and the run."""
        record.session = text(self.session)
        self.set_run(record)

    def set_run(self, record: Inference) -> None:
        """Fill in the run of the agent and the run that started it, as Claude Code itself reports them."""
        if self.agent is not None:
            record.run, record.parent_run = text(self.agent), text(self.parent_agent)


NO_HEADERS = AgentHeaders()
_NAMES = {
    field.encode_name: field.name
    for field in msgspec.structs.fields(AgentHeaders)
    if field.encode_name.startswith(_PREFIX)
}
_WRITTEN = re.compile(rf"""['"]({"|".join(_NAMES)})['"]: ?['"]([\w-]+)['"]""")


def of_written(headers: Any) -> AgentHeaders:
    """Read headers that the gateway wrote into one text, as JSON or as a literal of Python."""
    if not isinstance(headers, str):
        return NO_HEADERS
    return AgentHeaders(**{_NAMES[name]: value for name, value in _WRITTEN.findall(headers)})
