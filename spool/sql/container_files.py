from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from spool.container_files import container_rows
from spool.container_files.container_rows import OPEN, UsageDay, UsageDocument
from spool.container_files.values import (
    ClusterFiles,
    ClusterIdentity,
    ContainerFile,
    ContainerFileSums,
    FileCountChange,
    WaitingFiles,
)
from spool.listing import ListPage, ListQuery
from spool.log.partial_reports import ExpectedVersion
from spool.sql.columns import RowColumns, select_sql, upsert_sql
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.lists import CachedFieldValues, read_page

FILE = RowColumns(ContainerFile)
FILES = select_sql("container_files", FILE.names)
_PUT = upsert_sql("container_files", FILE.names, "id")
_FORGET = "DELETE FROM {schema}.container_files WHERE id IN :ids"
_NAMED = f"{FILES} WHERE kind = :kind AND account = :account AND region = :region AND cluster = :cluster AND "
_BOOK = """
    INSERT INTO {schema}.container_books AS book (kind, term, n, carried) VALUES (:kind, :term, :n, :carried)
        ON CONFLICT (kind, term) DO UPDATE
       SET n = book.n + excluded.n, carried = book.carried + excluded.carried"""
_BOOKS = "SELECT kind, term, n, carried FROM {schema}.container_books"
_COUNT = "SELECT kind, state, count(*) FROM {schema}.container_files GROUP BY kind, state"
_DUE = "(state = 'uploaded' OR (asked AND kept))"
_CLUSTERS = f"""
    SELECT account, region, cluster, count(*) FILTER (WHERE {_DUE}),
           CAST(coalesce(sum(size) FILTER (WHERE kept), 0) AS bigint), max(uploaded_at)
      FROM {{schema}}.container_files GROUP BY account, region, cluster ORDER BY account, region, cluster"""
_WAITING = f"""
    SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint), min(uploaded_at)
      FROM {{schema}}.container_files WHERE {_DUE}"""
_HELD = f"""
    SELECT account, region, cluster, key, count(*) FILTER (WHERE state IN ('announced', 'uploaded')),
           CAST(coalesce(sum(size) FILTER (WHERE kept), 0) AS bigint),
           CAST(coalesce(sum(size) FILTER (WHERE kept AND {_DUE}), 0) AS bigint)
      FROM {{schema}}.container_files GROUP BY account, region, cluster, key"""

_OF_CLUSTER = " AND ".join(f"{name} = CAST(:{name} AS text)" for name in ("account", "region", "cluster"))
# a time beyond the longest pause was written by a clock that was ahead, so it is ignored
_HAS_RESTED = f"(not_before <= :now OR not_before > :now + {container_rows.LONGEST_REST_S})"
_WHERE: Mapping[str, str] = {
    container_rows.DUE: f"kind = :kind AND {_DUE} AND {_HAS_RESTED} ORDER BY uploaded_at NULLS FIRST, id",
    container_rows.UNTOLD: "untold ORDER BY announced_at, id",
    container_rows.MISSING: f"{_OF_CLUSTER} AND key = :key AND asked AND NOT kept ORDER BY announced_at, id",
    container_rows.OVERDUE: "state = 'announced' AND expires_at < :now ORDER BY announced_at, id",
    container_rows.UNSENT: "state = 'uploaded' AND uploaded_at < :now ORDER BY announced_at, id",
    container_rows.SPENT: "state = 'delivered' AND kept AND NOT asked AND done_at < :now"
    f" AND (CAST(:account AS text) IS NULL OR ({_OF_CLUSTER}))"
    " AND CAST(:key AS text) IN ('', key) ORDER BY announced_at, id",
    container_rows.FORGETTABLE: "state NOT IN ('announced', 'uploaded') AND NOT kept AND NOT asked AND NOT untold"
    " ORDER BY announced_at, id",
    container_rows.READABLE: "kept AND kind IN ('file', 'remote-write') AND uploaded_at >= :now"
    " ORDER BY uploaded_at, id",
}


