"""
Versions of a schema. Most migrations only add tables and columns, so nodes of two releases can run at
the same time.

A migration that removes or restricts something has a version of its own. It does not run while an older node
runs. A release adds at most one version.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

from spool.errors import BeingMigrated, NotAllowed, OtherSchema
from spool.postgres.database import (
    ALREADY_THERE,
    LIVE,
    Connection,
    Database,
    LockWaitTimedOut,
    PostgresConnection,
)
from spool.sql import facts
from spool.sql.schemas import FIRST, schema_digests


@dataclass(frozen=True, kw_only=True)
class Migration:
    """
    One version of the schema: files in schema/ that run in order. `narrows`: nodes of earlier versions cannot
    use the schema afterwards.
    """

    files: Sequence[str] = ()
    narrows: bool = False

    def read_statements(self) -> str:
        return "\n".join(map(read_script, self.files))


# Do not change the entry of a released version, because no build opens a schema whose digest differs. Add a new version
# at the end.
VERSIONS: Sequence[Migration] = (
    Migration(
        files=(
            "log.sql",
            "nodes.sql",
            "deliveries.sql",
            "registry.sql",
            "ledger.sql",
            "partial_reports.sql",
            "devices.sql",
            "streams.sql",
            "billing.sql",
            "container_files.sql",
            "colours.sql",
        )
    ),
)
VERSION = FIRST + len(VERSIONS) - 1

# Milliseconds of one wait for another process, which may be migrating for a long time. Then the reason is
# logged, and the wait is repeated. A slow migration is not interrupted.
LOCK_WAIT_MS = 10_000
LIMITS = """
    SET LOCAL lock_timeout = {lock_wait_ms}; SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = '30s'"""
FACTS = """
    CREATE TABLE {schema}.facts (name text PRIMARY KEY, value bytea NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
          autovacuum_vacuum_cost_delay = 0)"""
READ = "SELECT name, value FROM {schema}.facts WHERE name IN ('version', 'oldest_node', 'digests')"

UNFINISHED = "unfinished copy"  # a schema that is being filled from another storage

# Check whether a node may begin a session. The lock makes the node wait for a running migration. Otherwise
# the migration would not see this node.
MAY_JOIN = f"""
    SELECT count(*) = 2 FROM (
        SELECT name FROM {{schema}}.facts
         WHERE (name = 'version' AND value = ANY(%(versions)s::bytea[]))
            OR (name = 'oldest_node' AND value = ANY(%(oldest)s::bytea[]))
            OR name = '{UNFINISHED}'
           FOR SHARE) AS fitting"""

# nodes that are too old for a migration
OLDER_NODES = f"""
    SELECT DISTINCT name, version, schema_version FROM {{schema}}.nodes
     WHERE {LIVE} AND schema_version < %(oldest)s
  ORDER BY name, schema_version"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FoundSchema:
    """The schema as found in the database. `version`: 0 if it does not exist."""

    version: int = 0
    oldest_node: int = 0
    digests: Sequence[str] = ()

    def require_usable(self, versions: Sequence[Migration] = VERSIONS) -> None:
        """Raise OtherSchema if a build with these versions cannot use the schema."""
        own, known = FIRST + len(versions) - 1, version_digests(versions)
        common = min(len(known), len(self.digests))
        if self.version and (not common or known[:common] != list(self.digests[:common])):
            raise OtherSchema(
                f"the schema was written by another build of Tollhouse, whose tables differ (version {self.version}; "
                f"this one has version {own}): use that build, or start with an empty schema"
            )
        if self.oldest_node > own or self.version > own + 1:
            raise OtherSchema(
                f"the schema has version {self.version} and needs nodes of version "
                f"{max(self.oldest_node, self.version - 1)} or later, but this Tollhouse has version {own}: upgrade it"
            )


def version_digests(versions: Sequence[Migration]) -> list[str]:
    return schema_digests([FACTS, *(version.read_statements() for version in versions)])[1:]


@cache
def read_script(name: str) -> str:
    return files(__package__).joinpath("schema", name).read_text("utf-8")


async def read_schema_version(database: Database) -> int:
    return (await read_schema(database)).version


async def read_schema(database: Database) -> FoundSchema:
    return await database.read(partial(_read_schema_facts, database))


async def read_usable_schema(database: Database) -> FoundSchema:
    """Return the schema that the database has. Raises OtherSchema if this build cannot use it."""
    found = await read_schema(database)
    found.require_usable()
    return found


async def migrate_schema(
    database: Database, versions: Sequence[Migration] = VERSIONS, *, for_copy: bool = False
) -> None:
    """
    Upgrade the schema to the last version. If several processes start this, one upgrades and the others wait.

    With `for_copy`, a new schema is marked UNFINISHED from the start. Raises OtherSchema if another build
    wrote the schema, and NotAllowed while a node runs that could not use the upgraded schema.
    """
    while True:
        try:
            await try_to_migrate(database, versions, for_copy=for_copy)
        except BeingMigrated as error:
            _log.warning("%s: waiting for it", error, extra={"action": "migration_waits"})
        else:
            return
        # a pause, so that several processes do not wait for each other
        await asyncio.sleep(random.uniform(0.5, 1.5))


