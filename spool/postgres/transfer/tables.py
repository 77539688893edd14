"""
The tables of a schema in portable form, for copies and archives.

Portable tables have the columns of the SQLite engine. Differences are converted here: topic names, the next
numbers of the log, and the ledger's money.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import msgspec

from spool import money
from spool.errors import NotAllowed
from spool.ledger.sums import MONEY
from spool.log import log_positions
from spool.log.commits.following import (
    fact_key_of_added_ids,
    numbers_by_topic,
    pack_ids_added_to_earlier_records,
    unpack_new_ids,
)
from spool.log.commits.id_compaction import CompactedIds
from spool.log.conflicts import Conflict
from spool.log.counters import KNOWN_SINCE
from spool.log.duplicates import decode_log_position
from spool.log.recent_senders import pack_senders
from spool.postgres.address import open_database, read_secret
from spool.postgres.database import LIVE, Connection, Database
from spool.postgres.log import commit_findings
from spool.postgres.log.queries import FACTS_BETWEEN
from spool.postgres.migrations import VERSION, read_usable_schema
from spool.record import TOPICS
from spool.storage import StorageOptions
from spool.transfer.tables import (
    AT_ONCE,
    BYTES_AT_ONCE,
    NEWEST_NUMBERS,
    KeptContent,
    KeptTable,
    OpenTables,
    row_bytes,
)

# tables of running nodes, and tables that each copy creates itself; a new schema already has rows in some
OF_NODES = frozenset(
    {"nodes", "leases", "heads", "marks", "periods", "folds", "registry_head", "registry_changes"}
)
# tables copied with another table, such as the contents of container files
WITH_OTHERS = frozenset(
    {
        "damaged",
        "container_contents",
        "container_pieces",
        "ledger_rollups",
        "ledger_rolled",
        "ledger_billed_rollups",
    }
)
# name of a table -> its name in the portable form
KEPT_NAMES = {"partial_reports": "pending"}

_TABLES = """
    SELECT relname FROM pg_class
     WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p') AND NOT relispartition
  ORDER BY relname"""
_COLUMNS = """
    SELECT column_name, data_type FROM information_schema.columns
     WHERE table_schema = %s AND table_name = %s"""
_NUMBERED = """
    SELECT table_name FROM information_schema.columns
     WHERE table_schema = %s AND is_identity = 'YES' ORDER BY table_name"""


def tables_to_copy(database: Database, connection: Connection) -> dict[str, str]:
    names = (name for (name,) in connection.execute(_TABLES, (database.schema,)))
    return {KEPT_NAMES.get(name, name): name for name in names if name not in OF_NODES}


def column_types(database: Database, connection: Connection, table: str) -> dict[str, str]:
    return dict(connection.execute(_COLUMNS, (database.name, table)).fetchall())


def tables_with_identity_column(database: Database, connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute(_NUMBERED, (database.name,))]


# -- the tables of a schema in portable form -----------------------------------------------------------------


FIRST_AT_ONCE = 8  # rows per read until the size of rows is known

_KEPT_FROM = "(SELECT m.kept_from[topic + 1] FROM {schema}.marks m WHERE m.shard = 0)"
# statements for converted tables
_STATEMENTS: Mapping[str, str] = {
    "entries": f"""
        SELECT topic, first, count, at AS committed_at, version, checksum, body,
               EXISTS (SELECT FROM {{schema}}.damaged d WHERE d.topic = e.topic AND d.first = e.first) AS damaged
          FROM {{schema}}.entries e WHERE first >= {_KEPT_FROM} ORDER BY topic, first""",
    "amendments": f"""
        SELECT topic, number, checksum, fields FROM {{schema}}.amendments
         WHERE number >= {_KEPT_FROM} ORDER BY topic, number""",
    "commits": """
        SELECT id, at AS committed_at, checksum, terms, token FROM {schema}.commits
         WHERE id > (SELECT carried FROM {schema}.marks) ORDER BY id""",
    "secrets": "SELECT * FROM {schema}.secrets ORDER BY key_id, place",
    "heard": "SELECT reporter, at FROM {schema}.heard ORDER BY at",
}
_NUMBER = """
    SELECT '{table}' AS name, CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS seq
      FROM {{schema}}.{table}_id_seq"""
_REGISTRY_NUMBERS = """
    SELECT 'keys' AS name, newest_key AS seq FROM {schema}.registry_head
     UNION ALL SELECT 'comments', newest_comment FROM {schema}.registry_head
     UNION ALL SELECT 'audit', coalesce(max(id), 0) FROM {schema}.audit"""
_FACTS = f"""
    SELECT name, value FROM {{schema}}.facts
     WHERE name IN ('incarnation', 'streams since', '{KNOWN_SINCE}', 'settings')"""
_FOLDS = "SELECT through, covered_since, commit FROM {schema}.folds WHERE shard = 0"
_IDS_SINCE = "SELECT id, at, next, ids FROM {schema}.commits WHERE id >= %s ORDER BY id"
_CONTENTS = "SELECT draft, id, head FROM {schema}.container_contents WHERE id IS NOT NULL ORDER BY id"
_PIECES = "SELECT body FROM {schema}.container_pieces WHERE draft = %s ORDER BY n"
_NODES = f"SELECT DISTINCT name FROM {{schema}}.nodes WHERE {LIVE} ORDER BY name"

_conflict = msgspec.msgpack.Decoder(Conflict)


class PostgresTables:
    """The tables of a schema, read in one snapshot on one connection."""

    def __init__(self, database: Database, connection: Connection, secret: bytes, stack: ExitStack) -> None:
        self.secret = secret
        self._stack = stack
        self._database = database
        self._connection = connection
        self._cursors = 0
        self._own = tables_to_copy(database, connection)
        self.names: Sequence[str] = (*sorted(self._own.keys() - WITH_OTHERS), NEWEST_NUMBERS)

    def table(self, name: str) -> KeptTable:
        if name == "facts":
            return KeptTable(columns=("name", "value"), rows=self._read_facts())
        if name == NEWEST_NUMBERS:
            numbered = tables_with_identity_column(self._database, self._connection)
            statements = [_REGISTRY_NUMBERS, *(_NUMBER.format(table=table) for table in numbered)]
            statement = " UNION ALL ".join(statements)
        else:
            statement = _STATEMENTS.get(name) or f"SELECT * FROM {{schema}}.{self._own[name]}"
        columns, rows = self._read_in_steps(statement)
        if name == "conflicts":
            return KeptTable(
                columns=(*columns, "count"), rows=map(partial(_append_conflict_count, columns), rows)
            )
        if name == "heard":  # in the portable form, a row may have several senders
            packed = (
                (id, at, "", 1, pack_senders([sender])) for id, (sender, at) in enumerate(rows, start=1)
            )
            return KeptTable(columns=("id", "at", "key", "count", "senders"), rows=packed)
        if name in ("ledger_hours", "ledger_days", "ledger_work"):
            return _split_money_into_limbs(columns, rows)
        if name in ("entries", "amendments"):  # PostgreSQL stores the topic as a number
            rows = ((TOPICS[topic], *rest) for topic, *rest in rows)
        return KeptTable(columns=columns, rows=rows)

    def contents(self) -> Iterator[KeptContent]:
        for draft, id, head in self._connection.execute(
            self._database.fill_in_table_names(_CONTENTS)
        ).fetchall():
            _, pieces = self._read_in_steps(_PIECES, draft)
            yield KeptContent(id=id, head=head, pieces=(body for (body,) in pieces))

    def _read_in_steps(self, statement: str, *values: object) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        self._cursors += 1
        cursor = self._connection.cursor(name=f"copy_{self._cursors}")
        self._stack.callback(cursor.close)  # closed even if not all rows are read
        cursor.execute(self._database.fill_in_table_names(statement), values or None)
        return [column.name for column in cursor.description or ()], fetch_in_steps(cursor)

    def _read_facts(self) -> Iterator[tuple[str, bytes]]:
        yield from self._connection.execute(self._database.fill_in_table_names(_FACTS)).fetchall()
        [(through, covered_since, commit)] = self._connection.execute(
            self._database.fill_in_table_names(_FOLDS)
        ).fetchall()
        folded = CompactedIds(through=numbers_by_topic(through), covered_since=covered_since)
        yield "ids", msgspec.msgpack.encode(folded)
        yield from self._names_of_earlier_commits(commit)
        _, recent = self._read_in_steps(FACTS_BETWEEN, log_positions.FIRST, log_positions.AFTER)
        yield from recent

    def _names_of_earlier_commits(self, compacted_through_commit: int) -> Iterator[tuple[str, bytes]]:
        """
        Yield further ids (names) that commits added to earlier records, unless they are in sorted lists. All
        other further ids are stored with their records.
        """
        before: dict[str, int] = {}
        _, rows = self._read_in_steps(_IDS_SINCE, compacted_through_commit)
        for id, at, ends, ids in rows:
            new = zip(*unpack_new_ids(ids), strict=True)
            names = [name_row for name_row in new if _is_position_before(before, name_row[1])]
            if names and id > compacted_through_commit:
                yield fact_key_of_added_ids(id), pack_ids_added_to_earlier_records(at, names)
            before = numbers_by_topic(ends)


async def tables_opener(options: StorageOptions) -> OpenTables:
    """
    Return a function that opens the tables of a schema. Raises NotAllowed if the schema does not exist, if it
    is too new, or if a node uses it. Raises OtherSchema if another build wrote it.
    """
    database = open_database(options.storage, options.clock)
    try:
        found = await read_usable_schema(database)
        if not found.version:
            raise NotAllowed(f"the schema {database.name} does not exist, so there is nothing to copy")
        if found.version > VERSION:
            raise NotAllowed(
                f"the schema {database.name} has version {found.version}, but this Tollhouse supports "
                f"version {VERSION}: copy it with the release that upgraded it"
            )
        await database.read(partial(_check_unused, database))
        await commit_findings.add_all_commits_to_accounting(database)
    finally:
        await database.close()
    return partial(_open_tables, options)


@contextmanager
def _open_tables(options: StorageOptions) -> Iterator[PostgresTables]:
    database = open_database(options.storage, options.clock)
    with database.long_snapshot() as connection, ExitStack() as stack:
        _check_unused(database, connection)
        yield PostgresTables(database, connection, read_secret(options.storage), stack)


def _check_unused(database: Database, connection: Connection) -> None:
    nodes = connection.execute(
        database.fill_in_table_names(_NODES), {"now": database.now_unless_database_clock()}
    ).fetchall()
    if nodes:
        names = ", ".join(name for (name,) in nodes)
        raise NotAllowed(f"gateways are using the schema {database.name}: stop them first ({names})")


def fetch_in_steps(cursor: Any) -> Iterator[tuple[Any, ...]]:
    """Yield rows, fetched in steps that fit in memory, judging by the largest row so far."""
    at_once, largest = FIRST_AT_ONCE, 1
    with cursor:
        while rows := cursor.fetchmany(at_once):
            largest = max(largest, *map(row_bytes, rows))
            yield from rows
            at_once = max(1, min(2 * at_once, AT_ONCE, BYTES_AT_ONCE // largest))


def _append_conflict_count(columns: list[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the number of conflicts to a row, because the stored row has it only inside the packed sums."""
    return (*row, _conflict.decode(row[columns.index("sums")]).count)


def _split_money_into_limbs(columns: list[str], rows: Iterator[tuple[Any, ...]]) -> KeptTable:
    other_columns = [column for column in columns if column not in MONEY]
    limbs = [f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)]

    def split_money_of_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
        values_by_column = dict(zip(columns, row, strict=True))
        sums = (money.split_into_limbs(money.text_to_units(f"{values_by_column[name]:f}")) for name in MONEY)
        return (
            *(values_by_column[name] for name in other_columns),
            *(limb for three in sums for limb in three),
        )

    return KeptTable(columns=(*other_columns, *limbs), rows=map(split_money_of_row, rows))


def _is_position_before(numbers: Mapping[str, int], log_position: int) -> bool:
    """
    Return whether a record's position (topic and number) is before its topic's number. Without numbers, return
    True.
    """
    topic, number = decode_log_position(log_position)
    return not numbers or number < numbers[topic]
