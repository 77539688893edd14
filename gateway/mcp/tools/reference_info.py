"""
The tool get_reference_info: meanings of the words that other tools use, such as cost types and measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import RANGES_OF_WORDS, ZONE, date_range_span
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput
from gateway.mcp.tools.dimensions import dimension_meanings
from gateway.mcp.writing import format_cell, markdown_table
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.recommendations.list import TYPES
from gateway.operations.holders.operators import InstallationServices
from spool.ledger.dimensions import BILLED_DIMENSIONS, EXPLAINED_TYPES
from spool.ledger.periods import span_text
from spool.ledger.work import TREES, UNITS
from spool.meters import METERS

ReferenceType = Literal[
    "cost_types", "measures", "date_ranges", "dimensions", "recommendation_types", "changes"
]

_MEASURES = {
    "cost": f"{CURRENCY_UNIT}, of the requested cost_type",
    "calls": "AI calls, including failed calls and calls answered from a cache",
    "tokens": "input and output tokens that a provider counted",
    "errors": "calls that failed",
    "cost_per_call": f"{CURRENCY_UNIT} divided by all calls",
    "cost_per_million_tokens": f"{CURRENCY_UNIT} divided by the tokens, times a million",
    "usage": f"the quantity of a meter, in its own unit: {', '.join(METERS)}",
}
_UNIT = "unit of work: one per query, of counted costs, for at most 92 days"
_OWN = (
    "; costs here are own costs, in which each call counts once. Aggregated costs, which include started runs and so "
    "overlap, are on the console page of a session or run, and in `tollhouse work show`"
)
_OF_UNITS = {name: f"{unit.meaning} ({_UNIT}{_OWN if name in TREES else ''})" for name, unit in UNITS.items()}
_CHANGES = {
    "more_calls": "more or fewer calls of a group, at its earlier cost per call",
    "larger_calls": "more or fewer tokens per call, at the group's earlier cost per token",
    "other_kinds": "other models or token types, such as more output, each at its earlier price",
    "large_inputs": "more or fewer tokens in inputs that are large enough for a higher price",
    "other_tiers": "more or fewer tokens in a tier with another price, such as batch",
    "other_regions": "more or fewer tokens in a region with another price",
    "reported_costs": "more or fewer tokens with a cost that their source reported",
    "prices": "an entry of the price list or an own price changed",
    "reported_rates": "a source reports more or less for the same tokens, and the list price does not explain it",
    "unit_cost": "the cost per token changed for another reason",
    "new": "groups with calls only in the later range",
    "gone": "groups with calls only in the earlier range",
}


class ReferenceQuestion(ToolInput):
    reference_type: Annotated[ReferenceType, msgspec.Meta(description="Words to explain")]


class Explained(ToolOutput):
    name: str
    meaning: str


class Reference(ToolOutput):
    reference_type: str
    words: list[Explained]


async def answer_reference(
    arguments: ReferenceQuestion, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    if arguments.reference_type == "dimensions":
        of_bills = {name: f"{meaning} (only for billed costs)" for name, meaning in BILLED_DIMENSIONS.items()}
        meant: Mapping[str, str] = {**await dimension_meanings(call_context), **_OF_UNITS, **of_bills}
    else:
        meant = _WORDS[arguments.reference_type](call_context)
    explanations = [Explained(name=name, meaning=meaning) for name, meaning in meant.items()]
    text = markdown_table(
        [arguments.reference_type, "meaning"],
        [[format_cell(explanation.name), explanation.meaning] for explanation in explanations],
    )
    return ToolAnswer(
        text=text, content=Reference(reference_type=arguments.reference_type, words=explanations)
    )


def _date_range_meanings(call_context: ToolCallContext[InstallationServices]) -> Mapping[str, str]:
    now = call_context.shared.clock.now()
    return {word: f"now {span_text(date_range_span(word, now), now)} ({ZONE})" for word in RANGES_OF_WORDS}


def _recommendation_type_meanings(_: ToolCallContext[InstallationServices]) -> Mapping[str, str]:
    return {
        recommendation_type.NAME: f"{recommendation_type.TITLE}. {recommendation_type.FORMULA}"
        for recommendation_type in TYPES
    }


_WORDS: Mapping[str, Callable[[ToolCallContext[InstallationServices]], Mapping[str, str]]] = {
    "cost_types": lambda _: EXPLAINED_TYPES,
    "measures": lambda _: _MEASURES,
    "date_ranges": _date_range_meanings,
    "recommendation_types": _recommendation_type_meanings,
    "changes": lambda _: _CHANGES,
}

TOOL = McpTool(
    name="get_reference_info",
    title="What words mean",
    description=(
        "Meanings of the words that other tools use: cost_types, measures, date_ranges with their "
        "current days, dimensions, recommendation_types, and changes (the parts into which "
        "compare_costs splits a change)."
    ),
    takes=ReferenceQuestion,
    gives=Reference,
    run=answer_reference,
    shows=SLICED,
    asks_cost_type=True,
)
