"""The commands `tollhouse storage`: create, upgrade, describe and configure the shared storage."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from spool.errors import NOT_FINISHED, NotAllowed, OtherSchema
from spool.postgres.address import (
    address_problems,
    certificate_files,
    change_stored_settings,
    create_secret_file_if_missing,
    open_database,
    read_log_id,
    read_or_store_facts,
    read_secret,
    read_settings,
)
from spool.postgres.database import Connection, Database
from spool.postgres.log.confirmed import LOST_FILE, ConfirmedCommits
from spool.postgres.migrations import (
    VERSION,
    FoundSchema,
    migrate_schema,
    read_schema,
    read_schema_version,
    read_usable_schema,
)
from spool.postgres.transfer.unfinished import has_unfinished_copy_mark
from spool.settings import NO_POOLER, REPLICATED, SHARED, SpoolSettings, StorageSettings
from spool.storage import Administration

TESTED_POOLER = "pgbouncer 1.18, pool_mode = transaction"

LOOK = """
    SELECT current_setting('server_version'), current_setting('synchronous_standby_names'),
           CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
                THEN (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) END,
           (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = %s AND c.relkind = 'r')"""


async def create_storage(storage: StorageSettings, settings: SpoolSettings) -> Mapping[str, object]:
    """Create the secret, the schema and its facts, as far as they do not exist."""
    secret_made = create_secret_file_if_missing(storage)
    secret = read_secret(storage)
    async with _open_database(storage) as database:
        before = await read_schema_version(database)
        await migrate_schema(database)
        facts = await read_or_store_facts(database, secret, settings)
    return {
        "secret_file": str(storage.secret_file),
        "secret_made": secret_made,
        "schema": storage.schema,
        "version_before": before,
        "version": VERSION,
        "incarnation": facts.incarnation,
    }


async def upgrade_schema(storage: StorageSettings) -> Mapping[str, object]:
    """Upgrade the schema. If this raises Unconfirmed, a standby may not have the upgrade, so run it again."""
    async with _open_database(storage) as database:
        before = await read_schema_version(database)
        if not before:
            raise NotAllowed(f"the schema {storage.schema} does not exist yet: run tollhouse storage init")
        await migrate_schema(database)
        await database.wait_until_confirmed()
        return {"schema": storage.schema, "version_before": before, "version": max(before, VERSION)}


async def describe_database(storage: StorageSettings) -> Mapping[str, object]:
    async with _open_database(storage) as database:
        began = time.perf_counter()
        server, standbys, connected, size = await database.read(
            lambda connection: _read_version_standbys_and_size(database, connection)
        )
        elapsed_s = time.perf_counter() - began
        found = await read_schema(database)
        shared = await read_settings(database) if found.version else {}
        is_unfinished = await has_unfinished_copy_mark(database)
    problem = ""
    if other := _schema_problem(found):
        problem = other
    elif is_unfinished:
        problem = f"the schema {NOT_FINISHED}"
    elif not found.version:
        problem = "the schema does not exist yet: run tollhouse storage init"
    elif storage.durability == REPLICATED and not standbys:
        problem = (
            "the standby is gone: synchronous_standby_names is empty. With storage.durability = "
            '"replicated", nothing is stored until it is set again'
        )
    elif storage.durability == REPLICATED and connected == 0:
        problem = "no synchronous standby is connected: commits wait, and senders get 503"
    return {
        "engine": storage.engine,
        "server": f"PostgreSQL {server}",
        "schema": storage.schema,
        "version": found.version,
        "own_version": VERSION,
        "bytes": int(size),
        "durability": storage.durability,
        "pooler": storage.pooler,
        **({} if storage.pooler == NO_POOLER else {"pooler_tested": TESTED_POOLER}),
        "synchronous_standby_names": standbys,
        "synchronous_standbys": "unknown: GRANT pg_monitor to the role" if connected is None else connected,
        "answer_ms": round(elapsed_s * 1000, 1),
        "settings": shared,
        "problem": problem,
    }


def _schema_problem(found_schema: FoundSchema) -> str:
    try:
        found_schema.require_usable()
    except OtherSchema as error:
        return str(error)
    return ""


async def change_shared_settings(
    storage: StorageSettings, changes: Mapping[str, float]
) -> Mapping[str, float]:
    unknown = sorted(set(changes) - set(SHARED))
    if unknown:
        raise NotAllowed(
            f"spool.{unknown[0]} is not shared by the nodes: change it in the configuration of each node"
        )
    async with _open_database(storage) as database:
        found = await read_usable_schema(database)
        if not found.version:
            raise NotAllowed(f"the schema {storage.schema} does not exist yet: run tollhouse storage init")
        before = await read_settings(database)
        after = {**before, **changes}
        if after["hold"] >= after["retention"]:
            raise NotAllowed("hold must be shorter than retention, or records expire before they are sent")
        return await change_stored_settings(database, changes)


async def describe_lost_commits(storage: StorageSettings, directory: Path) -> Sequence[str]:
    """
    Describe commits that are lost: this node knows that the database confirmed them, but the database no
    longer has them.
    """
    async with _open_database(storage) as database:
        found = await read_usable_schema(database)
        if not found.version:
            return []
        incarnation = await read_log_id(database)
        losses = await ConfirmedCommits(directory, incarnation).find_losses(database)
    path = directory / LOST_FILE
    return [f"{loss.describe()}. Delete {path} once you have handled the loss" for loss in losses]


@asynccontextmanager
async def _open_database(storage: StorageSettings) -> AsyncIterator[Database]:
    database = open_database(storage)
    try:
        yield database
    finally:
        await database.close()


def _read_version_standbys_and_size(
    database: Database, connection: Connection
) -> tuple[str, str, int | None, int]:
    row = connection.execute(LOOK, (database.name,)).fetchone()
    assert row is not None
    return row[0], row[1], row[2], row[3]


ADMINISTRATION = Administration(
    problems=address_problems,
    certificate_files=certificate_files,
    make=create_storage,
    bring_up_to_date=upgrade_schema,
    status=describe_database,
    change=change_shared_settings,
    lost=describe_lost_commits,
)
