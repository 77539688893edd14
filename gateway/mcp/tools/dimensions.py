"""The tool get_available_dimensions: names for grouping and filtering costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import clean_and_shorten, did_you_mean, format_cell, markdown_table
from gateway.operations.holders.operators import InstallationServices
from spool.ledger.dimensions import BUILT_IN_DIMENSIONS, DIMENSIONS, TAG
from spool.ledger.ledger import MOST_VALUES

_MEANINGS = {**DIMENSIONS, **{name: row.meaning for name, row in BUILT_IN_DIMENSIONS.items()}}
MAX_TAG = 100  # maximum characters of a tag name
MAX_MEANING = 200
MOST = 200


class DimensionsQuestion(ToolInput):
    filter: Annotated[
        str | None,
        msgspec.Meta(description="Only dimensions whose name or meaning contains this text, in any case"),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of dimensions")] = 100


class KnownDimension(ToolOutput):
    """
    A dimension. If `is_bound`, it has at least `value_count` values, because counting stopped at a limit.
    """

    name: str
    meaning: str
    value_count: int
    is_bound: bool


class DimensionsKnown(ToolOutput):
    dimensions: list[KnownDimension]
    dimension_count: int
    truncated: bool


async def answer_dimensions(
    arguments: DimensionsQuestion, call_context: ToolCallContext[InstallationServices]
) -> ToolAnswer:
    everything = await dimension_meanings(call_context)
    filter_text = (arguments.filter or "").casefold()
    names = [name for name, meaning in everything.items() if filter_text in f"{name}\n{meaning}".casefold()]
    known_dimensions = await describe_dimensions(call_context, names[: arguments.limit])
    hint = did_you_mean(arguments.filter or "", everything) if not names else ""

    def answer_with_dimensions(count: int) -> ToolAnswer:
        content = DimensionsKnown(
            dimensions=known_dimensions[:count], dimension_count=len(names), truncated=count < len(names)
        )
        return ToolAnswer(text=_format_dimensions(content, hint), content=content)

    return answer_within_limit(answer_with_dimensions, len(known_dimensions))


def _format_dimensions(content: DimensionsKnown, hint: str) -> str:
    matching = content.dimensions
    rows = [
        [
            format_cell(dimension.name),
            format_cell(dimension.meaning, MAX_MEANING),
            f"{dimension.value_count}{'+' * dimension.is_bound}",
        ]
        for dimension in matching
    ]
    parts = [f"Costs can be grouped and filtered by {content.dimension_count} matching dimensions{hint}."]
    if rows:
        parts.append(markdown_table(["dimension", "meaning", "values"], rows))
    if content.truncated:
        parts.append("There are more; raise limit, or use filter.")
    return "\n\n".join(parts)


async def dimension_meanings(call_context: ToolCallContext[Any]) -> Mapping[str, str]:
    """Return the meaning of each dimension. Names that people and senders chose are shortened."""
    own_meanings = {
        name: _MEANINGS.get(name, f"the tag {clean_and_shorten(name.removeprefix(TAG), MAX_TAG)} of calls")
        for name in call_context.visible_ledger.builtin_and_tag_dimensions()
    }
    defined = {
        dimension.name: _MEANINGS.get(dimension.name)
        or f"{clean_and_shorten(dimension.label, MAX_TAG)}, as the organization defines it"
        for dimension in await call_context.cost_reader.visible_derived_dimensions()
    }
    return {**own_meanings, **defined}


async def describe_dimensions(
    call_context: ToolCallContext[Any], names: Iterable[str] | None = None
) -> list[KnownDimension]:
    """Return these dimensions (default: all) with the number of their values so far."""
    meaning_of = await dimension_meanings(call_context)
    counts = {
        name: len(await call_context.visible_ledger.values(name))
        for name in (meaning_of if names is None else names)
    }
    return [
        KnownDimension(name=name, meaning=meaning_of[name], value_count=count, is_bound=count >= MOST_VALUES)
        for name, count in counts.items()
    ]


TOOL = McpTool(
    name="get_available_dimensions",
    title="Dimensions",
    description=(
        "The dimensions that group_by and filters accept, their meaning, and the number of their "
        "values, without units of work such as session, which get_reference_info explains. Default: 100 dimensions."
    ),
    takes=DimensionsQuestion,
    gives=DimensionsKnown,
    run=answer_dimensions,
    shows=SLICED,
)
