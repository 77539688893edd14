"""
`tollhouse backup`: a copy of everything that is kept, while the server runs or not. `tollhouse restore`: a data
directory from it, without counting twice what was sent since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gateway.cli import config_option, configured, data_option, fail
from gateway.cli.data_directory import need_named_data
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json
from gateway.service.configuration.local_operator import local_address
from gateway.service.configuration.sections import Config
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import RouteState
from spool.errors import NotAllowed, SpoolError
from spool.registry.operators import Actor
from spool.transfer import backups
from spool.transfer.backups import Manifest

RESEND, HOLD = "resend", "hold"


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


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, file_okay=False, exists=True))
@data_option
@config_option
@click.option(
    "--queued",
    type=click.Choice([RESEND, HOLD]),
    help="What becomes of records that waited: sent by this installation, or held back until you say which arrived.",
)
def restore(backup: Path, data: Path | None, config: Path | None, queued: str | None) -> None:
    """
    Restore BACKUP into an empty data directory, which no server may use meanwhile.

    What waited at the time of the backup may have been sent since, by the installation that it is of. Then
    --queued is needed: `resend` if nothing was, or if whatever receives it knows repeats; `hold` otherwise.
    """
    need_named_data(config, data)
    settings = configured(config, {"data_dir": str(data.absolute()) if data else None})
    try:
        asyncio.run(_restore(backup, settings, queued))
    except NotAllowed as error:
        fail(str(error), 2)
    except (SpoolError, OSError) as error:
        fail(str(error))


async def _restore(backup: Path, config: Config, queued: str | None) -> None:
    from gateway.service.assembly.storage import open_storage

    directory = config.data_dir
    manifest = await asyncio.to_thread(backups.check, backup)
    draft = await asyncio.to_thread(backups.unpack, backup, manifest, directory)
    try:
        async with open_storage(replace(config, data_dir=draft), clock=SystemClock()) as storage:
            if storage.registry is None:
                raise SpoolError(storage.registry_problem)
            routes = [route for route in await storage.deliveries.routes() if route.queued]
            if routes and queued is None:
                raise NotAllowed(_question(routes, manifest))
            reason = f"of a backup of {manifest.made_at}: it may have been sent since"
            await storage.deliveries.reopen_restored(hold_back=reason if queued == HOLD else None)
            await storage.small.of(LANDINGS).begin_edition()
            actor = Actor(local_address(config), "command line")
            after = {"backup": str(backup.absolute()), "made_at": manifest.made_at, "queued": queued}
            await storage.registry.note(actor, "restore", "data", after=after)
        backups.put_in_place(draft, directory)
    except BaseException:
        backups.discard(draft)
        raise
    click.echo(f"restored {directory} as of {manifest.made_at}")
    for line in _told(routes, queued):
        click.echo(line)


def _question(routes: Sequence[RouteState], manifest: Manifest) -> str:
    shown = "\n".join(f"  {route.name}: {route.queued} records" for route in routes)
    return (
        f"these waited at {manifest.made_at}, and may have been sent since:\n{shown}\n"
        "nothing was restored: repeat it with --queued resend if they were not, or if the receiver knows "
        "repeats; with "
        "--queued hold to settle them by hand (tollhouse streams list --unknown, tollhouse streams resolve)"
    )


def _told(routes: Sequence[RouteState], queued: str | None) -> list[str]:
    fate = "will be sent; deliveries that were cut keep their keys (ambiguous)"
    if queued == HOLD:
        fate = "are held back: tollhouse streams list --unknown"
    return [f"{route.name}: {route.queued} records {fate}" for route in routes]
