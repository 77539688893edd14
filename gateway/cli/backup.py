"""`tollhouse backup` and `tollhouse restore`: a copy of all data, and a data directory made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from gateway.cli import config_option, data_option, exit_because_of, load_config_or_exit
from gateway.cli.data_directory import require_named_data_directory
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import as_json, show_json
from gateway.configuration.local_operator import local_address
from gateway.configuration.sections import Config
from gateway.devices import states
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import RouteState
from spool.erasing import erase_from_storage, overwrite_deleted_data
from spool.erasure import MAX_FILE_BYTES, Erasure, read_erasures
from spool.errors import NotAllowed, SpoolError
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.storage import Storage
from spool.transfer import backups
from spool.transfer.backups import Manifest

RESEND, HOLD = "resend", "hold"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@as_json
@with_client
def backup(client: OperatorClient, directory: Path, as_json: bool) -> None:
    """
    Back up all data into a new directory.

    DIRECTORY must not exist yet. If the server is running, it writes the backup itself, so its user needs
    write access. The backup contains the installation's secret, so protect it as well as the data itself.
    """
    payload = client.request("POST", "/backup", body={"directory": str(directory.absolute())})
    if as_json:
        show_json(payload)
        return
    result = payload["backup"]
    click.echo(f"backed up to {result['directory']}: {result['bytes']:,} bytes, as of {result['made_at']}")


@click.command()
@click.argument("backup", type=click.Path(path_type=Path, file_okay=False, exists=True))
@data_option
@config_option
@click.option(
    "--queued",
    type=click.Choice([RESEND, HOLD]),
    help=(
        "Treatment of records that were waiting to be sent. resend: send them. hold: keep them until you "
        "decide for each delivery."
    ),
)
@click.option(
    "--erasures",
    type=click.File("rb"),
    metavar="FILE",
    help="Erase people again: a file of `tollhouse people erasures` that is newer than the backup.",
)
@click.option("--no-erasures", is_flag=True, help="State that nobody was erased after the backup was made.")
def restore(
    backup: Path,
    data: Path | None,
    config: Path | None,
    queued: str | None,
    erasures: BinaryIO | None,
    no_erasures: bool,
) -> None:
    """
    Restore BACKUP into an empty data directory. No server may use it meanwhile.

    A backup has the names of people who were erased later. So --erasures or --no-erasures is required.

    The original installation may have sent waiting records after the backup was made. If records were
    waiting, --queued is required. Use `resend` if nothing was sent since, or if the receiver recognizes
    duplicates. Otherwise use `hold`.
    """
    require_named_data_directory(config, data)
    if (erasures is None) != no_erasures:
        raise click.UsageError("use either --erasures FILE or --no-erasures")
    settings = load_config_or_exit(config, {"data_dir": str(data.absolute()) if data else None})
    try:
        later = [] if erasures is None else read_erasures(erasures.read(MAX_FILE_BYTES + 1))
        asyncio.run(_restore_backup(backup, settings, queued, later))
    except (SpoolError, OSError) as error:
        exit_because_of(error)


async def _restore_backup(backup: Path, config: Config, queued: str | None, later: Sequence[Erasure]) -> None:
    from gateway.service.assembly.storage import open_storage

    # systemd's StateDirectory is a link, which no directory can replace
    directory = config.data_dir.resolve()
    manifest = await asyncio.to_thread(backups.read_checked_manifest, backup)
    draft = await asyncio.to_thread(backups.unpack_backup, backup, manifest, directory)
    try:
        async with open_storage(replace(config, data_dir=draft), clock=SystemClock()) as storage:
            if storage.registry is None:
                raise SpoolError(storage.registry_problem)
            routes = [route for route in await storage.deliveries.route_states() if route.queued]
            if routes and queued is None:
                raise NotAllowed(_explain_queued_choice(routes, manifest))
            reason = f"restored from a backup of {manifest.made_at}: may have been sent since"
            await storage.deliveries.reopen_after_restore(
                unknown_outcome_reason=reason if queued == HOLD else None
            )
            await storage.small.open_table(LANDINGS).begin_log_edition()
            actor = Actor(local_address(config), "command line")
            after = {"backup": str(backup.absolute()), "made_at": manifest.made_at, "queued": queued}
            await storage.registry.audit_change(actor, "restore", "data", after=after)
            count = await _repeat_later_erasures(storage, storage.registry, later, actor)
        backups.flush_and_rename_draft(draft, directory)
    except BaseException:
        backups.delete_draft(draft)
        raise
    click.echo(f"restored {directory} as of {manifest.made_at}")
    if later:
        click.echo(f"{count} people who were erased after the backup were erased again")
    for line in _describe_queued_records(routes, queued):
        click.echo(line)


async def _repeat_later_erasures(
    storage: Storage, registry: Registry, later: Sequence[Erasure], actor: Actor
) -> int:
    known = {erasure.id for erasure in registry.persons.erasures}
    missing = sorted((each for each in later if each.id not in known), key=lambda each: each.at)
    for erasure in missing:
        await erase_from_storage(
            storage, erasure, revoke_device=states.device_revoker(""), actor=actor, overwrites_remains=False
        )
    if missing:
        await overwrite_deleted_data(storage)
    return len(missing)


def _explain_queued_choice(routes: Sequence[RouteState], manifest: Manifest) -> str:
    shown = "\n".join(f"  {route.name}: {route.queued} records" for route in routes)
    return (
        f"these records were waiting at {manifest.made_at} and may have been sent since:\n{shown}\n"
        "nothing was restored. Run the command again with --queued resend if they were not sent, or "
        "if the receiver recognizes duplicates. Otherwise use --queued hold, and decide for each "
        "delivery with `tollhouse streams list --unknown` and `tollhouse streams resolve`"
    )


def _describe_queued_records(routes: Sequence[RouteState], queued: str | None) -> list[str]:
    fate = "will be sent; those that may already have been sent keep their idempotency keys (ambiguous)"
    if queued == HOLD:
        fate = "are held back; list them with `tollhouse streams list --unknown`"
    return [f"{route.name}: {route.queued} records {fate}" for route in routes]
