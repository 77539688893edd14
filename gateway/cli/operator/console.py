"""`tollhouse console`: sign in to the console without an account."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json


@click.group()
def console() -> None:
    """Open the operator console."""


@console.command()
@click.option("--role", default="admin", show_default=True, help="viewer, operator or admin")
@as_json
@with_client
def link(client: OperatorClient, role: str, as_json: bool) -> None:
    """Print a link that signs in once, within ten minutes."""
    payload = client.request("POST", "/console-links", body={"role": role})
    show_json(payload) if as_json else click.echo(payload["link"])
