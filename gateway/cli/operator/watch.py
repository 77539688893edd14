"""`tollhouse tail` and `tollhouse top`: records as they are committed, and live rates, queues and routes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OPENED, OperatorClient, with_client
from gateway.cli.operator.commands import filter_help
from gateway.cli.output import JsonObject, show_table
from gateway.cli.parameters import Seconds
from gateway.operations.records.filters import FILTERS, MAX_LIMIT
from spool.printable import printable_json, replace_unprintable
from spool.settings import MIB

LEAST_EVERY_S = 0.5
SHOWN_SOURCES = 15  # maximum sources shown: the busiest; a screen has no space for more
_UNKNOWN = "-"
_WIDTHS = (24, 14, 24, 12, 12)  # column widths in characters; a longer value shifts the rest of its line


def _add_record_filter_options(command: Callable[..., None]) -> Callable[..., None]:
    for name in reversed(FILTERS):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, name, multiple=True, metavar="VALUE", help=filter_help(name))(command)
    return command


@click.command()
@_add_record_filter_options
@click.option(
    "--last",
    type=click.IntRange(0, MAX_LIMIT),
    default=10,
    show_default=True,
    help="Number of earlier records to show first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record.")
@with_client
def tail(client: OperatorClient, last: int, as_json: bool, **filters: tuple[str, ...]) -> None:
    """
    Show records as they are committed, until Ctrl-C. Records never contain prompts or completions.

    A filter may be given several times. An empty value (--team "") matches records without a value.
    """
    import aiohttp  # imported here, because aiohttp takes a third of the start of a command

    query = [(name, value) for name, values in filters.items() for value in values]
    show = _show_record_as_json if as_json else _show_record_as_line
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(_follow_records(client, query, last, show))
        except (aiohttp.ClientError, TimeoutError) as error:
            exit_with_message(f"the connection to the server broke ({error}); run the command again")
        exit_with_message(
            "the server is stopping and ended the stream; run the command again when the server is back"
        )


async def _follow_records(
    client: OperatorClient, query: Sequence[tuple[str, str]], last: int, show: Callable[[JsonObject], None]
) -> None:
    seen: set[tuple[str, int]] = set()
    async for name, data in client.stream_events("/tail", query=query):
        if name == OPENED:
            seen = await _show_newest_records(client, [*query, ("limit", str(last))], show) if last else seen
        elif name == "skipped":
            click.echo(
                f"tollhouse: {data['records']} records of {data['topic']} arrived too fast to be shown",
                err=True,
            )
        elif (data["topic"], data["number"]) not in seen:
            show(data)


async def _show_newest_records(
    client: OperatorClient, query: Sequence[tuple[str, str]], show: Callable[[JsonObject], None]
) -> set[tuple[str, int]]:
    """Show the newest records and return their positions, because the stream may repeat the last ones."""
    status, payload = await client.send_request("GET", "/records", query=query)
    if status >= 400:
        exit_with_message(payload["error"]["message"])
    for row in reversed(payload["records"]):
        show(row)
    return {(row["topic"], row["number"]) for row in payload["records"]}


def _show_record_as_json(row: JsonObject) -> None:
    click.echo(printable_json(row))


def _show_record_as_line(row: JsonObject) -> None:
    """Print a record as a line: time, tool, model, user or team, then numbers. Unknown values are a dash."""
    model = row.get("response_model") or row.get("request_model") or row.get("model")
    subject = model or row.get("event_type") or row.get("stream") or row.get("connection_id")
    owners = [row.get(name) for name in ("team", "user")]
    cells = [row["committed_at"], row["source"], subject, *owners]
    columns = [
        replace_unprintable(word or _UNKNOWN).ljust(width) for word, width in zip(cells, _WIDTHS, strict=True)
    ]
    click.echo("  ".join([*columns, *map(replace_unprintable, _format_tokens_and_cost(row))]).rstrip())


def _format_tokens_and_cost(row: JsonObject) -> list[str]:
    if row["kind"] != "inference":
        return [] if row.get("value") is None else [str(row["value"]), row.get("unit", "")]
    tokens = [_UNKNOWN if row[name] is None else str(row[name]) for name in ("input_tokens", "output_tokens")]
    cost = row["estimated_cost"] if row["cost_source"] == "estimated" else row["cost"]
    money = _UNKNOWN if cost is None else f"${cost}"
    return [
        f"{tokens[0]:>7} in",
        f"{tokens[1]:>6} out",
        money,
        *([] if row["status"] == "ok" else [row["status"]]),
    ]


@click.command()
@click.option("--once", is_flag=True, help="Print the current state once and exit.")
@click.option("--every", type=Seconds(), default="2s", show_default=True, help="Time between two updates.")
@with_client
def top(client: OperatorClient, once: bool, every: float) -> None:
    """
    Show live rates, queues and routes, until Ctrl-C.

    Shows the rate of each tool, the delay of the totals, and the state of every route.
    """
    if every < LEAST_EVERY_S:
        raise click.BadParameter(f"at least {LEAST_EVERY_S} s", param_hint="--every")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            status, rates, ledger = (client.request("GET", path) for path in ("/status", "/rates", "/ledger"))
            if not once and sys.stdout.isatty():
                click.clear()
            _show_rates_and_routes(
                status, rates["rates"], ledger["ledger"], max_rows=None if once else SHOWN_SOURCES
            )
            if once:
                return
            time.sleep(every)


def _show_rates_and_routes(
    status: JsonObject, rates: JsonObject, ledger: JsonObject, *, max_rows: int | None
) -> None:
    space = status["space"]
    seconds = rates["seconds"]
    now = datetime.now(UTC).strftime("%H:%M:%S UTC")
    state = (
        "taking records"
        if space["writable"]
        else f"not accepting records: {space['last_error'] or 'see /readyz'}"
    )
    click.echo(replace_unprintable(f"{now}  {state}"))
    click.echo(
        f"{rates['records']} records in {seconds:.0f} s ({rates['records'] / seconds:.1f}/s), totals "
        f"behind by {ledger['behind']}, queue {space['bytes'] / MIB:.1f} of "
        f"{space['max_bytes'] / MIB:.0f} MiB"
    )
    click.echo()
    show_table(rates["sources"][:max_rows], ("source", "topic", "records", "per_s"), {"source": "tool"})
    click.echo()
    show_table(status["routes"], ("route", "state", "queued", "oldest_age_s", "reason"))