class SqlContainerRows:
    by_reference: ClassVar = "reference IN :references"

    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions
        self._told = CachedFieldValues()

    async def find(self, id: str) -> ContainerFile | None:
        files = await self._read_files(f"{FILES} WHERE id = :id", id=id)
        return files[0] if files else None

    async def files_by_reference(
        self, kind: str, identity: ClusterIdentity, references: Sequence[str]
    ) -> Mapping[str, ContainerFile]:
        statement = _NAMED + self.by_reference
        files = await self._read_files(
            statement, **_identity_parameters(identity), kind=kind, references=list(references)
        )
        return {file.reference: file for file in files}

    async def select_files(
        self,
        condition: str,
        *,
        limit: int,
        now: float = 0.0,
        kind: str = "",
        identity: ClusterIdentity | None = None,
        key: str = "",
    ) -> Sequence[ContainerFile]:
        statement = f"{FILES} WHERE {_WHERE[condition]} LIMIT :limit"
        return await self._read_files(
            statement, **_identity_parameters(identity), limit=limit, now=now, kind=kind, key=key
        )

    async def wait_until_durable(self) -> None:
        """Do nothing, because readable rows are on disk."""

    async def write(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        removed_files: Sequence[ContainerFile],
        changes: Sequence[FileCountChange],
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        await self._transactions.transaction(
            lambda connection: write_rows(connection, pairs, removed_files, changes)
        )

    async def file_counters_by_kind_and_state(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        return {(kind, term): (n, carried) for kind, term, n, carried in await self._read_rows(_BOOKS)}

    async def counts_by_state(self) -> Mapping[tuple[str, str], int]:
        return {(kind, state): n for kind, state, n in await self._read_rows(_COUNT)}

    async def cluster_files(self) -> Sequence[ClusterFiles]:
        return [
            ClusterFiles(
                identity=ClusterIdentity(*identity_values), waiting=waiting, bytes=size, newest=newest
            )
            for *identity_values, waiting, size, newest in await self._read_rows(_CLUSTERS)
        ]

    async def waiting_files(self) -> WaitingFiles:
        [(files, size, oldest)] = await self._read_rows(_WAITING)
        return WaitingFiles(files=files, bytes=size, oldest=oldest)

    async def file_sums_per_cluster_and_key(self) -> Sequence[ContainerFileSums]:
        return [
            ContainerFileSums(
                identity=ClusterIdentity(*identity_values), key=key, open=n, bytes=size, waiting_bytes=waiting
            )
            for *identity_values, key, n, size, waiting in await self._read_rows(_HELD)
        ]

    async def page(self, query: ListQuery) -> ListPage[ContainerFile]:
        cached = self._told.recent_values()
        untold = tuple(name for name in query.known if name not in cached)
        remaining_query = replace(query, known=untold)
        page = await self._transactions.snapshot(
            lambda connection: read_page(
                connection, "container_files", FILE.names, remaining_query, FILE.read_row
            )
        )
        self._told.remember_values(page.known)
        return replace(page, known={**cached, **page.known})

    async def _read_files(self, statement: str, **values: object) -> list[ContainerFile]:
        return [FILE.read_row(row) for row in await self._read_rows(statement, **values)]

    async def _read_rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        return await self._transactions.read(lambda connection: connection.all(statement, **values))


def write_rows(
    connection: SqlConnection,
    pairs: Iterable[tuple[ContainerFile | None, ContainerFile]],
    removed_files: Iterable[ContainerFile],
    changes: Iterable[FileCountChange],
) -> None:
    """Write changed rows, always in the same order, so that two writers cannot deadlock."""
    changed = sorted((after for before, after in pairs if before is not None), key=lambda file: file.id)
    # sorted by the unique name, because ids are random
    new = sorted((after for before, after in pairs if before is None), key=_file_name)
    terms = sorted((asdict(change) for change in changes), key=lambda row: (row["kind"], row["term"]))
    ids = sorted(file.id for file in removed_files)
    if ids:
        connection.run(_FORGET, ids=ids)
    for statement, values in (
        (_PUT, [FILE.stored_values(file) for file in (*changed, *new)]),
        (_BOOK, terms),
    ):
        if values:
            connection.run_each(statement, values)


def _identity_parameters(identity: ClusterIdentity | None) -> dict[str, object]:
    if identity is None:
        return {"account": None, "region": None, "cluster": None}
    return {"account": identity.account, "region": identity.region, "cluster": identity.name}


def _file_name(file: ContainerFile) -> tuple[str, ...]:
    return file.kind, file.account, file.region, file.cluster, file.reference


# -- usage of containers -------------------------------------------------------------------------------------


_DAY, _DOCUMENT = RowColumns(UsageDay), RowColumns(UsageDocument)
_TABLE = "container_usage"
_KEY = ("account", "region", "cluster", "day")
_OF_KEY = "account = :account AND region = :region AND cluster = :cluster AND day = :day"
_ONE = f"{select_sql(_TABLE, _DOCUMENT.names)} WHERE {_OF_KEY}"
_DAYS = f"{select_sql(_TABLE, _DAY.names)} WHERE day >= :since ORDER BY day, account, region, cluster"
_PUT_USAGE = upsert_sql(_TABLE, _DOCUMENT.names, *_KEY)
# locked in the order in which `store_documents` writes, so that writers cannot deadlock
_OLD = f"""
    {select_sql(_TABLE, _KEY)} WHERE day > {OPEN} AND day < :before
    ORDER BY account, region, cluster, day {{for_update}}"""
_DELETE = f"DELETE FROM {{schema}}.{_TABLE} WHERE {_OF_KEY}"


class SqlContainerUsage:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None:
        def read_usage_document(connection: SqlConnection) -> UsageDocument | None:
            rows = connection.all(_ONE, **_identity_parameters(identity), day=day)
            return _DOCUMENT.read_row(rows[0]) if rows else None

        return await self._transactions.read(read_usage_document)

    async def days_since(self, since_day: int) -> Sequence[UsageDay]:
        def read_usage_days(connection: SqlConnection) -> list[UsageDay]:
            return [_DAY.read_row(row) for row in connection.all(_DAYS, since=since_day)]

        return await self._transactions.read(read_usage_days)

    async def store_documents(self, documents: Sequence[UsageDocument]) -> None:
        ordered = sorted(documents, key=lambda document: (document.identity, document.day))
        rows = [_DOCUMENT.stored_values(document) for document in ordered]
        await self._transactions.transaction(lambda connection: connection.run_each(_PUT_USAGE, rows))

    async def delete_old_days(self, before_day: int) -> None:
        def lock_and_delete(connection: SqlConnection) -> None:
            keys = [dict(zip(_KEY, row, strict=True)) for row in connection.all(_OLD, before=before_day)]
            connection.run_each(_DELETE, keys)

        await self._transactions.transaction(lock_and_delete)
