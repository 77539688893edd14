"""
Import of records from a damaged file into the log of a data directory.

Each commit stores which records it imported: the incarnation of the damaged log, and the records' numbers in
it. So no record is added twice, even if a run is repeated or killed.
"""

from __future__ import annotations

import shutil
import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from spool.clock import Clock
from spool.deliveries import ranges, rules
from spool.erasure import Renaming
from spool.errors import NotAllowed
from spool.log.imported import (
    build_import_submission,
    imported_ranges,
    imported_ranges_key,
    rename_erased_person,
)
from spool.log.partial_reports import RECOVERED, PartialReport
from spool.record import TOPICS, Record
from spool.sqlite import recovery
from spool.sqlite.damage.notes import RecoveryNote
from spool.sqlite.damage.salvage import salvage_rows
from spool.sqlite.database import Database, damage_error
from spool.sqlite.deliveries.delivery_rows import lowest_number_needed_by_routes
from spool.sqlite.directory import SPOOL
from spool.sqlite.log.entries import highest_accepted_number, lowest_stored_number, read_entries
from spool.sqlite.spool import SqliteSpool, open_spool
from spool.storage import RecoveryResult, StorageOptions

DIRECTORY = "recover.tmp"
STEP = 500  # records per commit


async def recover_records(options: StorageOptions, file: Path, renaming: Renaming | None) -> RecoveryResult:
    """
    Add every record of the file that the log does not have, without names of erased people.

    Raises NotAllowed for the log's own file, and for a file without readable rows. Raises SpoolFull if there
    is no space; records added before then stay, and the next run continues after them.
    """
    directory, clock = options.directory, options.clock
    _require_file_other_than_current_log(file, directory)
    spool = await open_spool(directory, settings=options.settings, clock=clock)
    scratch = directory / DIRECTORY
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        database = await _salvage_into_scratch(scratch / SPOOL, file)
        try:
            return await _MissingRecordImport(spool, database, clock, renaming).import_missing_records()
        finally:
            await database.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        await spool.close()


def _require_file_other_than_current_log(file: Path, directory: Path) -> None:
    if not file.is_file():
        raise NotAllowed(f"{file} does not exist")
    if file.resolve() == (directory / SPOOL).resolve():
        raise NotAllowed(f"{file} is the current log, which is salvaged automatically when it is opened")


async def _salvage_into_scratch(scratch: Path, file: Path) -> Database:
    def prepare_scratch_database(connection: sqlite3.Connection) -> None:
        recovery.migrate_spool(connection)
        connection.execute("BEGIN IMMEDIATE")
        with closing(recovery.empty_database()) as fresh:
            salvaged = salvage_rows(connection, file, fresh, RecoveryNote())
        connection.execute("COMMIT")
        if not salvaged.read:
            raise damage_error("the file has no readable row")

    try:
        return await Database.open(scratch, prepare_scratch_database, durable=False)
    except sqlite3.DatabaseError as error:
        raise NotAllowed(f"nothing in {file} can be read: {error}") from error