async def try_to_migrate(
    database: Database, versions: Sequence[Migration] = VERSIONS, *, for_copy: bool = False
) -> None:
    """
    Upgrade the schema as `migrate_schema` does. Raises BeingMigrated if another process blocks this one for long.
    """
    found = await read_schema(database)
    found.require_usable(versions)
    if len(found.digests) >= len(versions):
        return
    try:
        if not found.version:
            await database.transaction(partial(_create_installation_facts, database, for_copy=for_copy))
        await database.transaction(partial(_migrate_in_transaction, database, versions), takes_long=True)
    except LockWaitTimedOut as error:
        raise BeingMigrated(f"another process has locked the tables of the schema {database.name}") from error


def accepted_schema_version_parameters(own_version: int = VERSION) -> dict[str, list[bytes]]:
    return {
        "versions": [str(version).encode() for version in range(FIRST, own_version + 2)],
        "oldest": [str(oldest).encode() for oldest in range(FIRST, own_version + 1)],
    }


def require_schema_not_upgraded(database: Database, connection: Connection) -> None:
    """Raise OtherSchema if the schema has been upgraded since this process opened it."""
    _read_schema_facts(database, connection).require_usable()


def _create_installation_facts(database: Database, connection: Connection, *, for_copy: bool) -> None:
    """Create the facts of the installation, unless another process has created them at the same time."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise NotAllowed(
            f"the database has the encoding {encoding}, but Tollhouse needs UTF8: create one with "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
    _set_lock_timeout(connection)
    # CREATE SCHEMA IF NOT EXISTS needs a privilege on the database even if the schema exists
    if connection.execute("SELECT to_regnamespace(%s)", (database.schema,)).fetchone() == (None,):
        with suppress(*ALREADY_THERE), connection.transaction():
            connection.execute(database.fill_in_table_names("CREATE SCHEMA {schema}"))
    with suppress(*ALREADY_THERE), connection.transaction():
        connection.execute(database.fill_in_table_names(FACTS))
        if for_copy:
            facts.store_fact(PostgresConnection(connection, database.fill_in_table_names), UNFINISHED, b"")


def _set_lock_timeout(connection: Connection) -> None:
    connection.execute(LIMITS.format(lock_wait_ms=LOCK_WAIT_MS).encode())


def _migrate_in_transaction(
    database: Database, versions: Sequence[Migration], connection: Connection
) -> None:
    _set_lock_timeout(connection)
    connection.execute(database.fill_in_table_names("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
    found = _read_schema_facts(database, connection)
    found.require_usable(versions)
    if len(found.digests) >= len(versions):
        return
    target = FIRST + len(versions) - 1
    narrowed = (number for number, version in enumerate(versions, start=FIRST) if version.narrows)
    oldest_node = max([FIRST, found.oldest_node, *narrowed])
    if found.version:
        _require_no_older_nodes(database, connection, max(oldest_node, target - 1), target)
    # While a migration waits for a lock on a table, all other sessions wait behind it. So it must not wait long.
    connection.execute("SET LOCAL lock_timeout = '2s'")
    for migration in versions[len(found.digests) :]:
        connection.execute(database.fill_in_table_names(migration.read_statements()))
    new = {"version": target, "oldest_node": oldest_node, "digests": " ".join(version_digests(versions))}
    for name, value in new.items():
        facts.store_fact(
            PostgresConnection(connection, database.fill_in_table_names), name, str(value).encode()
        )


def _require_no_older_nodes(
    database: Database, connection: Connection, oldest_version: int, target_version: int
) -> None:
    """Raise NotAllowed while a node runs that could not use the version `target_version`."""
    parameters = {"oldest": oldest_version, "now": database.now_unless_database_clock()}
    older = connection.execute(database.fill_in_table_names(OLDER_NODES), parameters).fetchall()
    if older:
        nodes = ", ".join(
            f"{name} (Tollhouse {release}, version {version})" for name, release, version in older
        )
        raise NotAllowed(
            f"version {target_version} of the schema needs nodes of version {oldest_version} or later, but older ones "
            f"are running: {nodes}. Stop them, or upgrade them to the release before this one, then "
            "try again"
        )


def _read_schema_facts(database: Database, connection: Connection) -> FoundSchema:
    if connection.execute("SELECT to_regclass(%s)", (f"{database.schema}.facts",)).fetchone() == (None,):
        return FoundSchema()
    stored: dict[str, bytes] = dict(connection.execute(database.fill_in_table_names(READ)).fetchall())
    return FoundSchema(
        version=int(stored.get("version", 0)),
        oldest_node=int(stored.get("oldest_node", 0)),
        digests=stored.get("digests", b"").decode().split(),
    )
