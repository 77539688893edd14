"""Rows of container metrics where several processes change them: who replaces a row says what it was."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spool.container_files.books import ROW_TERMS
from spool.container_files.container_rows import ContainerFileMoved, TooManyFiles
from spool.container_files.values import BookChange, ContainerFile
from spool.log.partial_reports import Expectation
from spool.postgres.database import Connection, Database, UniqueViolation
from spool.postgres.registry.bearers import check_bearers, hold_keys
from spool.postgres.transactions import PostgresConnection, PostgresTransactions
from spool.sql.container_rows import FILE, FILES, SqlContainerRows, write_rows

_LOCKED = f"{FILES} WHERE id IN :ids ORDER BY id FOR UPDATE"
_LOCK_BOOKS = "SELECT term FROM {schema}.container_books ORDER BY kind, term FOR UPDATE"
_KNOWN = """
    SELECT CAST(coalesce(sum(n - carried), 0) AS bigint) FROM {schema}.container_books
     WHERE term IN :terms"""


class PostgresContainerRows(SqlContainerRows):
    """See `spool.container_files.container_rows.ContainerRows`."""

    # The index has hashes: a reference may be as long as an address.
    by_reference = (
        "md5(reference) IN (SELECT md5(one) FROM unnest(CAST(:references AS text[])) AS one)"
        " AND reference IN :references"
    )

    def __init__(self, database: Database) -> None:
        super().__init__(PostgresTransactions(database))
        self._database = database

    async def confirm(self) -> None:
        await self._database.confirm()

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        gone: Sequence[ContainerFile],
        changes: Sequence[BookChange],
        *,
        expects: Collection[Expectation] = (),
        most: int | None = None,
    ) -> None:
        before = {file.id: file for file in (*(one for one, _ in pairs if one is not None), *gone)}
        is_bounded = most is not None and sum(one is None for one, _ in pairs) > len(gone)
        is_answered = most is not None or bool(expects)  # to a sender
        sql = self._database.sql

        def work(on: Connection) -> None:
            connection = PostgresConnection(on, sql)
            if is_answered:
                self._database.check_standby(on)
            if before:
                stored = map(FILE.read, connection.all(_LOCKED, ids=sorted(before)))
                if {file.id: file for file in stored} != before:
                    raise ContainerFileMoved
            hold_keys(on, sql, expects)
            check_bearers(on, sql, expects, now=self._database.now())
            if is_bounded:  # of two who add rows at once the second one sees those of the first
                connection.all(_LOCK_BOOKS)
            write_rows(connection, pairs, gone, changes)
            if is_bounded:
                [known] = connection.one(_KNOWN, terms=sorted(ROW_TERMS))
                if known > most:
                    raise TooManyFiles

        # A sender hears that it is done, and may remove what it has: a standby has the row then, and the
        # bytes, which were written before. What became of a file upstream is not asked for: were that lost,
        # the same bytes would be sent again under the same name.
        needs_standby = self._database.needs_standby and is_answered
        try:
            await self._database.transaction(work, needs_standby=(lambda _: True) if needs_standby else None)
        except UniqueViolation as error:
            raise ContainerFileMoved from error
