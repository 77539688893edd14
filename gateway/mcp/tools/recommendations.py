"""What the same work could cost less: recommendations with the formula behind each, and what they would save."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from gateway.http.holders.operators import InstallationServices
from gateway.http.visible import SLICED
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput, fit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    cell,
    clean,
    cut,
    money_text,
    opened_row,
    page,
    suggestion,
    table,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.recommendations.facts import recommendation_dimensions
from spool.errors import Invalid
from spool.record import moment
from spool.registry.recommendations import Processing, Recommendation

NAME = "get_optimize_recs"
MOST = 50
_TEXT = 400  # characters of a description, a formula, an assumption
_MOST_VALUES = 10  # of one dimension
_MOST_NAME = 100  # characters of a value, a model, an assignee
Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]

Concerning = Annotated[
    dict[str, list[str]],
    msgspec.Meta(
        description='Only recommendations about one of these values, by dimension: {"team": ["search"]}',
    ),
]


class RecommendationsQuestion(ToolInput):
    type: Annotated[
        str | None,
        msgspec.Meta(description="Only this type (get_reference_info recommendation_types); default: all"),
    ] = None
    status: Annotated[list[Status], msgspec.Meta(description="Any of these; default: what nobody closed")] = (
        msgspec.field(default_factory=lambda: ["new", "in_progress", "on_hold"])
    )
    filters: Concerning = msgspec.field(default_factory=dict)
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Rows of the answer")] = 10


class ProcessedBy(ToolOutput):
    """Null is unknown, or any; `mode` "" is the standard one."""

    model: str | None
    provider: str | None
    mode: str | None


class RecommendationLine(ToolOutput):
    """
    Exact decimal text in dollars. `spent` is what the work cost from `first_day` to `last_day`,
    `monthly_savings` what a month would save beside the larger recommendations. `dimensions` are whose work
    it is about, each with its first values. `link` is its page of the console, empty where that is not known.
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
    """The total is of every recommendation of the question, also of those that are cut."""

    currency: str
    recommendations: list[RecommendationLine]
    recommendation_count: int
    total_monthly_savings: str
    types: list[str]
    truncated: bool


async def run(asked: RecommendationsQuestion, asking: Asking[InstallationServices]) -> ToolAnswer:
    kept = await asking.shared.require_registry().recommendations.all()
    sees = await asking.reads.visible()
    found = [
        each for each in kept if each.is_open and each.status in asked.status and sees.recommendation(each)
    ]
    filters = asking.shared.people.asked(asked.filters)
    await _check(asked.filters, asking, found)
    types = sorted({each.saving.type for each in found})
    chosen = [each for each in found if asked.type in (None, each.saving.type) and _is_about(each, filters)]
    chosen.sort(key=lambda each: (-Decimal(each.saving.monthly_savings), each.id))
    total = sum((Decimal(each.saving.monthly_savings) for each in chosen), Decimal(0))
    shown: Mapping[str, Sequence[str]] = {"status": asked.status, "type": [asked.type] if asked.type else []}
    link = page(asking, "/recommendations", {**shown, **asked.filters})
    lines = [_line(each, opened_row(asking, "/recommendations", each.id)) for each in chosen[: asked.limit]]

    def written(count: int) -> ToolAnswer:
        content = Recommendations(
            currency=CURRENCY_UNIT,
            recommendations=lines[:count],
            recommendation_count=len(chosen),
            total_monthly_savings=f"{total:f}",
            types=types,
            truncated=count < len(chosen),
        )
        return ToolAnswer(text=_text(content), content=content, link=link)

    return fit(written, len(lines))


async def _check(
    filters: Mapping[str, Sequence[str]],
    asking: Asking[InstallationServices],
    found: Sequence[Recommendation],
) -> None:
    """Invalid for a dimension that recommendations do not have, or a value that neither they nor the ledger know."""
    ledger = asking.ledger
    known = recommendation_dimensions(ledger.own_dimensions())
    for name, values in filters.items():
        if name not in known:
            raise Invalid(
                f"recommendations are not told apart by {clean(name)}{suggestion(name, known)}: "
                f"{', '.join(known)}"
            )
        there = {value for each in found for value in each.saving.dimensions.get(name, ())}
        there.update(await ledger.values(name))
        for value in values:
            if there.isdisjoint(asking.shared.people.forms(value)):
                nearest = await asyncio.to_thread(suggestion, value, there)
                raise Invalid(f"there is no {name} {clean(value)}{nearest}")


def _is_about(each: Recommendation, filters: Mapping[str, Sequence[str]]) -> bool:
    of = each.saving.dimensions
    return all(set(values) & set(of.get(name, ())) for name, values in filters.items())


def _line(each: Recommendation, link: str) -> RecommendationLine:
    saving = each.saving
    return RecommendationLine(
        id=each.id,
        type=saving.type,
        title=cut(saving.title, _TEXT),
        description=cut(saving.description, _TEXT),
        formula=cut(saving.formula, _TEXT),
        assumptions=[cut(text, _TEXT) for text in saving.assumptions],
        status=each.status,
        assignee=cut(each.assignee, _MOST_NAME),
        effort=saving.effort,
        confidence=saving.confidence,
        monthly_savings=saving.monthly_savings,
        spent=saving.spent,
        current=_processing(saving.current),
        recommended=_processing(saving.recommended),
        dimensions={
            name: [cut(value, _MOST_NAME) for value in values[:_MOST_VALUES]]
            for name, values in saving.dimensions.items()
        },
        first_day=saving.first_day,
        last_day=saving.last_day,
        price_book=saving.price_book,
        last_updated=moment(each.last_updated),
        link=link,
    )


def _processing(given: Processing) -> ProcessedBy:
    return ProcessedBy(model=_named(given.model), provider=_named(given.provider), mode=_named(given.mode))


def _named(name: str | None) -> str | None:
    return None if name is None else cut(name, _MOST_NAME)


def _text(content: Recommendations) -> str:
    parts = [
        f"{content.recommendation_count} recommendations; together they would save "
        f"{money_text(content.total_monthly_savings)} {content.currency} a month."
    ]
    if not content.recommendation_count:
        types = (
            f"there are {', '.join(map(cell, content.types))}"
            if content.types
            else "there is none of this status"
        )
        parts.append(f"None matches: {types}. get_realized_savings tells of those that were followed.")
    rows = [
        [
            cell(each.title),
            each.type,
            money_text(each.monthly_savings),
            money_text(each.spent),
            each.confidence,
            each.effort,
            each.status,
        ]
        for each in content.recommendations[:MAX_TABLE_ROWS]
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
        parts.append(table([*columns, "status"], rows))
    if content.truncated or len(content.recommendations) > MAX_TABLE_ROWS:
        parts.append("There are more: see the structured content, raise limit, or ask for one type.")
    return "\n\n".join(parts)


TOOL = Tool(
    name=NAME,
    title="Recommendations",
    description=(
        "What the same work could cost less: each recommendation with what it would save in a month, the "
        "formula and "
        "the assumptions behind that, how sure it is, and whose work it is about. The largest first; "
        "default: 10 that "
        "are not closed. What was saved after they were followed is in get_realized_savings."
    ),
    takes=RecommendationsQuestion,
    gives=Recommendations,
    run=run,
    shows=SLICED,
)
