"""`tollhouse reload`: a running server takes its configuration over as it is now."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json


@click.command()
@as_json
@with_client
def reload(client: OperatorClient, as_json: bool) -> None:
    """
    Let the running server read its configuration, keys, prices and certificates again.

    No request is refused meanwhile. A configuration with problems changes nothing: they are printed, exit 2. A secret
    that cannot be used is named: what it is for waits.
    """
    payload = client.request("POST", "/reload", body={})
    if as_json:
        show_json(payload)
        return
    done = payload["reload"]
    for name in done["changed"]:
        click.echo(f"changed: {name}")
    for name in done["needs_restart"]:
        click.echo(f"needs a restart: {name}")
    if not done["changed"] and not done["needs_restart"]:
        click.echo("nothing has changed")
    for problem in done["problems"]:
        click.echo(f"but {problem}", err=True)
