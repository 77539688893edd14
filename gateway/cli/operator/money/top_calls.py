"""`tollhouse report --calls`: the dearest calls that are kept, one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient
from gateway.cli.operator.commands import show_cursor
from gateway.cli.output import JsonObject, show_json, show_table

BY_CALL = ("cost", "tokens", "duration")
TOP_CALLS = 10
MOST = 200  # of one page
COLUMNS = (
    "started",
    "model",
    "cost",
    "input_tokens",
    "output_tokens",
    "seconds",
    "team",
    "user",
    "source",
    "id",
)
_BOUND = re.compile(rf"({'|'.join(BY_CALL)})\s*([<>]=?)\s*(\S+)")


def show_top_calls(client: OperatorClient, where: Sequence[str], once: JsonObject, *, as_json: bool) -> None:
    """Print the calls of a span that cost most, or took most, and how far they were looked for."""
    by = once["top_by"] or "cost"
    top = once["top"] or once["limit"] or TOP_CALLS
    if by not in BY_CALL:
        raise click.UsageError(f"--top-by takes {', '.join(BY_CALL)} with --calls")
    if top > MOST:
        raise click.UsageError(f"--calls lists at most {MOST} at once: go on with --cursor")
    span = [(name, once[name]) for name in ("from", "to", "range", "tz", "view") if once[name] is not None]
    query = [("sort_key", by), ("sort_order", "desc"), ("limit", str(top)), *span, *_filters(where)]
    if once["cursor"]:
        query = [("cursor", once["cursor"]), ("limit", str(top))]
    answer = client.request("GET", "/records", query=query)
    if as_json:
        show_json(answer)
        return
    show_table([_line(row) for row in answer["records"]], COLUMNS)
    looked = answer["looked_through"]
    if looked["since"]:
        since = looked["since"]
        until = f" until {looked['until']}" if looked["until"] else ""
        click.echo(f"of {looked['records']:,} kept records that came since {since}{until}", err=True)
    if looked["records"] >= looked["most"]:
        click.echo(
            "older ones were not looked at: ask for fewer days, or raise server.max_listed_records", err=True
        )
    show_cursor(answer)


def _filters(where: Sequence[str]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE and NAME!=VALUE as the list takes them; a bound as the value of its name."""
    for term in where:
        bound = _BOUND.fullmatch(term)
        if bound:
            yield bound[1], bound[2] + bound[3]
            continue
        name, equals, value = term.partition("=")
        if not equals:
            fail("--where is written NAME=VALUE, NAME!=VALUE, or with --calls a bound such as 'cost>0.5'", 2)
        yield name, value


def _line(row: JsonObject) -> dict[str, object]:
    amount = {"reported": row.get("cost"), "estimated": row.get("estimated_cost")}.get(
        row.get("cost_source", "")
    )
    start, end = (row.get(name) and datetime.fromisoformat(row[name]) for name in ("start_time", "end_time"))
    return {
        **{name: row.get(name) for name in ("team", "user", "source", "id")},
        "started": row.get("start_time"),
        "model": row.get("response_model") or row.get("request_model"),
        "cost": None if amount is None else f"{Decimal(amount):,.4f}",
        **{
            name: None if row.get(name) is None else f"{row[name]:,}"
            for name in ("input_tokens", "output_tokens")
        },
        "seconds": f"{(end - start).total_seconds():,.1f}" if start and end else None,
    }
