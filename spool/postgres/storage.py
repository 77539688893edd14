"""Opens a storage in a PostgreSQL schema, which several nodes use at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from spool.clock import Clock
from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.devices.table import DeviceTable
from spool.disks import make_directory
from spool.errors import SpoolUnavailable
from spool.installation import derive_secret
from spool.ledger.ledger import Ledger
from spool.log.planning.plan import CommitPlan
from spool.log.protocols import CommitObserver
from spool.log.values import Submission
from spool.packed.native import NativeModule
from spool.postgres import streams
from spool.postgres.address import open_database, read_or_store_facts, read_secret
from spool.postgres.administration import ADMINISTRATION
from spool.postgres.connections.target import DRIVER
from spool.postgres.container_files import PostgresContainerFileContents, PostgresContainerRows
from spool.postgres.database import Connection, Database, PostgresConnection, PostgresTransactions
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.deliveries.delivery_rows import PostgresRoutes
from spool.postgres.devices import PostgresClusters, PostgresDevices
from spool.postgres.health import read_health
from spool.postgres.leases import PostgresLeases
from spool.postgres.ledger import PostgresLedger
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.entries import lowest_stored_number, read_committed_at, topic_code
from spool.postgres.log.log import CACHE_BYTES, PostgresLog
from spool.postgres.log.queries import LOCK_HEAD, SPANS_OF_COMMITS
from spool.postgres.migrations import try_to_migrate
from spool.postgres.partial_reports import STORED_SPANS, PostgresPartialReports, PostgresStoredSenders
from spool.postgres.registry.follower import FollowedRows, RegistryChangeFollower
from spool.postgres.registry.key_checks import with_key_versions
from spool.postgres.registry.store import PostgresRegistry
from spool.postgres.streams import PostgresStreams
from spool.postgres.transfer.tables import tables_opener
from spool.postgres.transfer.taking_over import copy_storage_into_schema
from spool.postgres.transfer.unfinished import require_finished_copy
from spool.record import UNIT_COST
from spool.registry.registry import Registry
from spool.settings import REPLICATED, ContainerSettings, SpoolSettings
from spool.sql import billing
from spool.sql.connection import SqlConnection
from spool.sql.erasing import SqlPersonEraser
from spool.sql.small import SmallTables
from spool.storage import Storage, StorageEngine, StorageOptions
from spool.streams import KnownStreams

NO_OTHER_LIMITS = ContainerSettings()


@dataclass(frozen=True, kw_only=True)
class PostgresSpool:
    database: Database
    log: PostgresLog
    deliveries: PostgresDeliveries
    partial_reports: PostgresPartialReports
    heard: PostgresStoredSenders
    container_files: ContainerFiles
    devices: DeviceTable
    clusters: ClusterTable
    streams: PostgresStreams
    book: KnownStreams

    async def close(self) -> None:
        """Close all parts, even if closing one of them fails. The database stays open."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.log.close)
            stack.push_async_callback(self.devices.close)


