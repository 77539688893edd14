"""`tollhouse version`: what to put into a bug report."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

import click

from spool.engines import engine_of
from spool.settings import SQLITE


@click.command()
def version() -> None:
    """Print the versions of Tollhouse, Python and SQLite."""
    click.echo(f"tollhouse {installed('tollhouse')}")
    click.echo(f"python {platform.python_version()}")
    click.echo(engine_of(SQLITE).version())
