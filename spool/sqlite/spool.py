"""The spool on SQLite. `open_spool` opens the log and the deliveries of a data directory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spool.clock import Clock
from spool.clusters import ClusterTable
from spool.container_files.container_rows import ContainerFileContents
from spool.container_files.files import ContainerFiles
from spool.devices.table import DeviceTable
from spool.disks import find_mount
from spool.errors import SpoolDamaged
from spool.installation import derive_secret, installation_secret
from spool.ledger.ledger import Ledger
from spool.log.protocols import CommitObserver
from spool.packed.native import NativeModule
from spool.registry.registry import Registry
from spool.searching import VisitRows
from spool.settings import ContainerSettings, SpoolSettings
from spool.sql.clusters import SqlClusters
from spool.sql.container_files import SqlContainerRows
from spool.sql.erasing import SqlPersonEraser
from spool.sql.small import SmallTables
from spool.sql.streams import SqlStreams
from spool.sqlite import recovery
from spool.sqlite.container_contents import DiskContainerFileContents
from spool.sqlite.database import Database, SqliteTransactions, overwrite_deleted_rows
from spool.sqlite.deliveries import delivery_rows
from spool.sqlite.deliveries.deliveries import SqliteDeliveries
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL, DirectoryLock, lock_directory
from spool.sqlite.log.log import CACHE_BYTES, SqliteLog
from spool.sqlite.log.recovery_notes import RecoveryNoteWriter
from spool.sqlite.partial_reports import STORED_SPANS, SqlitePartialReports, SqliteStoredSenders
from spool.sqlite.reserve import DiskReserve
from spool.sqlite.streams import open_streams
from spool.storage import Storage
from spool.streams import KnownStreams

NO_OTHER_LIMITS = ContainerSettings()


@dataclass(frozen=True, kw_only=True)
class SqliteSpool:
    """
    The contents of spool.sqlite, with the lock of its data directory until `close`.

    `incarnation` changes when a damaged file is replaced. Progress stored for another incarnation is invalid.
    """

    directory: Path
    lock: DirectoryLock
    database: Database
    log: SqliteLog
    deliveries: SqliteDeliveries
    partial_reports: SqlitePartialReports
    heard: SqliteStoredSenders
    container_files: ContainerFiles
    devices: DeviceTable
    clusters: ClusterTable
    streams: SqlStreams
    book: KnownStreams
    secret: bytes
    incarnation: str

    def as_storage(
        self,
        *,
        ledger: Ledger,
        registry: Registry | None,
        registry_problem: str = "",
        visit_rows: VisitRows,
        close: Callable[[], Awaitable[None]],
    ) -> Storage:
        """Return the storage, without functions that need files."""
        return Storage(
            log=self.log,
            deliveries=self.deliveries,
            partial_reports=self.partial_reports,
            heard=self.heard,
            devices=self.devices,
            clusters=self.clusters,
            streams=self.streams,
            book=self.book,
            small=SmallTables(partial(SqliteTransactions, self.database)),
            container_files=self.container_files,
            ledger=ledger,
            registry=registry,
            registry_problem=registry_problem,
            secret=self.secret,
            incarnation=self.incarnation,
            rename_records=SqlPersonEraser(
                SqliteTransactions(self.database, "records"), spans=[STORED_SPANS]
            ).rename_records,
            visit_rows=visit_rows,
            overwrite_deleted_data=partial(overwrite_deleted_rows, self.database),
            close=close,
        )

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(self.lock.release)
            stack.push_async_callback(self.database.close)
            stack.push_async_callback(self.log.close)
            stack.push_async_callback(self.devices.close)


async def open_spool(
    directory: Path,
    *,
    settings: SpoolSettings,
    clock: Clock,
    observer: CommitObserver | None = None,
    cache_bytes: int = CACHE_BYTES,
    container: ContainerSettings = NO_OTHER_LIMITS,
    native: NativeModule | None = None,
) -> SqliteSpool:
    """
    Open the spool. Raises SpoolLocked if another process holds the directory, and OtherSchema if a
    build with other tables wrote it.
    """
    lock = lock_directory(directory)
    reserve = DiskReserve(directory, clock)
    try:
        reserve.give_up_when_full()
        secret = installation_secret(directory)

        async def open_recovered_spool() -> SqliteSpool:
            database = await recovery.open_database(directory / SPOOL, clock)
            log = SqliteLog(
                database,
                settings=settings,
                clock=clock,
                secret=derive_secret(secret, "log"),
                reserve=reserve,
                rest=RecoveryNoteWriter(database),
                mount=find_mount(directory),
                routes=delivery_rows,
                observer=observer,
                cache_bytes=cache_bytes,
                native=native,
            )
            return await load_sqlite_spool(
                database,
                log,
                DiskContainerFileContents(directory),
                settings,
                container,
                clock,
                lock=lock,
                secret=secret,
            )

        try:
            return await open_recovered_spool()
        except SpoolDamaged:  # the first attempt has marked the damage, so the second attempt salvages
            return await open_recovered_spool()
    except BaseException:
        lock.release()
        raise


async def load_sqlite_spool(
    database: Database,
    log: SqliteLog,
    contents: ContainerFileContents,
    settings: SpoolSettings,
    container: ContainerSettings,
    clock: Clock,
    *,
    lock: DirectoryLock,
    secret: bytes,
) -> SqliteSpool:
    """
    Read the state and return the spool. If that fails, the database is closed.

    Raises SpoolDamaged for damage that the next opening salvages.
    """
    try:
        devices = await DeviceTable.open(SqliteDevices(database))
        clusters = await ClusterTable.open(SqlClusters(SqliteTransactions(database, "clusters")), clock=clock)
        streams = await open_streams(database, clock)
        book = KnownStreams(await streams.streams())
        incarnation = await database.read(recovery.read_log_id)
        await log.open()
        heard = SqliteStoredSenders(database, clock, max_senders=settings.max_senders)
        await heard.open()
        rows = SqlContainerRows(SqliteTransactions(database, "container metrics"))
        container_files = await ContainerFiles.open(rows, contents, container, clock)
    except Exception as error:
        is_damage = await recovery.mark_if_damaged(database, error)
        await database.close()
        if is_damage:
            raise SpoolDamaged(f"spool.sqlite is damaged: {error}") from error
        raise
    except BaseException:
        await database.close()
        raise
    return SqliteSpool(
        directory=database.path.parent,
        lock=lock,
        database=database,
        log=log,
        deliveries=SqliteDeliveries(database, log=log, clock=clock),
        partial_reports=SqlitePartialReports(database),
        heard=heard,
        container_files=container_files,
        devices=devices,
        clusters=clusters,
        streams=streams,
        book=book,
        secret=secret,
        incarnation=incarnation,
    )
