"""The tool get_cost_data: costs, calls or tokens by up to three dimensions and by period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import ZONE, DateRange, Filters, billed_note, build_question
from gateway.mcp.tool import (
    DimensionName,
    McpTool,
    ToolAnswer,
    ToolCallContext,
    ToolInput,
    ToolOutput,
    answer_within_limit,
    make_cursor,
    verify_cursor,
)
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    console_link_to_costs,
    format_amount_or_dash,
    format_cell,
    format_dollars,
    format_percent,
    markdown_table,
    remove_hidden_characters_or_none,
)
from gateway.money.costs.answer import CostAnswer, answer_costs
from gateway.money.costs.measures import (
    CURRENCY_UNIT,
    NO_PRICE,
    ExplainedType,
    billed_tokens,
    cost_per_count,
    estimated_cost,
    has_no_price,
    row_amount,
    unknown_cost_phrase,
)
from gateway.operations.holders.operators import MoneyServices
from spool import money
from spool.errors import Invalid
from spool.ledger.billed import COUNTED
from spool.ledger.costs import calendar_period_start, combine_rows
from spool.ledger.dimensions import BILLED_TYPES, MISSING_IS_OF_BILLS, PLAN_TYPES, TOTAL
from spool.ledger.periods import span_text
from spool.ledger.queries import CostRow
from spool.meters import METERS, quantity_from_millionths
from spool.money import unconverted_amounts_sentence
from spool.record import CURRENCY, utc_iso
from spool.turns.threads import sort_in_short_steps

NAME = "get_cost_data"
USAGE = "usage"  # name of the measure that shows the quantity of a meter
MAX_GROUPS = 3
MAX_PERIODS = 800  # maximum periods in a result; a month has fewer hours

GROUPS = (
    "0 to 3 dimensions; default: only the total. Dimensions of bills (charge, service, ...) need a "
    "billed cost_type, and charge and plan are also dimensions of paid_cost. At most one unit of work (session, run, "
    "repository, branch, commit, pull_request, ticket), for at most 92 days"
)
Measure = Literal["cost", "calls", "tokens", "errors", "cost_per_call", "cost_per_million_tokens", "usage"]
_UNITS = {
    "cost": CURRENCY_UNIT,
    "calls": "calls",
    "tokens": "tokens",
    "errors": "calls",
    "cost_per_call": f"{CURRENCY_UNIT} per call",
    "cost_per_million_tokens": f"{CURRENCY_UNIT} per million tokens",
}


class CostDataQuestion(ToolInput):
    date_range: DateRange = "last_30_days"
    group_by: Annotated[list[DimensionName], msgspec.Meta(max_length=MAX_GROUPS, description=GROUPS)] = (
        msgspec.field(default_factory=list)
    )
    filters: Filters = msgspec.field(default_factory=dict)
    granularity: Literal["total", "hourly", "daily", "weekly", "monthly"] = "total"
    measure: Annotated[Measure, msgspec.Meta(description="Measure to show and to sort by")] = "cost"
    meter: Annotated[
        str | None,
        msgspec.Meta(
            description=(
                "With measure usage: output_images, audio_seconds, input_characters, "
                "input_document_pages, web_searches, input_audio_tokens, or another meter, in its own "
                "unit"
            )
        ),
    ] = None
    cost_type: Annotated[
        ExplainedType,
        msgspec.Meta(
            description=(
                "real_cost: reported by the source, otherwise estimated at list prices. paid_cost: without "
                "calls that seats cover, with the amounts of seats and contracts. billed_cost: billed by providers. "
                "discounted_cost: billed, with discounts and taxes on usage. Amortized types: fees are "
                "spread over what they cover"
            )
        ),
    ] = "real_cost"
    missing: Annotated[
        Literal["counted"] | None,
        msgspec.Meta(
            description="counted: on days without a bill, billed types show the counted cost, with basis counted"
        ),
    ] = None
    view: Annotated[str | None, msgspec.Meta(description="Id or name of a saved view to stay within")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of rows")] = 20
    cursor: Annotated[
        str | None, msgspec.Meta(description="next_cursor of an earlier call with the same arguments")
    ] = None


class CostLine(ToolOutput):
    """
    The cost of a group in a period. Amounts are exact decimal text. `period` is its start; `value` is null if
    the divisor is 0.
    """

    period: str | None
    group: dict[str, str | None]
    value: str | None
    cost: str
    calls: int
    tokens: int
    unpriced_calls: int
    calls_without_usage: int


class CostData(ToolOutput):
    """The result of the tool. `other` sums all rows on other pages, so rows and other equal the total."""

    start: str
    end: str
    zone: str
    as_of: str
    measure: str
    unit: str
    cost_type: str
    currency: str
    group_by: list[str]
    granularity: str
    rows: list[CostLine]
    other: CostLine | None
    total: CostLine
    row_count: int
    estimated_percent: str | None
    truncated: bool
    next_cursor: str | None
    notes: list[str]


async def answer_cost_data(
    arguments: CostDataQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    if len(set(arguments.group_by)) < len(arguments.group_by):
        raise Invalid("group_by names a dimension twice")
    is_billed = arguments.cost_type in BILLED_TYPES
    if is_billed and arguments.measure != "cost":
        raise Invalid(f"{arguments.cost_type} has only costs; use measure cost, or another cost_type")
    if arguments.missing and not is_billed:
        raise Invalid(MISSING_IS_OF_BILLS)
    if (arguments.measure == USAGE) != (arguments.meter is not None):
        raise Invalid(f"measure {USAGE} and meter must be given together")
    if arguments.meter is not None and arguments.meter not in METERS:
        raise Invalid(f"meter must be one of {', '.join(METERS)}")
    posed, notes = await build_question(
        call_context,
        arguments.date_range,
        filters=arguments.filters,
        view=arguments.view,
        group_by=arguments.group_by,
        granularity=arguments.granularity,
        cost_type=arguments.cost_type,
    )
    posed = replace(posed, meter=arguments.meter or "", fills=arguments.missing is not None)
    posed.check_span(max_periods=MAX_PERIODS)
    shows = {
        "measure": arguments.measure,
        "bin": "" if arguments.granularity == TOTAL else arguments.granularity,
    }
    if arguments.meter is not None:
        shows["measure"] = "cost"  # the page cannot show meters, so the link opens the costs instead
    if is_billed or arguments.cost_type in PLAN_TYPES:
        shows["cost_type"] = arguments.cost_type
    if arguments.missing:
        shows["missing"] = arguments.missing
    first, now = (
        verify_cursor(call_context, NAME, arguments, arguments.cursor),
        call_context.shared.clock.now(),
    )
    cost_answer = await answer_costs(
        posed, call_context.cost_reader, now, prices=call_context.services.prices, only_day_states=True
    )
    if cost_answer.billed is not None:
        notes.append(billed_note(cost_answer.billed))
        if arguments.missing:
            counted = f"{format_dollars(str(cost_answer.billed[COUNTED]))} {CURRENCY_UNIT}"
            notes.append(f"{counted} of it are counted costs, on days without a bill")
    page = _CostDataPage(
        arguments=arguments,
        cost_answer=cost_answer,
        notes=notes,
        first=first,
        now=now,
        link=console_link_to_costs(call_context, posed, arguments.group_by, shows),
    )
    return await asyncio.to_thread(
        page.build_page_answer, lambda seen: make_cursor(call_context, NAME, arguments, seen)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CostDataPage:
    arguments: CostDataQuestion
    cost_answer: CostAnswer
    notes: Sequence[str]
    first: int
    now: float
    link: str

    def build_page_answer(self, cursor_after: Callable[[int], str]) -> ToolAnswer:
        """Return the result with one page of rows, by period and then the largest first."""
        rows = sort_in_short_steps(
            self.cost_answer.rows,
            key=lambda row: (
                row.start,
                -Decimal(self._requested_measure(row) or 0),
                [value or "" for value in row.group],
            ),
        )
        page_rows = rows[self.first : self.first + self.arguments.limit]
        total = _sum_rows(rows)
        return answer_within_limit(
            lambda count: self._build_answer(rows, page_rows[:count], total, cursor_after), len(page_rows)
        )

    def _build_answer(
        self,
        rows: Sequence[CostRow],
        page_rows: Sequence[CostRow],
        total: CostRow,
        cursor_after: Callable[[int], str],
    ) -> ToolAnswer:
        end = self.first + len(page_rows)
        elsewhere = [*rows[: self.first], *rows[end:]]
        query = self.cost_answer.query
        content = CostData(
            start=query.since.astimezone(UTC).isoformat(),
            end=query.until.astimezone(UTC).isoformat(),
            zone=ZONE,
            as_of=utc_iso(self.now),
            measure=self.arguments.measure,
            unit=self._value_unit,
            cost_type=self.arguments.cost_type,
            currency=CURRENCY_UNIT,
            group_by=self.arguments.group_by,
            granularity=self.arguments.granularity,
            rows=[self._cost_line(row) for row in page_rows],
            other=self._cost_line(_sum_rows(elsewhere), is_total=True) if elsewhere else None,
            total=self._cost_line(total, is_total=True),
            row_count=len(rows),
            estimated_percent=format_percent(estimated_cost(total), money.text_to_units(total.cost)),
            truncated=end < len(rows),
            next_cursor=cursor_after(end) if end < len(rows) else None,
            notes=list(self._page_notes(total)),
        )
        return ToolAnswer(
            text=self._format_cost_table(content, total, len(elsewhere)), content=content, link=self.link
        )

    @property
    def _value_unit(self) -> str:
        meter = self.arguments.meter
        return METERS[meter].unit if meter is not None else _UNITS[self.arguments.measure]

    def _cost_line(self, row: CostRow, *, is_total: bool = False) -> CostLine:
        names = (
            {}
            if is_total
            else dict(
                zip(self.arguments.group_by, map(remove_hidden_characters_or_none, row.group), strict=True)
            )
        )
        period = None
        if not is_total and self.arguments.granularity != TOTAL:
            period = calendar_period_start(self.arguments.granularity, row.start.astimezone(UTC)).isoformat()
        return CostLine(
            period=period,
            group=names,
            value=self._requested_measure(row),
            cost=row_amount(row, self.arguments.cost_type),
            calls=row.calls,
            tokens=billed_tokens(row),
            unpriced_calls=row.unpriced,
            calls_without_usage=row.without_usage,
        )

    def _requested_measure(self, row: CostRow) -> str | None:
        cost = row_amount(row, self.arguments.cost_type)
        match self.arguments.measure:
            case "cost":
                return cost
            case "calls":
                return str(row.calls)
            case "tokens":
                return str(billed_tokens(row))
            case "errors":
                return str(row.errors)
            case "cost_per_call":
                return cost_per_count(cost, row.calls)
            case "cost_per_million_tokens":
                return cost_per_count(cost, billed_tokens(row), of=1_000_000)
            case "usage":
                return str(quantity_from_millionths(row.metered))

    def _page_notes(self, total: CostRow) -> list[str]:
        notes = list(self.notes)
        if not total.calls and not self.cost_answer.query.arranged:
            notes.append("no call matches; get_org_context lists the days with data")
        if uncosted := unknown_cost_phrase(total):
            notes.append(uncosted)
        if total.unconverted:
            notes.append(unconverted_amounts_sentence(total.unconverted, CURRENCY))
        if self.cost_answer.incomplete_before is not None:
            border = self.cost_answer.incomplete_before
            notes.append(
                f"totals from before {border} may be incomplete, because records were deleted before they "
                "were counted"
            )
        if (unlisted := self.cost_answer.unlisted) is not None:
            notes.append(
                f"units that are no longer listed have {unlisted.calls} calls and cost {unlisted.cost} together; "
                "none of them costs more than that"
            )
        parts = self.cost_answer.partial_periods
        if parts:
            notes.append(f"these periods are not complete: {', '.join(start.isoformat() for start in parts)}")
        return notes

    def _format_cost_table(self, content: CostData, total: CostRow, rows_on_other_pages: int) -> str:
        query = self.cost_answer.query
        unit = content.unit
        names_type = query.arranged or content.cost_type in PLAN_TYPES
        cost = f"{format_dollars(content.total.cost)} {CURRENCY_UNIT}"
        sentence = (
            f"{span_text((query.since, query.until), self.now)} ({ZONE}): "
            f"{NO_PRICE if has_no_price(total.cost, total.unpriced) else cost} "
            + (f"of {content.cost_type}" if names_type else f"in {total.calls:,} calls")
        )
        if content.measure != "cost":
            amount = format_amount_or_dash(content.total.value, unit)
            sentence += f"; {self.arguments.meter or content.measure}: {amount} {unit}"
        if content.estimated_percent is not None and content.cost_type == "real_cost":
            sentence += f"; {content.estimated_percent} % of the cost is estimated"
        parts = [f"{sentence}. As of {content.as_of}.", *content.notes]
        if content.rows and (content.group_by or content.granularity != TOTAL):
            lines = content.rows[:MAX_TABLE_ROWS]
            parts.append(
                markdown_table(
                    self._cost_table_columns(), [self._cost_table_cells(line, unit) for line in lines]
                )
            )
            if len(lines) < len(content.rows):
                parts.append(f"{len(content.rows) - len(lines)} more rows are in the structured content.")
            if content.other is not None:
                cost = format_dollars(content.other.cost)
                parts.append(f"Rows on other pages: {rows_on_other_pages}, with {cost} {CURRENCY_UNIT}.")
        if content.truncated:
            parts.append("For the next rows, repeat the call with cursor = next_cursor, or narrow the query.")
        return "\n\n".join(parts)

    def _cost_table_columns(self) -> list[str]:
        period = [] if self.arguments.granularity == TOTAL else ["period"]
        measure = self.arguments.meter or self.arguments.measure
        return [
            *period,
            *map(format_cell, self.arguments.group_by),
            f"{measure} ({self._value_unit})",
            "calls",
        ]

    def _cost_table_cells(self, line: CostLine, unit: str) -> list[str]:
        period = [] if line.period is None else [line.period[:16]]
        is_unknown = unit.startswith(CURRENCY_UNIT) and has_no_price(line.value, line.unpriced_calls)
        value = NO_PRICE if is_unknown else format_amount_or_dash(line.value, unit)
        return [*period, *map(format_cell, line.group.values()), value, f"{line.calls:,}"]


def _sum_rows(rows: Sequence[CostRow]) -> CostRow:
    return combine_rows(rows, start=datetime.fromtimestamp(0, UTC), group=())


TOOL = McpTool(
    name=NAME,
    title="Cost data",
    description=(
        "Costs of AI calls by up to three dimensions and by period, with the total. Group before you "
        "list: start with one dimension in group_by, largest first. Default: the last 30 days, real "
        "cost, 20 rows. Rows and `other` add up to `total` exactly. Amounts are US dollars as "
        "decimal text."
    ),
    takes=CostDataQuestion,
    gives=CostData,
    run=answer_cost_data,
    shows=SLICED,
    asks_cost_type=True,
)
