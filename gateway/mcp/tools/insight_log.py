"""Write an insight down where people look for insights."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.http.holders.installation import InstallationServices
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput
from gateway.mcp.writing import cell, clean, clean_text
from spool.registry.insights import MAX_CATEGORY, MAX_TEXT, MAX_TITLE, Draft
from spool.registry.permission_sets import WORK_ON_INSIGHTS


class InsightWords(ToolInput):
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TITLE, description="One sentence")]
    text: Annotated[
        str, msgspec.Meta(max_length=MAX_TEXT, description="What was found, with its numbers")
    ] = ""
    category: Annotated[str, msgspec.Meta(max_length=MAX_CATEGORY, description="A word to group by")] = (
        "assistant"
    )


class LoggedInsight(ToolOutput):
    id: str
    title: str
    category: str
    status: str


async def run(asked: InsightWords, asking: Asking[InstallationServices]) -> ToolAnswer:
    draft = Draft(
        title=clean(asked.title), description=clean_text(asked.text), category=clean(asked.category)
    )
    kept = await asking.shared.require_registry().insights.log(draft, actor=asking.actor)
    content = LoggedInsight(
        id=kept.id, title=clean(kept.title), category=clean(kept.category), status=kept.status
    )
    return ToolAnswer(
        text=f"The insight {cell(kept.title)} is logged; its status is {kept.status}.", content=content
    )


TOOL = Tool(
    name="log_insight",
    title="Log an insight",
    description=(
        "Write down something about AI spend that people should see and follow up: it is listed with the "
        "insights that "
        "were found automatically. The same words again change nothing, and are answered with the status by "
        "then."
    ),
    takes=InsightWords,
    gives=LoggedInsight,
    run=run,
    writes=True,
    needs=WORK_ON_INSIGHTS,
)
