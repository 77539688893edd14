"""`tollhouse configuration` and `tollhouse reload`: the settings in effect, and taking them over again."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import PageRequest, paged, show_page
from gateway.cli.output import as_json, show_json
from gateway.service.configuration.in_effect import SOURCES

COLUMNS = ("name", "value", "source")


@click.command()
@click.option("--section", multiple=True, help="Such as server or spool; may repeat.")
@click.option("--name", multiple=True, help="Such as spool.hold; may repeat.")
@click.option("--source", multiple=True, help=f"{', '.join(SOURCES)}; may repeat.")
@paged
@with_client
def configuration(client: OperatorClient, page: PageRequest, **filters: tuple[str, ...]) -> None:
    """
    List the settings in effect, and where each comes from.

    Of a running server those that it uses, as far as it has taken them over. No secret is shown: of headers
    the names, of addresses the host alone.
    """
    show_page(client, page, "configuration", COLUMNS, filters)


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