class _MissingRecordImport:
    def __init__(self, spool: SqliteSpool, source: Database, clock: Clock, renaming: Renaming | None) -> None:
        self._spool = spool
        self._source = source
        self._clock = clock
        self._renaming = renaming
        self._counts: Counter[str] = Counter()
        self._ids = array("Q")

    async def import_missing_records(self) -> RecoveryResult:
        incarnation = await self._source.read(recovery.read_log_id)
        noted_by_key = {report.key: imported_ranges(report) for report in await self._read_recovered()}
        for topic in TOPICS:
            key = imported_ranges_key(incarnation, topic)
            restored = noted_by_key.get(key, [])
            skipped = await self._source.read(
                partial(_highest_record_number_settled_by_all_routes, topic=topic)
            )
            if incarnation == self._spool.incarnation:
                skipped = await self._spool.database.read(partial(lowest_stored_number, topic=topic)) - 1
            last = await self._source.read(partial(highest_accepted_number, topic=topic))
            first = await self._source.read(partial(lowest_stored_number, topic=topic))
            self._counts["settled"] += max(0, min(skipped, last) - first + 1)
            is_own = incarnation == self._spool.incarnation
            self._ids = await self._stored_record_id_prefixes(topic) if is_own else array("Q")
            for begin in range(max(first, skipped + 1), last + 1, STEP):
                end = min(last, begin + STEP - 1)
                restored = await self._import_records(topic, begin, end, restored, key, is_own=is_own)
        names = ("added", "known", "settled", "unreadable")
        return RecoveryResult(**{name: self._counts[name] for name in names})

    async def _read_recovered(self) -> list[PartialReport]:
        return [
            report for report in await self._spool.partial_reports.load() if report.key.startswith(RECOVERED)
        ]

    async def _import_records(
        self, topic: str, begin: int, end: int, done: list[ranges.Range], key: bytes, *, is_own: bool
    ) -> list[ranges.Range]:
        known_numbers = set(_numbers_of_ranges(ranges.clip_ranges(done, (begin, end))))
        if is_own:
            known_numbers |= set(dict(await self._read_records(self._spool.database, topic, begin, end)))
        source_records = await self._read_records(self._source, topic, begin, end)
        known_numbers |= {number for number, record in source_records.items() if self._is_stored(record)}
        new = {number: record for number, record in source_records.items() if number not in known_numbers}
        self._counts["known"] += len(known_numbers)
        self._counts["unreadable"] += end - begin + 1 - len(known_numbers | set(source_records))
        if not new:
            return done
        done = list(ranges.merge_ranges(sorted([*done, *((number, number) for number in new)])))
        before = await self._highest_accepted_number(topic)
        # A duplicate check would find the ids of the log's own records even if those records are damaged.
        records = list(new.values())
        submission = build_import_submission(
            topic,
            records,
            ranges_key=key,
            imported_ranges=done,
            imported_at=self._clock.now(),
            checks_duplicates=not is_own,
        )
        await self._spool.log.append_submission(submission)
        added = await self._highest_accepted_number(topic) - before
        self._counts["added"] += added
        self._counts["known"] += len(new) - added
        return done

    async def _stored_record_id_prefixes(self, topic: str) -> array[int]:
        ids = array("Q")
        last = await self._highest_accepted_number(topic)
        for begin in range(
            await self._spool.database.read(partial(lowest_stored_number, topic=topic)), last + 1, STEP
        ):
            records = await self._read_records(
                self._spool.database, topic, begin, min(last, begin + STEP - 1)
            )
            ids.extend(_record_id_prefix_as_int(record) for record in records.values())
        return array("Q", sorted(ids))

    def _is_stored(self, record: Record) -> bool:
        at = bisect_left(self._ids, _record_id_prefix_as_int(record))
        return at < len(self._ids) and self._ids[at] == _record_id_prefix_as_int(record)

    async def _read_records(self, database: Database, topic: str, begin: int, end: int) -> dict[int, Record]:
        entries = await database.read(partial(read_entries, topic=topic, first_number=begin, last_number=end))
        found = dict[int, Record]()
        for entry in entries:
            for number, record in enumerate(entry.records, entry.first):
                if record is not None:
                    rename_erased_person(record, self._renaming, arrived_at=entry.committed_at)
                    found[number] = record
        return found

    async def _highest_accepted_number(self, topic: str) -> int:
        return await self._spool.database.read(partial(highest_accepted_number, topic=topic))


def _record_id_prefix_as_int(record: Record) -> int:
    return int.from_bytes(record.id[:8])


def _highest_record_number_settled_by_all_routes(connection: sqlite3.Connection, topic: str) -> int:
    needed = lowest_number_needed_by_routes(connection, topic)
    return 0 if needed is None or needed == rules.NOBODY_NEEDS else needed - 1


def _numbers_of_ranges(number_ranges: Iterator[ranges.Range]) -> Iterator[int]:
    for first, last in number_ranges:
        yield from range(first, last + 1)
