"""
The tool get_group_costs: costs of groups of enough people. Callers who may see no single person can use it as
well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import ZONE
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_page_link,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.groups import USUAL, GroupCostFigures, GroupDivision, sum_figures, visible_groups
from gateway.operations.holders.operators import MoneyServices
from spool import money
from spool.turns.threads import sort_in_short_steps

MOST = 100

GroupDimension = Literal["team", "provider", "model", "source"]


class GroupCostsQuestion(ToolInput):
    group_by: Annotated[
        list[GroupDimension] | None, msgspec.Meta(description="Dimensions of the rows; default: team")
    ] = None
    filters: Annotated[
        dict[GroupDimension, list[str | None]] | None,
        msgspec.Meta(description="Wanted values of dimensions; null is unknown"),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rows")] = 25


class GroupLine(ToolOutput):
    """
    The calls of groups with enough people, in a part of a month that ends before `end`. A null in `group` is
    unknown.
    """

    start: str
    end: str
    group: dict[str, str | None]
    cost: str
    calls: int
    input_tokens: int
    output_tokens: int


class GroupCosts(ToolOutput):
    """
    The result of the tool get_group_costs. `total` is the cost of all rows. `people` is the smallest size of
    a group, or 0 if no groups are formed.
    """

    people: int
    zone: str
    total: str
    rows: list[GroupLine]
    row_count: int
    truncated: bool


async def answer_group_costs(
    arguments: GroupCostsQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    registry, services = call_context.shared.require_registry(), call_context.services
    await services.ledger.require_complete_totals(services.log)
    groups = await visible_groups(
        services.ledger, registry, call_context.rights, call_context.shared.clock.now()
    )
    by: Sequence[str] = list(dict.fromkeys(arguments.group_by or USUAL))
    wanted = (arguments.filters or {}).items()
    chosen: Mapping[str, Sequence[str]] = {name: [value or "" for value in values] for name, values in wanted}
    people = registry.people.min_group
    link = console_page_link(call_context, "/groups", {"by": by})

    def build_answer_largest_first() -> ToolAnswer:
        sums = list(groups.sums_by_dimensions(by, chosen))
        total = money.units_to_text(sum_figures(figures for _, _, figures in sums).cost)
        sums = sort_in_short_steps(sums, key=lambda row: (-row[0].since.timestamp(), -row[2].cost))
        lines = [_group_line(cut, by, names, figures) for cut, names, figures in sums[: arguments.limit]]

        def answer_with_groups(count: int) -> ToolAnswer:
            content = GroupCosts(
                people=people,
                zone=ZONE,
                total=total,
                rows=lines[:count],
                row_count=len(sums),
                truncated=count < len(sums),
            )
            return ToolAnswer(text=_format_group_costs(content), content=content, link=link)

        return answer_within_limit(answer_with_groups, len(lines))

    return await asyncio.to_thread(build_answer_largest_first)


def _group_line(
    cut: GroupDivision, dimensions: Sequence[str], names: Sequence[str | None], figures: GroupCostFigures
) -> GroupLine:
    group = {
        name: None if value is None else remove_hidden_characters(value)
        for name, value in zip(dimensions, names, strict=True)
    }
    return GroupLine(
        start=_format_day(cut.since), end=_format_day(cut.until), group=group, **figures.to_fields
    )


def _format_day(moment: datetime) -> str:
    return moment.date().isoformat()


def _format_group_costs(content: GroupCosts) -> str:
    if not content.people:
        return "The setting privacy.min_group is off, so no groups are formed. Use get_cost_data."
    if not content.rows:
        return "No finished part of a month has a group that you may see."
    rows = [
        [row.start, row.end, *map(format_cell, row.group.values()), format_dollars(row.cost), str(row.calls)]
        for row in content.rows[:MAX_TABLE_ROWS]
    ]
    parts = [
        f"Groups of at least {content.people} people besides you: {format_dollars(content.total)} dollars in all.",
        markdown_table(["from", "before", *content.rows[0].group, "cost", "calls"], rows),
    ]
    if content.truncated:
        parts.append(f"There are {content.row_count} rows; raise limit or set filters to see more.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name="get_group_costs",
    title="Costs of groups of people",
    description=(
        "Costs, calls and tokens of large groups of people in parts of a month, by team, provider, model or source. "
        "Use it if the organization hides the costs of single people, so that get_cost_data shows only the "
        "caller's own. A group never changes, and its newest calls are at least two days old."
    ),
    takes=GroupCostsQuestion,
    gives=GroupCosts,
    run=answer_group_costs,
    shows=SLICED,
)
