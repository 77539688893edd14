"""The tool compare_costs: two time ranges, the change split into its parts, and the groups that cause it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal
from typing import Annotated

import msgspec

from gateway.core.visibility import SLICED
from gateway.mcp.cost_queries import (
    RANGES_OF_WORDS,
    ZONE,
    DateRange,
    DayRange,
    Filters,
    billed_note,
    build_question,
    date_range_span,
)
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
    first_day_text,
    format_cell,
    format_dollars,
    format_percent,
    last_day_text,
    markdown_table,
    remove_hidden_characters_or_none,
)
from gateway.money.comparison.comparing import ComparedAnswer, answer_comparison
from gateway.money.comparison.sentence import comparable_days_hint, comparison_sentence
from gateway.money.comparison.split import PARTS, CostDriver, GroupSpending, merge_drivers
from gateway.money.costs.answer import billing_status_of_query
from gateway.money.costs.earlier_period import comparison_times
from gateway.money.costs.measures import CURRENCY_UNIT, ComparedType
from gateway.operations.answers import ComparedTimesFields
from gateway.operations.holders.operators import MoneyServices
from spool import money
from spool.errors import Invalid
from spool.ledger.periods import PREVIOUS, Span, span_text
from spool.record import utc_iso


class ComparisonQuestion(ToolInput):
    date_range: DateRange = "month_to_date"
    baseline: Annotated[
        DateRange | None,
        msgspec.Meta(
            description="Range to compare with; default: the previous period, for a month the same part of it"
        ),
    ] = None
    group_by: Annotated[
        list[DimensionName],
        msgspec.Meta(min_length=1, max_length=3, description="Dimensions whose groups are compared"),
    ] = msgspec.field(default_factory=lambda: ["model"])
    filters: Filters = msgspec.field(default_factory=dict)
    cost_type: Annotated[
        ComparedType,
        msgspec.Meta(
            description=(
                "real_cost is the counted cost; the other types are provider bills, for days that have ended"
            )
        ),
    ] = "real_cost"
    view: Annotated[str | None, msgspec.Meta(description="Id or name of a saved view to stay within")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of drivers")] = 10


class ChangeLine(ToolOutput):
    """
    A group of calls. Amounts are exact decimal text. `change` is cost minus baseline_cost. It is the sum of
    the parts from `more_calls` to `gone`. If parts of the baseline are unknown, or if it has another length,
    `change` and its parts are null.
    """

    group: dict[str, str | None]
    cost: str
    baseline_cost: str | None
    change: str | None
    more_calls: str | None
    larger_calls: str | None
    other_kinds: str | None
    large_inputs: str | None
    other_tiers: str | None
    other_regions: str | None
    reported_costs: str | None
    prices: str | None
    reported_rates: str | None
    unit_cost: str | None
    new: str | None
    gone: str | None
    tokens: int
    baseline_tokens: int | None
    calls: int
    baseline_calls: int | None


class CostComparison(ToolOutput):
    """
    The result of the tool. `other` sums all groups that are not listed, so drivers and other equal the total.
    `known_from` is the first counted hour, or the first billed day. Unless the baseline begins later, nothing is
    compared, and `compared` is null. A compared range ends with the last full hour.
    """

    start: str
    end: str
    compared: ComparedTimesFields | None
    known_from: str | None
    zone: str
    as_of: str
    cost_type: str
    currency: str
    group_by: list[str]
    drivers: list[ChangeLine]
    other: ChangeLine | None
    total: ChangeLine
    estimated_percent: str | None
    baseline_estimated_percent: str | None
    truncated: bool
    sentence: str
    notes: list[str]


async def answer_cost_comparison(
    arguments: ComparisonQuestion, call_context: ToolCallContext[MoneyServices]
) -> ToolAnswer:
    if len(set(arguments.group_by)) < len(arguments.group_by):
        raise Invalid("group_by names a dimension twice")
    posed, notes = await build_question(
        call_context,
        arguments.date_range,
        filters=arguments.filters,
        view=arguments.view,
        group_by=arguments.group_by,
        cost_type=arguments.cost_type,
    )
    now = call_context.shared.clock.now()
    times = await comparison_times(
        call_context.cost_reader,
        now,
        against=PREVIOUS if arguments.baseline is None else _named_or_span(arguments.baseline, now),
        range_name=_range_name(arguments.date_range),
    )
    answer = await answer_comparison(
        posed,
        times,
        call_context.cost_reader,
        now=now,
        top=arguments.limit,
        prices=call_context.services.prices,
    )
    billed = await billing_status_of_query(answer.query, call_context.cost_reader, now, only_day_states=True)
    if billed is None:
        against = {"against": _against_in_link(arguments.baseline, now), "parts": "1"}
    else:
        notes.append(billed_note(billed))
        # for billed costs, the link states only the cost type, because the page compares only counted costs
        against = {"cost_type": arguments.cost_type}
    posed = replace(posed, until=answer.query.until)
    page = _ComparisonPage(
        arguments=arguments,
        answer=answer,
        notes=notes,
        now=now,
        link=console_link_to_costs(call_context, posed, arguments.group_by, against),
    )
    return await asyncio.to_thread(
        answer_within_limit, page.answer_with_drivers, min(arguments.limit, len(answer.comparison.drivers))
    )


def _range_name(date_range: DateRange) -> str | None:
    return None if isinstance(date_range, DayRange) else RANGES_OF_WORDS[date_range]


def _named_or_span(date_range: DateRange, now: float) -> str | Span:
    return _range_name(date_range) or date_range_span(date_range, now)


def _against_in_link(baseline: DateRange | None, now: float) -> str:
    if baseline is None:
        return PREVIOUS
    since, until = date_range_span(baseline, now)
    return _range_name(baseline) or f"{first_day_text(since)}..{last_day_text(until)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparisonPage:
    arguments: ComparisonQuestion
    answer: ComparedAnswer
    notes: Sequence[str]
    now: float
    link: str

    def answer_with_drivers(self, count: int) -> ToolAnswer:
        """Return the result with the `count` largest drivers. All others are summed."""
        query, compared, comparison = self.answer.query, self.answer.compared, self.answer.comparison
        past, has_parts = self.answer.past, self.answer.has_parts
        other_drivers = comparison.drivers[count:]
        content = CostComparison(
            start=query.since.astimezone(UTC).isoformat(),
            end=query.until.astimezone(UTC).isoformat(),
            compared=msgspec.convert(compared.to_fields(), ComparedTimesFields) if compared else None,
            known_from=past.known_from_text,
            zone=ZONE,
            as_of=utc_iso(self.now),
            cost_type=self.arguments.cost_type,
            currency=CURRENCY_UNIT,
            group_by=self.arguments.group_by,
            drivers=[
                _change_line(driver, self._value_by_dimension(driver), has_parts)
                for driver in comparison.drivers[:count]
            ],
            other=_change_line(merge_drivers(other_drivers, group=()), {}, has_parts)
            if other_drivers
            else None,
            total=_total_line(self.answer),
            estimated_percent=_format_estimated_percent(comparison.total.now),
            baseline_estimated_percent=_format_estimated_percent(comparison.total.before)
            if compared
            else None,
            truncated=bool(other_drivers),
            sentence=comparison_sentence(comparison, past, compared),
            notes=list(self._page_notes()),
        )
        return ToolAnswer(text=self._format_comparison(content), content=content, link=self.link)

    def _value_by_dimension(self, driver: CostDriver) -> dict[str, str | None]:
        return dict(
            zip(self.arguments.group_by, map(remove_hidden_characters_or_none, driver.group), strict=True)
        )

    def _page_notes(self) -> Iterator[str]:
        yield from self.notes
        if compared := self.answer.compared:
            if compared.since_cut is not None:
                yield f"{format_dollars(compared.since_cut)} since {compared.cut_text} is not compared"
            if compared.rest is not None:
                yield compared.rest
        if not self.answer.past.is_fully_covered and (words := comparable_days_hint(self.answer.past)):
            yield words
        total = self.answer.comparison.total
        if not total.now.calls and not total.before.calls and not total.now.cost:
            yield "no call of either range matches; get_org_context lists the days with data"
        if total.now.unpriced or total.before.unpriced:
            unpriced = f"{total.now.unpriced} calls, and {total.before.unpriced} of the baseline,"
            yield f"{unpriced} have no price and count as 0"
        if self.answer.incomplete_before is not None:
            yield (
                f"totals from before {self.answer.incomplete_before} may be incomplete, because records were "
                "deleted before they were counted"
            )

    def _format_comparison(self, content: CostComparison) -> str:
        query, total = self.answer.query, content.total
        shown_span = "" if content.compared else f"{span_text((query.since, query.until), self.now)}: "
        text = f"{content.sentence} {shown_span}{format_dollars(total.cost)} {CURRENCY_UNIT} ({ZONE})"
        if total.baseline_cost is not None:
            text += f", against {format_dollars(total.baseline_cost)} {CURRENCY_UNIT}"
        if total.change is not None:
            parts = ", ".join(f"{name} {_format_signed_amount(getattr(total, name))}" for name in PARTS)
            text += f". Change: {_format_signed_amount(total.change)}: {parts}"
        if content.estimated_percent is not None or content.baseline_estimated_percent is not None:
            shares = (content.estimated_percent or "0.0", content.baseline_estimated_percent or "0.0")
            text += f"; {shares[0]} % of the cost is estimated, and {shares[1]} % of the baseline"
        blocks = [f"{text}. As of {content.as_of}.", *content.notes]
        lines = content.drivers[:MAX_TABLE_ROWS]
        if lines:
            compared_columns = ["baseline", "change", *PARTS] if self.answer.has_parts else []
            columns = [*map(format_cell, self.arguments.group_by), "cost", *compared_columns]
            blocks.append(markdown_table(columns, [_change_table_cells(line) for line in lines]))
        if len(lines) < len(content.drivers):
            blocks.append(f"{len(content.drivers) - len(lines)} more drivers are in the structured content.")
        if content.other is not None:
            other = content.other
            amount = (
                format_dollars(other.cost) if other.change is None else _format_signed_amount(other.change)
            )
            blocks.append(f"All other groups together: {amount} {CURRENCY_UNIT}.")
        return "\n\n".join(blocks)


def _change_line(driver: CostDriver, names: Mapping[str, str | None], has_parts: bool) -> ChangeLine:
    parts = {name: money.units_to_text(getattr(driver.parts, name)) for name in ("change", *PARTS)}
    return ChangeLine(
        group=dict(names),
        cost=money.units_to_text(driver.now.cost),
        baseline_cost=money.units_to_text(driver.before.cost) if has_parts else None,
        **(parts if has_parts else dict.fromkeys(parts)),
        tokens=driver.now.tokens,
        baseline_tokens=driver.before.tokens if has_parts else None,
        calls=driver.now.calls,
        baseline_calls=driver.before.calls if has_parts else None,
    )


def _total_line(answer: ComparedAnswer) -> ChangeLine:
    total = answer.comparison.total
    line = _change_line(total, {}, answer.has_parts)
    if answer.compared is None or answer.has_parts:
        return line
    # ranges of different lengths have sums, but no change
    before = total.before
    return msgspec.structs.replace(
        line,
        baseline_cost=money.units_to_text(before.cost),
        baseline_tokens=before.tokens,
        baseline_calls=before.calls,
    )


def _format_estimated_percent(spending: GroupSpending) -> str | None:
    return format_percent(spending.estimated, spending.cost)


def _change_table_cells(line: ChangeLine) -> list[str]:
    cells = [*map(format_cell, line.group.values()), format_dollars(line.cost)]
    if line.baseline_cost is None:
        return cells
    changes = [_format_signed_amount(getattr(line, name)) for name in ("change", *PARTS)]
    return [*cells, format_dollars(line.baseline_cost), *changes]


def _format_signed_amount(amount: str | None) -> str:
    if amount is None:
        return ""
    return f"+{format_dollars(amount)}" if Decimal(amount) > 0 else format_dollars(amount)


TOOL = McpTool(
    name="compare_costs",
    title="What changed",
    description=(
        "Why costs rose or fell, in a sentence. Compares two time ranges and splits each group's "
        "change exactly into more calls, larger calls, other models or token types, prices, new and "
        "gone; largest change first. Both ranges have one length or are whole calendar periods. "
        "Default: this month so far against the same part of last month, "
        "by model. Call it again by team, user or api_key to see who causes the change."
    ),
    takes=ComparisonQuestion,
    gives=CostComparison,
    run=answer_cost_comparison,
    shows=SLICED,
)
