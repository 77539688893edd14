"""
Fill a schema from another storage. Numbers, ids, receipts, bodies and checksums stay the same.

Most tables have the columns of the SQLite engine. Converted here: commit rows, which also store the log's
next numbers and the ids outside all runs; entries and amendments, which are all put into one period; waiting
reports; container files; and the ledger's money.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Event
from typing import Any
from uuid import UUID

import msgspec

from spool import money
from spool.clock import Clock
from spool.errors import EntryUnreadable, NotAllowed, SpoolDamaged, SpoolUnavailable
from spool.installation import derive_secret, store_secret
from spool.ledger.sums import MONEY, Dimensions
from spool.log import accounting, duplicates, log_positions, runs
from spool.log.accounting import SubmissionCounts
from spool.log.amendments import replace_fields
from spool.log.commits.following import (
    UNKNOWN_TOKEN,
    NewIds,
    added_ids_from_facts,
    numbers_in_topic_order,
    pack_new_ids,
)
from spool.log.commits.id_compaction import CompactedIds
from spool.log.counters import KNOWN_SINCE
from spool.log.duplicates import DuplicateIndex
from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.log.partial_reports import PartialReport, report_kind, report_version
from spool.log.recent_senders import unpack_sender_keys
from spool.log.runs import NO_IDS, IdRun
from spool.postgres.address import open_database, read_or_store_facts, read_secret
from spool.postgres.database import LIVE, Connection, Database
from spool.postgres.ledger import dimensions_digest, storable_tags_json, storable_value
from spool.postgres.log.entries import topic_code
from spool.postgres.log.store import ROW_BYTES
from spool.postgres.migrations import migrate_schema, read_schema_version
from spool.postgres.transfer import tables, unfinished
from spool.postgres.transfer.unfinished import require_confirming_standby, run_and_report_standby_wait
from spool.record import AI_TELEMETRY, NS, TOPICS, Inference
from spool.settings import StorageSettings
from spool.storage import StorageOptions
from spool.transfer.tables import (
    NEWEST_NUMBERS,
    SETTINGS,
    KeptTable,
    OfflineStorageTables,
    OpenTables,
    Progress,
    UnfinishedStorageCopy,
    highest_id_by_table,
    require_known_tables,
    split_rows,
)

# maximum duration of the commit in seconds, because a standby must receive much data before it confirms
COMMIT_S = 3600.0

_log = logging.getLogger(__name__)

# Tables of a source that need a conversion of their own.
_APART = frozenset({"facts", "entries", "commits", "secrets", "heard", "ledger_state", NEWEST_NUMBERS})
_BEGUN = frozenset({"facts", "ledger_state"})  # tables in which a new schema already has rows
_LIVE = f"SELECT EXISTS (SELECT FROM {{schema}}.nodes WHERE {LIVE})"
_ADD_CONTENT = "INSERT INTO {schema}.container_contents (draft, id, head, at) VALUES (%s, %s, %s, %s)"
_ADD_PIECE = "INSERT INTO {schema}.container_pieces (draft, n, body) VALUES (%s, %s, %s)"

# values of columns that a source does not have: all rows belong to the first shard and period
FIRST = {"shard": 0, "period": 1}
_NOBODY = UUID(int=0)


async def copy_storage_into_schema(
    options: StorageOptions, open_tables: OpenTables, progress: Progress
) -> UnfinishedStorageCopy:
    """
    Copy the opened storage into an empty schema in one transaction. Before that, mark the schema as unfinished. If the
    secret file is missing, create it.

    Raises NotAllowed if the schema has data, a node uses it, or its secret differs from that of the storage. Raises
    SpoolUnavailable if no standby would confirm the copy.
    """
    settings = options.storage
    await asyncio.to_thread(_store_and_check_storage_secret, settings, open_tables)
    secret = read_secret(settings)
    async with _open_database(settings, options.clock) as database:
        await require_confirming_standby(database)
        await _create_unfinished_schema(database)
        try:
            await read_or_store_facts(database, secret, options.settings)
            await _fill_schema(options, database, open_tables, derive_secret(secret, "log"), progress)
        except Exception:
            await _drop_unfinished_copy_or_warn(database)
            raise

    async def end_copy(how: Callable[[Database], Awaitable[None]]) -> None:
        async with _open_database(settings) as database:
            await how(database)

    return UnfinishedStorageCopy(
        finish=partial(end_copy, partial(unfinished.finish_copy, progress=progress)),
        discard=partial(end_copy, _drop_unfinished_copy_or_warn),
    )


@asynccontextmanager
async def _open_database(settings: StorageSettings, clock: Clock | None = None) -> AsyncIterator[Database]:
    database = open_database(settings, clock)
    try:
        yield database
    finally:
        await database.close()


async def _fill_schema(
    options: StorageOptions, database: Database, open_tables: OpenTables, secret: bytes, progress: Progress
) -> None:
    is_written = Event()
    async with _open_database(replace(options.storage, commit_timeout=COMMIT_S), options.clock) as patient:

        def copy_tables(connection: Connection) -> None:
            is_written.clear()
            with open_tables() as tables:
                _SchemaWriter(patient, connection, tables, secret, progress).copy_everything()
            is_written.set()

        writing = patient.transaction(copy_tables, takes_long=True)
        await run_and_report_standby_wait(database, writing, is_written, progress)


def _store_and_check_storage_secret(settings: StorageSettings, open_tables: OpenTables) -> None:
    with open_tables() as tables:
        if settings.secret_file is not None and not settings.secret_file.exists():
            store_secret(settings.secret_file, tables.secret)
        if read_secret(settings) != tables.secret:
            raise NotAllowed(
                f"storage.secret_file: {settings.secret_file} differs from the secret of the storage to copy"
            )


async def _create_unfinished_schema(database: Database) -> None:
    """Create an empty schema that is marked as unfinished. An unfinished copy is deleted first."""
    if await read_schema_version(database):
        await database.read(partial(_require_no_running_gateway, database))
    if await unfinished.has_unfinished_copy_mark(database):
        await _drop_schema(database)
    await migrate_schema(database, for_copy=True)

    def mark_unfinished_if_empty(connection: Connection) -> None:
        # locked, so that no node begins a session
        connection.execute(database.fill_in_table_names("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
        _require_no_running_gateway(database, connection)
        for table in tables.tables_to_copy(database, connection).values():
            if table not in _BEGUN and _read_value(
                database, connection, f"SELECT EXISTS (SELECT FROM {{schema}}.{table})"
            ):
                raise NotAllowed(f"the schema {database.name} is not empty: {table} has rows")
        unfinished.mark_unfinished(database, connection)

    await database.transaction(mark_unfinished_if_empty)


def _require_no_running_gateway(database: Database, connection: Connection) -> None:
    if _read_value(database, connection, _LIVE, {"now": database.now_unless_database_clock()}):
        raise NotAllowed("a gateway is using the schema: stop it first")


async def _drop_schema(database: Database) -> None:
    await database.run(
        lambda connection: connection.execute(database.fill_in_table_names("DROP SCHEMA {schema} CASCADE"))
    )


async def _drop_unfinished_copy_or_warn(database: Database) -> None:
    """Try to delete the unfinished copy. If that fails, its mark stays, so that the next copy deletes it."""
    try:
        await _drop_schema(database)
    except SpoolUnavailable as error:
        _log.warning(
            "the unfinished copy may not have been deleted: %s", error, extra={"action": "copy_left"}
        )


def _read_value(
    database: Database, connection: Connection, statement: str, values: Mapping[str, object] | None = None
) -> Any:
    [(value,)] = connection.execute(database.fill_in_table_names(statement), values).fetchall()
    return value


class _SchemaWriter:
    """One run that fills a schema from another storage, on the connection's thread."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        tables: OfflineStorageTables,
        secret: bytes,
        progress: Progress,
    ) -> None:
        self._database = database
        self._connection = connection
        self._tables = tables
        self._secret = secret
        self._progress = progress

    def copy_everything(self) -> None:
        # The copy has no time limit, because no sender waits for it. It may pause between two statements to
        # read rows of the source.
        self._connection.execute(b"SET LOCAL statement_timeout = 0")
        self._connection.execute(b"SET LOCAL idle_in_transaction_session_timeout = '10min'")
        facts = {row["name"]: row["value"] for row in self._read_rows("facts")}
        of_calls = [name for name in facts if log_positions.FIRST <= name < log_positions.AFTER]
        for name in ("incarnation", "streams since", KNOWN_SINCE, SETTINGS, *of_calls):
            if name in facts:
                self._write_rows("facts", [{"name": name, "value": facts[name]}], replaced_key_column="name")
        newest = highest_id_by_table(self._tables)
        own = tables.tables_to_copy(self._database, self._connection)
        require_known_tables(self._tables, own.keys() | _APART)
        for name in sorted(own.keys() - _APART - tables.WITH_OTHERS):
            self._write_rows(own[name], map(MAKERS.get(name, dict), self._read_rows(name)))
        self._write_rows("secrets", self._read_secrets())
        self._write_rows("heard", self._read_senders())
        self._run_statement(
            "UPDATE {schema}.registry_head SET seq = seq + 1, newest_key = %s, newest_comment = %s",
            newest.get("keys", 0),
            newest.get("comments", 0),
        )
        self._copy_entries_and_commits(facts)
        self._copy_ledger_state()
        self._copy_contents()
        numbered = tables.tables_with_identity_column(self._database, self._connection)
        for name, number in newest.items():
            if name in numbered:
                self._run_statement(
                    f"ALTER TABLE {{schema}}.{name} ALTER COLUMN id RESTART WITH {int(number) + 1}"
                )

    def _copy_entries_and_commits(self, installation_facts: Mapping[str, bytes]) -> None:
        """
        Copy the log. Then add a commit row with the current numbers, because earlier rows may be incomplete.
        """
        folded = (
            msgspec.msgpack.decode(installation_facts["ids"], type=CompactedIds)
            if "ids" in installation_facts
            else CompactedIds()
        )
        through = {topic: folded.first_uncompacted_number(topic) - 1 for topic in TOPICS}
        newest = UncompactedIds(
            self._secret,
            through,
            added_ids_from_facts(installation_facts),
            self._read_rows("amendments"),
            self._read_rows("id_runs"),
        )
        size = entries = 0
        oldest = dict.fromkeys(TOPICS, 0)
        upto = dict.fromkeys(TOPICS, 1)

        def entry_rows() -> Iterator[dict[str, Any]]:
            nonlocal size, entries
            for row in self._read_rows("entries"):
                topic = row["topic"]
                first = row["first"]
                oldest[topic] = min(oldest[topic] or first, first)
                upto[topic] = max(upto[topic], first + row["count"])
                size += ROW_BYTES + len(row["body"])
                entries += 1
                newest.add_record_ids_of_entry(row)
                yield {**row, "at": row["committed_at"]}

        self._write_rows("entries", entry_rows())
        self._write_rows("damaged", (row for row in self._read_rows("entries") if row["damaged"]))
        closed = self._first_open_numbers(folded.through)
        accepted = {
            row["topic"]: row for row in self._read_rows("books") if row["term"] == accounting.ACCEPTED
        }
        numbers = dict.fromkeys(TOPICS, 1) | {topic: row["carried"] + 1 for topic, row in accepted.items()}
        first_commit, last, at = 0, 0, 0.0
        folded_commit: int | None = None

        def iterate_commit_rows() -> Iterator[dict[str, Any]]:
            nonlocal first_commit, last, at, folded_commit
            for row in self._read_rows("commits"):
                terms = accounting.unpack_submission_counts_if_intact(row["terms"], row["checksum"])
                if terms is None:
                    raise SpoolDamaged(
                        f"commit {row['id']} cannot be read: run tollhouse doctor to see what to do"
                    )
                for commit_terms in terms:
                    numbers[commit_terms.topic] = max(
                        numbers[commit_terms.topic], commit_terms.first + commit_terms.accepted
                    )
                ids = newest.pack_commit_ids(terms)
                if ids and folded_commit is None:
                    folded_commit = last or row["id"] - 1
                first_commit, last, at = first_commit or row["id"], row["id"], max(at, row["committed_at"])
                contents = (row["terms"], row["checksum"], ids)
                token = row.get("token", UNKNOWN_TOKEN)
                yield build_commit_row(
                    row["id"],
                    at,
                    numbers_in_topic_order(numbers),
                    closed,
                    *contents,
                    entries=0,
                    size=0,
                    token=token,
                )

        self._write_rows("commits", iterate_commit_rows())
        for topic in TOPICS:
            booked = accepted[topic]["n"] if topic in accepted else 0
            numbers[topic] = max(numbers[topic], upto[topic], booked + 1)
        terms = accounting.pack_submission_counts([])
        contents = (terms, zlib.crc32(terms), newest.pack_remaining_ids())
        token = secrets.randbits(63)
        final = build_commit_row(
            last + 1,
            at,
            numbers_in_topic_order(numbers),
            closed,
            *contents,
            entries=entries,
            size=size,
            token=token,
        )
        self._write_rows("commits", [final])
        kept_from = [oldest[topic] or numbers[topic] for topic in TOPICS]
        carried = first_commit - 1 if first_commit else last
        self._run_statement(
            "UPDATE {schema}.marks SET booked = %s, carried = %s, kept_from = %s",
            last + 1,
            carried,
            kept_from,
        )
        self._run_statement(
            "UPDATE {schema}.folds SET seq = seq + 1, commit = %s, through = %s, covered_since = %s",
            last if folded_commit is None else folded_commit,
            numbers_in_topic_order(through, 0),
            folded.covered_since,
        )
        self._run_statement("UPDATE {schema}.periods SET at = %s", at)

    def _first_open_numbers(self, compacted_through: Mapping[str, int]) -> dict[str, int]:
        """
        Return by topic the first number of records that reports may still change. These records close when
        their waiting time for reports ends.
        """
        closed = {topic: compacted_through.get(topic, 0) + 1 for topic in TOPICS}
        for route in self._read_rows("routes"):
            closed[route["topic"]] = max(closed[route["topic"]], route["next"])
        state = {row["name"]: row["value"] for row in self._read_rows("ledger_state")}
        closed[AI_TELEMETRY] = max(closed[AI_TELEMETRY], state.get("reach", 1))
        return closed

    def _copy_contents(self) -> None:
        for file_count, content in enumerate(self._tables.contents(), start=1):
            draft = secrets.token_hex(16)
            at = self._database.now_unless_database_clock() or time.time()
            self._run_statement(_ADD_CONTENT, draft, content.id, content.head, at)
            for n, piece in enumerate(content.pieces):
                self._run_statement(_ADD_PIECE, draft, n, piece)
            self._progress("container files", file_count)

    def _copy_ledger_state(self) -> None:
        self._write_rows("ledger_state", self._read_rows("ledger_state"), replaced_key_column="name")
        newest = self._read_value("SELECT COALESCE(max(id), 0) + 1 FROM {schema}.ledger_keys")
        self._run_statement(f"ALTER TABLE {{schema}}.ledger_keys ALTER COLUMN id RESTART WITH {int(newest)}")

    def _read_secrets(self) -> Iterator[dict[str, Any]]:
        newest_indexes: dict[int, int] = {}
        for row in self._read_rows("secrets"):
            index = newest_indexes[row["key_id"]] = newest_indexes.get(row["key_id"], -1) + 1
            yield {**row, "place": index}

    def _read_senders(self) -> Iterator[dict[str, Any]]:
        newest: dict[bytes, float] = {}
        for row in self._read_rows("heard"):
            for sender in unpack_sender_keys(row["senders"]):
                newest[sender] = max(row["at"], newest.get(sender, 0.0))
        for sender, at in newest.items():
            yield {"reporter": sender, "at": at}

    def _read_rows(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield a table's rows. Yield nothing if the source has no such table."""
        if name not in self._tables.names:
            return
        table: KeptTable = self._tables.table(name)
        for row in table.rows:
            yield dict(zip(table.columns, row, strict=True))

    def _write_rows(
        self, table: str, rows: Iterable[Mapping[str, Any]], *, replaced_key_column: str = ""
    ) -> None:
        kinds = tables.column_types(self._database, self._connection, table)
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
        if replaced_key_column:
            statement += f" ON CONFLICT ({replaced_key_column}) DO UPDATE SET value = excluded.value"
        cursor = self._connection.cursor()
        text = self._database.fill_in_table_names(statement)
        row_count = 0
        for part in split_rows(
            tuple(value_in_column_type(row, name, kinds[name]) for name in names)
            for row in chain([first], rows)
        ):
            cursor.executemany(text, part)
            row_count += len(part)
            self._progress(table, row_count)

    def _read_value(self, statement: str) -> Any:
        return _read_value(self._database, self._connection, statement)

    def _run_statement(self, statement: str, *values: Any) -> None:
        self._connection.execute(self._database.fill_in_table_names(statement), values)


def value_in_column_type(row: Mapping[str, Any], name: str, kind: str) -> Any:
    """
    Return a value in the type of its column. SQLite, from which rows are copied, has booleans as numbers,
    topics as names, and some bytes as texts.
    """
    value = row[name] if name in row else FIRST[name]
    if kind == "boolean":
        return None if value is None else bool(value)
    if kind == "bytea" and isinstance(value, str):
        return value.encode()
    if kind == "smallint" and isinstance(value, str):
        return topic_code(value)
    return value


def build_commit_row(
    id: int,
    committed_at: float,
    next_numbers: Sequence[int],
    closed: Mapping[str, int],
    packed_counts: bytes,
    checksum: int,
    ids: bytes,
    *,
    entries: int,
    size: int,
    token: int,
) -> dict[str, Any]:
    """`token`: lets the node that made the commit recognize it."""
    return {
        "id": id,
        "token": token,
        "node": _NOBODY,
        "at": committed_at,
        "next": next_numbers,
        "closed": list(map(min, next_numbers, numbers_in_topic_order(closed))),
        "durable": id,
        "entries": entries,
        "size": size,
        "checksum": checksum,
        "terms": packed_counts,
        "ids": ids,
        "found": None,
    }


def partial_report_row(row: Mapping[str, Any]) -> dict[str, Any]:
    report = PartialReport(row["key"], row["at"], row["body"])
    return {**row, "kind": report_kind(report.key), "version": report_version(report)}


def ledger_key_row_for_postgres(row: Mapping[str, Any]) -> dict[str, Any]:
    dimensions = Dimensions(*(row[name] for name in Dimensions._fields))
    texts = {name: storable_value(value) for name, value in row.items()}
    return {
        **texts,
        "digest": dimensions_digest(dimensions),
        "tag_values": storable_tags_json(dimensions.tags),
    }


def ledger_sum_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with the three limbs of each amount joined into one number."""
    sums = dict(row)
    for name in MONEY:
        sums[name] = money.units_to_text(
            money.join_limbs(*(sums.pop(f"{name}_{limb}") for limb in (1, 2, 3)))
        )
    return sums


# Functions that convert rows, by the portable name of the table.
MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "pending": partial_report_row,
    "routes": lambda row: {**row, "named_at": 0.0},
    "devices": lambda row: {**row, "row_version": 1, "written_at": 0.0},
    "ledger_keys": ledger_key_row_for_postgres,
    "ledger_hours": ledger_sum_row,
    "ledger_days": ledger_sum_row,
    "ledger_work": ledger_sum_row,
}


# -- the newest ids ------------------------------------------------------------------------------------------


class UncompactedIds:
    """
    Collects the known ids that are in no sorted list yet.

    `through`: the last number of each topic whose ids are in lists. `apart`: further ids that commits added
    to earlier records, with places and hours. `amendments` and `id_runs`: rows of these tables.
    """

    def __init__(
        self,
        secret: bytes,
        through: Mapping[str, int],
        apart: Iterable[tuple[int, int, int]],
        amendments: Iterable[Mapping[str, Any]],
        id_runs: Iterable[Mapping[str, Any]],
    ) -> None:
        self._index = DuplicateIndex(secret, window_s=0.0, max_ids=1)
        self._index.load_id_runs(_read_id_runs(id_runs), 0.0)
        self._through = through
        self._apart = list(apart)
        self._known: set[int] = set()
        self._fields: dict[tuple[str, int], dict[str, Any]] = {}
        for row in amendments:
            topic = row["topic"]
            number = row["number"]
            if number > through.get(topic, 0):
                # a damaged added report is skipped, so its record stays as it was first stored
                with suppress(EntryUnreadable):
                    self._fields[topic, number] = codec.unpack_checked_fields(
                        topic, number, row["checksum"], row["fields"]
                    )
        self._found: defaultdict[str, dict[int, list[tuple[int, int, int]]]] = defaultdict(dict)

    def add_record_ids_of_entry(self, entry_row: Mapping[str, Any]) -> None:
        """Add the ids of an entry's records. The ids of an unreadable entry are unknown."""
        topic = entry_row["topic"]
        first = entry_row["first"]
        count = entry_row["count"]
        if first + count - 1 <= self._through.get(topic, 0) or entry_row["damaged"]:
            return
        body = EntryBody(entry_row["version"], entry_row["checksum"], entry_row["body"])
        try:
            raws, _ = codec.unpack_entry(body, topic, first, count)
            records = map(codec.decode_record, raws)
            for number, record in enumerate(records, first):
                if number > self._through.get(topic, 0):
                    fields = self._fields.get((topic, number))
                    if fields and isinstance(record, Inference):
                        record = replace_fields(record, fields)
                    self._add_names(
                        topic,
                        number,
                        duplicates.dedup_keys_with_storage_hours(record, int(entry_row["committed_at"] * NS)),
                    )
        except EntryUnreadable:
            return

    def _add_names(self, topic: str, record_number: int, names: Iterable[tuple[bytes, int]]) -> None:
        new_ids = self._found[topic].setdefault(record_number, [])
        for name, hour in names:
            id = self._index.short_id(name)
            if id not in self._known and not self._index.is_in_id_runs(id, hour):
                self._known.add(id)
                new_ids.append((id, duplicates.encode_log_position(topic, record_number), hour))

    def pack_commit_ids(self, terms: Iterable[SubmissionCounts]) -> bytes:
        new_ids: list[tuple[int, int, int]] = []
        for commit_terms in terms:
            of_topic = self._found.get(commit_terms.topic)
            if of_topic:
                for number in range(commit_terms.first, commit_terms.first + commit_terms.accepted):
                    new_ids += of_topic.pop(number, ())
        return _pack_ids(new_ids)

    def pack_remaining_ids(self) -> bytes:
        """Pack the remaining ids: those of deleted commit rows, and further ids added to earlier records."""
        left_ids = [
            left_id for of_topic in self._found.values() for ids in of_topic.values() for left_id in ids
        ]
        return _pack_ids(left_ids + [name for name in self._apart if name[0] not in self._known])


def _read_id_runs(rows: Iterable[Mapping[str, Any]]) -> Iterator[IdRun]:
    """Yield the stored sorted lists of ids. A damaged list is yielded empty, as at a start of the gateway."""
    for row in rows:
        ids = runs.unpack_ids(row["ids"], row["checksum"])
        yield IdRun(row["id"], row["hour"], row["arrived_at"], ids or NO_IDS)


def _pack_ids(ids_positions_and_hours: list[tuple[int, int, int]]) -> bytes:
    ids, positions, hours = (
        zip(*ids_positions_and_hours, strict=True) if ids_positions_and_hours else ((), (), ())
    )
    return pack_new_ids(NewIds(ids, positions, hours))
