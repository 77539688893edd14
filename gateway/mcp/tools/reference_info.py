"""What the words of questions and answers mean: costs, measures, ranges, recommendations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, get_args

import msgspec

from gateway.http.holders.operators import InstallationServices
from gateway.http.visible import SLICED
from gateway.mcp.questions import ZONE, RangeWord, bounds, days_text
from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput
from gateway.mcp.tools.dimensions import meanings
from gateway.mcp.writing import cell, table
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.money.recommendations.list import TYPES
from spool.ledger.queries import BILLED_DIMENSIONS, EXPLAINED_TYPES
from spool.meters import METERS

ReferenceType = Literal[
    "cost_types", "measures", "date_ranges", "dimensions", "recommendation_types", "changes"
]

_MEASURES = {
    "cost": f"{CURRENCY_UNIT}, of the cost_type that is asked for",
    "calls": "AI calls, failed ones and those that a cache answered, too",
    "tokens": "input and output that a provider counted",
    "errors": "calls that failed",
    "cost_per_call": f"{CURRENCY_UNIT} divided by all calls",
    "cost_per_million_tokens": f"{CURRENCY_UNIT} divided by the tokens, times a million",
    "usage": f"the quantity of a meter, in its own unit: {', '.join(METERS)}",
}
_CHANGES = {
    "more_calls": "more or fewer calls of a group, at its old cost of a call",
    "larger_calls": "more or fewer tokens in each call, at the group's old cost of a token",
    "other_kinds": "other models or kinds of tokens, such as more output, each at its old price",
    "prices": "the same kind of token of the same model costs more or less",
    "new": "groups with calls in the later time alone",
    "gone": "groups with calls in the earlier time alone",
}


class ReferenceQuestion(ToolInput):
    reference_type: Annotated[ReferenceType, msgspec.Meta(description="Which words to explain")]


class Explained(ToolOutput):
    name: str
    meaning: str


class Reference(ToolOutput):
    reference_type: str
    words: list[Explained]


async def run(asked: ReferenceQuestion, asking: Asking[InstallationServices]) -> ToolAnswer:
    if asked.reference_type == "dimensions":
        of_bills = {name: f"{what} (billed money alone)" for name, what in BILLED_DIMENSIONS.items()}
        meant: Mapping[str, str] = {**await meanings(asking), **of_bills}
    else:
        meant = _WORDS[asked.reference_type](asking)
    words = [Explained(name=name, meaning=what) for name, what in meant.items()]
    text = table([asked.reference_type, "meaning"], [[cell(each.name), each.meaning] for each in words])
    return ToolAnswer(text=text, content=Reference(reference_type=asked.reference_type, words=words))


def _ranges(asking: Asking[InstallationServices]) -> Mapping[str, str]:
    now = asking.shared.clock.now()
    return {word: f"now {days_text(*bounds(word, now))} ({ZONE})" for word in get_args(RangeWord)}


def _types(_: Asking[InstallationServices]) -> Mapping[str, str]:
    return {each.NAME: f"{each.TITLE}. {each.FORMULA}" for each in TYPES}


_WORDS: Mapping[str, Callable[[Asking[InstallationServices]], Mapping[str, str]]] = {
    "cost_types": lambda _: EXPLAINED_TYPES,
    "measures": lambda _: _MEASURES,
    "date_ranges": _ranges,
    "recommendation_types": _types,
    "changes": lambda _: _CHANGES,
}

TOOL = Tool(
    name="get_reference_info",
    title="What words mean",
    description=(
        "What the words of the other tools mean: cost_types, measures, date_ranges with their days now, "
        "dimensions, "
        "recommendation_types, and changes, the parts that compare_costs splits a change into."
    ),
    takes=ReferenceQuestion,
    gives=Reference,
    run=run,
    shows=SLICED,
    asks_cost_type=True,
)
