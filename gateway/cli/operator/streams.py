"""`tollhouse streams`: unit-cost streams, and deliveries without a clear answer from the upstream."""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.lists import PageRequest, paged, show_page
from gateway.cli.output import as_json, show_json

COLUMNS = ("name", "type", "granularity", "dimensions")
UNKNOWN_COLUMNS = ("id", "route", "first", "last", "reason")
_MOST = 1000


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
        show_page(client, page, "streams", COLUMNS, filters)


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
