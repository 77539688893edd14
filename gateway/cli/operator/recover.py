"""`tollhouse spool recover`: brings a damaged data directory into order while no server runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gateway.cli import config_option, configured, data_option, fail
from gateway.configuration.sections import Config
from spool.clock import SystemClock
from spool.errors import SpoolError


@click.command()
@config_option
@data_option
@click.option(
    "--new-registry",
    is_flag=True,
    help="Begin a new registry.sqlite if it is damaged or missing: keys and operators must then be created anew.",
)
def recover(config: Path | None, data: Path | None, new_registry: bool) -> None:
    """Open the data directory without a server, salvaging what is damaged."""
    settings = configured(config, {"data_dir": str(data.absolute()) if data else None})
    if not settings.data_dir.exists():
        fail(f"{settings.data_dir} does not exist", 2)
    try:
        problem = asyncio.run(_open(settings, new_registry=new_registry))
    except (SpoolError, OSError) as error:
        fail(str(error))
    if problem:
        fail(problem)
    click.echo("the data directory can be opened")


async def _open(config: Config, *, new_registry: bool) -> str:
    """What is wrong with the registry, or ""."""
    from gateway.assembly import open_storage

    async with open_storage(config, clock=SystemClock(), new_registry=new_registry) as storage:
        return storage.registry_problem
