"""`tollhouse lake`: looks at what destinations have written into your own store."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gateway.cli import config_option, configured, fail
from gateway.cli.output import show_fields, show_json

if TYPE_CHECKING:
    from exporters.lake.stores import Store
    from exporters.lake.verification import VerifiedLake
    from exporters.settings import DestinationSettings

T = TypeVar("T")
_SHOWN = 100  # differences, without --json
destination_option = click.option(
    "--destination", "name", help="The destination, if the configuration has several that are a lake."
)


@click.group()
def lake() -> None:
    """Look at what destinations of type s3, gcs, azure and file have written, with or without a server."""


@lake.command()
@config_option
@destination_option
@click.option("--footers", "level", flag_value="footers", help="Also read the end of every file.")
@click.option("--data", "level", flag_value="data", help="Also read every byte, and add every sum again.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def verify(config: Path | None, name: str | None, level: str | None, as_json: bool) -> None:
    """
    Compare the files of a lake with its manifests; exit code 1 if they differ.

    A file may be missing, have another size or content, or be one that no manifest names; numbers may be missing
    or be there twice.
    """
    found = _done(_verify(_settings(config, name), level or "listing"))
    differences = [each._asdict() for each in found.differences]
    fields = {**asdict(found), "differences": differences}
    if as_json:
        show_json(fields)
    else:
        show_fields({**fields, "differences": len(differences)})
        for each in found.differences[:_SHOWN]:
            click.echo(f"{each.kind}: {each.name}: {each.words}")
    if differences:
        fail("the lake differs from its manifests")


@lake.command("manifest")
@config_option
@destination_option
@click.option("--month", help="Only deliveries that have records of a month, such as 2026-10.")
def manifest_(config: Path | None, name: str | None, month: str | None) -> None:
    """Print the manifests of a lake as one JSON list."""
    show_json(_done(_manifests(_settings(config, name), month or "")))


@lake.command()
@config_option
@destination_option
def sql(config: Path | None, name: str | None) -> None:
    """Print views over a lake for DuckDB."""
    from exporters.lake.views import duckdb_views

    click.echo(duckdb_views(_settings(config, name)), nl=False)


def _settings(config: Path | None, name: str | None) -> DestinationSettings:
    """The destination that is named, or the only one that is a lake."""
    from exporters.destinations.catalogue import TYPES

    lakes = [each for each in configured(config).destinations if TYPES[each.type].build_lake is not None]
    wanted = [each for each in lakes if name in (None, each.name)]
    if len(wanted) != 1:
        names = ", ".join(each.name for each in lakes) or "none: see docs/lake.md"
        fail(f"name one destination that is a lake with --destination; the configuration has {names}", 2)
    return wanted[0]


def _store(settings: DestinationSettings) -> Store:
    from exporters.destinations.catalogue import secret_of
    from exporters.lake.destination import store_of

    return store_of(settings, secret_of(settings))


async def _verify(settings: DestinationSettings, level: str) -> VerifiedLake:
    from exporters.lake.verification import verify

    with tempfile.TemporaryDirectory(prefix="tollhouse-") as scratch:
        return await verify(_store(settings), settings.name, level=level, scratch=Path(scratch))


async def _manifests(settings: DestinationSettings, month: str) -> list[Any]:
    import msgspec

    from exporters.lake.verification import ReadManifest, read_manifests

    with tempfile.TemporaryDirectory(prefix="tollhouse-") as scratch:
        return [
            msgspec.to_builtins(found.body)
            async for found in read_manifests(_store(settings), settings.name, Path(scratch))
            if isinstance(found, ReadManifest)
            and (not month or any(file.date.startswith(month) for file in found.body.files))
        ]


def _done(work: Coroutine[Any, Any, T]) -> T:
    from exporters.errors import SendError

    try:
        return asyncio.run(work)
    except (SendError, ValueError, OSError) as error:
        fail(str(error))
