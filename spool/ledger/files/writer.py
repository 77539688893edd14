"""
Writes the facts of a log: open rows in memory, which become files, and merges of files.

Open rows are those of records from `reach` of the manifest on. `write_parts` makes files of them, one for each UTC day,
and `merge_next` makes one file of the files of a day, and later one of the days of a month. A start reads the log from
`reach` again, so nothing but the manifest and its files must survive a crash.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import count
from operator import add, sub
from pathlib import Path
from typing import Any, Final
from zlib import decompress

import duckdb
import msgspec

from spool.disks import flush_file
from spool.erasure import Renaming
from spool.errors import LedgerLost, TakenOver
from spool.ledger.files.engine import EngineLimits, open_engine, quoted
from spool.ledger.files.folder import (
    DAY,
    DELTA,
    PART,
    SPAN,
    FactFile,
    FactFolder,
    FactManifest,
    FileStore,
    digest_of_file,
)
from spool.ledger.files.layout import Layout
from spool.ledger.files.recalculation import NewPrices, OpenPrices, recalculated
from spool.ledger.files.remembered import RememberedParts
from spool.ledger.files.row import CALL, Absurd, Fact, Row, RowChange, RowMaker
from spool.ledger.files.snapshot import FactSnapshot, SnapshotRows
from spool.ledger.files.source import (
    NO_SUMS,
    SUMS,
    VALUES,
    OpenRows,
    add_sums,
    day_of,
    file_sums,
    sql_of_current_rows,
    sql_of_files,
)
from spool.ledger.ledger import LATE_S
from spool.ledger.sums import DAY_S
from spool.ledger.work import WorkUnitHasher
from spool.log.values import LogEntry
from spool.people import STORED_BEFORE, CallTime
from spool.record import AI_TELEMETRY, NS, RecalculationEntry, Record

PART_ROWS: Final = 25_000
# Rows of many days wait for more rows of their days, up to this number.
MAX_OPEN_ROWS: Final = 200_000
LEAST_ROWS_OF_A_DAY: Final = 500
MOST_FILES_OF_A_DAY: Final = 16
SPAN_AFTER_S: Final = 10 * DAY_S
SPAN_ROWS: Final = 1_000_000
# Changes of a span are merged into it when they are more than one row in this number.
CHANGED_PART: Final = 100
_ROWS_AT_ONCE: Final = 5_000  # rows in Python, which take about a kilobyte each
_OPEN_PRICES: Final = 16  # price lists in memory, each of several megabytes
FileNumber = tuple[int, int]  # series and number, as in the names of files
_COPY: Final = "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 20480)"


class FactWriter:
    """
    Turns log entries into files. One thread uses it, and `add_entries` gets all records from `next_number` on in order.
    `listed` are the tags that always have a column, and `open_prices` opens the prices of a recalculation.

    With `earlier`, it prepares a second generation from the log, which counts after `count_from_now_on`. A start
    continues it. Rows of records that can no longer be read are copied from the earlier one.

    With a `store` that several gateways share, only the one that `may_write` calls what writes files, and each calls
    `refresh` before a snapshot. `cache` limits the files here, see `FactFolder`.
    """

    def __init__(
        self,
        path: Path,
        hasher: WorkUnitHasher,
        open_prices: OpenPrices,
        *,
        edition: str = "",
        listed: Sequence[str] = (),
        limits: EngineLimits | None = None,
        earlier: FactWriter | None = None,
        store: FileStore | None = None,
        cache: int | None = None,
    ) -> None:
        path = path.resolve()
        self.folder = FactFolder(path, store, cache=cache) if earlier is None else FactFolder.prepared(path)
        self.manifest = self.folder.open()
        self.may_write = True
        self._earlier = earlier
        self._engine = open_engine(self.folder.path, limits)
        self._rows = RowMaker(hasher)
        self._edition = edition
        self._listed = tuple(listed)
        self._age = 0  # how often the manifest changed
        self._snapshots = Counter[int]()  # open snapshots by their age
        self._replaced: list[tuple[int, str]] = []  # files and tables, by the first age without them
        self._remembered = RememberedParts()
        self._lacking = Counter[str]()  # numbers without a row since the last parts, by field of the manifest
        self._open_prices = lru_cache(_OPEN_PRICES)(open_prices)
        self._begin_at_reach(self._stored_recalculations(self.manifest.recalculations))
        if earlier is not None and not self.manifest.generation:
            self._layout: Layout = Layout.after(earlier._layout, listed)
            self.manifest = msgspec.structs.replace(self.manifest, series=earlier.manifest.series + 1)
            self._create_columns()

    def refresh(self) -> None:
        """
        Continue with the manifest that counts if another gateway replaced it. Records from its reach on are then added
        again. Open snapshots stay as they are.
        """
        stored = self.folder.store.read()
        if stored in (self.manifest, FactManifest()):
            return
        recalculations = self._stored_recalculations(stored.recalculations)  # may fail, so it is first
        before, self.manifest = self.manifest, stored
        self._age += 1
        self._replace(self._open_rows, self._changes, *(before.files.keys() - stored.files.keys()))
        self._begin_at_reach(recalculations)

    def _stored_recalculations(self, digests: Mapping[int, str]) -> list[NewPrices]:
        return [
            self._new_prices(number, self.folder.read_recalculation(number, digest))
            for number, digest in digests.items()
        ]

    def _begin_at_reach(self, recalculations: list[NewPrices]) -> None:
        named = self.manifest
        if not named.generation:
            self.manifest = msgspec.structs.replace(named, listed=self._listed)
        self._layout = Layout(list(named.tags), list(named.meters), list(named.currencies), self._listed)
        self._recalculations = recalculations
        self.next_number = named.reach
        self._lacking.clear()
        self._create_open_tables()

    @property
    def open_count(self) -> int:
        return self._open_count + len(self._changed)

    @property
    def lacks_listed_tag(self) -> bool:
        """Return whether a listed tag may have values in the log that have no column, so a rebuild is due."""
        return bool(set(self._layout.listed).difference(self._layout.tags, self.manifest.listed))

    def add_entries(self, entries: Sequence[LogEntry]) -> None:
        """
        Add the records of entries to the open rows. Numbers between entries have no record any more. If this writer may
        not write, it waits at a recalculation for a manifest with its estimates, see `refresh`.
        """
        rows, changes = list[Row](), list[RowChange]()
        was_collecting = gc.isenabled()
        gc.disable()  # the collector would visit each new row again and again, which takes longer than the work
        try:
            for number, record, arrived in _records_of(entries):
                if isinstance(record, RecalculationEntry) and not self.may_write:
                    break
                if number > self.next_number or record is None or isinstance(record, RecalculationEntry):
                    self._add(rows, changes)
                    rows, changes = [], []
                    self._skip_lacking(number if record is None else number - 1, is_damaged=record is None)
                if isinstance(record, RecalculationEntry):
                    self._recalculate(number, record)
                self.next_number = number + 1
                if record is None or isinstance(record, RecalculationEntry):
                    continue
                try:
                    made = self._rows.row_of(record, number, arrived)
                except Absurd:
                    self._lacking["absurd"] += 1
                    continue
                if isinstance(made, Row):
                    rows.append(made)
                elif made is not None:
                    changes.append(made)
            self._add(rows, changes)
        finally:
            if was_collecting:
                gc.enable()

    def _skip_lacking(self, last: int, *, is_damaged: bool) -> None:
        """Count the numbers without a record up to `last`, which may be damaged, and copy their earlier rows."""
        lacking = last + 1 - self.next_number
        if lacking and self._earlier is not None:
            self._copy_rows(self.next_number, last)
        self._lacking["missed"] += lacking - is_damaged
        self._lacking["damaged"] += is_damaged

    def _add(self, rows: Sequence[Row], changes: Sequence[RowChange]) -> None:
        self._add_columns([*rows, *(change.row for change in changes if change.row is not None)])
        self._append(self._open_rows, map(self._layout.values, rows), self._layout.names())
        self._open_count += len(rows)
        if changes:
            self._add_changes(changes)

    def is_part_due(self) -> bool:
        """Return whether there are so many open rows that files of them are not too small."""
        if self.open_count < PART_ROWS:
            return False
        found = self._engine.execute(f"SELECT count(DISTINCT start // {DAY_S}) FROM {self._open_rows}")
        [(days,)] = found.fetchall()
        return self.open_count >= min(MAX_OPEN_ROWS, max(PART_ROWS, int(days) * LEAST_ROWS_OF_A_DAY))

    def snapshot(self) -> FactSnapshot:
        """Return the totals of all records before `next_number`. The caller closes them."""
        self._snapshots[self._age] += 1
        close = partial(self._close_snapshot, self._age)
        rows = SnapshotRows(self.folder, self.manifest.files, self._counted_open_rows())
        return FactSnapshot(self._engine, self._layout, rows, self._remembered, self.next_number, close)

    def write_parts(self) -> None:
        """Make files of all open rows and changes, and store how far the log is read."""
        files = {}
        numbers = count(self.manifest.next)
        for day, *values in self._execute(
            f"SELECT start // {DAY_S}, min(number), max(number), {SUMS} FROM {self._open_rows} GROUP BY 1 ORDER BY 1"
        ):
            begin = day * DAY_S
            source = f"SELECT * FROM {self._open_rows} WHERE {_of_day(begin)}"
            name = self._file_name(PART, begin, next(numbers))
            files[name] = self._write_file(name, source, PART, begin, begin + DAY_S, values)
        for begin, sums in sorted(self._changed_sums.items()):
            files |= self._write_changes(begin, next(numbers), sums)
        before = self.manifest
        self._commit(
            msgspec.structs.replace(
                before,
                **self._counts_of_lacking(),
                next=next(numbers),
                edition=self._edition,
                reach=self.next_number,
                tags=tuple(self._layout.tags),
                meters=tuple(self._layout.meters),
                currencies=tuple(self._layout.currencies),
                files={**before.files, **files},
            )
        )
        self._lacking.clear()
        self._replace(self._open_rows, self._changes)
        self._create_open_tables()

    def _counts_of_lacking(self) -> dict[str, int]:
        return {
            name: getattr(self.manifest, name) + self._lacking[name]
            for name in ("missed", "damaged", "absurd")
        }

    def _write_changes(self, begin: int, number: int, sums: Sequence[int]) -> Mapping[str, FactFile]:
        source = f"SELECT * FROM {self._changes} WHERE {_of_day(begin)}"
        [(first, last)] = self._execute(f"SELECT min(number), max(number) FROM ({source})")
        name = self._file_name(DELTA, begin, number)
        return {name: self._write_file(name, source, DELTA, begin, begin + DAY_S, (first, last, *sums))}

    def _new_prices(self, number: int, record: RecalculationEntry) -> NewPrices:
        return NewPrices(
            number, record.since, self._open_prices(decompress(record.price_list), record.own_prices)
        )

    def _recalculate(self, number: int, record: RecalculationEntry) -> None:
        """Write the new estimates of all rows below the number of a recalculation, and count them at once."""
        self.write_parts()
        made, before, numbers = self._new_prices(number, record), self.manifest, count(self.manifest.next)
        files = dict(before.files)
        for day in self._days_since(record.since):
            of_day = {name: file for name, file in before.files.items() if file.since <= day < file.until}
            rows = self._rows_of(of_day, self._counted_open_rows())
            if self._add_new_estimates(f"(SELECT * FROM {rows} WHERE {_of_day(day)})", made):
                changed = f"SELECT number FROM {self._changes}"
                [new] = self._execute(f"SELECT {SUMS} FROM {self._changes}")
                [old] = self._execute(
                    f"SELECT {SUMS} FROM {rows} WHERE {_of_day(day)} AND number IN ({changed})"
                )
                files |= self._write_changes(day, next(numbers), list(map(sub, new, old)))
                self._execute(f"DELETE FROM {self._changes}")
        digest = self.folder.write_recalculation(number, record)
        self._commit(
            msgspec.structs.replace(
                before,
                next=next(numbers),
                reach=number + 1,
                files=files,
                recalculations={**before.recalculations, number: digest},
            )
        )
        self._recalculations.append(made)

    def _copy_rows(self, first: int, last: int) -> None:
        """Copy the rows of records that the log no longer has from the earlier generation, all in one step."""
        assert self._earlier is not None
        if self._earlier.manifest.reach <= last:
            self._earlier.write_parts()
        of_earlier = self._earlier._layout
        self._layout.add_names(of_earlier.tags, of_earlier.meters, of_earlier.currencies)
        self._create_columns()
        self.write_parts()
        earlier, before, numbers = self._earlier.manifest, self.manifest, count(self.manifest.next)
        files = dict(before.files)
        recalculations = {
            number: digest for number, digest in earlier.recalculations.items() if first <= number <= last
        }
        days = {
            day
            for file in earlier.files.values()
            if file.numbers[0] <= last and file.numbers[1] >= first
            for day in range(file.since, file.until, DAY_S)
        }
        for day in sorted(days):
            of_day = {name: file for name, file in earlier.files.items() if file.since <= day < file.until}
            rows = of_earlier.sql_of_rows_in(self._layout, self._earlier._rows_of(of_day))
            name = self._file_name(PART, day, next(numbers))
            source = f"SELECT * FROM ({rows}) WHERE {_of_day(day)} AND number BETWEEN {first} AND {last}"
            file = self._write_file(name, source, PART, day, day + DAY_S)
            if file.rows:
                files[name] = file
            else:
                self.folder.delete(name)
        self._recalculations += self._stored_recalculations(recalculations)
        self._commit(
            msgspec.structs.replace(
                before,
                next=next(numbers),
                reach=last + 1,
                files=files,
                has_copies=True,
                recalculations={**before.recalculations, **recalculations},
            )
        )

    def count_from_now_on(self) -> None:
        """
        Replace the earlier generation, whose reach this one must have. Its files go as soon as its snapshots are
        closed, and nothing else of it may be used.

        Counts of records that were lacking never fall if rows were copied, because the deleted records cannot be
        counted again. Raises ValueError if this generation is behind.
        """
        earlier = self._earlier
        if earlier is None or earlier.next_number != self.next_number:
            raise ValueError("the prepared totals do not have the records of the earlier ones")
        self.write_parts()
        if self.manifest.has_copies:
            counts = earlier._counts_of_lacking()
            counts |= {
                name: max(counts[name], getattr(self.manifest, name)) for name in ("damaged", "absurd")
            }
            self._commit(msgspec.structs.replace(self.manifest, has_copies=False, **counts))
        self.manifest = msgspec.structs.replace(self.manifest, generation=earlier.manifest.generation + 1)
        self.folder.count_from_now_on(self.manifest, earlier.folder)
        self._earlier = None
        earlier._age += 1
        earlier._replace(*earlier.manifest.files)

    def _days_since(self, since: int) -> Sequence[int]:
        days = {
            day
            for file in self.manifest.files.values()
            for day in range(file.since, file.until, DAY_S)
            if day + DAY_S > since
        }
        return sorted(days)

    def _add_new_estimates(self, rows: str, made: NewPrices) -> bool:
        """Add the rows with other estimates to the changes. Return whether there are any."""
        columns = ", ".join(f'"{name}"' for name in self._layout.names())
        found = self._engine.cursor().execute(f"SELECT {columns} FROM {rows} WHERE kind = '{CALL}'")
        facts, first_meter = len(Fact._fields), len(Fact._fields) + len(self._layout.tags)
        is_changed = False
        while batch := found.fetchmany(_ROWS_AT_ONCE):
            changed = []
            for values in batch:
                fact = Fact(*values[:facts])
                new = recalculated(
                    fact, dict(zip(self._layout.meters, values[first_meter:], strict=False)), [made]
                )
                if new != fact:
                    changed.append((*new, *values[facts:], made.number, False))
            self._append(self._changes, changed, [*self._layout.names(), "seq", "gone"])
            is_changed = is_changed or bool(changed)
        return is_changed

    def merge_next(self, now: float, *, is_idle: bool = True) -> bool:
        """
        Merge the files of a day that has many or, if `is_idle`, of a day or of days of a month that is over. Return
        whether there were any. Else delete copies of replaced files, so that erased names go also without new records.
        Raises LedgerLost if the rows of the new file are others.
        """
        files = self.manifest.files
        by_day: dict[int, list[str]] = {}
        for name, file in files.items():
            if file.kind != SPAN:
                by_day.setdefault(file.since, []).append(name)
        for day, names in by_day.items():
            of_span = self._span_of_day(day)
            if of_span is None:
                is_over = now >= day + DAY_S + LATE_S
                if len(names) > MOST_FILES_OF_A_DAY or (is_idle and is_over and len(names) > 1):
                    self._merge(names, DAY)
                    return True
                continue
            # a day that is in a span has rows that arrived later, and changes
            if is_idle and sum(files[name].rows for name in names) * CHANGED_PART > files[of_span].rows:
                of_days = [
                    name for each in by_day if self._span_of_day(each) == of_span for name in by_day[each]
                ]
                self._merge([of_span, *of_days], SPAN)
                return True
        of_month = self._days_of_one_span(by_day, now) if is_idle else ()
        if of_month:
            self._merge(of_month, SPAN)
        elif is_idle:
            self.folder.store.delete_replaced()
        return bool(of_month)

    @property
    def next_file(self) -> FileNumber:
        """Return the number of the next file. Files that were written earlier have lower ones."""
        return self.manifest.series, self.manifest.next

    def rename_people(self, renaming: Renaming, since: FileNumber = (0, 0)) -> int:
        """
        Write the files with names of erased people again, and delete the earlier ones. Return how many these were. Open
        rows become files before. A second call reads only files from number `since` on, `next_file` after the first
        one, because the others cannot have a name. Of two generations, each renames its own files.
        """
        self.write_parts()
        before, numbers = self.manifest, count(self.manifest.next)
        renamed = {
            old: new
            for old, file in before.files.items()
            if _number_of_file(old) >= since and (new := self._write_renamed(old, file, numbers, renaming))
        }
        if renamed:
            kept = {name: file for name, file in before.files.items() if name not in renamed}
            files = kept | dict(renamed.values())
            self._commit(msgspec.structs.replace(before, next=next(numbers), files=files))
            self._replace(*renamed)
        return len(renamed)

    def _write_renamed(
        self, old: str, file: FactFile, numbers: Iterator[int], renaming: Renaming
    ) -> tuple[str, FactFile] | None:
        """Write a file with other names of people. Return None if it states none that an erasure changes."""
        self.folder.fetch({old: file})
        source = sql_of_files(self.folder.path, [old])
        stored = [name for name, *_ in self._execute(f"DESCRIBE SELECT * FROM {source}")]
        conditions = []
        for column in set(stored) & self._layout.columns_of_people():
            found = self._execute(f'SELECT DISTINCT "{column}" FROM {source} WHERE "{column}" IS NOT NULL')
            erased = [
                name
                for [name] in found
                if self._layout.rename_person({column: name}, renaming, STORED_BEFORE)
            ]
            if erased:
                conditions.append(f'"{column}" IN ({", ".join(map(quoted, erased))})')
        if not conditions:
            return None
        is_named, is_changed = f"coalesce({' OR '.join(conditions)}, false)", False
        self._execute(f"CREATE OR REPLACE TABLE renamed AS SELECT * FROM {source} LIMIT 0")
        found = self._engine.cursor().execute(f"SELECT * FROM {source} WHERE {is_named}")
        while batch := found.fetchmany(_ROWS_AT_ONCE):
            rows = [dict(zip(stored, values, strict=True)) for values in batch]
            for row in rows:
                call = CallTime(row["start"] * NS, AI_TELEMETRY, row["number"])
                is_changed = self._layout.rename_person(row, renaming, call) or is_changed
            self._append("renamed", [tuple(row.values()) for row in rows], stored)
        if not is_changed:
            return None
        every = f"SELECT * FROM {source} WHERE NOT {is_named} UNION ALL BY NAME SELECT * FROM renamed"
        name = self._file_name(file.kind, file.since, next(numbers))
        new = self._write_file(name, every, file.kind, file.since, file.until)
        self._execute("DROP TABLE renamed")
        [sums] = self._execute(f"SELECT {SUMS} FROM {source}")
        if new.sums != file_sums(sums):
            self.folder.delete(name)
            raise LedgerLost(f"{name} has other sums than {old}, whose names it changes")
        return name, msgspec.structs.replace(new, edition=file.edition, sums=file.sums)

    def close(self) -> None:
        self._engine.close()

    def _span_of_day(self, day: int) -> str | None:
        files = self.manifest.files.items()
        return next(
            (name for name, file in files if file.kind == SPAN and file.since <= day < file.until), None
        )

    def _days_of_one_span(self, by_day: Mapping[int, Sequence[str]], now: float) -> Sequence[str]:
        """Return the files of days of one month that is over, at least two with at most SPAN_ROWS rows, or none."""
        files = self.manifest.files
        months: dict[str, list[int]] = {}
        for day in sorted(by_day):
            months.setdefault(_day_text(day)[:7], []).append(day)
        for days in months.values():
            last = datetime.fromtimestamp(days[0], UTC).replace(day=1).timestamp() + 31 * DAY_S
            if now < last + SPAN_AFTER_S:
                continue
            chosen, rows = list[int](), 0
            for day in days:
                of_day = sum(files[name].rows for name in by_day[day])
                if self._span_of_day(day) is not None:
                    continue
                if chosen and rows + of_day > SPAN_ROWS:
                    break
                chosen.append(day)
                rows += of_day
            if len(chosen) > 1:
                return [name for day in chosen for name in by_day[day]]
        return ()

    def _add_columns(self, rows: Sequence[Row]) -> None:
        known = set(self._layout.names())
        self._layout.add_names_of(rows)
        self._create_columns(known)

    def _create_columns(self, known: Collection[str] = ()) -> None:
        for name, type in self._layout.columns():
            if name not in known:
                for table in (self._open_rows, self._changes):
                    self._execute(f'ALTER TABLE {table} ADD COLUMN IF NOT EXISTS "{name}" {type}')

    def _append(self, table: str, rows: Iterable[tuple[Any, ...]], columns: Sequence[str]) -> None:
        appender = self._engine.appender(table, columns=columns)
        appender.append_rows(list(rows))
        appender.flush()

    def _add_changes(self, changes: Sequence[RowChange]) -> None:
        """
        Add changes, each at the time of the row that it replaces: a late report never changes a call's time, and the
        time at which a call counts must not depend on the arrival of its reports.
        """
        numbers = sorted({change.number for change in changes})
        asked = ", ".join(map(str, numbers))
        of_numbers = {
            name: file
            for name, file in self.manifest.files.items()
            if bisect_left(numbers, file.numbers[0]) < bisect_right(numbers, file.numbers[1])
        }
        rows = self._rows_of(of_numbers, self._counted_open_rows())
        known = {
            number: (start, values)
            for number, start, *values in self._execute(
                f"SELECT number, start, {VALUES} FROM {rows} WHERE number IN ({asked})"
            )
        }
        starts = {number: start for number, (start, _) in known.items()}
        made = []
        for change in changes:
            row = change.row
            start = starts.get(change.number)
            if row is None and start is None:
                continue  # a call that was too large to count
            if row is not None:
                start = starts.setdefault(change.number, row.fact.start)
                fact = recalculated(row.fact._replace(start=start), row.meters, self._recalculations)
                values = self._layout.values(row._replace(fact=fact))
            else:
                values = self._layout.values(_gone_row(change.number, start or 0))
            made.append((*values, change.seq, row is None))
            self._changed.add(change.number)
        self._append(self._changes, made, [*self._layout.names(), "seq", "gone"])
        touched = {day_of(starts[change.number]) for change in changes if change.number in starts}
        self._changed_days |= touched
        rows = self._rows_of(of_numbers, self._counted_open_rows())
        after = {
            number: values
            for number, *values in self._execute(
                f"SELECT number, {VALUES} FROM {rows} WHERE number IN ({asked})"
            )
        }
        for number, start in starts.items():
            sums = self._changed_sums.setdefault(day_of(start), [*NO_SUMS])
            sums[:] = map(add, sums, map(int, after.get(number, NO_SUMS)))
            if number in known:
                sums[:] = map(sub, sums, map(int, known[number][1]))

    def _merge(self, names: Sequence[str], kind: str) -> None:
        """Make one file of the rows of others. Nothing is sorted, because sorting wide rows needs much memory."""
        before = self.manifest
        files = {name: before.files[name] for name in names}
        since, until = min(file.since for file in files.values()), max(file.until for file in files.values())
        source = f"SELECT * FROM {self._rows_of(files)}"
        name = self._file_name(kind, since, before.next)
        merged = self._write_file(name, source, kind, since, until)
        if merged.sums != add_sums(file.sums for file in files.values()):
            self.folder.delete(name)
            raise LedgerLost(f"{name} has other sums than the files that it merges")
        kept = {old: file for old, file in before.files.items() if old not in files}
        added = {name: merged} if merged.rows else {}
        self._commit(msgspec.structs.replace(before, next=before.next + 1, files={**kept, **added}))
        self._replace(*names, *(() if merged.rows else (name,)))

    def _file_name(self, kind: str, begin: int, number: int) -> str:
        return f"{kind}-{_day_text(begin)}-{self.manifest.series}-{number}.parquet"

    def _write_file(
        self, name: str, source: str, kind: str, since: int, until: int, values: Sequence[int] | None = None
    ) -> FactFile:
        """Write a file. `values` are its first and last number and its SUMS, read from the file if they are None."""
        path = self.folder.path / name
        [(rows,)] = self._execute(f"COPY ({source}) TO {quoted(path)} {_COPY}")
        flush_file(path)
        if values is None:
            of_file = sql_of_files(self.folder.path, [name])
            [values] = self._execute(
                f"SELECT coalesce(min(number), 0), coalesce(max(number), 0), {SUMS} FROM {of_file}"
            )
        first, last, *sums = values
        return FactFile(
            kind=kind,
            since=since,
            until=until,
            edition=self._edition,
            numbers=(first, last),
            rows=rows,
            bytes=path.stat().st_size,
            sha256=digest_of_file(path),
            sums=file_sums(sums),
        )

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement. Raises LedgerLost if a file cannot be read or written."""
        try:
            rows: list[tuple[Any, ...]] = self._engine.execute(sql).fetchall()
        except duckdb.Error as error:
            raise LedgerLost(f"the files of the totals cannot be used: {error}") from error
        return rows

    def _rows_of(self, files: Mapping[str, FactFile], open_rows: OpenRows | None = None) -> str:
        self.folder.fetch(files)
        return sql_of_current_rows(self.folder.path, files, open_rows)

    def _counted_open_rows(self) -> OpenRows:
        return OpenRows(
            rows=self._open_rows,
            changes=self._changes,
            below=self.next_number,
            changed_days=set(self._changed_days),
        )

    def _commit(self, manifest: FactManifest) -> None:
        changed = msgspec.structs.replace(manifest, generation=manifest.generation + 1)
        known = self.manifest.files
        new = {name: file for name, file in changed.files.items() if name not in known}
        try:
            self.folder.commit(changed, new)
        except TakenOver:
            for name in new:
                self.folder.delete(name)
            raise
        self.manifest = changed
        self._age += 1

    def _create_open_tables(self) -> None:
        self._open_rows, self._changes = f"open_rows_{self._age}", f"open_changes_{self._age}"
        columns = ", ".join(f'"{name}" {type}' for name, type in self._layout.columns())
        self._execute(f"CREATE TABLE {self._open_rows} ({columns})")
        self._execute(f"CREATE TABLE {self._changes} ({columns}, seq BIGINT, gone BOOLEAN)")
        self._open_count = 0
        self._changed, self._changed_days = set[int](), set[int]()
        self._changed_sums: dict[int, list[int]] = {}

    def _replace(self, *names: str) -> None:
        """Delete files and tables as soon as no snapshot of an earlier manifest needs them."""
        self._replaced += [(self._age, name) for name in names]
        self._delete_replaced()

    def _close_snapshot(self, age: int) -> None:
        self._snapshots[age] -= 1
        self._delete_replaced()

    def _delete_replaced(self) -> None:
        oldest = min(+self._snapshots, default=self._age)
        self._remembered.forget([name for age, name in self._replaced if age <= oldest])
        for age, name in self._replaced:
            if age > oldest:
                continue
            if name.endswith(".parquet"):
                self.folder.delete(name)
            else:
                self._execute(f"DROP TABLE {name}")
        self._replaced = [each for each in self._replaced if each[0] > oldest]


def _records_of(entries: Iterable[LogEntry]) -> Iterator[tuple[int, Record | None, float]]:
    for entry in entries:
        for number, record in enumerate(entry.records, entry.first):
            yield number, record, entry.committed_at


def _gone_row(number: int, start: int) -> Row:
    nothing = (None,) * 13
    return Row(Fact(number, start, CALL, 0, *nothing), {}, {}, {})


def _number_of_file(name: str) -> FileNumber:
    *_, series, number = name.removesuffix(".parquet").split("-")
    return int(series), int(number)


def _of_day(begin: int) -> str:
    return f"start >= {begin} AND start < {begin + DAY_S}"


def _day_text(start: int) -> str:
    return f"{datetime.fromtimestamp(start, UTC):%Y-%m-%d}"
