"""`tollhouse storage`: the storage that several gateways share, while any of them runs or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click

from gateway.cli import config_option, configured, fail
from gateway.cli.data_directory import need_data, need_named_data
from gateway.cli.output import show_fields, show_json
from gateway.service.configuration.sections import Config
from gateway.service.configuration.values import read_quantity, written
from spool.clock import SystemClock
from spool.engines import SQLITE, engine_of
from spool.errors import NotAllowed, SpoolError, SpoolFromTheFuture
from spool.record import moment
from spool.settings import SHARED, SpoolSettings, StorageSettings
from spool.storage import Administration, Engine, StorageOptions

if TYPE_CHECKING:
    from spool.transfer.copying import CopiedStorage

T = TypeVar("T")
_KINDS = get_type_hints(SpoolSettings, include_extras=True)
TELL_S = 2.0  # between two lines that say how far a copy is
as_json = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@click.group()
def storage() -> None:
    """Make, upgrade, describe and set up a PostgreSQL that several gateways share."""


@storage.command()
@config_option
@as_json
def init(config: Path | None, as_json: bool) -> None:
    """
    Make the installation's secret and the tables where they are not there yet.

    Copy `storage.secret_file` to every other node then. What is there already stays as it is.
    """
    settings = configured(config)
    _show(_done(settings, lambda shared: shared.make(settings.storage, settings.spool)), as_json)


@storage.command()
@config_option
@as_json
def migrate(config: Path | None, as_json: bool) -> None:
    """
    Bring the tables to the version of this Tollhouse; nodes of the version before go on.

    The first node of a new version that starts does the same.
    """
    settings = configured(config)
    _show(_done(settings, lambda shared: shared.bring_up_to_date(settings.storage)), as_json)


@storage.command()
@config_option
@as_json
def status(config: Path | None, as_json: bool) -> None:
    """Describe the storage: its versions, its standby and its settings. Exit code 1 if nothing can be kept."""
    settings = configured(config)
    found = dict(_done(settings, lambda shared: shared.status(settings.storage)))
    _show(found if as_json else {**found, "settings": _describe(found["settings"])}, as_json)
    if found["problem"]:
        fail(str(found["problem"]))


@storage.command("set")
@config_option
@as_json
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
def set_(config: Path | None, as_json: bool, changes: tuple[str, ...]) -> None:
    """
    Change settings of [spool] that all nodes share: hold, duplicate_window, duplicate_ids and retention.

    Each node takes them at its next start, such as `tollhouse storage set retention=3d`.
    """
    settings = configured(config)
    values = dict(map(_read, changes))
    after = _done(settings, lambda shared: shared.change(settings.storage, values))
    _show(after if as_json else _describe(after), as_json)


@storage.command()
@click.option(
    "--from",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data directory to copy, with no server on it.",
)
@click.option(
    "--from-config",
    "source_config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="In place of --from: the configuration of the storage to copy, with all its gateways stopped.",
)
@click.option(
    "--to-config",
    "config",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration of the new storage, which must be empty.",
)
@as_json
def copy(directory: Path | None, source_config: Path | None, config: Path, as_json: bool) -> None:
    """
    Copy all that is kept into an empty storage: from files to PostgreSQL, back, or between two of a kind.

    Numbers, receipts, known calls, keys, open deliveries, container files and sums stay as they are, and the
    books of both are compared: unless they are equal the copy is taken away again. The source stays as it
    was. A copy that was cut off is used by no server; the same command begins it again.
    """
    from spool.transfer.copying import copy_storage

    if (directory is None) == (source_config is None):
        fail("give --from or --from-config: what to copy", 2)
    target = _storage_of(config)
    if directory is None:
        need_data(configured(source_config), source_config)
        source = _storage_of(source_config)
    else:
        source = replace(target[0], directory=directory, storage=StorageSettings()), engine_of(SQLITE)
    _show_copied(_run(copy_storage(*source, *target, _Progress().tell)), as_json)


@storage.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@as_json
def export(file: Path, config: Path | None, as_json: bool) -> None:
    """
    Write all that is kept into FILE, with no server on the storage; `tollhouse storage import` makes a
    storage of it.

    Of files or of a PostgreSQL. FILE has the installation's secret in it and is worth as much care as the data.
    """
    from spool.transfer.archives import export_archive

    need_data(configured(config), config)
    done = _run(
        export_archive(
            *_storage_of(config),
            file.absolute(),
            version=version("tollhouse"),
            made_at=moment(time.time()),
            progress=_Progress().tell,
        )
    )
    _show_copied(done.books, as_json)


@storage.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@as_json
def import_(file: Path, config: Path | None, as_json: bool) -> None:
    """
    Make a storage of what `tollhouse storage export` wrote into FILE: a new data directory, or an empty PostgreSQL.

    It counts only when its books are those of the file; an import that was cut off is begun again by
    the same command.
    """
    from spool.transfer.archives import import_archive

    need_named_data(config, None)
    _show_copied(_run(import_archive(file.absolute(), *_storage_of(config), _Progress().tell)), as_json)


def _storage_of(config: Path | None) -> tuple[StorageOptions, Engine]:
    """The storage that a configuration names, and its engine."""
    from gateway.service.assembly.storage import options_of

    settings = configured(config)
    return options_of(settings, clock=SystemClock()), engine_of(settings.storage.engine)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except (NotAllowed, SpoolFromTheFuture) as error:
        fail(str(error), 2)
    except SpoolError as error:
        fail(str(error))


def _show_copied(done: CopiedStorage, as_json: bool) -> None:
    records = {topic: terms.get("accepted", 0) for topic, terms in done.topics.items()}
    _show(
        {"records": records, "routes": len(done.routes)}
        if as_json
        else {**records, "routes": len(done.routes)},
        as_json,
    )


class _Progress:
    """Says on standard error, at most once in a while, what is at hand. Told from several threads."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()

    def tell(self, what: str, rows: int) -> None:
        now = time.monotonic()
        if now >= self._told_at + TELL_S:
            self._told_at = now
            click.echo(f"{what}: {rows:,} rows" if rows else what, err=True)


def _done(
    settings: Config, ask: Callable[[Administration], Awaitable[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    shared = engine_of(settings.storage.engine).administration
    if shared is None:
        fail(
            'storage.engine is "sqlite": its files belong to one node, and a start of the server makes them',
            2,
        )

    async def asked() -> Mapping[str, Any]:
        return await ask(shared)

    return _run(asked())


def _read(change: str) -> tuple[str, float]:
    name, _, text = change.partition("=")
    if name not in SHARED:
        fail(f"{name} is none of the settings that nodes share: {', '.join(SHARED)}", 2)
    kind = _KINDS[name]
    value = float(text) if kind is int and text.isdecimal() and text.isascii() else None
    value = value if kind is int else read_quantity(kind, text)
    least = next(field.metadata["setting"].least for field in fields(SpoolSettings) if field.name == name)
    if value is None or value < (least or 0):
        fail(f"{change}: write it as {name}={written(kind, getattr(SpoolSettings(), name))}", 2)
    return name, int(value) if kind is int else value


def _describe(settings: Mapping[str, float]) -> dict[str, str]:
    return {name: written(_KINDS[name], value) for name, value in settings.items()}


def _show(found: Mapping[str, Any], as_json: bool) -> None:
    show_json(found) if as_json else show_fields(found)
