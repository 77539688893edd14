"""The tables of a schema, their columns and kinds, as the database names them: a copy has no list of them."""

from __future__ import annotations

from spool.postgres.database import Connection, Database

# Of the nodes that run, and what each copy makes anew. A new schema has rows in some of them.
OF_NODES = frozenset(
    {
        "nodes",
        "leases",
        "heads",
        "marks",
        "periods",
        "folds",
        "registry_head",
        "registry_changes",
    }
)
# Copied with what they belong to: entries, and the contents of container files.
WITH_OTHERS = frozenset(
    {
        "damaged",
        "container_contents",
        "container_pieces",
        "ledger_rollups",
        "ledger_rolled",
        "ledger_billed_rollups",
    }
)
KEPT_NAMES = {"partial_reports": "pending"}  # tables that have another name in the other engine

_TABLES = """
    SELECT relname FROM pg_class
     WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p') AND NOT relispartition
  ORDER BY relname"""
_COLUMNS = """
    SELECT column_name, data_type FROM information_schema.columns
     WHERE table_schema = %s AND table_name = %s"""
_NUMBERED = """
    SELECT table_name FROM information_schema.columns
     WHERE table_schema = %s AND is_identity = 'YES' ORDER BY table_name"""


def kept_tables(database: Database, connection: Connection) -> dict[str, str]:
    """Every table with rows that a copy must have, by its name for others; partitions are in the whole."""
    names = (name for (name,) in connection.execute(_TABLES, (database.schema,)))
    return {KEPT_NAMES.get(name, name): name for name in names if name not in OF_NODES}


def kinds_of(database: Database, connection: Connection, table: str) -> dict[str, str]:
    """The kind of each column."""
    return dict(connection.execute(_COLUMNS, (database.name, table)).fetchall())


def numbered_tables(database: Database, connection: Connection) -> list[str]:
    """Return the tables whose rows the server numbers in the column `id`."""
    return [name for (name,) in connection.execute(_NUMBERED, (database.name,))]
