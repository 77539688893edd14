"""Container metrics on PostgreSQL: rows, and the contents of files in pieces."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial

from spool.container_files.container_rows import ContainerFileMoved, TooManyFiles
from spool.container_files.stored_files import ROW_TERMS
from spool.container_files.values import ContainerFile, FileCountChange
from spool.log.partial_reports import ExpectedVersion
from spool.postgres.database import (
    Connection,
    Database,
    PostgresConnection,
    PostgresTransactions,
    UniqueViolation,
)
from spool.postgres.registry.key_checks import lock_keys, require_valid_keys
from spool.sql.container_files import FILE, FILES, SqlContainerRows, write_rows

_LOCKED = f"{FILES} WHERE id IN :ids ORDER BY id FOR UPDATE"
_LOCK_BOOKS = "SELECT term FROM {schema}.container_books ORDER BY kind, term FOR UPDATE"
_KNOWN = """
    SELECT CAST(coalesce(sum(n - carried), 0) AS bigint) FROM {schema}.container_books
     WHERE term IN :terms"""


class PostgresContainerRows(SqlContainerRows):
    # the index contains hashes, because a reference may be very long
    by_reference = (
        "md5(reference) IN (SELECT md5(one) FROM unnest(CAST(:references AS text[])) AS one)"
        " AND reference IN :references"
    )

    def __init__(self, database: Database) -> None:
        super().__init__(PostgresTransactions(database))
        self._database = database

    async def wait_until_durable(self) -> None:
        await self._database.wait_until_confirmed()

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        removed_files: Sequence[ContainerFile],
        changes: Sequence[FileCountChange],
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        before = {
            file.id: file
            for file in (*(known_file for known_file, _ in pairs if known_file is not None), *removed_files)
        }
        new = sum(known_file is None for known_file, _ in pairs)
        is_bounded = max_rows is not None and new > len(removed_files)
        is_answered = max_rows is not None or bool(expected_versions)  # True if a sender waits for the result
        sql = self._database.fill_in_table_names

        def write_files(on: Connection) -> None:
            connection = PostgresConnection(on, sql)
            if is_answered:
                self._database.require_standby(on)
            if before:
                stored = map(FILE.read_row, connection.all(_LOCKED, ids=sorted(before)))
                if {file.id: file for file in stored} != before:
                    raise ContainerFileMoved
            lock_keys(on, sql, expected_versions)
            require_valid_keys(on, sql, expected_versions, now=self._database.now_unless_database_clock())
            # Lock the accounting rows first, so that the second of two transactions sees the file rows of the
            # first. Otherwise, two that add the same name could wait for each other: one for accounting rows,
            # the other for the name.
            if new:
                connection.all(_LOCK_BOOKS)
            write_rows(connection, pairs, removed_files, changes)
            if is_bounded:
                [known] = connection.first_row(_KNOWN, terms=sorted(ROW_TERMS))
                if known > max_rows:
                    raise TooManyFiles

        # After the response, a sender may delete its file. So a standby must have the row, and the content
        # that was written before. Results of deliveries need no standby: if they are lost, the same file is
        # sent again under the same name.
        needs_standby = self._database.needs_standby and is_answered
        try:
            await self._database.transaction(
                write_files, needs_standby=(lambda _: True) if needs_standby else None
            )
        except UniqueViolation as error:
            raise ContainerFileMoved from error


# -- contents of files, in pieces ----------------------------------------------------------------------------


PIECE = 256 * 1024
DRAFTS_S = 86400.0  # age in seconds of drafts that killed processes left

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


class PostgresContainerFileContents:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin_draft(self, id: str, header_line: bytes) -> PostgresContainerFileDraft:
        database = self._database
        draft = secrets.token_hex(16)
        values = {"draft": draft, "head": header_line, "now": database.now_unless_database_clock()}
        await database.run(
            lambda connection: connection.execute(database.fill_in_table_names(_BEGIN), values)
        )
        return PostgresContainerFileDraft(database, id, draft)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        sql = self._database.fill_in_table_names
        read = self._database.read
        row = await read(lambda connection: connection.execute(sql(_DRAFT), (id,)).fetchone())
        if row is None:
            raise FileNotFoundError(id)
        for n in itertools.count():
            piece_key = (row[0], n)
            piece = await read(partial(_read_content_piece, self._database, piece_key))
            if piece is None:
                return
            yield piece

    async def remove(self, ids: Sequence[str]) -> None:
        def remove_drafts(connection: Connection) -> None:
            drafts = connection.execute(
                self._database.fill_in_table_names(_DRAFTS), (sorted(ids),)
            ).fetchall()
            _remove_drafts(connection, self._database, [draft for (draft,) in drafts])

        if ids:
            await self._database.transaction(remove_drafts)

    async def header_lines_by_file_id(self) -> Mapping[str, bytes]:
        """Read the first line of each file, and delete old drafts that killed processes left."""
        database = self._database

        def read_header_lines(connection: Connection) -> dict[str, bytes]:
            values = {"now": database.now_unless_database_clock(), "age_s": DRAFTS_S}
            leftover_rows = connection.execute(database.fill_in_table_names(_LEFT), values).fetchall()
            _remove_drafts(connection, database, [draft for (draft,) in leftover_rows])
            return dict(connection.execute(database.fill_in_table_names(_HEADS)).fetchall())

        return await database.transaction(read_header_lines)


class PostgresContainerFileDraft:
    def __init__(self, database: Database, id: str, draft: str) -> None:
        self._database = database
        self._id = id
        self._draft = draft
        self._waiting = bytearray()
        self._pieces = 0

    async def write(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) >= PIECE:
            await self._add_piece(PIECE)

    async def flush(self) -> None:
        if self._waiting:
            await self._add_piece(len(self._waiting))

    async def store_draft(self) -> None:
        database = self._database
        values = {"id": self._id, "draft": self._draft, "now": database.now_unless_database_clock()}

        def store_content(connection: Connection) -> None:
            drafts = connection.execute(database.fill_in_table_names(_DRAFTS), ([self._id],)).fetchall()
            _remove_drafts(connection, database, [draft for (draft,) in drafts])
            connection.execute(database.fill_in_table_names(_KEEP), values)

        try:
            await database.transaction(store_content)
        except UniqueViolation as error:  # another process has just stored a draft under this id
            raise ContainerFileMoved from error

    async def delete_draft(self) -> None:
        """
        Delete the draft, unless a row says that its content is stored.

        There is such a row if the result of its commit was lost, or if another process has written it since.
        """
        database = self._database

        def drop_draft(connection: Connection) -> None:
            drafts = connection.execute(database.fill_in_table_names(_DROPPABLE), (self._draft,)).fetchall()
            _remove_drafts(connection, database, [draft for (draft,) in drafts])

        self._waiting.clear()
        await database.transaction(drop_draft)

    async def _add_piece(self, size: int) -> None:
        sql = self._database.fill_in_table_names
        values = (self._draft, self._pieces, bytes(self._waiting[:size]))
        await self._database.run(lambda connection: connection.execute(sql(_ADD), values))
        del self._waiting[:size]
        self._pieces += 1


def _read_content_piece(
    database: Database, piece_key: tuple[str, int], connection: Connection
) -> bytes | None:
    row = connection.execute(database.fill_in_table_names(_PIECE), piece_key).fetchone()
    return None if row is None else bytes(row[0])


def _remove_drafts(connection: Connection, database: Database, drafts: Sequence[str]) -> None:
    if drafts:
        for statement in _REMOVE:
            connection.execute(database.fill_in_table_names(statement), (sorted(drafts),))
