"""What costs can be grouped and filtered by."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.mcp.tool import Asking, Tool, ToolAnswer, ToolInput, ToolOutput
from gateway.mcp.writing import cell, cut, table
from spool.ledger.ledger import MOST_VALUES, Ledger
from spool.ledger.queries import TAG

_MEANINGS = {
    "model": "the model that answered",
    "request_model": "the model that was asked for",
    "provider": "who runs the model",
    "team": "the team that a call is attributed to",
    "user": "who made the call",
    "device": "the machine that reported it",
    "source": "the product or gateway that reported it",
    "api_key": "the provider's key, as its gateway names it",
    "status": "ok, error, or cached: answered by a gateway's cache at no cost",
    "region": "where the provider processed it, in the provider's word, as far as sources tell",
    "cost_source": "reported by the source, estimated from list prices, or none: unknown",
}


MAX_TAG = 100  # characters of a name


class DimensionsQuestion(ToolInput):
    """Nothing to ask."""


class KnownDimension(ToolOutput):
    """`value_count` stops at a bound, and is_bound says whether it did."""

    name: str
    meaning: str
    value_count: int
    is_bound: bool


class DimensionsKnown(ToolOutput):
    dimensions: list[KnownDimension]


async def run(_: DimensionsQuestion, asking: Asking) -> ToolAnswer:
    found = await known(asking)
    rows = [[cell(each.name), each.meaning, f"{each.value_count}{'+' * each.is_bound}"] for each in found]
    text = f"Costs can be grouped and filtered by {len(found)} dimensions.\n\n"
    return ToolAnswer(
        text=text + table(["dimension", "meaning", "values"], rows), content=DimensionsKnown(dimensions=found)
    )


def meanings(ledger: Ledger) -> Mapping[str, str]:
    """What each dimension is; names that people and senders chose are cut."""
    own = {
        name: _MEANINGS.get(name, f"the tag {cut(name.removeprefix(TAG), MAX_TAG)} of calls")
        for name in ledger.own_dimensions()
    }
    derived = {each.name: f"{cut(each.label, MAX_TAG)}, as the organization defines it" for each in ledger.derived()}
    return {**own, **derived}


async def known(asking: Asking) -> list[KnownDimension]:
    """Every dimension, with the number of its values so far."""
    ledger = asking.services.ledger
    found = meanings(ledger)
    counts = {name: len(await ledger.values(name)) for name in found}
    return [
        KnownDimension(
            name=name,
            meaning=found[name],
            value_count=count,
            is_bound=count >= MOST_VALUES,
        )
        for name, count in counts.items()
    ]


TOOL = Tool(
    name="get_available_dimensions",
    title="Dimensions",
    description="The names that group_by and filters take, what they mean, and how many values each has.",
    takes=DimensionsQuestion,
    gives=DimensionsKnown,
    run=run,
)