async def open_spool(
    database: Database,
    *,
    settings: SpoolSettings,
    clock: Clock,
    secret: bytes,
    leases: PostgresLeases,
    observer: CommitObserver | None = None,
    cache_bytes: int = CACHE_BYTES,
    native: NativeModule | None = None,
    container: ContainerSettings = NO_OTHER_LIMITS,
    durability: str = REPLICATED,
    confirmed: ConfirmedCommits | None = None,
) -> PostgresSpool:
    """Open the parts of a storage. The schema must exist in this version."""

    reports = PostgresPartialReports(database)
    heard = PostgresStoredSenders(database)

    def query_and_return_other_tables_writer(
        connection: Connection, submissions: Sequence[Submission]
    ) -> Callable[[CommitPlan], None]:
        """
        Query what a commit's other tables need. The returned function writes them in the transaction of the
        commit.
        """
        follow_streams = streams.query_and_return_totals_writer(connection, database, submissions)

        def write_other_tables(plan: CommitPlan) -> None:
            if follow_streams is not None:
                follow_streams(plan)
            billing.apply_billing_drops_of_commit(
                PostgresConnection(connection, database.fill_in_table_names), plan
            )
            reports.write_changes(connection, plan)
            heard.store_senders(connection, plan)

        return write_other_tables

    async def delete_old_totals(now: float) -> bool:

        def find_next_old_totals(connection: Connection) -> streams.DeletableTotals | None:
            first = lowest_stored_number(database, connection, UNIT_COST)
            at = read_committed_at(database, connection, UNIT_COST, first)
            return streams.oldest_deletable_totals(
                connection, database, now=now, settings=settings, oldest_at=at
            )

        totals = await database.read(find_next_old_totals)
        if totals is not None:
            await database.pool.run_pipelined(
                partial(streams.delete_unchanged_totals, database=database, totals=totals)
            )
        return totals is not None

    claims = streams.versions_with_stream_claims(
        database, reports.query_versions, max_streams=settings.max_streams
    )
    log = PostgresLog(
        database,
        settings=settings,
        clock=clock,
        secret=derive_secret(secret, "log"),
        routes=PostgresRoutes(database),
        observer=observer,
        versions=with_key_versions(database, claims),
        move=query_and_return_other_tables_writer,
        trim=delete_old_totals,
        durability=durability,
        cache_bytes=cache_bytes,
        native=native,
        confirmed=confirmed,
    )
    devices = await DeviceTable.open(PostgresDevices(database))
    kept_streams = await PostgresStreams.open(database, clock)
    spool = PostgresSpool(
        database=database,
        log=log,
        deliveries=PostgresDeliveries(database, log=log, leases=leases, clock=clock),
        partial_reports=reports,
        heard=heard,
        container_files=await ContainerFiles.open(
            PostgresContainerRows(database), PostgresContainerFileContents(database), container, clock
        ),
        devices=devices,
        clusters=await ClusterTable.open(PostgresClusters(database), clock=clock),
        streams=kept_streams,
        book=KnownStreams(await kept_streams.streams()),
    )
    await log.open()
    return spool


async def _visit_rows(
    transactions: PostgresTransactions, visit: Callable[[str, Sequence[object]], None]
) -> None:
    for table, blocks in await transactions.read(lambda tables: tables.all(_TABLES)):
        select = _ROWS_OF_BLOCKS.format(table=table, schema="{schema}")
        for first in range(0, blocks, BLOCKS_AT_ONCE):
            span = {"first": f"({first},0)", "end": f"({first + BLOCKS_AT_ONCE},0)"}
            rows = await transactions.read(partial(_read_rows, select=select, span=span))
            await asyncio.to_thread(_visit_each, table, rows, visit)


def _read_rows(tables: SqlConnection, select: str, span: Mapping[str, str]) -> list[tuple[Any, ...]]:
    return tables.all(select, **span)


def _visit_each(
    table: str, rows: Sequence[Sequence[object]], visit: Callable[[str, Sequence[object]], None]
) -> None:
    for row in rows:
        visit(table, row)


async def _vacuum_advice() -> str:
    return (
        "PostgreSQL keeps replaced rows until a vacuum, and longer in its write-ahead log, replicas and backups: run "
        "VACUUM (FULL) on the schema, and let these expire"
    )


_TABLES = """
    SELECT c.relname, pg_relation_size(c.oid) / current_setting('block_size')::bigint
      FROM pg_class c WHERE c.relnamespace = CAST('{schema}' AS regnamespace) AND c.relkind = 'r' ORDER BY c.relname"""
_ROWS_OF_BLOCKS = """
    SELECT * FROM {schema}."{table}"
     WHERE ctid >= CAST(:first AS tid) AND ctid < CAST(:end AS tid)"""
