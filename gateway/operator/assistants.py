"""
The call of the operator API behind `tollhouse mcp`: one message of an assistant, whose sign-in is the operator's.
"""

from __future__ import annotations

from gateway.http.requests import Result
from gateway.http.services import OperatorServices
from gateway.mcp.messages import asks_tool
from gateway.mcp.protocol import answer
from gateway.mcp.tool import Asking
from gateway.operator.address import SLICED, call
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.registry.permission_sets import USE_ASSISTANTS


class McpLine(RequestBody):
    """A line as it came on stdio."""

    line: str


def asks_tool_on_stdio(given: McpLine) -> bool:
    return asks_tool(_message(given))


@call(
    "POST",
    "/mcp",
    USE_ASSISTANTS,
    "Answer a message of an assistant on stdio",
    in_turn=True,
    shows=SLICED,
    asks_cost_type=True,
    asks_much=asks_tool_on_stdio,
)
async def relay_mcp(request: OperatorRequest[OperatorServices, McpLine]) -> Result:
    """Answer with the line to write; null for a notification. No limit is counted."""
    asking = Asking(
        services=request.services,
        shared=request.shared,
        whole_ledger=request.whole_ledger,
        actor=request.actor,
        rights=request.rights,
        principal=f"person {request.actor.name}",
        count=lambda: None,
        charge=_not_counted,
        told=lambda *_: None,
    )
    reply = await answer(_message(request.body), asking)
    return {"line": None if reply.body is None else reply.body.decode()}


async def _not_counted() -> None:
    """Calls on stdio have no limit."""


def _message(given: McpLine) -> bytes:
    return given.line.encode("utf-8", "replace")
