"""
Operator API for assistants: the call behind `tollhouse mcp`, and the tools that are enabled.

`tollhouse mcp` relays an assistant's messages with the rights of the operator who runs the command.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import ListDefinition, MemoryRows, Sort, yes_no_filter
from gateway.http.requests import Result
from gateway.mcp.messages import is_tool_or_resource_call
from gateway.mcp.protocol import answer_message
from gateway.mcp.tool import ToolCallContext
from gateway.mcp.tools.list import TOOLS, is_tool_enabled
from gateway.operations.requests.address import NOTHING, SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.operations.services import OperatorServices
from spool.errors import NotThere
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, USE_ASSISTANTS


class McpLine(RequestBody):
    line: Annotated[str, words("The message as one line of JSON.")]


def is_tool_or_resource_call_on_stdio(mcp_line: McpLine) -> bool:
    return is_tool_or_resource_call(_message_bytes(mcp_line))


class RelayMcpAnswer(msgspec.Struct, kw_only=True):
    line: Annotated[
        str | None,
        words("The answer as one line of JSON, or null for a notification."),
        example(
            '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Co'
            "sts can be grouped and filtered by 16 matching dimensions.\\n\\n| "
            "dimension | meaning | values |\\n| --- | --- | --- |\\n| model | the "
            "model that answered | 15 |\\n| ..."
        ),
    ]


class AssistantToolItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the tool."), example("compare_costs")]
    title: Annotated[str, words("The title of the tool."), example("What changed")]
    writes: Annotated[bool, words("Whether the tool changes data."), example(False)]
    enabled: Annotated[bool, words("Whether the tool is enabled."), example(True)]
    needs: Annotated[str, words("The permission set that the tool requires."), example("use_assistants")]
    shows: Annotated[
        str, words("`sliced`, or `whole` if the tool needs access to all calls."), example("sliced")
    ]
    last_updated: Annotated[
        str | None, words("When the tool was last enabled or disabled, or null."), example(None)
    ]
    updated_by: Annotated[str | None, words("Who enabled or disabled the tool last, or null."), example(None)]


@operator_call(
    "POST",
    "/mcp",
    USE_ASSISTANTS,
    "Answer an MCP message that arrived on standard input",
    in_turn=True,
    shows=SLICED,
    asks_cost_type=True,
    asks_much=is_tool_or_resource_call_on_stdio,
    answers=RelayMcpAnswer,
)
async def relay_mcp(request: OperatorRequest[OperatorServices, McpLine]) -> Result:
    """Answer with the line to write, or null for a notification. Calls are not counted against a limit."""
    asking = ToolCallContext(
        services=request.services,
        shared=request.shared,
        whole_ledger=request.whole_ledger,
        actor=request.actor,
        rights=request.rights,
        principal=f"person {request.actor.name}",
        count=lambda: None,
        charge=_charge_nothing,
        told=lambda *_: None,
    )
    reply = await answer_message(_message_bytes(request.body), asking)
    return {"line": None if reply.body is None else reply.body.decode()}


async def _charge_nothing() -> None:
    """Do nothing, because calls on standard input have no limit."""


def _message_bytes(mcp_line: McpLine) -> bytes:
    return mcp_line.line.encode("utf-8", "replace")


class ToolChange(RequestBody):
    enabled: Annotated[bool, words("Whether assistants may use the tool.")]


ASSISTANT_TOOLS: ListDefinition[AssistantToolItem] = ListDefinition(
    root="assistant_tools",
    show=msgspec.structs.asdict,
    identity=Sort(value=lambda tool: tool.name),
    sorts={
        "name": Sort(value=lambda tool: tool.name),
        "last_updated": Sort(value=lambda tool: tool.last_updated),
    },
    default_sort=("name", "asc"),
    filters={
        "enabled": yes_no_filter(lambda tool: tool.enabled),
        "writes": yes_no_filter(lambda tool: tool.writes),
    },
)


@operator_call(
    "GET",
    "/assistant-tools",
    USE_ASSISTANTS,
    "List the MCP tools",
    lists=ASSISTANT_TOOLS,
    shows=NOTHING,
    item=AssistantToolItem,
)
async def list_assistant_tools(request: OperatorRequest[OperatorServices, None]) -> Result:
    services = request.services
    return await request.list_page(
        ASSISTANT_TOOLS, MemoryRows([_assistant_tool(services, name) for name in TOOLS])
    )


@operator_call(
    "PATCH",
    "/assistant-tools/{name}",
    ORGANIZATION_ADMINISTRATION,
    "Enable or disable an MCP tool",
    answers=one_field_answer(
        "OneAssistantTool", assistant_tool=Annotated[AssistantToolItem, words("The changed tool.")]
    ),
)
async def set_assistant_tool(request: OperatorRequest[OperatorServices, ToolChange]) -> Result:
    name = request.path_parameter("name")
    if name not in TOOLS:
        raise NotThere(f"there is no such tool; the tools are {', '.join(TOOLS)}")
    await request.registry.assistant_tools.set_enabled(
        name, enabled=request.body.enabled, actor=request.actor
    )
    return {"assistant_tool": msgspec.structs.asdict(_assistant_tool(request.services, name))}


def _assistant_tool(services: OperatorServices, name: str) -> AssistantToolItem:
    tool = TOOLS[name]
    decided = services.installation.require_registry().assistant_tools.find(name)
    return AssistantToolItem(
        name=name,
        title=tool.title,
        writes=tool.writes,
        enabled=is_tool_enabled(services, name),
        needs=tool.needs,
        shows=tool.shows,
        last_updated=None if decided is None else utc_iso(decided.last_updated),
        updated_by=None if decided is None else decided.updated_by,
    )
