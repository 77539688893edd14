"""Rows of container metrics, in transactions of their own: who replaces a row says what it was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from spool.container_files import rows
from spool.container_files.books import ROW_TERMS
from spool.container_files.row_sums import SummedContainerRows, SumQueries
from spool.container_files.rows import ContainerFileMoved, TooManyFiles
from spool.container_files.values import BookChange, ClusterIdentity, ContainerFile
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import Expectation
from spool.postgres.database import Connection, Database, UniqueViolation
from spool.postgres.registry.bearers import check_bearers, hold_keys
from spool.postgres.transactions import PostgresConnection
from spool.sql.lists import read_page

_NAMES = tuple(each.name for each in fields(ContainerFile))
_COLUMNS = ", ".join(_NAMES)
_ALL = f"SELECT {_COLUMNS} FROM {{schema}}.container_files"
_ADD = f"""
    INSERT INTO {{schema}}.container_files ({_COLUMNS}) VALUES ({", ".join(f"%({name})s" for name in _NAMES)})"""
_CHANGE = f"""
    UPDATE {{schema}}.container_files SET {", ".join(f"{name} = %({name})s" for name in _NAMES if name != "id")}
     WHERE id = %(id)s"""
_FORGET = "DELETE FROM {schema}.container_files WHERE id = ANY(%s)"
_LOCKED = f"{_ALL} WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_NAMED = f"""
    {_ALL} WHERE kind = %(kind)s AND account = %(account)s AND region = %(region)s AND cluster = %(cluster)s
             AND md5(reference) IN (SELECT md5(one) FROM unnest(%(references)s::text[]) AS one)
             AND reference = ANY(%(references)s::text[])"""
_BOOK = """
    INSERT INTO {schema}.container_books AS book (kind, term, n, carried)
    VALUES (%(kind)s, %(term)s, %(n)s, %(carried)s)
        ON CONFLICT (kind, term) DO UPDATE SET n = book.n + excluded.n, carried = book.carried + excluded.carried"""
_LOCK_BOOKS = "SELECT term FROM {schema}.container_books ORDER BY kind, term FOR UPDATE"
_KNOWN = "SELECT coalesce(sum(n - carried), 0)::bigint FROM {schema}.container_books WHERE term = ANY(%s)"
_BOOKS = "SELECT kind, term, n, carried FROM {schema}.container_books"
_COUNT = "SELECT kind, state, count(*) FROM {schema}.container_files GROUP BY kind, state"
_DUE = "(state = 'uploaded' OR (asked AND kept))"
_CLUSTERS = f"""
    SELECT account, region, cluster, count(*) FILTER (WHERE {_DUE}),
           coalesce(sum(size) FILTER (WHERE kept), 0)::bigint, max(uploaded_at)
      FROM {{schema}}.container_files GROUP BY account, region, cluster ORDER BY account, region, cluster"""
_WAITING = f"""
    SELECT count(*), coalesce(sum(size), 0)::bigint, min(uploaded_at) FROM {{schema}}.container_files WHERE {_DUE}"""
_HELD = f"""
    SELECT account, region, cluster, key, count(*) FILTER (WHERE state IN ('announced', 'uploaded')),
           coalesce(sum(size) FILTER (WHERE kept), 0)::bigint,
           coalesce(sum(size) FILTER (WHERE kept AND {_DUE}), 0)::bigint
      FROM {{schema}}.container_files GROUP BY account, region, cluster, key"""

_OF_CLUSTER = "account = %(account)s::text AND region = %(region)s::text AND cluster = %(cluster)s::text"
_WHERE: Mapping[str, str] = {
    rows.DUE: f"kind = %(kind)s AND {_DUE} AND not_before <= %(now)s ORDER BY uploaded_at NULLS FIRST, id",
    rows.UNTOLD: "untold ORDER BY announced_at, id",
    rows.MISSING: f"{_OF_CLUSTER} AND key = %(key)s AND asked AND NOT kept ORDER BY announced_at, id",
    rows.OVERDUE: "state = 'announced' AND expires_at < %(now)s ORDER BY announced_at, id",
    rows.UNSENT: "state = 'uploaded' AND uploaded_at < %(now)s ORDER BY announced_at, id",
    rows.SPENT: "state = 'delivered' AND kept AND NOT asked AND done_at < %(now)s"
    f" AND (%(account)s::text IS NULL OR ({_OF_CLUSTER}))"
    " AND %(key)s::text IN ('', key) ORDER BY announced_at, id",
    rows.FORGETTABLE: "state NOT IN ('announced', 'uploaded') AND NOT kept AND NOT asked AND NOT untold"
    " ORDER BY announced_at, id",
}

_SUMS = SumQueries(books=_BOOKS, count=_COUNT, clusters=_CLUSTERS, waiting=_WAITING, held=_HELD)


class PostgresContainerRows(SummedContainerRows):
    """See `spool.container_files.rows.ContainerRows`."""

    sums = _SUMS

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, id: str) -> ContainerFile | None:
        found = await self._all(f"{_ALL} WHERE id = %s", (id,))
        return _file(found[0]) if found else None

    async def named(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        values = {**_place(identity), "kind": kind, "references": list(references)}
        return {file.reference: file for file in map(_file, await self._all(_NAMED, values))}

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
        values = {**_place(identity), "limit": limit, "now": now, "kind": kind, "key": key}
        return [_file(row) for row in await self._all(f"{_ALL} WHERE {_WHERE[which]} LIMIT %(limit)s", values)]

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
        # New ones in the order of what is unique among them, as their ids are drawn by lot.
        new = [_row(file) for file in sorted((after for one, after in pairs if one is None), key=_name)]
        changed = sorted((_row(after) for one, after in pairs if one is not None), key=lambda row: str(row["id"]))
        terms = sorted((asdict(change) for change in changes), key=lambda row: (row["kind"], row["term"]))
        sql = self._database.sql
        is_bounded = most is not None and len(new) > len(gone)
        is_answered = most is not None or bool(expects)  # to a sender

        def work(connection: Connection) -> None:
            if is_answered:
                self._database.check_standby(connection)
            if before:
                found = connection.execute(sql(_LOCKED), (sorted(before),)).fetchall()
                if {file.id: file for file in map(_file, found)} != before:
                    raise ContainerFileMoved
            hold_keys(connection, sql, expects)
            check_bearers(connection, sql, expects, now=self._database.now())
            if is_bounded:  # of two who add rows at once the second one sees those of the first
                connection.execute(sql(_LOCK_BOOKS))
            if gone:
                connection.execute(sql(_FORGET), (sorted(file.id for file in gone),))
            with connection.cursor() as cursor:
                for statement, values in ((_CHANGE, changed), (_ADD, new), (_BOOK, terms)):
                    if values:
                        cursor.executemany(sql(statement), values)
            if is_bounded:
                [[known]] = connection.execute(sql(_KNOWN), (sorted(ROW_TERMS),)).fetchall()
                if known > most:
                    raise TooManyFiles

        # A sender hears that it is done, and may remove what it has: a standby has the row then, and with it the bytes,
        # which were written before. What became of a file upstream is not asked for: were that lost, the same bytes
        # would be sent again under the same name.
        needs_standby = self._database.needs_standby and is_answered
        try:
            await self._database.transaction(work, needs_standby=(lambda _: True) if needs_standby else None)
        except UniqueViolation as error:
            raise ContainerFileMoved from error

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        sql = self._database.sql
        return await self._database.snapshot(
            lambda connection: read_page(PostgresConnection(connection, sql), "container_files", _NAMES, query, _file)
        )

    async def _all(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        sql = self._database.sql
        return await self._database.read(lambda connection: connection.execute(sql(statement), values).fetchall())


def _place(identity: ClusterIdentity | None) -> dict[str, object]:
    if identity is None:
        return {"account": None, "region": None, "cluster": None}
    return {"account": identity.account, "region": identity.region, "cluster": identity.name}


def _name(file: ContainerFile) -> tuple[str, ...]:
    return file.kind, file.account, file.region, file.cluster, file.reference


def _row(file: ContainerFile) -> dict[str, object]:
    return {name: getattr(file, name) for name in _NAMES}


def _file(row: Sequence[Any]) -> ContainerFile:
    return ContainerFile(**dict(zip(_NAMES, row, strict=True)))
