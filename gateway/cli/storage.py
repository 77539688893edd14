"""`tollhouse storage`: the database that several gateways share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click

from gateway.cli import config_option, exit_because_of, exit_with_message, load_config_or_exit
from gateway.cli.data_directory import require_data_directory, require_named_data_directory
from gateway.cli.output import show_fields, show_json
from gateway.configuration.sections import Config
from gateway.configuration.values import format_quantity, parse_quantity
from spool.clock import SystemClock
from spool.engines import SQLITE, load_engine
from spool.errors import SpoolError
from spool.record import utc_iso
from spool.settings import SHARED, SpoolSettings, StorageSettings
from spool.storage import Administration, StorageEngine, StorageOptions

if TYPE_CHECKING:
    from spool.transfer.copying import CopiedStorage

T = TypeVar("T")
_KINDS = get_type_hints(SpoolSettings, include_extras=True)
PROGRESS_INTERVAL_S = 2.0
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def storage() -> None:
    """
    Set up, upgrade, inspect and copy the storage.

    Most commands are for PostgreSQL, which several gateways can share. copy, export and import also
    work with files.
    """


@storage.command("init")
@config_option
@as_json
def initialize_storage(config: Path | None, as_json: bool) -> None:
    """
    Create the installation's secret and the tables in PostgreSQL.

    Existing tables and an existing secret stay unchanged. Afterwards copy the file `storage.secret_file` to
    every other node.
    """
    settings = load_config_or_exit(config)
    _show_result(
        _run_administration_task(settings, lambda shared: shared.make(settings.storage, settings.spool)),
        as_json,
    )


@storage.command("migrate")
@config_option
@as_json
def migrate_storage(config: Path | None, as_json: bool) -> None:
    """
    Upgrade the tables to this version of Tollhouse.

    Nodes of the previous version keep working. The first node of a new version that starts does the same upgrade.
    """
    settings = load_config_or_exit(config)
    _show_result(
        _run_administration_task(settings, lambda shared: shared.bring_up_to_date(settings.storage)), as_json
    )


@storage.command("status")
@config_option
@as_json
def show_storage_status(config: Path | None, as_json: bool) -> None:
    """
    Show the versions, the standby and the shared settings of the storage. Exit code 1 if it cannot store records.
    """
    settings = load_config_or_exit(config)
    storage_status = dict(_run_administration_task(settings, lambda shared: shared.status(settings.storage)))
    _show_result(
        storage_status
        if as_json
        else {**storage_status, "settings": _format_settings(storage_status["settings"])},
        as_json,
    )
    if storage_status["problem"]:
        exit_with_message(str(storage_status["problem"]))


@storage.command("set")
@config_option
@as_json
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
def change_shared_settings(config: Path | None, as_json: bool, changes: tuple[str, ...]) -> None:
    """
    Change settings that all nodes share, such as `tollhouse storage set retention=3d`.

    The settings are hold, duplicate_window, duplicate_ids and retention of [spool]. Each node uses the new
    values from its next start.
    """
    settings = load_config_or_exit(config)
    values = dict(map(_parse_shared_setting, changes))
    after = _run_administration_task(settings, lambda shared: shared.change(settings.storage, values))
    _show_result(after if as_json else _format_settings(after), as_json)


@storage.command("copy")
@click.option(
    "--from",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory to copy. Stop its server first.",
)
@click.option(
    "--from-config",
    "source_config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead of --from: configuration of the storage to copy. Stop all its gateways first.",
)
@click.option(
    "--to-config",
    "config",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration of the new storage, which must be empty.",
)
@as_json
def copy_storage(directory: Path | None, source_config: Path | None, config: Path, as_json: bool) -> None:
    """
    Copy all data into an empty storage, such as from files to PostgreSQL or back.

    The copy has the same record numbers, receipts, dedup keys, API keys, open deliveries, container files and
    totals. The command then compares the accounting of both. If they differ, it deletes the copy. The source is
    not changed. No server starts on an unfinished copy; run the same command again to restart the copy.
    """
    from spool.transfer.copying import copy_storage

    if (directory is None) == (source_config is None):
        exit_with_message("use either --from or --from-config to name what to copy", 2)
    target = _storage_and_engine(config)
    if directory is None:
        require_data_directory(load_config_or_exit(source_config), source_config)
        source = _storage_and_engine(source_config)
    else:
        source = replace(target[0], directory=directory, storage=StorageSettings()), load_engine(SQLITE)
    _show_copied_storage(
        _run_or_exit(copy_storage(*source, *target, _ProgressPrinter().print_progress)), as_json
    )


@storage.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@as_json
def export_storage(file: Path, config: Path | None, as_json: bool) -> None:
    """
    Write all data of a storage into FILE. Stop its servers first.

    Works for a data directory and for PostgreSQL. `tollhouse storage import` restores FILE. FILE contains the
    installation's secret, so protect it as well as the data itself.
    """
    from spool.transfer.archives import export_archive

    require_data_directory(load_config_or_exit(config), config)
    result = _run_or_exit(
        export_archive(
            *_storage_and_engine(config),
            file.absolute(),
            version=version("tollhouse"),
            made_at=utc_iso(time.time()),
            progress=_ProgressPrinter().print_progress,
        )
    )
    _show_copied_storage(result.books, as_json)


@storage.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@as_json
def import_storage(file: Path, config: Path | None, as_json: bool) -> None:
    """
    Create a storage from FILE, which `tollhouse storage export` wrote.

    The target is a new data directory or an empty PostgreSQL. It is usable only if its accounting equals that
    in the file. If the import was interrupted, run the same command again.
    """
    from spool.transfer.archives import import_archive

    require_named_data_directory(config, None)
    _show_copied_storage(
        _run_or_exit(
            import_archive(file.absolute(), *_storage_and_engine(config), _ProgressPrinter().print_progress)
        ),
        as_json,
    )


def _storage_and_engine(config: Path | None) -> tuple[StorageOptions, StorageEngine]:
    from gateway.service.assembly.storage import storage_options

    settings = load_config_or_exit(config)
    return storage_options(settings, clock=SystemClock()), load_engine(settings.storage.engine)


def _run_or_exit(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except SpoolError as error:
        exit_because_of(error)


def _show_copied_storage(copied_storage: CopiedStorage, as_json: bool) -> None:
    records = {topic: terms.get("accepted", 0) for topic, terms in copied_storage.topics.items()}
    _show_result(
        {"records": records, "routes": len(copied_storage.routes)}
        if as_json
        else {**records, "routes": len(copied_storage.routes)},
        as_json,
    )


class _ProgressPrinter:
    """
    Progress messages on standard error, at most one every PROGRESS_INTERVAL_S. Safe to call from several threads.
    """

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    def print_progress(self, step: str, rows: int) -> None:
        now = time.monotonic()
        if now >= self._printed_at + PROGRESS_INTERVAL_S:
            self._printed_at = now
            click.echo(f"{step}: {rows:,} rows" if rows else step, err=True)


def _run_administration_task(
    settings: Config, ask: Callable[[Administration], Awaitable[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    shared = load_engine(settings.storage.engine).administration
    if shared is None:
        exit_with_message(
            'storage.engine is "sqlite": its files belong to one node and are created when the '
            "server starts, so this command does not apply",
            2,
        )

    async def run_administration() -> Mapping[str, Any]:
        return await ask(shared)

    return _run_or_exit(run_administration())


def _parse_shared_setting(change: str) -> tuple[str, float]:
    name, _, text = change.partition("=")
    if name not in SHARED:
        exit_with_message(f"{name} is not a setting that nodes share; use one of {', '.join(SHARED)}", 2)
    kind = _KINDS[name]
    value = float(text) if kind is int and text.isdecimal() and text.isascii() else None
    value = value if kind is int else parse_quantity(kind, text)
    least = next(field.metadata["setting"].least for field in fields(SpoolSettings) if field.name == name)
    if value is None or value < (least or 0):
        exit_with_message(
            (
                f"{change} is not valid: write, for example, "
                f"{name}={format_quantity(kind, getattr(SpoolSettings(), name))}"
            ),
            2,
        )
    return name, int(value) if kind is int else value


def _format_settings(settings: Mapping[str, float]) -> dict[str, str]:
    return {name: format_quantity(_KINDS[name], value) for name, value in settings.items()}


def _show_result(values: Mapping[str, Any], as_json: bool) -> None:
    show_json(values) if as_json else show_fields(values)
