"""`tollhouse configuration` and `tollhouse reload`: the settings in effect, and how to load them again."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import PageRequest, fetch_and_show_page, with_page_options
from gateway.cli.output import as_json, show_json
from gateway.configuration.settings_in_effect import SOURCES

COLUMNS = ("name", "value", "source")


@click.command()
@click.option("--section", multiple=True, help="Filter by section, such as server or spool; may repeat.")
@click.option("--name", multiple=True, help="Filter by setting, such as spool.hold; may repeat.")
@click.option("--source", multiple=True, help=f"Filter by source: {', '.join(SOURCES)}; may repeat.")
@with_page_options
@with_client
def configuration(client: OperatorClient, page: PageRequest, **filters: tuple[str, ...]) -> None:
    """
    List the settings in effect, and where each comes from.

    If a server is running, lists the values that it uses now. Secrets are never shown: headers show only
    their names, addresses only their host.
    """
    fetch_and_show_page(client, page, "configuration", COLUMNS, filters)


@click.command()
@as_json
@with_client
def reload(client: OperatorClient, as_json: bool) -> None:
    """
    Reload configuration, keys, prices and certificates.

    Requests continue meanwhile. If the new configuration has problems, nothing changes, and the command prints
    them and exits with code 2. A secret that cannot be used is reported; the connection that needs it waits.
    """
    payload = client.request("POST", "/reload", body={})
    if as_json:
        show_json(payload)
        return
    result = payload["reload"]
    for name in result["changed"]:
        click.echo(f"changed: {name}")
    for name in result["needs_restart"]:
        click.echo(f"needs a restart: {name}")
    if not result["changed"] and not result["needs_restart"]:
        click.echo("nothing has changed")
    for problem in result["problems"]:
        click.echo(f"but {problem}", err=True)
