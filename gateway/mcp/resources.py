"""
MCP resources, which clients attach to a conversation without a tool: the context, and the costs of each saved view.

The content of a resource is the text result of a tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.core.errors import Refusal
from gateway.mcp.cost_queries import RANGE_WORDS
from gateway.mcp.messages import INVALID_PARAMS, McpError
from gateway.mcp.tool import (
    ANSWERED,
    MISTAKEN,
    McpTool,
    ToolCallContext,
    ToolInput,
    make_cursor,
    verify_cursor,
)
from gateway.mcp.tools import cost_data, org_context
from gateway.mcp.tools.list import permitted_tools
from gateway.mcp.writing import remove_hidden_characters
from gateway.operations.services import OperatorServices
from spool.errors import AskedTooMuch, Invalid, NotThere, TotalsIncomplete
from spool.listing import text_sort_key
from spool.registry.views import SavedView

CONTEXT_URI = "tollhouse://context"
VIEW_URI = "tollhouse://views/"
PAGE = 100
_TEXT = "text/markdown"
# error code for a missing resource in revisions with `initialize`; later revisions use INVALID_PARAMS
_NOT_FOUND_ONCE = -32002


class _WholeList(msgspec.Struct, kw_only=True):
    """The query that cursors of the resource list are signed for. It has no parameters."""


async def list_resources(
    call_context: ToolCallContext[OperatorServices], cursor: str | None
) -> Mapping[str, object]:
    """
    Return the resources after a cursor: first the context, then the views by name. Raises McpError for
    a bad cursor.
    """
    try:
        first = verify_cursor(call_context, "resources/list", _WholeList(), cursor)
    except Invalid as error:
        raise McpError(INVALID_PARAMS, str(error)) from None
    tools = permitted_tools(call_context)
    views = sorted(await _visible_views(call_context), key=lambda view: (text_sort_key(view.name), view.id))
    listed = [_CONTEXT] if org_context.TOOL.name in tools else []
    listed += map(_view_resource, views) if cost_data.TOOL.name in tools else []
    end = first + PAGE
    following = (
        {"nextCursor": make_cursor(call_context, "resources/list", _WholeList(), end)}
        if end < len(listed)
        else {}
    )
    return {"resources": listed[first:end], **following}


def list_resource_templates(call_context: ToolCallContext[OperatorServices]) -> Mapping[str, object]:
    if cost_data.TOOL.name not in permitted_tools(call_context):
        return {"resourceTemplates": []}
    template = {
        "uriTemplate": f"{VIEW_URI}{{id}}",
        "name": "view",
        "title": "Costs of a view",
        "description": "Costs in a saved view, with the view's own time range and grouping",
        "mimeType": _TEXT,
    }
    return {"resourceTemplates": [template]}


async def read_resource(
    call_context: ToolCallContext[OperatorServices], uri: str, *, uses_newest_revision: bool
) -> Mapping[str, object]:
    """
    Return a resource's text. Counts as a call of its tool. Raises McpError if the resource does not exist.
    """
    target = await _tool_and_arguments(call_context, uri)
    if target is None or target[0].name not in permitted_tools(call_context):
        code = INVALID_PARAMS if uses_newest_revision else _NOT_FOUND_ONCE
        raise McpError(code, "there is no such resource; list them with resources/list", data={"uri": uri})
    tool, arguments = target
    await call_context.charge()
    try:
        await call_context.visible_ledger.require_complete_totals(call_context.services.spool.log)
        answer = await tool.run_with_services(arguments, call_context)
    except (
        AskedTooMuch,
        Invalid,
        NotThere,
        Refusal,
        TotalsIncomplete,
    ) as error:  # for example, the view has a dimension that no longer exists
        call_context.told(tool.name, MISTAKEN)
        raise McpError(INVALID_PARAMS, str(error)) from None
    call_context.told(tool.name, ANSWERED)
    return {"contents": [{"uri": uri, "mimeType": _TEXT, "text": answer.text_with_link}]}


async def _tool_and_arguments(
    call_context: ToolCallContext[OperatorServices], uri: str
) -> tuple[McpTool[Any], ToolInput] | None:
    if uri == CONTEXT_URI:
        return org_context.TOOL, org_context.ContextQuestion()
    view = await _visible_view(call_context, uri)
    return None if view is None else (cost_data.TOOL, _cost_question_of_view(view))


def _cost_question_of_view(view: SavedView) -> cost_data.CostDataQuestion:
    by = view.group_by or (view.principal_dimension,)
    return cost_data.CostDataQuestion(
        date_range=RANGE_WORDS.get(view.range, view.range),
        group_by=list(by[: cost_data.MAX_GROUPS]),
        view=view.id,
    )


async def _visible_views(call_context: ToolCallContext[OperatorServices]) -> list[SavedView]:
    registry = call_context.shared.registry
    if registry is None:
        return []
    sees = await call_context.cost_reader.read_visibility()
    return [view for view in registry.views.all() if sees.can_see_view(view)]


async def _visible_view(call_context: ToolCallContext[OperatorServices], uri: str) -> SavedView | None:
    if not uri.startswith(VIEW_URI) or call_context.shared.registry is None:
        return None
    view = call_context.shared.registry.views.find(uri.removeprefix(VIEW_URI))
    return (
        view
        if view is not None and (await call_context.cost_reader.read_visibility()).can_see_view(view)
        else None
    )


_CONTEXT: Mapping[str, object] = {
    "uri": CONTEXT_URI,
    "name": "context",
    "title": org_context.TOOL.title,
    "description": "Available data, costs of this month so far, and the configuration: the result of get_org_context",
    "mimeType": _TEXT,
}


def _view_resource(view: SavedView) -> Mapping[str, object]:
    name = remove_hidden_characters(view.name)
    return {
        "uri": f"{VIEW_URI}{view.id}",
        "name": name,
        "title": f"Costs of the view {name}",
        "mimeType": _TEXT,
    }
