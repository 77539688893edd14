"""`tollhouse console`: sign in to the console without an account."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from gateway.cli.account_roles import AccountRole
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json
from gateway.mounts import CONSOLE, console_link

SECRET = console_link("", "")  # what stands between the address and the secret


def _address(ctx: click.Context, param: click.Parameter, url: str | None) -> str | None:
    """Check the console's own address: a person's ends with the port or with the path of a proxy."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        is_usable = False
    if not is_usable or parts.query or parts.fragment:
        raise click.BadParameter(f"{url!r} is not an address such as http://127.0.0.1:4319")
    return f"{url.rstrip('/').removesuffix(CONSOLE)}{CONSOLE}/"


@click.group()
def console() -> None:
    """Open the operator console."""


@console.command()
@click.option(
    "--role", type=AccountRole(), default="Organizer", show_default=True, help="Member, Operator or Organizer"
)
@click.option(
    "--public",
    metavar="URL",
    callback=_address,
    help="Where a browser finds the console, such as http://127.0.0.1:4319 of a container; default: its own address.",
)
@as_json
@with_client
def link(client: OperatorClient, role: str, public: str | None, as_json: bool) -> None:
    """Print a link that signs in once, within ten minutes."""
    payload = client.request("POST", "/console-links", body={"role": role})
    if public is not None:
        _, _, secret = payload["link"].partition(SECRET)
        payload["link"] = console_link(public, secret)
    show_json(payload) if as_json else click.echo(payload["link"])
