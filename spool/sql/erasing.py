"""
Renaming of erased people in the log's tables: entries, later reports, rejected records, records sent again,
and spans. Each step is one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from spool.deliveries.rules import new_idempotency_key
from spool.erasure import (
    NO_RECORDS,
    TOPICS_OF_PEOPLE,
    RenamedRecords,
    Renaming,
    rename_person,
    rename_person_in_fields,
    states_erased_name,
    time_of_stored_call,
)
from spool.errors import EntryUnreadable
from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.log.pending_spans import GivenValues
from spool.people import STORED_BEFORE, CallTime
from spool.record import NS, pack_records, unpack_records
from spool.sql.connection import SqlConnection, SqlTransactions

T = TypeVar("T")

ENTRIES_AT_ONCE = 16
AMENDMENTS_AT_ONCE = 1000
SPANS_AT_ONCE = 256  # rows of spans per step

_ENTRIES = """
    SELECT first, count, version, checksum, body FROM {schema}.entries
     WHERE %s AND first > :after ORDER BY first LIMIT :most"""
_ENTRY_OF_RECORD = """
    SELECT first, count, version, checksum, body FROM {schema}.entries
     WHERE %s AND first <= :number AND first + count > :number"""
_PUT_ENTRY = """
    UPDATE {schema}.entries SET version = :version, checksum = :checksum, body = :body
     WHERE %s AND first = :first AND checksum = :before"""
_AMENDMENTS = """
    SELECT number, checksum, fields FROM {schema}.amendments
     WHERE %s AND number > :after ORDER BY number LIMIT :most"""
_PUT_AMENDMENT = """
    UPDATE {schema}.amendments SET checksum = :checksum, fields = :fields WHERE %s AND number = :number"""
_DELIVERIES = """
    SELECT id FROM {schema}.deliveries
     WHERE kept IS NULL AND first <= :last AND last >= :first
       AND route IN (SELECT name FROM {schema}.routes WHERE topic = :topic)"""
_NEW_KEY = "UPDATE {schema}.deliveries SET idempotency_key = :key WHERE id = :id"
_KEPT = "SELECT id, kept, route, first FROM {schema}.deliveries WHERE kept IS NOT NULL"
_PUT_KEPT = "UPDATE {schema}.deliveries SET kept = :record, idempotency_key = :key WHERE id = :id"
_DEAD = "SELECT id, record, route, number FROM {schema}.dead"
_PUT_DEAD = "UPDATE {schema}.dead SET record = :record WHERE id = :id"


class StoredSpans(NamedTuple):
    """
    A table with packed spans, which only a renaming of people rewrites. `select`: reads keys, spans and their
    arrival with keys above `:after`, which starts as `before_first`. `put`: replaces the spans of a key.
    `change`: returns packed spans with a change applied to their values.
    """

    select: str
    put: str
    before_first: bytes | int
    change: Callable[[bytes, Callable[[GivenValues], GivenValues]], bytes]


class _TrialRolledBack(Exception):
    """Raised to undo the transaction of a trial."""

    def __init__(self, result: Any) -> None:
        super().__init__("nothing was changed")
        self.result = result


class SqlPersonEraser:
    """
    Renames people in the log. `rows`: SQL condition for a topic. `code`: the topic's stored value. `lock`:
    statement that keeps other processes from appending.
    """

    def __init__(
        self,
        transactions: SqlTransactions,
        *,
        rows: str = "topic = :topic",
        code: Callable[[str], object] = str,
        lock: str = "",
        spans: Sequence[StoredSpans],
    ) -> None:
        self._transactions = transactions
        self._rows = rows
        self._code = code
        self._lock = lock
        self._spans = spans

    async def rename_records(self, renaming: Renaming, *, is_trial: bool = False) -> RenamedRecords:
        """
        Rename people in records. A delivery with a changed body gets a new idempotency key.

        Each step is a transaction. After an interruption, call this again. With `is_trial`, records are only
        counted.
        """
        if not is_trial:
            for stored in self._spans:
                await self._rename_spans(stored, renaming)
        renamed = await self._in_transaction(
            partial(_rename_in_set_aside_records, renaming=renaming), is_trial=is_trial
        )
        for topic in TOPICS_OF_PEOPLE:
            after = 0
            while step := await self._rename_some_entries(topic, after, renaming, is_trial=is_trial):
                after, count = step
                renamed = renamed.plus(count)
            renamed = renamed.plus(await self._rename_all_amendments(topic, renaming, is_trial=is_trial))
        return renamed

    async def _in_transaction(self, change: Callable[[SqlConnection], T], *, is_trial: bool) -> T:
        def change_and_roll_back(tables: SqlConnection) -> T:
            raise _TrialRolledBack(change(tables))

        if not is_trial:
            return await self._transactions.transaction(change)
        try:
            return await self._transactions.transaction(change_and_roll_back)
        except _TrialRolledBack as trial:
            result: T = trial.result
            return result

    async def _rename_spans(self, stored_spans: StoredSpans, renaming: Renaming) -> None:
        def read_some_spans(tables: SqlConnection, after: bytes | int) -> list[tuple[Any, ...]]:
            return tables.all(stored_spans.select, after=after, most=SPANS_AT_ONCE)

        after = stored_spans.before_first
        while rows := await self._transactions.read(partial(read_some_spans, after=after)):
            if changed := await asyncio.to_thread(_rename_in_spans, stored_spans, rows, renaming):
                await self._transactions.transaction(
                    partial(_put_spans, statement=stored_spans.put, rows=changed)
                )
            after = rows[-1][0]

    async def _rename_some_entries(
        self, topic: str, after_number: int, renaming: Renaming, *, is_trial: bool
    ) -> tuple[int, RenamedRecords] | None:
        """
        Rename people in the entries of a topic after a number. Return the number of the last entry read, or
        None at the end.
        """
        select = _ENTRIES % self._rows
        code = self._code(topic)
        rows = await self._transactions.read(
            lambda tables: tables.all(select, topic=code, after=after_number, most=ENTRIES_AT_ONCE)
        )
        if not rows:
            return None
        changed, count = await asyncio.to_thread(_rename_in_entries, topic, rows, renaming)
        if changed and not is_trial:
            keys = await self._transactions.transaction(
                partial(self._write_entries_and_renew_deliveries, topic=topic, changed=changed)
            )
            count = count._replace(deliveries=keys)
        return rows[-1][0], count

    def _write_entries_and_renew_deliveries(
        self, tables: SqlConnection, topic: str, changed: Sequence[Mapping[str, Any]]
    ) -> int:
        deliveries = set[int]()
        for row in changed:
            tables.run(_PUT_ENTRY % self._rows, topic=self._code(topic), **row["entry"])
            deliveries.update(id for (id,) in tables.all(_DELIVERIES, topic=topic, **row["span"]))
        tables.run_each(_NEW_KEY, [{"id": id, "key": new_idempotency_key()} for id in sorted(deliveries)])
        return len(deliveries)

    async def _rename_all_amendments(
        self, topic: str, renaming: Renaming, *, is_trial: bool
    ) -> RenamedRecords:
        after: int | None = 0
        renamed = NO_RECORDS
        while after is not None:
            work = partial(self._rename_amendments, topic=topic, after_number=after, renaming=renaming)
            after, count = await self._in_transaction(work, is_trial=is_trial)
            renamed = renamed.plus(RenamedRecords(count))
        return renamed

    def _rename_amendments(
        self, tables: SqlConnection, topic: str, after_number: int, renaming: Renaming
    ) -> tuple[int | None, int]:
        if self._lock:  # otherwise a commit could write back the old names that it has already read
            tables.run(self._lock)
        code = self._code(topic)
        rows = tables.all(_AMENDMENTS % self._rows, topic=code, after=after_number, most=AMENDMENTS_AT_ONCE)
        count = 0
        for number, checksum, packed in rows:
            try:
                fields = codec.unpack_checked_fields(topic, number, checksum, bytes(packed))
            except EntryUnreadable:
                continue
            if not rename_person_in_fields({**fields}, renaming, STORED_BEFORE):
                continue
            call = self._time_of_amended_call(tables, topic, number)
            if call is not None and rename_person_in_fields(fields, renaming, call):
                data = codec.pack_fields(fields)
                checksum = codec.checksum_bound_to_location(data, codec.amendment_location(topic, number))
                put = _PUT_AMENDMENT % self._rows
                tables.run(put, topic=code, number=number, checksum=checksum, fields=data)
                count += 1
        return (rows[-1][0] if rows else None), count

    def _time_of_amended_call(self, tables: SqlConnection, topic: str, number: int) -> CallTime | None:
        """Return the time of the record's call, or None if the record is deleted or damaged."""
        rows = tables.all(_ENTRY_OF_RECORD % self._rows, topic=self._code(topic), number=number)
        for first, count, version, checksum, body in rows:
            try:
                raws, _ = codec.unpack_entry(EntryBody(version, checksum, bytes(body)), topic, first, count)
                return time_of_stored_call(codec.decode_record(raws[number - first]), topic, number)
            except EntryUnreadable:
                return CallTime(STORED_BEFORE.start_ns, topic, number)
        return None


