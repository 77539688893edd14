"""
Takes over what another engine kept: same numbers, ids and receipts, bodies and checksums as they are.

Most tables have the columns of the SQLite engine. What is otherwise is made here: commit rows, which carry
the numbers of the log and the ids that are in no run yet, entries and amendments in one period, waiting
reports, the bytes of container metrics, and the ledger's money.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Event
from typing import Any

import msgspec

from spool.clock import Clock
from spool.errors import NotAllowed, SpoolDamaged, SpoolUnavailable
from spool.installation import derived, make_secret
from spool.log import books, places
from spool.log.commits.following import UNKNOWN_TOKEN, names_in, of_topics
from spool.log.commits.unfolded import FoldedIds
from spool.log.counters import KNOWN_SINCE
from spool.log.heard import unpack_senders
from spool.postgres.address import agree, open_database, read_secret
from spool.postgres.database import LIVE, Connection, Database
from spool.postgres.log.store import ROW_BYTES
from spool.postgres.migrations import found_version, migrate
from spool.postgres.transfer import tables, unfinished
from spool.postgres.transfer.copied_rows import FIRST, MAKERS, NewestIds, column_value, commit_row
from spool.postgres.transfer.unfinished import check_standby, tell_while_it_waits
from spool.record import AI_TELEMETRY, TOPICS
from spool.settings import StorageSettings
from spool.storage import StorageOptions
from spool.transfer.tables import (
    NEWEST_NUMBERS,
    SETTINGS,
    KeptTable,
    KeptTables,
    MadeCopy,
    OpenTables,
    Progress,
    check_known,
    newest_numbers,
    parts,
)

COMMIT_S = 3600.0  # a standby has much to receive before it confirms all at once

_log = logging.getLogger(__name__)

# Of the tables that a source gives, those that are not taken row by row.
_APART = frozenset({"facts", "entries", "commits", "secrets", "heard", "ledger_state", NEWEST_NUMBERS})
_BEGUN = frozenset({"facts", "ledger_state"})  # a new schema has rows in them
_LIVE = f"SELECT EXISTS (SELECT FROM {{schema}}.nodes WHERE {LIVE})"
_ADD_CONTENT = "INSERT INTO {schema}.container_contents (draft, id, head, at) VALUES (%s, %s, %s, %s)"
_ADD_PIECE = "INSERT INTO {schema}.container_pieces (draft, n, body) VALUES (%s, %s, %s)"


async def take_over(options: StorageOptions, opened: OpenTables, progress: Progress) -> MadeCopy:
    """
    Fill an empty schema in one transaction, marked as unfinished before. The secret is written where its file
    is not there yet.

    NotAllowed where something is kept already, a node runs, or the secret is another one. SpoolUnavailable
    where no standby would confirm the copy.
    """
    settings = options.storage
    await asyncio.to_thread(_make_secret, settings, opened)
    secret = read_secret(settings)
    async with _opened(settings, options.clock) as database:
        await check_standby(database)
        await _begin(database)
        try:
            await agree(database, secret, options.settings)
            await _fill(options, database, opened, derived(secret, "log"), progress)
        except Exception:
            await _discard(database)
            raise

    async def end(how: Callable[[Database], Awaitable[None]]) -> None:
        async with _opened(settings) as database:
            await how(database)

    return MadeCopy(
        finish=partial(end, partial(unfinished.finish, progress=progress)),
        discard=partial(end, _discard),
    )


@asynccontextmanager
async def _opened(settings: StorageSettings, clock: Clock | None = None) -> AsyncIterator[Database]:
    database = open_database(settings, clock)
    try:
        yield database
    finally:
        await database.close()


async def _fill(
    options: StorageOptions, database: Database, opened: OpenTables, secret: bytes, progress: Progress
) -> None:
    is_written = Event()
    async with _opened(replace(options.storage, commit_timeout=COMMIT_S), options.clock) as patient:

        def work(connection: Connection) -> None:
            is_written.clear()
            with opened() as tables:
                _TakingOver(patient, connection, tables, secret, progress).run()
            is_written.set()

        writing = patient.transaction(work, takes_long=True)
        await tell_while_it_waits(database, writing, is_written, progress)


def _make_secret(settings: StorageSettings, opened: OpenTables) -> None:
    with opened() as tables:
        if settings.secret_file is not None and not settings.secret_file.exists():
            make_secret(settings.secret_file, tables.secret)
        if read_secret(settings) != tables.secret:
            raise NotAllowed(
                f"storage.secret_file: {settings.secret_file} is another secret than the one to copy"
            )


async def _begin(database: Database) -> None:
    """An empty schema with the mark; what an unfinished copy left is removed."""
    if await found_version(database):
        await database.read(partial(_check_unused, database))
    if await unfinished.is_marked(database):
        await _drop(database)
    await migrate(database, for_copy=True)

    def mark(connection: Connection) -> None:
        connection.execute(
            database.sql("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE")
        )  # nobody begins a session
        _check_unused(database, connection)
        for table in tables.kept_tables(database, connection).values():
            if table not in _BEGUN and _one(
                database, connection, f"SELECT EXISTS (SELECT FROM {{schema}}.{table})"
            ):
                raise NotAllowed(f"the schema {database.name} is not empty: it has rows in {table}")
        unfinished.mark(database, connection)

    await database.transaction(mark)


def _check_unused(database: Database, connection: Connection) -> None:
    if _one(database, connection, _LIVE, {"now": database.now()}):
        raise NotAllowed("a gateway uses the schema: stop it first")


async def _drop(database: Database) -> None:
    await database.run(lambda connection: connection.execute(database.sql("DROP SCHEMA {schema} CASCADE")))


async def _discard(database: Database) -> None:
    """Try to drop the unfinished copy. What is left has the mark, and the next copy removes it."""
    try:
        await _drop(database)
    except SpoolUnavailable as error:
        _log.warning("what is there of the copy may have stayed: %s", error, extra={"action": "copy_left"})


def _one(
    database: Database, connection: Connection, statement: str, values: Mapping[str, object] | None = None
) -> Any:
    [(value,)] = connection.execute(database.sql(statement), values).fetchall()
    return value


class _TakingOver:
    """One run of it, on the connection's thread."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        tables: KeptTables,
        secret: bytes,
        progress: Progress,
    ) -> None:
        self._database = database
        self._connection = connection
        self._tables = tables
        self._secret = secret
        self._progress = progress

    def run(self) -> None:
        # It takes as long as it takes, and nobody waits for it. Between two statements records of the source
        # are read.
        self._connection.execute(b"SET LOCAL statement_timeout = 0")
        self._connection.execute(b"SET LOCAL idle_in_transaction_session_timeout = '10min'")
        facts = {row["name"]: row["value"] for row in self._rows("facts")}
        of_calls = [name for name in facts if places.FIRST <= name < places.AFTER]
        for name in ("incarnation", "streams since", KNOWN_SINCE, SETTINGS, *of_calls):
            if name in facts:
                self._write("facts", [{"name": name, "value": facts[name]}], replace="name")
        newest = newest_numbers(self._tables)
        own = tables.kept_tables(self._database, self._connection)
        check_known(self._tables, own.keys() | _APART)
        for name in sorted(own.keys() - _APART - tables.WITH_OTHERS):
            self._write(own[name], map(MAKERS.get(name, dict), self._rows(name)))
        self._write("secrets", self._secrets())
        self._write("heard", self._senders())
        self._run(
            "UPDATE {schema}.registry_head SET seq = seq + 1, newest_key = %s, newest_comment = %s",
            newest.get("keys", 0),
            newest.get("comments", 0),
        )
        self._take_log(facts)
        self._take_ledger()
        self._take_contents()
        numbered = tables.numbered_tables(self._database, self._connection)
        for name, number in newest.items():
            if name in numbered:
                self._run(f"ALTER TABLE {{schema}}.{name} ALTER COLUMN id RESTART WITH {int(number) + 1}")

    def _take_log(self, facts: Mapping[str, bytes]) -> None:
        """
        Numbers are those of the newest commit row, which is added: rows before it may have lost their neighbours.
        """
        folded = msgspec.msgpack.decode(facts["ids"], type=FoldedIds) if "ids" in facts else FoldedIds()
        through = {topic: folded.first(topic) - 1 for topic in TOPICS}
        newest = NewestIds(
            self._secret, through, names_in(facts), self._rows("amendments"), self._rows("id_runs")
        )
        size = entries = 0
        oldest = dict.fromkeys(TOPICS, 0)
        upto = dict.fromkeys(TOPICS, 1)

        def moved() -> Iterator[dict[str, Any]]:
            nonlocal size, entries
            for row in self._rows("entries"):
                topic = row["topic"]
                first = row["first"]
                oldest[topic] = min(oldest[topic] or first, first)
                upto[topic] = max(upto[topic], first + row["count"])
                size += ROW_BYTES + len(row["body"])
                entries += 1
                newest.read(row)
                yield {**row, "at": row["committed_at"]}

        self._write("entries", moved())
        self._write("damaged", (row for row in self._rows("entries") if row["damaged"]))
        closed = self._closed(folded.through)
        accepted = {row["topic"]: row for row in self._rows("books") if row["term"] == books.ACCEPTED}
        numbers = dict.fromkeys(TOPICS, 1) | {topic: row["carried"] + 1 for topic, row in accepted.items()}
        first_commit, last, at = 0, 0, 0.0
        folded_commit: int | None = None

        def commits() -> Iterator[dict[str, Any]]:
            nonlocal first_commit, last, at, folded_commit
            for row in self._rows("commits"):
                terms = books.check_terms(row["terms"], row["checksum"])
                if terms is None:
                    raise SpoolDamaged(f"commit {row['id']} cannot be read: tollhouse doctor says what to do")
                for one in terms:
                    numbers[one.topic] = max(numbers[one.topic], one.first + one.accepted)
                ids = newest.take(terms)
                if ids and folded_commit is None:
                    folded_commit = last or row["id"] - 1
                first_commit, last, at = first_commit or row["id"], row["id"], max(at, row["committed_at"])
                contents = (row["terms"], row["checksum"], ids)
                token = row.get("token", UNKNOWN_TOKEN)
                yield commit_row(
                    row["id"], at, of_topics(numbers), closed, *contents, entries=0, size=0, token=token
                )

        self._write("commits", commits())
        for topic in TOPICS:
            booked = accepted[topic]["n"] if topic in accepted else 0
            numbers[topic] = max(numbers[topic], upto[topic], booked + 1)
        terms = books.pack_terms([])
        contents = (terms, zlib.crc32(terms), newest.rest())
        token = secrets.randbits(63)
        final = commit_row(
            last + 1, at, of_topics(numbers), closed, *contents, entries=entries, size=size, token=token
        )
        self._write("commits", [final])
        kept_from = [oldest[topic] or numbers[topic] for topic in TOPICS]
        carried = first_commit - 1 if first_commit else last
        self._run(
            "UPDATE {schema}.marks SET booked = %s, carried = %s, kept_from = %s",
            last + 1,
            carried,
            kept_from,
        )
        self._run(
            "UPDATE {schema}.folds SET seq = seq + 1, commit = %s, through = %s, covered_since = %s",
            last if folded_commit is None else folded_commit,
            of_topics(through, 0),
            folded.covered_since,
        )
        self._run("UPDATE {schema}.periods SET at = %s", at)

    def _closed(self, folded_through: Mapping[str, int]) -> dict[str, int]:
        """
        Return the first number of each topic that may be open; the records behind it close when their
        time has come.
        """
        closed = {topic: folded_through.get(topic, 0) + 1 for topic in TOPICS}
        for route in self._rows("routes"):
            closed[route["topic"]] = max(closed[route["topic"]], route["next"])
        state = {row["name"]: row["value"] for row in self._rows("ledger_state")}
        closed[AI_TELEMETRY] = max(closed[AI_TELEMETRY], state.get("reach", 1))
        return closed

    def _take_contents(self) -> None:
        for done, content in enumerate(self._tables.contents(), start=1):
            draft = secrets.token_hex(16)
            at = self._database.now() or time.time()
            self._run(_ADD_CONTENT, draft, content.id, content.head, at)
            for n, piece in enumerate(content.pieces):
                self._run(_ADD_PIECE, draft, n, piece)
            self._progress("container files", done)

    def _take_ledger(self) -> None:
        self._write("ledger_state", self._rows("ledger_state"), replace="name")
        newest = self._one("SELECT COALESCE(max(id), 0) + 1 FROM {schema}.ledger_keys")
        self._run(f"ALTER TABLE {{schema}}.ledger_keys ALTER COLUMN id RESTART WITH {int(newest)}")

    def _secrets(self) -> Iterator[dict[str, Any]]:
        places: dict[int, int] = {}
        for row in self._rows("secrets"):
            place = places[row["key_id"]] = places.get(row["key_id"], -1) + 1
            yield {**row, "place": place}

    def _senders(self) -> Iterator[dict[str, Any]]:
        newest: dict[bytes, float] = {}
        for row in self._rows("heard"):
            for sender in unpack_senders(row["senders"]):
                newest[sender] = max(row["at"], newest.get(sender, 0.0))
        for sender, at in newest.items():
            yield {"reporter": sender, "at": at}

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        """None of a table that the source does not have."""
        if name not in self._tables.names:
            return
        table: KeptTable = self._tables.table(name)
        for row in table.rows:
            yield dict(zip(table.columns, row, strict=True))

    def _write(self, table: str, rows: Iterable[Mapping[str, Any]], *, replace: str = "") -> None:
        """Rows by the columns that the table has; of a source's others nothing is needed."""
        kinds = tables.kinds_of(self._database, self._connection, table)
        rows = iter(rows)
        first = next(rows, None)
        if first is None:
            return
        names = [name for name in kinds if name in first or name in FIRST]
        columns = ", ".join(f'"{name}"' for name in names)
        statement = (
            f"INSERT INTO {{schema}}.{table} ({columns}) OVERRIDING SYSTEM VALUE"
            f" VALUES ({', '.join('%s' for _ in names)})"
        )
        if replace:
            statement += f" ON CONFLICT ({replace}) DO UPDATE SET value = excluded.value"
        cursor = self._connection.cursor()
        text = self._database.sql(statement)
        done = 0
        for part in parts(
            tuple(column_value(row, name, kinds[name]) for name in names) for row in chain([first], rows)
        ):
            cursor.executemany(text, part)
            done += len(part)
            self._progress(table, done)

    def _one(self, statement: str) -> Any:
        return _one(self._database, self._connection, statement)

    def _run(self, statement: str, *values: Any) -> None:
        self._connection.execute(self._database.sql(statement), values)
