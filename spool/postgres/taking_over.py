"""
Takes over what another engine kept: same numbers, ids and receipts, bodies and checksums as they are.

Most tables have the columns of the SQLite engine. What is otherwise is made here: commit rows, which carry the numbers
of the log, entries and amendments in one period, waiting reports, and the ledger's money.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec

from spool.errors import NotAllowed, SpoolDamaged
from spool.installation import make_secret
from spool.ledger import money
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Dimensions
from spool.log import books
from spool.log.commits.following import of_topics
from spool.log.expectations import version_of
from spool.log.partial_reports import PartialReport, kind_of
from spool.postgres.address import open_database, read_secret
from spool.postgres.database import Connection, Database
from spool.postgres.facts import agree
from spool.postgres.ledger.rows import digest_of, stored, tag_values
from spool.postgres.log.entries import code
from spool.postgres.log.store import ROW_BYTES
from spool.postgres.migrations import migrate
from spool.record import TOPICS
from spool.storage import Discard, StorageOptions
from spool.transfer.tables import KeptTable, KeptTables

AT_ONCE = 500  # rows
PERIOD = 1  # the first one has everything
_NOBODY = UUID(int=0)

# By their names there: columns that a source does not have get these values.
_SAME: Mapping[str, Mapping[str, Any]] = {
    "routes": {"named_at": 0.0},
    "deliveries": {},
    "dead": {},
    "refusals": {},
    "devices": {"row_version": 1, "written_at": 0.0},
    "unenrolled": {},
    "clusters": {},
    "streams": {},
    "stream_totals": {},
    "stream_sizes": {},
    "billing_hours": {},
    "billing_drops": {},
    "billing_rows": {},
    "billing_months": {},
    "container_files": {},
    "container_books": {},
    "series": {},
    "conflicts": {},
    "unrecognised": {},
    "event_types": {},
    "id_runs": {},
    "books": {},
    "amendments": {"period": PERIOD},
    "registry.keys": {},
    "registry.operators": {},
    "registry.sessions": {},
    "registry.links": {},
    "registry.audit": {},
    "registry.insights": {},
    "registry.comments": {},
    "registry.connections": {},
    "registry.documents": {},
}
# What is empty in a storage that nobody has used.
_USED = "commits", "routes", "devices", "keys", "operators", "documents", "ledger_hours", "ledger_days"
_COLUMNS = """
    SELECT column_name, data_type, is_identity = 'YES' FROM information_schema.columns
     WHERE table_schema = %s AND table_name = %s"""
_LIVE = "SELECT count(*) FROM {schema}.nodes WHERE seen_at > extract(epoch FROM clock_timestamp()) - 5"


async def take_over(options: StorageOptions, opened: Callable[[], AbstractContextManager[KeptTables]]) -> Discard:
    """
    Fill an empty schema, in one transaction; returns what empties it again. The secret is written where its file is not
    there yet.

    NotAllowed where something is kept already, a node runs, the secret is another one, or records are still open.
    """
    settings = options.storage
    with opened() as tables:
        if settings.secret_file is not None and not settings.secret_file.exists():
            make_secret(settings.secret_file, tables.secret)
        if read_secret(settings) != tables.secret:
            raise NotAllowed(f"storage.secret_file: {settings.secret_file} is another secret than the one to copy")
    database = open_database(settings)
    try:
        await migrate(database)
        await agree(database, read_secret(settings), options.settings)

        def work(connection: Connection) -> None:
            with opened() as tables:
                _TakingOver(database, connection, tables).run()

        await database.transaction(work)
    finally:
        await database.close()

    async def discard() -> None:
        database = open_database(settings)
        try:
            await database.run(lambda connection: connection.execute(database.sql("DROP SCHEMA {schema} CASCADE")))
        finally:
            await database.close()

    return discard


class _TakingOver:
    """One run of it, on the connection's thread."""

    def __init__(self, database: Database, connection: Connection, tables: KeptTables) -> None:
        self._database = database
        self._connection = connection
        self._tables = tables

    def run(self) -> None:
        self._check_empty()
        facts = {row["name"]: row["value"] for row in self._rows("facts")}
        self._write("facts", [{"name": "incarnation", "value": facts["incarnation"]}], replace="name")
        if since := facts.get("streams since"):
            self._write("facts", [{"name": "streams since", "value": since}], replace="name")
        newest = {row["name"]: row["seq"] for row in self._rows("registry.sqlite_sequence")}
        for name, more in _SAME.items():
            self._write(name.rpartition(".")[2], ({**row, **more} for row in self._rows(name)))
        self._write("secrets", self._secrets())
        self._write("registry_facts", self._rows("registry.facts"))
        self._run(
            "UPDATE {schema}.registry_head SET seq = seq + 1, newest_key = %s, newest_comment = %s",
            newest.get("keys", 0),
            newest.get("comments", 0),
        )
        self._write("partial_reports", map(_partial_report, self._rows("pending")))
        self._take_log(facts)
        self._take_ledger()
        for row in self._rows("sqlite_sequence"):
            if self._identity(row["name"]):
                self._run(f"ALTER TABLE {{schema}}.{row['name']} ALTER COLUMN id RESTART WITH {int(row['seq']) + 1}")

    def _check_empty(self) -> None:
        for table in _USED:
            if self._one(f"SELECT EXISTS (SELECT FROM {{schema}}.{table})"):
                raise NotAllowed(f"the schema {self._database.name} is not empty: it has rows in {table}")
        if self._one(_LIVE):
            raise NotAllowed("a gateway uses the schema: stop it first")
        if any(row["kept"] for row in self._rows("container_files")):
            raise NotAllowed("container files are kept, and are not copied: let them be sent or removed first")

    def _take_log(self, facts: Mapping[str, bytes]) -> None:
        """Numbers are those of the newest commit row, which is added: rows before it may have lost their neighbours."""
        size = entries = 0
        oldest = dict.fromkeys(TOPICS, 0)
        upto = dict.fromkeys(TOPICS, 1)

        def moved() -> Iterator[dict[str, Any]]:
            nonlocal size, entries
            for row in self._rows("entries"):
                topic, first = row["topic"], row["first"]
                oldest[topic] = min(oldest[topic] or first, first)
                upto[topic] = max(upto[topic], first + row["count"])
                size += ROW_BYTES + len(row["body"])
                entries += 1
                yield {**row, "at": row["committed_at"], "period": PERIOD}

        self._write("entries", moved())
        self._write("damaged", (row for row in self._rows("entries") if row["damaged"]))
        numbers, first_commit, last, at = dict.fromkeys(TOPICS, 1), 0, 0, 0.0

        def commits() -> Iterator[dict[str, Any]]:
            nonlocal first_commit, last, at
            for row in self._rows("commits"):
                terms = books.checked_terms(row["terms"], row["checksum"])
                if terms is None:
                    raise SpoolDamaged(f"commit {row['id']} cannot be read: tollhouse doctor says what to do")
                for one in terms:
                    numbers[one.topic] = max(numbers[one.topic], one.first + one.accepted)
                first_commit, last, at = first_commit or row["id"], row["id"], max(at, row["committed_at"])
                ends = of_topics(numbers)
                yield _commit(row["id"], at, ends, row["terms"], row["checksum"], entries=0, size=0)

        self._write("commits", commits())
        for topic in TOPICS:
            numbers[topic] = max(numbers[topic], upto[topic])
        folded = msgspec.msgpack.decode(facts["ids"], type=_Folded) if "ids" in facts else _Folded()
        through = of_topics(folded.through, 0)
        if through != [number - 1 for number in of_topics(numbers)]:
            raise NotAllowed("its newest records are still open: leave it stopped for spool.hold, then copy again")
        terms = books.pack_terms([])
        final = _commit(last + 1, at, of_topics(numbers), terms, zlib.crc32(terms), entries=entries, size=size)
        self._write("commits", [final])
        kept_from = [oldest[topic] or numbers[topic] for topic in TOPICS]
        carried = first_commit - 1 if first_commit else last
        self._run("UPDATE {schema}.marks SET booked = %s, carried = %s, kept_from = %s", last + 1, carried, kept_from)
        self._run(
            "UPDATE {schema}.folds SET seq = seq + 1, commit = %s, through = %s, covered_since = %s",
            last,
            through,
            folded.covered_since,
        )
        self._run("UPDATE {schema}.periods SET at = %s", at)

    def _take_ledger(self) -> None:
        self._write("ledger_keys", map(_ledger_key, self._rows("ledger.keys")))
        for name in ("hours", "days"):
            self._write(f"ledger_{name}", map(_ledger_sum, self._rows(f"ledger.{name}")))
        self._write("ledger_periods", self._rows("ledger.periods"))
        self._write("ledger_state", self._rows("ledger.state"), replace="name")
        newest = self._one("SELECT COALESCE(max(id), 0) + 1 FROM {schema}.ledger_keys")
        self._run(f"ALTER TABLE {{schema}}.ledger_keys ALTER COLUMN id RESTART WITH {int(newest)}")

    def _secrets(self) -> Iterator[dict[str, Any]]:
        places: dict[int, int] = {}
        for row in self._rows("registry.secrets"):
            place = places[row["key_id"]] = places.get(row["key_id"], -1) + 1
            yield {**row, "place": place}

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        table: KeptTable = self._tables.table(name)
        for row in table.rows:
            yield dict(zip(table.columns, row, strict=True))

    def _write(self, table: str, rows: Iterable[Mapping[str, Any]], *, replace: str = "") -> None:
        """Rows by the columns that the table has; of a source's others nothing is needed."""
        kinds = {name: (kind, identity) for name, kind, identity in self._columns(table)}
        rows = iter(rows)
        first = next(rows, None)
        if first is None:
            return
        names = [name for name in kinds if name in first or name == "shard"]
        columns = ", ".join(f'"{name}"' for name in names)
        statement = (
            f"INSERT INTO {{schema}}.{table} ({columns}) OVERRIDING SYSTEM VALUE"
            f" VALUES ({', '.join('%s' for _ in names)})"
        )
        if replace:
            statement += f" ON CONFLICT ({replace}) DO UPDATE SET value = excluded.value"
        cursor, text = self._connection.cursor(), self._database.sql(statement)
        values = [_value(first, name, kinds[name][0]) for name in names]
        cursor.execute(text, values)
        while part := list(islice(rows, AT_ONCE)):
            cursor.executemany(text, [[_value(row, name, kinds[name][0]) for name in names] for row in part])

    def _columns(self, table: str) -> Sequence[tuple[str, str, bool]]:
        return self._connection.execute(_COLUMNS, (self._database.name, table)).fetchall()

    def _identity(self, table: str) -> bool:
        return any(identity for _, _, identity in self._columns(table))

    def _one(self, statement: str) -> Any:
        [(value,)] = self._connection.execute(self._database.sql(statement)).fetchall()
        return value

    def _run(self, statement: str, *values: Any) -> None:
        self._connection.execute(self._database.sql(statement), values)


