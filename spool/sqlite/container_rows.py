"""Rows of container metrics in the spool's own file, in transactions of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from spool.container_files import rows
from spool.container_files.row_sums import SummedContainerRows, SumQueries
from spool.container_files.values import BookChange, ClusterIdentity, ContainerFile
from spool.errors import SpoolUnavailable
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import Expectation
from spool.sql.lists import read_page
from spool.sqlite.database import Database
from spool.sqlite.transactions import SqliteConnection

T = TypeVar("T")

_COLUMNS = tuple(each.name for each in fields(ContainerFile))
_NAMES = ", ".join(_COLUMNS)
_FLAGS = ("kept", "asked", "untold")
_MOST_VALUES = 500  # in one IN (...)

_PUT = f"INSERT OR REPLACE INTO container_files ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_FORGET = "DELETE FROM container_files WHERE id = ?"
_FIND = f"SELECT {_NAMES} FROM container_files WHERE id = ?"
_NAMED = f"""
    SELECT {_NAMES} FROM container_files
     WHERE kind = ? AND account = ? AND region = ? AND cluster = ? AND reference IN """

_ADD = """
    INSERT INTO container_books (kind, term, n, carried) VALUES (:kind, :term, :n, :carried)
        ON CONFLICT (kind, term) DO UPDATE SET n = n + excluded.n, carried = carried + excluded.carried"""
_BOOKS = "SELECT kind, term, n, carried FROM container_books"
_COUNT = "SELECT kind, state, COUNT(*) FROM container_files GROUP BY kind, state"
_CLUSTERS = """
    SELECT account, region, cluster, SUM(state = 'uploaded' OR (asked AND kept)), SUM(size * kept), MAX(uploaded_at)
      FROM container_files GROUP BY account, region, cluster ORDER BY account, region, cluster"""
_WAITING = """
    SELECT COUNT(*), COALESCE(SUM(size), 0), MIN(uploaded_at)
      FROM container_files WHERE state = 'uploaded' OR (asked AND kept)"""
_HELD = """
    SELECT account, region, cluster, key, SUM(state IN ('announced', 'uploaded')), SUM(size * kept),
           SUM(size * (kept AND (state = 'uploaded' OR asked)))
      FROM container_files GROUP BY account, region, cluster, key"""

_WHERE: Mapping[str, str] = {
    rows.DUE: "kind = :kind AND (state = 'uploaded' OR (asked AND kept)) AND not_before <= :now ORDER BY uploaded_at",
    rows.UNTOLD: "untold ORDER BY announced_at",
    rows.MISSING: "account = :account AND region = :region AND cluster = :cluster AND key = :key"
    " AND asked AND NOT kept ORDER BY announced_at",
    rows.OVERDUE: "state = 'announced' AND expires_at < :now ORDER BY announced_at",
    rows.UNSENT: "state = 'uploaded' AND uploaded_at < :now ORDER BY announced_at",
    rows.SPENT: "state = 'delivered' AND kept AND NOT asked AND done_at < :now"
    " AND (:account IS NULL OR (account = :account AND region = :region AND cluster = :cluster))"
    " AND :key IN ('', key) ORDER BY announced_at",
    rows.FORGETTABLE: "state NOT IN ('announced', 'uploaded') AND NOT kept AND NOT asked AND NOT untold"
    " ORDER BY announced_at",
}

_SUMS = SumQueries(books=_BOOKS, count=_COUNT, clusters=_CLUSTERS, waiting=_WAITING, held=_HELD)


class SqliteContainerRows(SummedContainerRows):
    sums = _SUMS

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, id: str) -> ContainerFile | None:
        found = await self._read(lambda connection: connection.execute(_FIND, (id,)).fetchone())
        return None if found is None else _file(found)

    async def named(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        of = (kind, identity.account, identity.region, identity.name)

        def work(connection: sqlite3.Connection) -> list[ContainerFile]:
            found: list[ContainerFile] = []
            for start in range(0, len(references), _MOST_VALUES):
                part = references[start : start + _MOST_VALUES]
                statement = f"{_NAMED} ({', '.join('?' * len(part))})"
                found += map(_file, connection.execute(statement, (*of, *part)))
            return found

        return {file.reference: file for file in await self._read(work)}

    async def select(
        self,
        which: str,
        *,
        limit: int,
        now: float = 0.0,
        kind: str = "",
        identity: ClusterIdentity | None = None,
        key: str = "",
    ) -> Sequence[ContainerFile]:
        values: dict[str, object] = {"limit": limit, "now": now, "kind": kind, "key": key}
        place = (None, None, None) if identity is None else (identity.account, identity.region, identity.name)
        values.update(zip(("account", "region", "cluster"), place, strict=True))
        statement = f"SELECT {_NAMES} FROM container_files WHERE {_WHERE[which]} LIMIT :limit"
        return await self._read(lambda connection: [_file(row) for row in connection.execute(statement, values)])

    async def confirm(self) -> None:
        """What can be read is on the disk."""

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        gone: Sequence[ContainerFile],
        changes: Sequence[BookChange],
        *,
        expects: Collection[Expectation] = (),
        most: int | None = None,
    ) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(_FORGET, [(file.id,) for file in gone])
            connection.executemany(_PUT, [[getattr(after, name) for name in _COLUMNS] for _, after in pairs])
            terms = [{"kind": one.kind, "term": one.term, "n": one.n, "carried": one.carried} for one in changes]
            connection.executemany(_ADD, terms)

        try:
            await self._database.transaction(work)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"container metrics cannot be written: {error}") from error

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        return await self._read(
            lambda connection: read_page(SqliteConnection(connection), "container_files", _COLUMNS, query, _file)
        )

    async def _all(self, statement: str) -> Iterable[Any]:
        return await self._read(lambda connection: connection.execute(statement).fetchall())

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._database.read(work)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"container metrics cannot be read: {error}") from error


def _file(row: Sequence[Any]) -> ContainerFile:
    values = dict(zip(_COLUMNS, row, strict=True))
    return ContainerFile(**{**values, **{name: bool(values[name]) for name in _FLAGS}})
