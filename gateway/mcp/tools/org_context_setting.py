"""Set what assistants are told about the organization."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.http.holders.installation import InstallationServices
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput
from gateway.mcp.writing import clean_text
from spool.registry.org_context import MAX_TEXT
from spool.registry.permission_sets import WORK_ON_INSIGHTS


class NewOrgContext(ToolInput):
    text: Annotated[
        str,
        msgspec.Meta(
            max_length=MAX_TEXT,
            description=f"All the notes, at most {MAX_TEXT} characters; they replace those before, none removes them",
        ),
    ]


class OrgContextSet(ToolOutput):
    """The notes as they are kept."""

    text: str
    set_by: str | None


async def run(asked: NewOrgContext, asking: Asking[InstallationServices]) -> ToolAnswer:
    table = asking.shared.require_registry().org_context
    kept = await table.set(clean_text(asked.text), actor=asking.actor)
    content = OrgContextSet(
        text="" if kept is None else kept.text, set_by=None if kept is None else kept.set_by
    )
    said = "removed" if kept is None else f"set, {len(kept.text)} characters"
    return ToolAnswer(
        text=f"The notes on the organization are {said}; get_org_context gives them.", content=content
    )


TOOL = Tool(
    name="set_org_context",
    title="Set the notes on the organization",
    description=(
        "Write down what every assistant should know of the organization, such as which team owns which "
        "service. "
        "Replaces the notes that get_org_context gives as org_context: read them first, and keep what stays "
        "true."
    ),
    takes=NewOrgContext,
    gives=OrgContextSet,
    run=run,
    writes=True,
    needs=WORK_ON_INSIGHTS,
    replaces=True,
)
