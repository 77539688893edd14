"""The tool get_dimension_values: the values of one dimension, most expensive first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import ZONE, DateRange, build_question
from gateway.mcp.tool import (
    DimensionName,
    McpTool,
    ToolAnswer,
    ToolCallContext,
    ToolInput,
    ToolOutput,
    answer_within_limit,
)
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_link_to_costs,
    did_you_mean,
    format_cell,
    format_dollars,
    format_percent,
    markdown_table,
    remove_hidden_characters,
    remove_hidden_characters_or_none,
)
from gateway.money.costs.answer import ledger_for_question
from gateway.money.costs.measures import CURRENCY_UNIT, estimated_cost
from gateway.operations.holders.operators import MoneyServices
from spool import money
from spool.ledger.dimensions import BILLED_DIMENSIONS
from spool.ledger.periods import span_text
from spool.ledger.queries import CostRow
from spool.turns.threads import sort_in_short_steps

BILLED = "billed_cost"  # cost type for dimensions that exist only in bills


class ValuesQuestion(ToolInput):
    dimension: DimensionName
    match: Annotated[
        str | None, msgspec.Meta(description="Only values that contain this text, in any case")
    ] = None
    date_range: DateRange = "last_30_days"
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of values")] = 25


class ValueLine(ToolOutput):
    """A value of the dimension with its cost; null stands for unknown."""

    value: str | None
    cost: str
    calls: int


class DimensionValues(ToolOutput):
    dimension: str
    start: str
    end: str
    zone: str
    currency: str
    values: list[ValueLine]
    estimated_percent: str | None
    value_count: int
    left_out: int
    truncated: bool


async def answer_dimension_values(
    arguments: ValuesQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    group_by = [arguments.dimension]
    of_bills = {"cost_type": BILLED} if arguments.dimension in BILLED_DIMENSIONS else {}
    posed, _ = await build_question(
        call_context, arguments.date_range, filters={}, group_by=group_by, **of_bills
    )
    now = call_context.shared.clock.now()
    ledger = await ledger_for_question(
        posed, call_context.cost_reader, now, prices=call_context.services.prices
    )
    rows = await ledger.costs(posed.query)
    call_context.shared.people.reject_dropped_names([arguments.match or ""])
    matching_rows = await asyncio.to_thread(
        _rows_with_matching_name, rows, call_context.shared.people.all_recorded_names(arguments.match or "")
    )
    hint = ""
    if arguments.match and not matching_rows:
        hint = await asyncio.to_thread(did_you_mean, arguments.match, [row.group[0] or "" for row in rows])

    link = console_link_to_costs(call_context, posed, group_by, of_bills)

    def answer_with_values(count: int) -> ToolAnswer:
        left_out = len(matching_rows) - count
        content = DimensionValues(
            dimension=arguments.dimension,
            start=posed.since.isoformat(),
            end=posed.until.isoformat(),
            zone=ZONE,
            currency=CURRENCY_UNIT,
            values=[_value_line(row) for row in matching_rows[:count]],
            estimated_percent=format_percent(
                sum(map(estimated_cost, matching_rows)),
                sum(money.text_to_units(row.cost) for row in matching_rows),
            ),
            value_count=len(matching_rows),
            left_out=left_out,
            truncated=left_out > 0,
        )
        summary = f"{len(matching_rows)} values of {format_cell(arguments.dimension)}"
        share = (
            ""
            if content.estimated_percent is None
            else f"; {content.estimated_percent} % of their cost is estimated"
        )
        parts = [f"{summary} in {span_text((posed.since, posed.until), now)} ({ZONE}){hint}{share}"]
        shown_rows = [
            [format_cell(line.value), format_dollars(line.cost), f"{line.calls:,}"] for line in content.values
        ]
        if shown_rows:
            columns = [format_cell(arguments.dimension), f"cost ({CURRENCY_UNIT})", "calls"]
            parts.append(markdown_table(columns, shown_rows[:MAX_TABLE_ROWS]))
        if len(matching_rows) > MAX_TABLE_ROWS:
            hidden_count = len(matching_rows) - MAX_TABLE_ROWS
            parts.append(
                f"{hidden_count} more values are not shown; {left_out} of them are not in the structured "
                "content either. Use match to find them."
            )
        return ToolAnswer(text="\n\n".join(parts), content=content, link=link)

    return await asyncio.to_thread(
        answer_within_limit, answer_with_values, min(arguments.limit, len(matching_rows))
    )


def _rows_with_matching_name(rows: Sequence[CostRow], name_forms: Sequence[str]) -> Sequence[CostRow]:
    texts = [value.casefold() for value in name_forms]
    values = [(row, remove_hidden_characters(row.group[0] or "").casefold()) for row in rows]
    passing = [row for row, value in values if any(text in value for text in texts)]
    return sort_in_short_steps(
        passing, key=lambda row: (-money.text_to_units(row.cost), -row.calls, row.group[0] or "")
    )


def _value_line(row: CostRow) -> ValueLine:
    return ValueLine(value=remove_hidden_characters_or_none(row.group[0]), cost=row.cost, calls=row.calls)


TOOL = McpTool(
    name="get_dimension_values",
    title="Values of a dimension",
    description=(
        "The values of one dimension with their costs, most expensive first. Use it to find the "
        "exact spelling for filters. Default: the last 30 days, 25 values. Dimensions of bills show "
        "billed costs."
    ),
    takes=ValuesQuestion,
    gives=DimensionValues,
    run=answer_dimension_values,
    shows=SLICED,
)
