"""The tool get_telemetry_data: the records of one unit-cost stream, each with its current total."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Annotated

import msgspec

from gateway.mcp.cost_queries import ZONE, DateRange, date_range_span
from gateway.mcp.tool import (
    McpTool,
    ToolAnswer,
    ToolCallContext,
    ToolInput,
    ToolOutput,
    answer_within_limit,
    make_cursor,
    verify_cursor,
)
from gateway.mcp.tools.telemetry_streams import MAX_SHOWN
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    did_you_mean,
    format_cell,
    markdown_table,
    remove_hidden_characters,
)
from gateway.operations.holders.operators import SpoolServices
from spool.errors import Invalid
from spool.ledger.periods import Span, span_text
from spool.record import NS, decimal_text, rfc3339, utc_iso
from spool.streams import StreamTotal, TelemetryStream, TotalsPart
from spool.turns.threads import sort_in_short_steps

NAME = "get_telemetry_data"
_MOST_VALUES = 5  # maximum values of a dimension per record
_EXACT = Context(prec=100)


class TelemetryQuestion(ToolInput):
    stream: Annotated[str, msgspec.Meta(description="Name of a stream, from get_telemetry_streams")]
    date_range: DateRange = "last_30_days"
    dimensions: Annotated[
        dict[str, list[str]],
        msgspec.Meta(description='Values by dimension of the stream, such as {"customer": ["acme"]}'),
    ] = msgspec.field(default_factory=dict)
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="Maximum number of records")] = 20
    cursor: Annotated[
        str | None, msgspec.Meta(description="next_cursor of an earlier call with the same arguments")
    ] = None


class TelemetryLine(ToolOutput):
    """A record. `value` is exact decimal text. Only the first values of a dimension are shown."""

    start: str
    element_name: str | None
    dimensions: dict[str, list[str]]
    value: str


class TelemetryData(ToolOutput):
    """
    The result of the tool. `total` is the sum of the records on this page and of `other`, which are on other pages.
    """

    stream: str
    type: str
    granularity: str | None
    start: str
    end: str
    zone: str
    as_of: str
    records: list[TelemetryLine]
    record_count: int
    other: str
    total: str
    truncated: bool
    next_cursor: str | None


async def answer_telemetry_data(
    arguments: TelemetryQuestion, call_context: ToolCallContext[SpoolServices]
) -> ToolAnswer:
    reader = call_context.services.streams
    now = call_context.shared.clock.now()
    stream = _find_stream(await reader.streams(), arguments.stream)
    unknown = next((name for name in arguments.dimensions if name not in (stream.keys or ())), None)
    if unknown is not None:
        known = [remove_hidden_characters(key) for key in stream.keys or ()]
        names = ", ".join(known) or "it has none"
        raise Invalid(
            f"the stream has no dimension {remove_hidden_characters(unknown)}{did_you_mean(unknown, known)}: {names}"
        )
    since, until = date_range_span(arguments.date_range, now)
    part = TotalsPart(
        since=_to_nanoseconds(since), until=_to_nanoseconds(until), dimensions=arguments.dimensions
    )
    first = verify_cursor(call_context, NAME, arguments, arguments.cursor)
    totals = await reader.stream_totals(stream.name)
    page = _TelemetryPage(arguments=arguments, stream=stream, span=(since, until), first=first, now=now)
    return await asyncio.to_thread(
        page.build_page_answer, totals, part, lambda seen: make_cursor(call_context, NAME, arguments, seen)
    )


def _find_stream(streams: Sequence[TelemetryStream], name: str) -> TelemetryStream:
    for stream in streams:
        if name in (stream.name, clean_and_shorten(stream.name, MAX_SHOWN)):
            return stream
    names = [stream.name for stream in streams]
    raise Invalid(
        f"there is no stream {remove_hidden_characters(name)}{did_you_mean(name, names)}; "
        "list them with get_telemetry_streams"
    )


def _to_nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * NS


@dataclass(frozen=True, slots=True, kw_only=True)
class _TelemetryPage:
    arguments: TelemetryQuestion
    stream: TelemetryStream
    span: Span
    first: int
    now: float

    def build_page_answer(
        self, totals: Sequence[StreamTotal], part: TotalsPart, cursor_after: Callable[[int], str]
    ) -> ToolAnswer:
        sorted_totals = sort_in_short_steps(
            filter(part.has_total, totals),
            key=lambda item: (-item.start_time, item.element_name or "", item.key),
        )
        page_totals = sorted_totals[self.first : self.first + self.arguments.limit]
        total = _sum_totals(sorted_totals)
        return answer_within_limit(
            lambda count: self._build_answer(len(sorted_totals), total, page_totals[:count], cursor_after),
            len(page_totals),
        )

    def _build_answer(
        self,
        record_count: int,
        total: Decimal,
        page_totals: Sequence[StreamTotal],
        cursor_after: Callable[[int], str],
    ) -> ToolAnswer:
        end = self.first + len(page_totals)
        since, until = self.span
        content = TelemetryData(
            stream=clean_and_shorten(self.stream.name, MAX_SHOWN),
            type=self.stream.type,
            granularity=self.stream.granularity,
            start=since.astimezone(UTC).isoformat(),
            end=until.astimezone(UTC).isoformat(),
            zone=ZONE,
            as_of=utc_iso(self.now),
            records=[_line_of_total(row) for row in page_totals],
            record_count=record_count,
            other=decimal_text(_EXACT.subtract(total, _sum_totals(page_totals))),
            total=decimal_text(total),
            truncated=end < record_count,
            next_cursor=cursor_after(end) if end < record_count else None,
        )
        return ToolAnswer(text=self._format_telemetry(content), content=content)

    def _format_telemetry(self, content: TelemetryData) -> str:
        parts = [
            f"{format_cell(content.stream)}, {span_text(self.span, self.now)} ({ZONE}): "
            f"{content.record_count} records, together {content.total}. As of {content.as_of}."
        ]
        if not content.record_count:
            parts.append("No record matches; try a longer date_range, or omit dimensions.")
        rows = [
            [
                record.start[:16],
                format_cell(record.element_name or "-"),
                _format_dimension_values(record.dimensions),
                record.value,
            ]
            for record in content.records[:MAX_TABLE_ROWS]
        ]
        if rows:
            parts.append(markdown_table(["start", "element", "dimensions", "value"], rows))
        if len(content.records) > MAX_TABLE_ROWS:
            parts.append(
                f"{len(content.records) - MAX_TABLE_ROWS} more records are in the structured content."
            )
        if content.truncated:
            parts.append(
                "For the next records, repeat the call with cursor = next_cursor, or narrow the query."
            )
        return "\n\n".join(parts)


def _line_of_total(total: StreamTotal) -> TelemetryLine:
    return TelemetryLine(
        start=rfc3339(total.start_time) or "",
        element_name=None if total.element_name is None else clean_and_shorten(total.element_name, MAX_SHOWN),
        dimensions={
            clean_and_shorten(name, MAX_SHOWN): [
                clean_and_shorten(value, MAX_SHOWN) for value in values[:_MOST_VALUES]
            ]
            for name, values in total.dimensions.items()
        },
        value=total.value,
    )


def _format_dimension_values(dimensions: Mapping[str, Sequence[str]]) -> str:
    return (
        "; ".join(
            f"{format_cell(name)} = {', '.join(map(format_cell, values))}"
            for name, values in dimensions.items()
        )
        or "-"
    )


def _sum_totals(totals: Sequence[StreamTotal]) -> Decimal:
    total_value = Decimal(0)
    for total in totals:
        total_value = _EXACT.add(total_value, Decimal(total.value))
    return total_value


TOOL = McpTool(
    name=NAME,
    title="Records of a unit-cost stream",
    description=(
        "The records of one unit-cost stream in a time range, newest first, each with its current "
        "total, and their sum. Together with get_cost_data for the same range it gives a cost per "
        "unit. Default: the last 30 days, 20 records."
    ),
    takes=TelemetryQuestion,
    gives=TelemetryData,
    run=answer_telemetry_data,
)
