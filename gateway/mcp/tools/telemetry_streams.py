"""The tool get_telemetry_streams: unit-cost streams, which are business numbers to relate costs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gateway.mcp.tool import McpTool, ToolAnswer, ToolCallContext, ToolInput, ToolOutput, answer_within_limit
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    console_page_link,
    did_you_mean,
    format_cell,
    markdown_table,
)
from gateway.operations.holders.operators import SpoolServices
from spool.streams import TelemetryStream

MOST = 100
MAX_SHOWN = 200  # maximum characters of a stream's name


class StreamsQuestion(ToolInput):
    match: Annotated[
        str | None, msgspec.Meta(description="Only names that contain this text, in any case")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of streams")] = 50


class StreamLine(ToolOutput):
    """A stream. `granularity` and `dimensions` are null until the first record defines them."""

    name: str
    type: str
    granularity: str | None
    dimensions: list[str] | None


class Streams(ToolOutput):
    streams: list[StreamLine]
    stream_count: int
    truncated: bool


async def answer_telemetry_streams(
    arguments: StreamsQuestion, call_context: ToolCallContext[SpoolServices]
) -> ToolAnswer:
    streams = sorted(await call_context.services.streams.streams(), key=lambda stream: stream.name)
    match_text = (arguments.match or "").casefold()
    matching_streams = [stream for stream in streams if match_text in stream.name.casefold()]
    hint = (
        did_you_mean(arguments.match or "", [stream.name for stream in streams])
        if not matching_streams
        else ""
    )

    def answer_with_streams(count: int) -> ToolAnswer:
        lines = [_stream_answer_line(stream) for stream in matching_streams[:count]]
        content = Streams(
            streams=lines, stream_count=len(matching_streams), truncated=count < len(matching_streams)
        )
        return ToolAnswer(
            text=_format_streams(content, hint),
            content=content,
            link=console_page_link(call_context, "/streams"),
        )

    return answer_within_limit(answer_with_streams, min(arguments.limit, len(matching_streams)))


def _stream_answer_line(stream: TelemetryStream) -> StreamLine:
    return StreamLine(
        name=clean_and_shorten(stream.name, MAX_SHOWN),
        type=stream.type,
        granularity=stream.granularity,
        dimensions=None
        if stream.keys is None
        else [clean_and_shorten(key, MAX_SHOWN) for key in stream.keys],
    )


def _format_streams(content: Streams, hint: str) -> str:
    parts = [
        f"{content.stream_count} unit-cost streams{hint}. Use get_telemetry_data for the records of one."
    ]
    rows = [
        [
            format_cell(stream.name),
            stream.type,
            (stream.granularity or "-").lower(),
            _format_names_or_dash(stream.dimensions),
        ]
        for stream in content.streams[:MAX_TABLE_ROWS]
    ]
    if rows:
        parts.append(markdown_table(["stream", "type", "granularity", "dimensions"], rows))
    if content.truncated or len(content.streams) > MAX_TABLE_ROWS:
        parts.append("There are more; see the structured content, raise limit, or use match.")
    return "\n\n".join(parts)


def _format_names_or_dash(dimensions: Sequence[str] | None) -> str:
    return "-" if dimensions is None else ", ".join(map(format_cell, dimensions)) or "none"


TOOL = McpTool(
    name="get_telemetry_streams",
    title="Unit-cost streams",
    description=(
        "The unit-cost streams: telemetry by which costs are allocated, and metrics such as "
        "customers or orders for a cost per unit. Ordered by name; default: 50."
    ),
    takes=StreamsQuestion,
    gives=Streams,
    run=answer_telemetry_streams,
)
