"""`tollhouse console`: the way into the console without an account."""

from __future__ import annotations

import click

from gateway.cli.operator import House, as_json, on_a_house, show_json


@click.group()
def console() -> None:
    """Open the operator console."""


@console.command()
@click.option("--role", default="admin", show_default=True, help="viewer, operator or admin")
@as_json
@on_a_house
def link(house: House, role: str, as_json: bool) -> None:
    """Print a link that signs in once, within ten minutes."""
    payload = house.ask("POST", "/console-links", body={"role": role})
    show_json(payload) if as_json else click.echo(payload["link"])
