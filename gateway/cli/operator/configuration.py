"""`tollhouse configuration`: the settings in effect and where each comes from."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.lists import PageRequest, paged, show_page
from gateway.configuration.in_effect import SOURCES

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
