"""The tool get_optimize_recs: recommendations, their savings and the formulas behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    console_link_to_row,
    console_page_link,
    did_you_mean,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.recommendations.facts import recommendation_dimensions
from gateway.operations.holders.operators import InstallationServices
from spool.errors import Invalid
from spool.printable import CONFIDENCE_WORDS
from spool.record import utc_iso
from spool.registry.recommendations import Processing, Recommendation

NAME = "get_optimize_recs"
MOST = 50
_TEXT = 400  # maximum characters of a description, a formula or an assumption
_MOST_VALUES = 10  # maximum values of a dimension
_MOST_NAME = 100  # maximum characters of a value, a model or an assignee
Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]

Concerning = Annotated[
    dict[str, list[str]],
    msgspec.Meta(description='Only recommendations about these values, by dimension: {"team": ["search"]}'),
]


class RecommendationsQuestion(ToolInput):
    type: Annotated[
        str | None,
        msgspec.Meta(
            description="Only this type (see get_reference_info recommendation_types); default: all"
        ),
    ] = None
    status: Annotated[
        list[Status], msgspec.Meta(description="Only these statuses; default: all that are not closed")
    ] = msgspec.field(default_factory=lambda: ["new", "in_progress", "on_hold"])
    filters: Concerning = msgspec.field(default_factory=dict)
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rows")] = 10


class ProcessedBy(ToolOutput):
    """How calls are processed. Null is unknown or any; `mode` "" is standard."""

    model: str | None
    provider: str | None
    mode: str | None


class RecommendationLine(ToolOutput):
    """
    A recommendation. Amounts are exact decimal text in dollars.

    `spent` is the cost of the calls from `first_day` to `last_day`. `monthly_savings` are in addition to
    those of larger recommendations. `dimensions` tell whose calls it concerns, with the first values of each.
    `link` is its console page, or "".
    """

    id: str
    type: str
    title: str
    description: str
    formula: str
    assumptions: list[str]
    status: str
    assignee: str
    effort: str
    confidence: str
    monthly_savings: str
    spent: str
    current: ProcessedBy
    recommended: ProcessedBy
    dimensions: dict[str, list[str]]
    first_day: str
    last_day: str
    price_book: str
    last_updated: str
    link: str


class Recommendations(ToolOutput):
    """The result of the tool. The total includes every recommendation that matches, also those left out."""

    currency: str
    recommendations: list[RecommendationLine]
    recommendation_count: int
    total_monthly_savings: str
    types: list[str]
    truncated: bool


async def answer_recommendations(
    arguments: RecommendationsQuestion, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    all_recommendations = await call_context.shared.require_registry().recommendations.all()
    sees = await call_context.cost_reader.read_visibility()
    candidates = [
        recommendation
        for recommendation in all_recommendations
        if recommendation.is_open
        and recommendation.status in arguments.status
        and sees.can_see_recommendation(recommendation)
    ]
    filters = call_context.shared.people.check_and_expand_filter(arguments.filters)
    await _require_known_filters(arguments.filters, call_context, candidates)
    types = sorted({recommendation.saving.type for recommendation in candidates})
    chosen = [
        recommendation
        for recommendation in candidates
        if arguments.type in (None, recommendation.saving.type) and _matches_filters(recommendation, filters)
    ]
    chosen.sort(
        key=lambda recommendation: (-Decimal(recommendation.saving.monthly_savings), recommendation.id)
    )
    total = sum((Decimal(recommendation.saving.monthly_savings) for recommendation in chosen), Decimal(0))
    shown: Mapping[str, Sequence[str]] = {
        "status": arguments.status,
        "type": [arguments.type] if arguments.type else [],
    }
    link = console_page_link(call_context, "/recommendations", {**shown, **arguments.filters})
    lines = [
        _recommendation_line(
            recommendation, console_link_to_row(call_context, "/recommendations", recommendation.id)
        )
        for recommendation in chosen[: arguments.limit]
    ]

    def answer_with_recommendations(count: int) -> ToolAnswer:
        content = Recommendations(
            currency=CURRENCY_UNIT,
            recommendations=lines[:count],
            recommendation_count=len(chosen),
            total_monthly_savings=f"{total:f}",
            types=types,
            truncated=count < len(chosen),
        )
        return ToolAnswer(text=_format_recommendations(content), content=content, link=link)

    return answer_within_limit(answer_with_recommendations, len(lines))


async def _require_known_filters(
    filters: Mapping[str, Sequence[str]],
    call_context: ToolCallContext[InstallationServices],
    recommendations: Sequence[Recommendation],
) -> None:
    ledger = call_context.visible_ledger
    known = recommendation_dimensions(ledger.builtin_and_tag_dimensions())
    for name, values in filters.items():
        if name not in known:
            raise Invalid(
                f"recommendations cannot be filtered by {remove_hidden_characters(name)}{did_you_mean(name, known)}: "
                f"{', '.join(known)}"
            )
        known_values = {
            value
            for recommendation in recommendations
            for value in recommendation.saving.dimensions.get(name, ())
        }
        known_values.update(await ledger.values(name))
        for value in values:
            if known_values.isdisjoint(call_context.shared.people.all_recorded_names(value)):
                nearest = await asyncio.to_thread(did_you_mean, value, known_values)
                raise Invalid(f"there is no {name} {remove_hidden_characters(value)}{nearest}")


def _matches_filters(recommendation: Recommendation, filters: Mapping[str, Sequence[str]]) -> bool:
    dimensions = recommendation.saving.dimensions
    return all(set(values) & set(dimensions.get(name, ())) for name, values in filters.items())


def _recommendation_line(recommendation: Recommendation, link: str) -> RecommendationLine:
    saving = recommendation.saving
    return RecommendationLine(
        id=recommendation.id,
        type=saving.type,
        title=clean_and_shorten(saving.title, _TEXT),
        description=clean_and_shorten(saving.description, _TEXT),
        formula=clean_and_shorten(saving.formula, _TEXT),
        assumptions=[clean_and_shorten(text, _TEXT) for text in saving.assumptions],
        status=recommendation.status,
        assignee=clean_and_shorten(recommendation.assignee, _MOST_NAME),
        effort=saving.effort,
        confidence=saving.confidence,
        monthly_savings=saving.monthly_savings,
        spent=saving.spent,
        current=_describe_processing(saving.current),
        recommended=_describe_processing(saving.recommended),
        dimensions={
            name: [clean_and_shorten(value, _MOST_NAME) for value in values[:_MOST_VALUES]]
            for name, values in saving.dimensions.items()
        },
        first_day=saving.first_day,
        last_day=saving.last_day,
        price_book=saving.price_book,
        last_updated=utc_iso(recommendation.last_updated),
        link=link,
    )


def _describe_processing(processing: Processing) -> ProcessedBy:
    return ProcessedBy(
        model=_clean_and_shorten_name(processing.model),
        provider=_clean_and_shorten_name(processing.provider),
        mode=_clean_and_shorten_name(processing.mode),
    )


def _clean_and_shorten_name(name: str | None) -> str | None:
    return None if name is None else clean_and_shorten(name, _MOST_NAME)


def _format_recommendations(content: Recommendations) -> str:
    parts = [
        f"{content.recommendation_count} recommendations; together they would save "
        f"{format_dollars(content.total_monthly_savings)} {content.currency} per month."
    ]
    if not content.recommendation_count:
        types = (
            f"the types are {', '.join(map(format_cell, content.types))}"
            if content.types
            else "none has this status"
        )
        parts.append(
            f"No recommendation matches: {types}. get_realized_savings shows those that were followed."
        )
    rows = [
        [
            format_cell(recommendation.title),
            recommendation.type,
            format_dollars(recommendation.monthly_savings),
            format_dollars(recommendation.spent),
            CONFIDENCE_WORDS.get(recommendation.confidence, recommendation.confidence),
            recommendation.effort,
            recommendation.status,
        ]
        for recommendation in content.recommendations[:MAX_TABLE_ROWS]
    ]
    if rows:
        columns = [
            "recommendation",
            "type",
            f"saves a month ({content.currency})",
            "spent",
            "confidence",
            "effort",
        ]
        parts.append(markdown_table([*columns, "status"], rows))
    if content.truncated or len(content.recommendations) > MAX_TABLE_ROWS:
        parts.append("There are more; see the structured content, raise limit, or name one type.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name=NAME,
    title="Recommendations",
    description=(
        "Possible savings: each recommendation with its monthly savings, the formula and "
        "assumptions, its confidence, and whose calls it concerns. Largest first; default: 10 that "
        "are not closed. For savings after people followed a recommendation, use "
        "get_realized_savings."
    ),
    takes=RecommendationsQuestion,
    gives=Recommendations,
    run=answer_recommendations,
    shows=SLICED,
)
