"""The tool get_realized_savings: savings after recommendations were followed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_page_link,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.operations.holders.operators import InstallationServices
from spool.record import utc_iso
from spool.registry.insights import ADDRESSED
from spool.registry.recommendations import Recommendation

MOST = 100


class SavingsQuestion(ToolInput):
    type: Annotated[
        str | None, msgspec.Meta(description="Only recommendations of this type; default: all")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rows")] = 20


class SavingLine(ToolOutput):
    """
    A recommendation that was addressed.

    `realized` is the amount saved from `since` until before `until`, null if not known yet. `promised` is the
    monthly saving expected when it was addressed.
    """

    id: str
    type: str
    title: str
    addressed_at: str
    promised: str | None
    realized: str | None
    since: str | None
    until: str | None


class RealizedSavings(ToolOutput):
    """
    The result of the tool. Totals include every addressed recommendation that matches, also those left out.
    """

    currency: str
    savings: list[SavingLine]
    saving_count: int
    total_realized: str
    total_promised: str
    types: list[str]
    truncated: bool


async def answer_savings(
    arguments: SavingsQuestion, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    all_recommendations = await call_context.shared.require_registry().recommendations.all()
    sees = await call_context.cost_reader.read_visibility()
    addressed = [
        recommendation
        if sees.can_see_realized_saving(recommendation)
        else replace(recommendation, realized=None)
        for recommendation in all_recommendations
        if recommendation.status == ADDRESSED and sees.can_see_recommendation(recommendation)
    ]
    types = sorted({recommendation.saving.type for recommendation in addressed})
    lines = [
        _saving_line(recommendation)
        for recommendation in addressed
        if arguments.type in (None, recommendation.saving.type)
    ]
    lines.sort(key=lambda line: (-Decimal(line.realized or 0), line.id))
    realized = sum((Decimal(line.realized or 0) for line in lines), Decimal(0))
    promised = sum((Decimal(line.promised or 0) for line in lines), Decimal(0))

    shown = {"status": [ADDRESSED], "type": [arguments.type] if arguments.type else []}

    def answer_with_savings(count: int) -> ToolAnswer:
        content = RealizedSavings(
            currency=CURRENCY_UNIT,
            savings=lines[:count],
            saving_count=len(lines),
            total_realized=f"{realized:f}",
            total_promised=f"{promised:f}",
            types=types,
            truncated=count < len(lines),
        )
        return ToolAnswer(
            text=_format_savings(content),
            content=content,
            link=console_page_link(call_context, "/recommendations", shown),
        )

    return answer_within_limit(answer_with_savings, min(arguments.limit, len(lines)))


def _saving_line(recommendation: Recommendation) -> SavingLine:
    realized = recommendation.realized
    return SavingLine(
        id=recommendation.id,
        type=recommendation.saving.type,
        title=remove_hidden_characters(recommendation.saving.title),
        addressed_at=utc_iso(recommendation.status_at),
        promised=recommendation.promised,
        realized=None if realized is None else realized.amount,
        since=None if realized is None else realized.since,
        until=None if realized is None else realized.until,
    )


def _format_savings(content: RealizedSavings) -> str:
    parts = [
        f"{content.saving_count} recommendations were addressed; they have saved "
        f"{format_dollars(content.total_realized)} {content.currency} so far, and were expected to save "
        f"{format_dollars(content.total_promised)} per month."
    ]
    if not content.saving_count:
        types = (
            f"the types are {', '.join(map(format_cell, content.types))}"
            if content.types
            else "none has been addressed yet"
        )
        parts.append(f"No recommendation matches: {types}. get_optimize_recs lists possible savings.")
    rows = [
        [
            format_cell(saving.title),
            saving.type,
            format_dollars(saving.realized),
            f"{saving.since or '-'} to {saving.until or '-'}",
            format_dollars(saving.promised),
        ]
        for saving in content.savings[:MAX_TABLE_ROWS]
    ]
    if rows:
        columns = ["recommendation", "type", f"saved ({content.currency})", "days", "promised a month"]
        parts.append(markdown_table(columns, rows))
    if content.truncated or len(content.savings) > MAX_TABLE_ROWS:
        parts.append("There are more; see the structured content, raise limit, or name one type.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name="get_realized_savings",
    title="Realized savings",
    description=(
        "Savings after people followed recommendations, next to the expected savings. Largest first; "
        "default: 20. For savings that are still possible, use get_optimize_recs."
    ),
    takes=SavingsQuestion,
    gives=RealizedSavings,
    run=answer_savings,
    shows=SLICED,
)