def _rename_in_spans(
    stored_spans: StoredSpans, rows: Iterable[Sequence[Any]], renaming: Renaming
) -> list[Mapping[str, Any]]:
    changed = list[Mapping[str, Any]]()
    for key, packed, at in rows:
        # spans rarely state a call's time, so their arrival counts
        change = partial(_rename_in_given_values, renaming=renaming, call=CallTime(int(at * NS)))
        after = stored_spans.change(bytes(packed), change)
        if after != bytes(packed):
            changed.append({"key": key, "packed": after})
    return changed


def _put_spans(tables: SqlConnection, statement: str, rows: Iterable[Mapping[str, Any]]) -> None:
    tables.run_each(statement, rows)


def _rename_in_given_values(given_values: GivenValues, renaming: Renaming, call: CallTime) -> GivenValues:
    fields = {**given_values._asdict(), "tags": dict(given_values.tags)}
    rename_person_in_fields(fields, renaming, call)
    return GivenValues(**{**fields, "tags": (*fields["tags"].items(),)})


def _rename_in_entries(
    topic: str, rows: Iterable[Sequence[Any]], renaming: Renaming
) -> tuple[list[Mapping[str, Any]], RenamedRecords]:
    changed: list[Mapping[str, Any]] = []
    records = unreadable = later = 0
    for first, count, version, checksum, body in rows:
        try:
            raws, _ = codec.unpack_entry(EntryBody(version, checksum, bytes(body)), topic, first, count)
            decoded = list(map(codec.decode_record, raws))
        except EntryUnreadable:
            unreadable += 1
            continue
        renamed = 0
        for number, record in enumerate(decoded, first):
            if not states_erased_name(record, renaming):
                continue
            if rename_person(record, renaming, time_of_stored_call(record, topic, number)):
                renamed += 1
            else:
                later += 1
        if renamed:
            records += renamed
            sealed = codec.compress_entry(
                codec.encode_records(decoded), codec.entry_location(topic, first, count)
            )
            entry = {
                "first": first,
                "before": checksum,
                "version": sealed.version,
                "checksum": sealed.checksum,
                "body": sealed.data,
            }
            changed.append({"entry": entry, "span": {"first": first, "last": first + count - 1}})
    return changed, RenamedRecords(records, unreadable=unreadable, later=later)


def _rename_in_set_aside_records(tables: SqlConnection, renaming: Renaming) -> RenamedRecords:
    renamed = NO_RECORDS
    for select, put in ((_DEAD, _PUT_DEAD), (_KEPT, _PUT_KEPT)):
        for id, packed, route, number in tables.all(select):
            records, (_, _, topic) = unpack_records(bytes(packed)), route.rpartition("/")
            changed = [
                rename_person(record, renaming, time_of_stored_call(record, topic, number))
                for record in records
            ]
            if any(changed):
                key = {"key": new_idempotency_key()} if put is _PUT_KEPT else {}
                tables.run(put, id=id, record=pack_records(records), **key)
                renamed = renamed.plus(RenamedRecords(sum(changed), len(key)))
    return renamed
