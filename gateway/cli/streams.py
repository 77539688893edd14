"""`tollhouse streams`: unit-cost streams, and sums of which nobody knows whether they arrived upstream."""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator import House, Page, as_json, on_a_house, paged, show_json, show_page

COLUMNS = ("name", "type", "granularity", "dimensions")
UNKNOWN_COLUMNS = ("id", "route", "first", "last", "reason")
_MOST = 1000


@click.group()
def streams() -> None:
    """Unit-cost streams, and deliveries whose fate nobody knows."""


@streams.command("list")
@click.option("--type", multiple=True, help="allocation or metric.")
@click.option("--unknown", is_flag=True, help="Deliveries that wait to be settled by hand.")
@paged
@on_a_house
def list_streams(house: House, page: Page, unknown: bool, **asked: tuple[str, ...]) -> None:
    """List streams. With --unknown: what may have arrived upstream or not."""
    if unknown:
        show_page(house, page, "unknown", UNKNOWN_COLUMNS, {})
    else:
        show_page(house, page, "streams", COLUMNS, asked)


@streams.command()
@click.argument("id", type=int)
@on_a_house
def show(house: House, id: int) -> None:
    """Show a delivery of unknown fate with its exact records."""
    payload = house.ask("GET", "/unknown", query=[("limit", str(_MOST))])
    for unknown in payload["unknown"]:
        if unknown["id"] == id:
            show_json({"unknown": unknown})
            return
    fail("there is no delivery with this id that waits to be settled by hand", 2)


@streams.command()
@click.argument("id", type=int)
@click.argument("fate", type=click.Choice(["sent", "unsent"]))
@as_json
@on_a_house
def resolve(house: House, id: int, fate: str, as_json: bool) -> None:
    """Settle a delivery of unknown fate. `sent` when its records count upstream, `unsent` to send them again."""
    payload = house.ask("POST", f"/unknown/{id}/resolve", body={"sent": fate == "sent"})
    if as_json:
        show_json(payload)
        return
    done = payload["resolved"]
    what = "counts as delivered" if fate == "sent" else "will be sent again"
    click.echo(f"{done['route']} {done['first']} to {done['last']} {what}")
