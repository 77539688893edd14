"""The tool get_budgets: spent, planned and forecast costs of budgets in their current period."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_link_to_row,
    console_page_link,
    did_you_mean,
    format_amount_or_dash,
    format_cell,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.budgets.declared import COST, CURRENT, FORECAST, BudgetTable, SpendBudget
from gateway.money.budgets.expansion import read_requested_sections
from gateway.money.budgets.figures import BudgetFigures
from gateway.money.budgets.states import state_of_budget
from gateway.operations.holders.operators import MoneyServices
from spool.errors import Invalid
from spool.money import unconverted_amounts_sentence
from spool.record import utc_iso

MOST = 50


class BudgetsQuestion(ToolInput):
    name: Annotated[str | None, msgspec.Meta(description="Id or name of one budget; default: all")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of budgets")] = 20


class BudgetLine(ToolOutput):
    """
    A budget. Amounts are exact decimal text in `unit`.

    With `per`, the amount applies to each owner: `planned` and `percent` are null, and owners_past is how
    many owners spent it. `state` is over, over_threshold, within, no_amount, not_evaluated or not_evaluated_yet.
    `problem` says why a budget cannot be evaluated. `link` is its console page, or "".
    """

    id: str
    name: str
    unit: str
    per: str | None
    start: str | None
    end: str | None
    days_left: int | None
    time_zone: str
    spent: str | None
    planned: str | None
    percent: int | None
    forecast: str | None
    forecast_low: str | None
    forecast_high: str | None
    no_forecast_because: str | None
    owner_count: int | None
    owners_past: int | None
    unpriced_calls: int | None
    unconverted: dict[str, str] | None
    state: str
    problem: str | None
    link: str


class BudgetStates(ToolOutput):
    as_of: str
    budgets: list[BudgetLine]
    budget_count: int
    truncated: bool


async def answer_budgets(
    arguments: BudgetsQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    registry = call_context.shared.require_registry()
    books = call_context.services.require_budgets().budget_ledger()
    sees = await call_context.cost_reader.read_visibility()
    known = [budget for budget in registry.declared_table(BudgetTable).all() if sees.can_see_budget(budget)]
    chosen = known if arguments.name is None else [_find_budget(known, arguments.name)]
    lines = []
    for budget in chosen[: arguments.limit]:
        figures = await books.read_figures(budget, registry.views.find(budget.view_id))
        shown = await read_requested_sections(books, figures, frozenset({CURRENT, FORECAST}))
        lines.append(
            _budget_line(figures, shown, books.now, console_link_to_row(call_context, "/budgets", budget.id))
        )
    as_of = utc_iso(books.now)

    def answer_with_budgets(count: int) -> ToolAnswer:
        left_out = len(chosen) - count
        content = BudgetStates(
            as_of=as_of, budgets=lines[:count], budget_count=len(chosen), truncated=left_out > 0
        )
        return ToolAnswer(
            text=_format_budgets(content, left_out),
            content=content,
            link=console_page_link(call_context, "/budgets"),
        )

    return answer_within_limit(answer_with_budgets, len(lines))


def _find_budget(budgets: list[SpendBudget], name: str) -> SpendBudget:
    for budget in budgets:
        if name in (budget.id, budget.name, remove_hidden_characters(budget.name)):
            return budget
    raise Invalid(
        f"there is no budget {remove_hidden_characters(name)}{did_you_mean(name, [budget.name for budget in budgets])}"
    )


def _budget_line(figures: BudgetFigures, shown_fields: dict[str, Any], now: float, link: str) -> BudgetLine:
    budget = figures.budget
    current = shown_fields[CURRENT] or {}
    forecast = shown_fields[FORECAST] or {}
    owners = current.get("owners") or {}
    end = figures.periods[0].period.end if figures.periods else None
    return BudgetLine(
        id=budget.id,
        name=remove_hidden_characters(budget.name),
        unit=budget.currency if budget.measure == COST else budget.measure,
        per=budget.per or None,
        start=current.get("start"),
        end=current.get("end"),
        days_left=None
        if end is None
        else max(0, (end.astimezone(UTC) - datetime.fromtimestamp(now, UTC)).days),
        time_zone=budget.time_zone,
        spent=current.get("actual"),
        planned=current.get("planned"),
        percent=current.get("percent"),
        forecast=forecast.get("total"),
        forecast_low=forecast.get("low"),
        forecast_high=forecast.get("high"),
        no_forecast_because=forecast.get("reason"),
        owner_count=owners.get("count"),
        owners_past=owners.get("past"),
        unpriced_calls=current.get("unpriced_calls"),
        unconverted=current.get("unconverted"),
        state=state_of_budget(figures.problem, figures),
        problem=figures.problem,
        link=link,
    )


def _format_budgets(content: BudgetStates, left_out: int) -> str:
    rows = [
        [
            format_cell(line.name),
            format_amount_or_dash(line.spent, line.unit),
            format_amount_or_dash(line.planned, line.unit),
            "-" if line.percent is None else f"{line.percent} %",
            line.state.replace("_", " "),
            format_amount_or_dash(line.forecast, line.unit),
            format_cell(line.unit),
            "-" if line.days_left is None else str(line.days_left),
            format_cell("; ".join(_notes_of_budget(line))),
        ]
        for line in content.budgets[:MAX_TABLE_ROWS]
    ]
    parts = [f"{content.budget_count} budgets in their current periods. As of {content.as_of}."]
    if rows:
        columns = ["budget", "spent", "planned", "percent", "state", "forecast", "unit", "days left", "note"]
        parts.append(markdown_table(columns, rows))
    if left_out:
        parts.append(f"{left_out} budgets are left out; name one, or raise limit.")
    return "\n\n".join(parts)


def _notes_of_budget(line: BudgetLine) -> Iterator[str]:
    note = line.problem or line.no_forecast_because
    if note:
        yield note
    if line.unconverted:
        yield unconverted_amounts_sentence(line.unconverted, line.unit)


TOOL = McpTool(
    name="get_budgets",
    title="Budgets",
    description=(
        "Status of each budget in its current period: spent, planned, percent, forecast for the "
        "whole period with bounds, and days left. Use it to tell whether a budget is safe and how "
        "the month will end."
    ),
    takes=BudgetsQuestion,
    gives=BudgetStates,
    run=answer_budgets,
    shows=SLICED,
)
