"""
The bytes of container metrics, in pieces: a draft of one's own, which is a file's once it has the file's id.

No standby is asked for here: who is told that they are kept waits for the file's row, which is written behind them.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from spool.container_files.container_rows import ContainerFileMoved
from spool.postgres.database import Connection, Database, UniqueViolation

PIECE = 256 * 1024
DRAFTS_S = 86400.0  # a draft that is older was left by a process that was killed

_BEGIN = "INSERT INTO {schema}.container_contents (draft, head, at) VALUES (%(draft)s, %(head)s, {now})"
_ADD = "INSERT INTO {schema}.container_pieces (draft, n, body) VALUES (%s, %s, %s)"
_KEEP = "UPDATE {schema}.container_contents SET id = %(id)s, at = {now} WHERE draft = %(draft)s"
_DRAFT = "SELECT draft FROM {schema}.container_contents WHERE id = %s"
_DRAFTS = "SELECT draft FROM {schema}.container_contents WHERE id = ANY(%s) ORDER BY draft FOR UPDATE"
_DROPPABLE = """
    SELECT draft FROM {schema}.container_contents c
     WHERE draft = %s AND NOT EXISTS (SELECT FROM {schema}.container_files f WHERE f.id = c.id AND f.kept)
       FOR UPDATE"""
_LEFT = "SELECT draft FROM {schema}.container_contents WHERE id IS NULL AND at < {now} - %(age_s)s"
_PIECE = "SELECT body FROM {schema}.container_pieces WHERE draft = %s AND n = %s"
_REMOVE = (
    "DELETE FROM {schema}.container_pieces WHERE draft = ANY(%s)",
    "DELETE FROM {schema}.container_contents WHERE draft = ANY(%s)",
)
_HEADS = "SELECT id, head FROM {schema}.container_contents WHERE id IS NOT NULL"


class PostgresContents:
    """See `spool.container_files.container_rows.ContainerContents`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, id: str, head: bytes) -> PostgresDraft:
        database = self._database
        draft = secrets.token_hex(16)
        values = {"draft": draft, "head": head, "now": database.now()}
        await database.run(lambda connection: connection.execute(database.sql(_BEGIN), values))
        return PostgresDraft(database, id, draft)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        sql = self._database.sql
        read = self._database.read
        row = await read(lambda connection: connection.execute(sql(_DRAFT), (id,)).fetchone())
        if row is None:
            raise FileNotFoundError(id)
        for n in itertools.count():
            place = (row[0], n)
            piece = await read(partial(_piece, self._database, place))
            if piece is None:
                return
            yield piece

    async def remove(self, ids: Sequence[str]) -> None:
        def work(connection: Connection) -> None:
            found = connection.execute(self._database.sql(_DRAFTS), (sorted(ids),)).fetchall()
            _remove(connection, self._database, [draft for (draft,) in found])

        if ids:
            await self._database.transaction(work)

    async def heads(self) -> Mapping[str, bytes]:
        """Removes what processes that were killed left behind."""
        database = self._database

        def work(connection: Connection) -> dict[str, bytes]:
            values = {"now": database.now(), "age_s": DRAFTS_S}
            left = connection.execute(database.sql(_LEFT), values).fetchall()
            _remove(connection, database, [draft for (draft,) in left])
            return dict(connection.execute(database.sql(_HEADS)).fetchall())

        return await database.transaction(work)


class PostgresDraft:
    """See `spool.container_files.container_rows.ContentDraft`."""

    def __init__(self, database: Database, id: str, draft: str) -> None:
        self._database = database
        self._id = id
        self._draft = draft
        self._waiting = bytearray()
        self._pieces = 0

    async def write(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) >= PIECE:
            await self._add(PIECE)

    async def flush(self) -> None:
        if self._waiting:
            await self._add(len(self._waiting))

    async def keep(self) -> None:
        """Replace the content that was stored under this id by the draft."""
        database = self._database
        values = {"id": self._id, "draft": self._draft, "now": database.now()}

        def work(connection: Connection) -> None:
            found = connection.execute(database.sql(_DRAFTS), ([self._id],)).fetchall()
            _remove(connection, database, [draft for (draft,) in found])
            connection.execute(database.sql(_KEEP), values)

        try:
            await database.transaction(work)
        except UniqueViolation as error:  # another process kept a draft under the id at this moment
            raise ContainerFileMoved from error

    async def drop(self) -> None:
        """Bytes that a row says are kept stay: its outcome was not heard, or another process wrote it meanwhile."""
        database = self._database

        def work(connection: Connection) -> None:
            found = connection.execute(database.sql(_DROPPABLE), (self._draft,)).fetchall()
            _remove(connection, database, [draft for (draft,) in found])

        self._waiting.clear()
        await database.transaction(work)

    async def _add(self, size: int) -> None:
        sql = self._database.sql
        values = (self._draft, self._pieces, bytes(self._waiting[:size]))
        await self._database.run(lambda connection: connection.execute(sql(_ADD), values))
        del self._waiting[:size]
        self._pieces += 1


def _piece(database: Database, place: tuple[str, int], connection: Connection) -> bytes | None:
    row = connection.execute(database.sql(_PIECE), place).fetchone()
    return None if row is None else bytes(row[0])


def _remove(connection: Connection, database: Database, drafts: Sequence[str]) -> None:
    if drafts:
        for statement in _REMOVE:
            connection.execute(database.sql(statement), (sorted(drafts),))
