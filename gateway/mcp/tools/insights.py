"""The tools get_insights, which lists insights and recommendations together, and log_insight."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_lines,
    console_link_to_row,
    console_page_link,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.operations.holders.operators import InstallationServices
from spool.listing import DESCENDING, ListQuery, SortField
from spool.record import utc_iso
from spool.registry.insights import MAX_CATEGORY, MAX_INSIGHTS, MAX_TEXT, MAX_TITLE, Insight, InsightDraft
from spool.registry.permission_sets import WORK_ON_INSIGHTS
from spool.registry.recommendations import Recommendation
from spool.registry.texts import web_link_or_empty

MOST = 50
_TEXT = 600  # maximum characters of a description
Kind = Literal["insight", "recommendation"]
Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]


class InsightsQuestion(ToolInput):
    kind: Annotated[Kind | None, msgspec.Meta(description="Only insights or only recommendations")] = None
    status: Annotated[
        list[Status], msgspec.Meta(description="Only these statuses; default: all that are not closed")
    ] = msgspec.field(default_factory=lambda: ["new", "in_progress", "on_hold"])
    category: Annotated[
        str | None, msgspec.Meta(description="Category of insights, or type of recommendations")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rows")] = 10


class InsightLine(ToolOutput):
    """
    A finding.

    `impact` is in dollars: the amount that an insight concerns, or the monthly savings of a recommendation.
    `link` is the insight's own link, or its console page, or "". `gone` is true if it is no longer found.
    """

    kind: Kind
    id: str
    title: str
    category: str
    status: str
    effort: str
    impact: str
    text: str
    link: str
    gone: bool
    last_updated: str


class InsightLines(ToolOutput):
    currency: str
    insights: list[InsightLine]
    insight_count: int
    monthly_savings: str
    categories: list[str]
    truncated: bool


async def answer_insights(
    arguments: InsightsQuestion, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    registry = call_context.shared.require_registry()
    sees = await call_context.cost_reader.read_visibility()
    lines: list[InsightLine] = []
    if arguments.kind != "recommendation":
        query = ListQuery(
            sort=SortField("cost_impact", numeric=True),
            order=DESCENDING,
            identity="id",
            limit=MAX_INSIGHTS,
            filters={"status": tuple(arguments.status)},
        )
        rows = (await registry.insights.page(query)).rows
        lines += [
            _insight_line(insight, console_link_to_row(call_context, "/insights", insight.id))
            for insight in rows
            if sees.can_see_insight(insight)
        ]
    if arguments.kind != "insight":
        all_recommendations = await registry.recommendations.all()
        lines += [
            _recommendation_line(
                recommendation, console_link_to_row(call_context, "/recommendations", recommendation.id)
            )
            for recommendation in all_recommendations
            if recommendation.is_open
            and recommendation.status in arguments.status
            and sees.can_see_recommendation(recommendation)
        ]
    categories = sorted({line.category for line in lines})
    chosen = [line for line in lines if arguments.category in (None, line.category)]
    chosen.sort(key=lambda line: (-Decimal(line.impact), line.id))
    savings = sum((Decimal(line.impact) for line in chosen if line.kind == "recommendation"), Decimal(0))

    def answer_with_insights(count: int) -> ToolAnswer:
        content = InsightLines(
            currency=CURRENCY_UNIT,
            insights=chosen[:count],
            insight_count=len(chosen),
            monthly_savings=f"{savings:f}",
            categories=categories[:MOST],
            truncated=count < len(chosen),
        )
        return ToolAnswer(
            text=_format_insights(content), content=content, link=console_page_link(call_context, "/insights")
        )

    return answer_within_limit(answer_with_insights, min(arguments.limit, len(chosen)))


def _insight_line(insight: Insight, page: str) -> InsightLine:
    return InsightLine(
        kind="insight",
        id=insight.id,
        title=remove_hidden_characters(insight.title),
        category=remove_hidden_characters(insight.category),
        status=insight.status,
        effort=insight.effort,
        impact=insight.cost_impact,
        text=remove_hidden_characters(insight.description)[:_TEXT],
        link=web_link_or_empty(insight.link) or page,
        gone=insight.is_no_longer_found,
        last_updated=_format_time(insight.last_updated),
    )


def _recommendation_line(recommendation: Recommendation, page: str) -> InsightLine:
    saving = recommendation.saving
    return InsightLine(
        kind="recommendation",
        id=recommendation.id,
        title=remove_hidden_characters(saving.title),
        category=saving.type,
        status=recommendation.status,
        effort=saving.effort,
        impact=saving.monthly_savings,
        text=remove_hidden_characters(f"{saving.description} {saving.formula}")[:_TEXT],
        link=page,
        gone=not recommendation.is_open,
        last_updated=_format_time(recommendation.last_updated),
    )


def _format_time(moment: float) -> str:
    return utc_iso(moment)


def _format_insights(content: InsightLines) -> str:
    savings = format_dollars(content.monthly_savings)
    parts = [
        f"{content.insight_count} findings; the recommendations among them would save {savings} "
        f"{content.currency} per month."
    ]
    if not content.insight_count and content.categories:
        parts.append(
            f"No finding has this category; the categories are {', '.join(map(format_cell, content.categories))}."
        )
    rows = [
        [
            line.kind,
            format_cell(line.title),
            format_cell(line.category),
            line.status,
            format_dollars(line.impact if Decimal(line.impact) else None),
        ]
        for line in content.insights[:MAX_TABLE_ROWS]
    ]
    if rows:
        parts.append(
            markdown_table(["kind", "title", "category", "status", f"impact ({content.currency})"], rows)
        )
    if content.truncated:
        parts.append("There are more; raise limit, or name one category.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name="get_insights",
    title="Insights and recommendations",
    description=(
        "Unusual costs and possible savings: insights such as spikes, unpriced models and calls "
        "without an owner, and recommendations with their monthly savings. Largest first; default: "
        "10 that are not closed."
    ),
    takes=InsightsQuestion,
    gives=InsightLines,
    run=answer_insights,
    shows=SLICED,
)


class InsightWords(ToolInput):
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TITLE, description="One sentence")]
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT, description="The finding, with its numbers")] = ""
    category: Annotated[str, msgspec.Meta(max_length=MAX_CATEGORY, description="A word to group by")] = (
        "assistant"
    )


class LoggedInsight(ToolOutput):
    id: str
    title: str
    category: str
    status: str


async def log_insight(
    arguments: InsightWords, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    draft = InsightDraft(
        title=remove_hidden_characters(arguments.title),
        description=clean_lines(arguments.text),
        category=remove_hidden_characters(arguments.category),
    )
    insight = await call_context.shared.require_registry().insights.find_or_add(
        draft, actor=call_context.actor
    )
    content = LoggedInsight(
        id=insight.id,
        title=remove_hidden_characters(insight.title),
        category=remove_hidden_characters(insight.category),
        status=insight.status,
    )
    return ToolAnswer(
        text=f"The insight {format_cell(insight.title)} is stored; its status is {insight.status}.",
        content=content,
    )


LOG_TOOL = McpTool(
    name="log_insight",
    title="Log an insight",
    description=(
        "Record a finding about AI spend for people to follow up. It is listed with the insights "
        "that Tollhouse found. Recording the same insight again changes nothing and returns its "
        "current status."
    ),
    takes=InsightWords,
    gives=LoggedInsight,
    run=log_insight,
    writes=True,
    needs=WORK_ON_INSIGHTS,
)
