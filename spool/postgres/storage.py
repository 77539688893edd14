"""Opens everything that is kept in one schema of a PostgreSQL, which several nodes have open at once."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from importlib.metadata import version

from spool.directories import make_directory
from spool.errors import SpoolUnavailable
from spool.ledger.ledger import Ledger
from spool.postgres.address import open_database, read_secret
from spool.postgres.administration import ADMINISTRATION
from spool.postgres.connections.target import DRIVER
from spool.postgres.facts import agree
from spool.postgres.health import health
from spool.postgres.leases import PostgresLeases
from spool.postgres.ledger.store import PostgresLedger
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.log import CACHE_BYTES
from spool.postgres.migrations import try_to_migrate
from spool.postgres.registry.follower import FollowedRows, Follower
from spool.postgres.registry.store import PostgresRegistry
from spool.postgres.spool import open_spool
from spool.postgres.transactions import PostgresTransactions
from spool.postgres.transfer.tables import tables
from spool.postgres.transfer.taking_over import take_over
from spool.postgres.transfer.unfinished import check_finished
from spool.registry.registry import Registry
from spool.sql.small import SmallTables
from spool.storage import Engine, Storage, StorageOptions


async def open_storage(options: StorageOptions) -> Storage:
    """
    See `spool.engines.open_storage`. Of the data directory nothing is read; it is there for the operator's socket.

    SpoolError when the secret or the address cannot be read, or another installation's secret is given;
    BeingMigrated while another process takes long over the tables.
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
            await check_finished(database)
        facts = await agree(database, secret, options.settings)
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
            packed=options.native,
        ).load()
        stack.push_async_callback(ledger.close)
        spool.log.add_reader(ledger.needs)
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
        follower = Follower(shared)
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
            health=lambda: health(database, settings.durability),
            close=stack.pop_all().aclose,
        )


ENGINE = Engine(
    open=open_storage,
    is_new=lambda directory: True,
    version=lambda: f"postgres by {DRIVER}",
    administration=ADMINISTRATION,
    tables=tables,
    take_over=take_over,
)
