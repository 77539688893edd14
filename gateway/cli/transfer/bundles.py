"""
`tollhouse spool export` and `import`: an undelivered backlog as a sealed file, for another installation to send.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json

bundle_argument = click.argument("bundle", type=click.Path(path_type=Path, dir_okay=False))
key_option: Callable[[Any], Any] = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The key that seals the bundle, at least 12 characters; without it a passphrase is asked for.",
)


@click.command("export")
@bundle_argument
@click.option(
    "--route", "routes", multiple=True, metavar="NAME", help="A route to hand over; default: all that wait."
)
@click.option(
    "--ambiguous", is_flag=True, help="Also what may have been delivered already: it may count twice."
)
@key_option
@as_json
@with_client
def export_bundle(
    client: OperatorClient,
    bundle: Path,
    routes: tuple[str, ...],
    ambiguous: bool,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """
    Put what waits into BUNDLE, and send it from here no more.

    The bundle is sealed with a key and not encrypted: carry it like the data. `tollhouse spool import` brings
    it into another data directory, which sends it.
    """
    body = {
        "file": str(bundle.absolute()),
        "key": _key(key_file, confirm=True),
        "routes": list(routes),
        "ambiguous": ambiguous,
    }
    payload = client.request("POST", "/bundles/export", body=body)
    if as_json:
        show_json(payload)
        return
    done = payload["export"]
    click.echo(
        f"{done['records']} records of {', '.join(done['routes']) or 'no route'} are in {done['file']}"
    )
    if done["damaged"]:
        click.echo(f"{done['damaged']} records cannot be read and are counted as damaged", err=True)
    for route, count in done["left"].items():
        click.echo(
            f"{route}: {count} records stay: open, being sent, or perhaps delivered (--ambiguous)", err=True
        )


@click.command("import")
@bundle_argument
@key_option
@as_json
@with_client
def import_bundle(client: OperatorClient, bundle: Path, key_file: Path | None, as_json: bool) -> None:
    """Bring the records of BUNDLE into this data directory, which sends them; repeating it brings nothing twice."""
    body = {"file": str(bundle.absolute()), "key": _key(key_file, confirm=False)}
    payload = client.request("POST", "/bundles/import", body=body)
    if as_json:
        show_json(payload)
        return
    done = payload["import"]
    click.echo(f"{done['added']} records were added, {done['known']} were known")


def _key(file: Path | None, *, confirm: bool) -> str:
    if file is None:
        passphrase: str = click.prompt(
            "Passphrase of the bundle", hide_input=True, confirmation_prompt=confirm
        )
        return passphrase
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file} cannot be read as text: {error}", 2)
