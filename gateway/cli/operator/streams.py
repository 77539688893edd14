"""
`tollhouse events`: sends and lists usage events. `tollhouse streams`: unit-cost streams, and deliveries
without an answer from the upstream.
"""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import PageRequest, list_command, paged, show_page
from gateway.cli.output import as_json, show_json
from gateway.cli.send.events import send_events

STREAM_COLUMNS = ("name", "type", "granularity", "dimensions")
UNKNOWN_COLUMNS = ("id", "route", "first", "last", "reason")
_MOST = 1000
EVENT_COLUMNS = ("number", "event_type", "subject", "amount", "start_time", "source", "event_id")
EVENT_TYPE_COLUMNS = ("type", "count", "amount", "last_seen", "sent_as", "unmapped")


@click.group()
def events() -> None:
    """Send and list usage events."""


events.add_command(send_events)

list_command(
    events,
    "list",
    root="events",
    columns=EVENT_COLUMNS,
    filters={
        "type": "",
        "subject": "",
        "source": "",
        "state": "Filter by state: open or closed.",
        "start_time": "Earliest time (RFC 3339, inclusive).",
        "end_time": "Latest time (RFC 3339, exclusive).",
    },
    help="List the newest usage events. The amount is the field that upstream.events names for the type.",
)

list_command(
    events,
    "types",
    root="event_types",
    columns=EVENT_TYPE_COLUMNS,
    filters={"type": "", "sent": "yes: only types that are sent upstream. no: only types that are not sent."},
    help=(
        "List the types of usage events. Types without a mapping in upstream.events are stored and not sent."
    ),
)


@click.group()
def streams() -> None:
    """List unit-cost streams, and resolve unanswered deliveries."""


@streams.command("list")
@click.option("--type", multiple=True, help="Filter by type: allocation or metric.")
@click.option(
    "--unknown", is_flag=True, help="List the deliveries that wait for `tollhouse streams resolve`."
)
@paged
@with_client
def list_streams(
    client: OperatorClient, page: PageRequest, unknown: bool, **filters: tuple[str, ...]
) -> None:
    """List unit-cost streams, or deliveries that may or may not have arrived (--unknown)."""
    if unknown:
        show_page(client, page, "unknown", UNKNOWN_COLUMNS, {})
    else:
        show_page(client, page, "streams", STREAM_COLUMNS, filters)


@streams.command()
@click.argument("id", type=int)
@with_client
def show(client: OperatorClient, id: int) -> None:
    """Show an unanswered delivery with its exact records."""
    payload = client.request("GET", "/unknown", query=[("limit", str(_MOST))])
    for unknown in payload["unknown"]:
        if unknown["id"] == id:
            show_json({"unknown": unknown})
            return
    fail("no delivery with this id waits for `tollhouse streams resolve`", 2)


@streams.command()
@click.argument("id", type=int)
@click.argument("fate", type=click.Choice(["sent", "unsent"]))
@as_json
@with_client
def resolve(client: OperatorClient, id: int, fate: str, as_json: bool) -> None:
    """Resolve an unanswered delivery. `sent`: it arrived. `unsent`: send it again."""
    payload = client.request("POST", f"/unknown/{id}/resolve", body={"sent": fate == "sent"})
    if as_json:
        show_json(payload)
        return
    result = payload["resolved"]
    consequence = "counts as delivered" if fate == "sent" else "will be sent again"
    click.echo(f"{result['route']} {result['first']} to {result['last']} {consequence}")
