"""The log of one installation on PostgreSQL, and what moves with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from spool.clock import Clock
from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.devices.table import DeviceTable
from spool.installation import derived
from spool.log.planning.plan import Plan
from spool.log.protocols import Observer
from spool.log.values import Submission
from spool.packed.native import Native
from spool.postgres import streams
from spool.postgres.clusters import PostgresClusters
from spool.postgres.container_contents import PostgresContents
from spool.postgres.container_rows import PostgresContainerRows
from spool.postgres.database import Connection, Database
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.deliveries.routes import PostgresRoutes
from spool.postgres.devices import PostgresDevices
from spool.postgres.leases import PostgresLeases
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.entries import committed_at, oldest
from spool.postgres.log.log import CACHE_BYTES, PostgresLog
from spool.postgres.partial_reports import PostgresHeard, PostgresPartialReports
from spool.postgres.registry.bearers import with_bearers
from spool.postgres.streams import PostgresStreams
from spool.postgres.transactions import PostgresConnection
from spool.record import UNIT_COST
from spool.settings import REPLICATED, ContainerSettings, SpoolSettings
from spool.sql import billing_drops
from spool.streams import StreamBook

NO_OTHER_LIMITS = ContainerSettings()


@dataclass(frozen=True, kw_only=True)
class PostgresSpool:
    """What stands and falls with the log."""

    database: Database
    log: PostgresLog
    deliveries: PostgresDeliveries
    partial_reports: PostgresPartialReports
    heard: PostgresHeard
    container_files: ContainerFiles
    devices: DeviceTable
    clusters: ClusterTable
    streams: PostgresStreams
    book: StreamBook

    async def close(self) -> None:
        """Finish the running commits, whatever of it fails. The database stays open."""
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
    observer: Observer | None = None,
    cache_bytes: int = CACHE_BYTES,
    native: Native | None = None,
    container: ContainerSettings = NO_OTHER_LIMITS,
    durability: str = REPLICATED,
    confirmed: ConfirmedCommits | None = None,
) -> PostgresSpool:
    """The schema is there, and of this version."""

    reports = PostgresPartialReports(database)
    heard = PostgresHeard(database)

    def move(connection: Connection, submissions: Sequence[Submission]) -> Callable[[Plan], None]:
        """
        Ask for all that the commit's other tables need, and return the function that writes them in its transaction.
        """
        follow_streams = streams.follow(connection, database, submissions)

        def write(plan: Plan) -> None:
            if follow_streams is not None:
                follow_streams(plan)
            billing_drops.follow(PostgresConnection(connection, database.sql), plan)
            reports.follow(connection, plan)
            heard.follow(connection, plan)

        return write

    async def trim(now: float) -> bool:
        """Remove some settled totals of streams, if their time is over."""

        def settled(connection: Connection) -> streams.SettledTotals | None:
            first = oldest(database, connection, UNIT_COST)
            at = committed_at(database, connection, UNIT_COST, first)
            return streams.settled_totals(connection, database, now=now, settings=settings, oldest_at=at)

        totals = await database.read(settled)
        if totals is not None:
            await database.pool.joined(partial(streams.remove, database=database, totals=totals))
        return totals is not None

    claims = streams.with_claims(database, reports.versions, max_streams=settings.max_streams)
    log = PostgresLog(
        database,
        settings=settings,
        clock=clock,
        secret=derived(secret, "log"),
        routes=PostgresRoutes(database),
        observer=observer,
        versions=with_bearers(database, claims),
        move=move,
        trim=trim,
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
            PostgresContainerRows(database), PostgresContents(database), container, clock
        ),
        devices=devices,
        clusters=await ClusterTable.open(PostgresClusters(database), clock=clock),
        streams=kept_streams,
        book=StreamBook(await kept_streams.streams()),
    )
    await log.open()
    return spool
