"""`tollhouse streams`: unit-cost streams, and deliveries without an answer from the cost service."""

from __future__ import annotations

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import PageRequest, fetch_and_show_page, with_page_options
from gateway.cli.output import as_json, show_json

STREAM_COLUMNS = ("name", "type", "granularity", "dimensions")
UNKNOWN_COLUMNS = ("id", "route", "first", "last", "reason")
_MOST = 1000


@click.group()
def streams() -> None:
    """List unit-cost streams; resolve unanswered deliveries."""


@streams.command("list")
@click.option("--type", multiple=True, help="Filter by type: allocation or metric.")
@click.option(
    "--unknown", is_flag=True, help="List the deliveries that wait for `tollhouse streams resolve`."
)
@with_page_options
@with_client
def list_streams(
    client: OperatorClient, page: PageRequest, unknown: bool, **filters: tuple[str, ...]
) -> None:
    """List unit-cost streams, or deliveries that were sent and not answered (--unknown)."""
    if unknown:
        fetch_and_show_page(client, page, "unknown", UNKNOWN_COLUMNS, {})
    else:
        fetch_and_show_page(client, page, "streams", STREAM_COLUMNS, filters)


@streams.command("show")
@click.argument("id", type=int)
@with_client
def show_unanswered_delivery(client: OperatorClient, id: int) -> None:
    """Show an unanswered delivery with its exact records."""
    payload = client.request("GET", "/unknown", query=[("limit", str(_MOST))])
    for unknown in payload["unknown"]:
        if unknown["id"] == id:
            show_json({"unknown": unknown})
            return
    exit_with_message("no delivery with this id waits for `tollhouse streams resolve`", 2)


@streams.command("resolve")
@click.argument("id", type=int)
@click.argument("fate", type=click.Choice(["sent", "unsent"]))
@as_json
@with_client
def resolve_unanswered_delivery(client: OperatorClient, id: int, fate: str, as_json: bool) -> None:
    """Resolve an unanswered delivery. `sent`: it arrived. `unsent`: send it again."""
    payload = client.request("POST", f"/unknown/{id}/resolve", body={"sent": fate == "sent"})
    if as_json:
        show_json(payload)
        return
    result = payload["resolved"]
    consequence = "counts as delivered" if fate == "sent" else "will be sent again"
    click.echo(f"{result['route']} {result['first']} to {result['last']} {consequence}")
