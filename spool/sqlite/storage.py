"""Opens all SQLite files of a data directory: spool.sqlite, ledger.sqlite and registry.sqlite."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spool.erasure import Renaming
from spool.errors import RegistryDamaged, SpoolUnavailable
from spool.registry.registry import Registry
from spool.sqlite.database import visit_rows_of_files
from spool.sqlite.directory import SPOOL, require_finished_copy
from spool.sqlite.ledger import open_ledger
from spool.sqlite.log.log import CACHE_BYTES
from spool.sqlite.migrations import VERSIONS, check_schema, read_migration_statements
from spool.sqlite.recovery import mark_if_damaged
from spool.sqlite.registry import (
    move_registry_aside,
    open_registry,
    require_expected_registry,
    store_that_registry_exists,
)
from spool.sqlite.spool import SqliteSpool, open_spool
from spool.storage import RecoveryResult, Storage, StorageEngine, StorageOptions

if TYPE_CHECKING:
    from spool.transfer.tables import OpenTables, Progress, UnfinishedStorageCopy


async def open_storage(options: StorageOptions) -> Storage:
    try:
        return await _open(options)
    except sqlite3.Error as error:
        # the cause is a full disk or a device error, because damage has been handled already
        raise SpoolUnavailable(f"{options.directory} cannot be opened: {error}") from error


async def _copy_directory(directory: Path, into: Path) -> None:
    from spool.sqlite.copies import copy_files

    await asyncio.to_thread(copy_files, directory, into)


async def _open(options: StorageOptions) -> Storage:
    if not options.is_unfinished_copy:
        require_finished_copy(options.directory)
    await asyncio.to_thread(_check_schemas, options.directory)
    async with AsyncExitStack() as stack:
        spool = await open_spool(
            options.directory,
            settings=options.settings,
            clock=options.clock,
            observer=options.observer,
            cache_bytes=CACHE_BYTES if options.cache_bytes is None else options.cache_bytes,
            container=options.container,
            native=options.native,
        )
        stack.push_async_callback(spool.close)
        ledger = await open_ledger(
            options.directory,
            clock=options.clock,
            tags=options.ledger_tags,
            chunk=options.ledger_chunk,
            native=options.native,
            work=options.work,
            watch=spool.log.watch_file,
        )
        stack.push_async_callback(ledger.close)
        spool.log.add_reader(ledger.lowest_needed_number)
        registry, problem = None, ""
        try:
            registry = await _open_registry(options, spool)
            stack.push_async_callback(registry.close)
        except RegistryDamaged as error:
            problem = str(error)
        storage = spool.as_storage(
            ledger=ledger,
            registry=registry,
            registry_problem=problem,
            visit_rows=partial(visit_rows_of_files, options.directory),
            close=stack.pop_all().aclose,
        )
        return replace(
            storage,
            is_damage=partial(mark_if_damaged, spool.database),
            copy=partial(_copy_directory, options.directory),
        )


def _check_schemas(directory: Path) -> None:
    """
    Raise OtherSchema if another build wrote a file of the directory. Call this before anything is written.
    """
    for file in VERSIONS:
        check_schema(directory / file, read_migration_statements(file))


async def _open_registry(options: StorageOptions, spool: SqliteSpool) -> Registry:
    clock = options.registry_clock or options.clock
    opening = partial(
        open_registry,
        options.directory,
        secret=spool.secret,
        clock=clock,
        declared=options.declared,
        watch=spool.log.watch_file,
    )
    try:
        await require_expected_registry(spool.database, options.directory)
        registry = await opening()
    except RegistryDamaged:
        if not options.new_registry:
            raise
        move_registry_aside(options.directory, clock)
        registry = await opening()
    await store_that_registry_exists(spool.database)
    return registry


async def _recover_records(options: StorageOptions, file: Path, renaming: Renaming | None) -> RecoveryResult:
    from spool.sqlite.damage.recovering import recover_records

    require_finished_copy(options.directory)
    await asyncio.to_thread(_check_schemas, options.directory)
    return await recover_records(options, file, renaming)


async def _tables_to_copy(options: StorageOptions) -> OpenTables:
    from spool.sqlite.transfer import tables_opener  # imported only for copies, which a server never makes

    await asyncio.to_thread(_check_schemas, options.directory)
    return await tables_opener(options)


async def _copy_storage_into_directory(
    options: StorageOptions, open_tables: OpenTables, progress: Progress
) -> UnfinishedStorageCopy:
    from spool.sqlite.transfer import copy_storage_into_directory

    return await copy_storage_into_directory(options, open_tables, progress)


def _sqlite_version_warnings() -> list[str]:
    if sqlite3.sqlite_version_info >= (3, 51, 3):
        return []
    return [
        f"SQLite {sqlite3.sqlite_version} works. Do not open the files with other programs while "
        "Tollhouse runs (before 3.51.3, two concurrent writers can damage them)"
    ]


ENGINE = StorageEngine(
    open=open_storage,
    is_new=lambda directory: not (directory / SPOOL).exists(),
    version=lambda: f"sqlite {sqlite3.sqlite_version}",
    known_faults=_sqlite_version_warnings,
    check_schema=_check_schemas,
    recover=_recover_records,
    tables=_tables_to_copy,
    take_over=_copy_storage_into_directory,
)
