"""`tollhouse backup`: a copy of everything that is kept, while the server runs or not."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@as_json
@with_client
def backup(client: OperatorClient, directory: Path, as_json: bool) -> None:
    """
    Back everything up into DIRECTORY, which must not exist yet; a running server goes on.

    The backup holds the installation's secret and is worth as much care as the data. The server writes it, so
    its user must be allowed to.
    """
    payload = client.request("POST", "/backup", body={"directory": str(directory.absolute())})
    if as_json:
        show_json(payload)
        return
    made = payload["backup"]
    click.echo(f"backed up to {made['directory']}: {made['bytes']:,} bytes, as of {made['made_at']}")
