"""`tollhouse spool recover`: brings a damaged data directory into order while no server runs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli import config_option, data_option, fail
from gateway.cli.data_directory import installation
from gateway.cli.output import show_fields
from gateway.configuration.sections import Config
from spool import engines
from spool.clock import SystemClock
from spool.errors import NotAllowed, SpoolError

if TYPE_CHECKING:
    from spool.storage import Recovered


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@config_option
@data_option
@click.option(
    "--new-registry",
    is_flag=True,
    help="Begin a new registry.sqlite if it is damaged or missing: keys and operators must then be created anew.",
)
def recover(file: Path | None, config: Path | None, data: Path | None, new_registry: bool) -> None:
    """
    Bring a damaged data directory into order while no server runs.

    Opening it salvages what is damaged. With FILE, a spool.sqlite that was moved aside or saved elsewhere, every
    record of it that the log does not have is brought into the log. It may be repeated: no record comes twice.
    """
    settings = installation(config, data)
    try:
        if file is not None:
            _show(asyncio.run(_recover(settings, file)))
        problem = asyncio.run(_open(settings, new_registry=new_registry))
    except NotAllowed as error:
        fail(str(error), 2)
    except (SpoolError, OSError) as error:
        fail(str(error))
    if problem:
        fail(problem)
    click.echo("the data directory can be opened")


def _show(found: Recovered) -> None:
    show_fields(asdict(found))
    if found.added:
        click.echo("the ledger may have counted some of them before: tollhouse ledger rebuild counts anew")


async def _recover(config: Config, file: Path) -> Recovered:
    from spool.storage import StorageOptions

    options = StorageOptions(directory=config.data_dir, settings=config.spool, clock=SystemClock())
    return await engines.recover(options, file)


async def _open(config: Config, *, new_registry: bool) -> str:
    """Open the storage; return the problem of the registry, or ""."""
    from gateway.assembly.storage import open_storage

    async with open_storage(config, clock=SystemClock(), new_registry=new_registry) as storage:
        return storage.registry_problem