BLOCKS_AT_ONCE = 4  # blocks of a table that a search reads in one step; a row may have a megabyte elsewhere


# -- the whole storage ---------------------------------------------------------------------------------------


async def open_storage(options: StorageOptions) -> Storage:
    """
    Open a storage, as `spool.engines.open_storage` describes. The data directory holds no records, only the
    socket for operators and the list of confirmed commits.

    Raises SpoolError if the secret or the address cannot be read, or if the installation has another secret.
    Raises BeingMigrated if another process migrates for a long time.
    """
    settings = options.storage
    secret = read_secret(settings)
    try:
        make_directory(options.directory, 0o700)
    except OSError as error:
        message = f"the data directory {options.directory} cannot be used: {error.strerror}"
        raise SpoolUnavailable(message) from error
    async with AsyncExitStack() as stack:
        database = open_database(settings, options.clock)
        stack.push_async_callback(database.close)
        await try_to_migrate(database)
        if not options.is_unfinished_copy:
            await require_finished_copy(database)
        facts = await read_or_store_facts(database, secret, options.settings)
        leases = PostgresLeases(
            database,
            options.clock,
            name=settings.node_name or socket.gethostname(),
            version=version("tollhouse"),
        )
        stack.push_async_callback(leases.close)
        spool = await open_spool(
            database,
            settings=facts.settings,
            clock=options.clock,
            secret=secret,
            leases=leases,
            observer=options.observer,
            cache_bytes=CACHE_BYTES if options.cache_bytes is None else options.cache_bytes,
            container=options.container,
            native=options.native,
            durability=settings.durability,
            confirmed=ConfirmedCommits(options.directory, facts.incarnation),
        )
        stack.push_async_callback(spool.close)
        ledger = await Ledger(
            PostgresLedger(database),
            clock=options.clock,
            tags=options.ledger_tags,
            chunk=options.ledger_chunk,
            native=options.native,
            work=options.work,
        ).load()
        stack.push_async_callback(ledger.close)
        spool.log.add_reader(ledger.lowest_needed_number)
        registry = await Registry.open(
            PostgresRegistry(database),
            secret=secret,
            clock=options.registry_clock or options.clock,
            declared=options.declared,
        )
        stack.push_async_callback(registry.close)
        shared = FollowedRows(
            registry=registry,
            devices=spool.devices,
            clusters=spool.clusters,
            streams=spool.streams,
            book=spool.book,
            container_files=spool.container_files,
        )
        follower = RegistryChangeFollower(shared)
        follower.start()
        stack.push_async_callback(follower.close)
        return Storage(
            log=spool.log,
            deliveries=spool.deliveries,
            partial_reports=spool.partial_reports,
            devices=spool.devices,
            clusters=spool.clusters,
            streams=spool.streams,
            book=spool.book,
            small=SmallTables(lambda _: PostgresTransactions(database)),
            container_files=spool.container_files,
            ledger=ledger,
            registry=registry,
            registry_problem="",
            secret=secret,
            incarnation=facts.incarnation,
            is_shared=True,
            leases=leases,
            heard=spool.heard,
            rename_records=SqlPersonEraser(
                PostgresTransactions(database),
                rows="shard = 0 AND topic = CAST(:topic AS smallint)",
                code=topic_code,
                lock=LOCK_HEAD,
                spans=[STORED_SPANS, SPANS_OF_COMMITS],
            ).rename_records,
            visit_rows=partial(_visit_rows, PostgresTransactions(database)),
            overwrite_deleted_data=_vacuum_advice,
            health=lambda: read_health(database, settings.durability),
            close=stack.pop_all().aclose,
        )


ENGINE = StorageEngine(
    open=open_storage,
    is_new=lambda directory: True,
    version=lambda: f"postgres by {DRIVER}",
    administration=ADMINISTRATION,
    tables=tables_opener,
    take_over=copy_storage_into_schema,
)
