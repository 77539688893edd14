"""
`tollhouse events`: usage events, one by one and by type. `tollhouse streams`: unit-cost streams, and deliveries
without a clear answer from the upstream.
"""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import PageRequest, list_command, paged, show_page
from gateway.cli.output import as_json, show_json

STREAM_COLUMNS = ("name", "type", "granularity", "dimensions")
UNKNOWN_COLUMNS = ("id", "route", "first", "last", "reason")
_MOST = 1000
EVENT_COLUMNS = ("number", "event_type", "subject", "amount", "start_time", "source", "event_id")
EVENT_TYPE_COLUMNS = ("type", "count", "amount", "last_seen", "sent_as", "unmapped")


@click.group()
def events() -> None:
    """List usage events and their types."""


list_command(
    events,
    "list",
    root="events",
    columns=EVENT_COLUMNS,
    filters={
        "type": "",
        "subject": "",
        "source": "",
        "state": "open or closed.",
        "start_time": "From this time on: RFC 3339.",
        "end_time": "Before this time: RFC 3339.",
    },
    help="List the newest usage events. The amount is what the mapping of the type in upstream.events names.",
)

list_command(
    events,
    "types",
    root="event_types",
    columns=EVENT_TYPE_COLUMNS,
    filters={"type": "", "sent": "yes or no: whether the type leaves for the upstream."},
    help="List types of usage events. Those without a mapping in upstream.events are kept and not sent.",
)


@click.group()
def streams() -> None:
    """Show unit-cost streams. Settle deliveries that the upstream did not clearly answer."""


@streams.command("list")
@click.option("--type", multiple=True, help="allocation or metric.")
@click.option("--unknown", is_flag=True, help="Deliveries that wait for `streams resolve`.")
@paged
@with_client
def list_streams(
    client: OperatorClient, page: PageRequest, unknown: bool, **filters: tuple[str, ...]
) -> None:
    """List streams. With --unknown: deliveries that may or may not have arrived upstream."""
    if unknown:
        show_page(client, page, "unknown", UNKNOWN_COLUMNS, {})
    else:
        show_page(client, page, "streams", STREAM_COLUMNS, filters)


@streams.command()
@click.argument("id", type=int)
@with_client
def show(client: OperatorClient, id: int) -> None:
    """Show an unconfirmed delivery with its exact records."""
    payload = client.request("GET", "/unknown", query=[("limit", str(_MOST))])
    for unknown in payload["unknown"]:
        if unknown["id"] == id:
            show_json({"unknown": unknown})
            return
    fail("there is no delivery with this id that waits to be settled by hand", 2)


@streams.command()
@click.argument("id", type=int)
@click.argument("fate", type=click.Choice(["sent", "unsent"]))
@as_json
@with_client
def resolve(client: OperatorClient, id: int, fate: str, as_json: bool) -> None:
    """Settle an unconfirmed delivery. `sent`: its records count upstream; `unsent`: send them again."""
    payload = client.request("POST", f"/unknown/{id}/resolve", body={"sent": fate == "sent"})
    if as_json:
        show_json(payload)
        return
    done = payload["resolved"]
    what = "counts as delivered" if fate == "sent" else "will be sent again"
    click.echo(f"{done['route']} {done['first']} to {done['last']} {what}")