class _Folded(msgspec.Struct):
    """How far ids are in runs, as the SQLite engine has it among its facts."""

    through: dict[str, int] = {}
    covered_since: float = 0.0


def _value(row: Mapping[str, Any], name: str, kind: str) -> Any:
    """A value as the column keeps it: truths are numbers there, and some texts are bytes here."""
    if name == "shard":
        return 0
    value = row[name]
    if kind == "boolean":
        return None if value is None else bool(value)
    if kind == "bytea" and isinstance(value, str):
        return value.encode()
    if kind == "smallint" and isinstance(value, str):
        return code(value)
    return value


def _commit(
    id: int, at: float, ends: list[int], terms: bytes, checksum: int, *, entries: int, size: int
) -> dict[str, Any]:
    return {
        "id": id,
        "period": PERIOD,
        "token": secrets.randbits(63),
        "node": _NOBODY,
        "at": at,
        "next": ends,
        "closed": ends,
        "durable": id,
        "entries": entries,
        "size": size,
        "checksum": checksum,
        "terms": terms,
        "ids": b"",
        "found": None,
    }


def _partial_report(row: Mapping[str, Any]) -> dict[str, Any]:
    report = PartialReport(row["key"], row["at"], row["body"])
    return {**row, "kind": kind_of(report.key), "version": version_of(report)}


def _ledger_key(row: Mapping[str, Any]) -> dict[str, Any]:
    dimensions = Dimensions(*(row[name] for name in Dimensions._fields))
    texts = {name: stored(value) for name, value in row.items()}
    return {**texts, "digest": digest_of(dimensions), "tag_values": tag_values(dimensions.tags)}


def _ledger_sum(row: Mapping[str, Any]) -> dict[str, Any]:
    """Three limbs of nine decimals are one number here."""
    sums = {name: row[name] for name in ("start", "key", *COUNTS, *LATENCY)}
    for name in MONEY:
        sums[name] = money.text(money.joined(*(row[f"{name}_{limb}"] for limb in (1, 2, 3))))
    return sums
