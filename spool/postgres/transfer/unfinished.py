"""The mark of a schema that is being made as a copy of another storage: until it goes, no node may use it."""

from __future__ import annotations

import asyncio
from functools import partial

from spool.errors import NOT_FINISHED, SpoolUnavailable, UnfinishedCopy
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import UNFINISHED
from spool.postgres.transfer.confirming import confirm
from spool.transfer.tables import Progress

_ADD = "INSERT INTO {schema}.facts (name, value) VALUES (%s, '') ON CONFLICT (name) DO NOTHING"
_REMOVE = "DELETE FROM {schema}.facts WHERE name = %s"
ATTEMPTS = 10
PAUSE_S = 1.0
_FIND = "SELECT EXISTS (SELECT FROM {schema}.facts WHERE name = %s)"


def mark(database: Database, connection: Connection) -> None:
    connection.execute(database.sql(_ADD), (UNFINISHED,))


async def is_marked(database: Database) -> bool:
    """True if the schema holds a copy, finished or not."""

    def look(connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{database.schema}.facts",)).fetchone() == (None,):
            return False
        [(found,)] = connection.execute(database.sql(_FIND), (UNFINISHED,)).fetchall()
        return bool(found)

    return await database.read(look)


async def check_finished(database: Database) -> None:
    """UnfinishedCopy where a copy has not come to its end."""
    if await is_marked(database):
        raise UnfinishedCopy(f"the schema {database.name} {NOT_FINISHED}, or drop the schema")


async def finish(database: Database, *, progress: Progress) -> None:
    """
    Make the copy valid, with the durability that is configured.

    An answer that was lost is asked for again: a mark that has gone already goes once more. SpoolUnavailable
    where it cannot be known whether it counts.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await confirm(database)
            await database.transaction(partial(_remove, database))
            await confirm(database)
        except SpoolUnavailable as error:
            if attempt == ATTEMPTS:
                raise SpoolUnavailable(
                    f"the copy is whole, but the database did not say whether it counts now: {error}. Ask "
                    "tollhouse "
                    "storage status; if the copy is not finished, begin it again by the same command"
                ) from error
            progress(f"the copy is whole, and is to count once the database confirms it: {error}", 0)
            await asyncio.sleep(PAUSE_S)
        else:
            return


def _remove(database: Database, connection: Connection) -> None:
    connection.execute(database.sql(_REMOVE), (UNFINISHED,))
