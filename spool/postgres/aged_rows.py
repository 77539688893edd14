"""Deleting rows that are too old from tables which have no index by age."""

from __future__ import annotations

from functools import partial

from spool.postgres.database import Connection, Database

STEP_BLOCKS = 256  # of the table's file in one transaction: some 20,000 rows, a fraction of a second

_BLOCKS = "SELECT pg_relation_size('{{schema}}.{table}') / current_setting('block_size')::bigint"
# Rows that are being written are not old: they are not waited for. ARRAY(): each row is found by its place.
_REMOVE = """
    DELETE FROM {{schema}}.{table}
     WHERE ctid = ANY(ARRAY(
           SELECT ctid FROM {{schema}}.{table}
            WHERE ctid >= %(begin)s::tid AND ctid < %(end)s::tid AND shard = 0 AND {column} < %(before)s
              FOR UPDATE SKIP LOCKED))"""


async def remove_aged(database: Database, table: str, column: str, *, before: float) -> int:
    """
    Delete the rows of a table whose time in `column` is before another; return their number.

    The table is read once, in the order of its file, a few blocks in each transaction. So no statement takes
    long however many rows go, writers keep no index for it, and what is done stays done after an error.
    """
    count = database.sql(_BLOCKS.format(table=table))
    [blocks] = await database.read(lambda connection: connection.execute(count).fetchone() or (0,))
    remove = database.sql(_REMOVE.format(table=table, column=column))

    def step(connection: Connection, begin: int) -> int:
        values = {"begin": f"({begin},0)", "end": f"({begin + STEP_BLOCKS},0)", "before": before}
        return connection.execute(remove, values).rowcount

    removed = 0
    for begin in range(0, blocks, STEP_BLOCKS):
        removed += await database.transaction(partial(step, begin=begin))
    return removed
