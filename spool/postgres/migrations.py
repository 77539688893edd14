"""
Versions of a schema: each migration only adds tables and columns, so nodes of two releases work side by side.

What removes or narrows is a migration of its own, which raises `oldest_node`. A release has at most one version.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files

from spool.errors import SpoolFromTheFuture
from spool.postgres.database import ALREADY_THERE, Connection, Database

# The files of schema/, in the order in which they are carried out: one for each part of the storage.
SCRIPTS: tuple[str, ...] = (
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
)
VERSION = 1
OLDEST_NODE = 1  # the oldest version whose nodes can work with this schema

FACTS = """
    CREATE TABLE {schema}.facts (name text PRIMARY KEY, value bytea NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
          autovacuum_vacuum_cost_delay = 0)"""
READ = "SELECT name, value FROM {schema}.facts WHERE name IN ('version', 'oldest_node')"
KEEP = """
    INSERT INTO {schema}.facts (name, value) VALUES (%(name)s, %(value)s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""


def script(name: str) -> str:
    """The text of an SQL file in schema/."""
    return files(__package__).joinpath("schema", name).read_text("utf-8")


async def found_version(database: Database) -> int:
    """The version of the schema in the database; 0 where there is none."""
    return (await database.read(lambda connection: _versions(database, connection)))[0]


async def migrate(database: Database) -> None:
    """
    Bring the schema to VERSION; several processes may begin it at once, and one of them does it.

    SpoolFromTheFuture when it is of a release that this one cannot work beside.
    """
    found, oldest_node = await database.read(lambda connection: _versions(database, connection))
    check_version(found, oldest_node)
    if found >= VERSION:
        return
    if not found:
        await database.run(lambda connection: _make_facts(database, connection))
    await database.transaction(lambda connection: _migrate(database, connection))


def check_version(found: int, oldest_node: int) -> None:
    """SpoolFromTheFuture where a node of this version cannot work with a schema of that one."""
    if oldest_node > VERSION or found > VERSION + 1:
        raise SpoolFromTheFuture(
            f"the schema is of version {found} and needs nodes of version {oldest_node} or later, this Tollhouse is of "
            f"version {VERSION}: upgrade it"
        )


def _make_facts(database: Database, connection: Connection) -> None:
    """Make the schema and its first table, unless another process does the same at this moment."""
    # CREATE SCHEMA asks for a privilege on the database even where the schema is there.
    if connection.execute("SELECT to_regnamespace(%s)", (database.schema,)).fetchone() == (None,):
        with suppress(*ALREADY_THERE):
            connection.execute(database.sql("CREATE SCHEMA {schema}"))
    with suppress(*ALREADY_THERE):
        connection.execute(database.sql(FACTS))


def _migrate(database: Database, connection: Connection) -> None:
    # Another process may be at it, and a migration takes as long as it takes.
    connection.execute("SET LOCAL lock_timeout = '10min'; SET LOCAL statement_timeout = 0")
    connection.execute(database.sql("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
    found, oldest_node = _versions(database, connection)
    check_version(found, oldest_node)
    if found >= VERSION:
        return
    connection.execute(database.sql("\n".join(script(name) for name in SCRIPTS)))
    for name, value in (("version", VERSION), ("oldest_node", OLDEST_NODE)):
        connection.execute(database.sql(KEEP), {"name": name, "value": str(value).encode()})


def _versions(database: Database, connection: Connection) -> tuple[int, int]:
    if connection.execute("SELECT to_regclass(%s)", (f"{database.schema}.facts",)).fetchone() == (None,):
        return 0, 0
    found = {name: int(value) for name, value in connection.execute(database.sql(READ))}
    return found.get("version", 0), found.get("oldest_node", 0)
