"""The mark of a schema that is being made as a copy of another storage: until it goes, no node may use it."""

from __future__ import annotations

from spool.errors import UnfinishedCopy
from spool.postgres.database import Connection, Database
from spool.postgres.migrations import UNFINISHED

_ADD = "INSERT INTO {schema}.facts (name, value) VALUES (%s, '') ON CONFLICT (name) DO NOTHING"
_REMOVE = "DELETE FROM {schema}.facts WHERE name = %s"
_FIND = "SELECT EXISTS (SELECT FROM {schema}.facts WHERE name = %s)"


def mark(database: Database, connection: Connection) -> None:
    connection.execute(database.sql(_ADD), (UNFINISHED,))


async def is_marked(database: Database) -> bool:
    """The schema is made."""

    def look(connection: Connection) -> bool:
        [(found,)] = connection.execute(database.sql(_FIND), (UNFINISHED,)).fetchall()
        return bool(found)

    return await database.read(look)


async def check_finished(database: Database) -> None:
    """UnfinishedCopy where a copy has not come to its end."""
    if await is_marked(database):
        raise UnfinishedCopy(
            f"the schema {database.name} is a copy that was not finished: run tollhouse storage copy again, or "
            "drop the schema"
        )


async def finish(database: Database) -> None:
    """From here on it counts."""
    await database.transaction(lambda connection: connection.execute(database.sql(_REMOVE), (UNFINISHED,)))
