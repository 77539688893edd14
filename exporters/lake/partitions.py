"""
The files of one delivery: one file per date, written to a local directory in row groups.

Rows are in memory as Python objects until there are PART_ROWS of them, and then as column values until a
group is full. Each step processes rows of the date that has the most rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, Protocol

from exporters.lake import manifest
from exporters.lake.columns import AI_TABLE, COLUMNS, VERSION, LakeRow, LakeTable
from exporters.lake.names import DeliveryRange, data_file_name, file_stem, format_date
from exporters.lake.tables import LeftOutColumns, RowDigest
from spool import money
from spool.log.values import LogEntry
from spool.record import NS, rfc3339

GROUP_ROWS: Final = 32 * 1024  # rows per group, which is held in memory; twice as many rows need 25 MiB more
# maximum rows held as Python objects, which need four times the memory of column values
PART_ROWS: Final = 4096
MOST_OPEN: Final = 64  # maximum number of files that are partly written
_NAMES: Final = list(COLUMNS)
_AT, _COUNTED, _CALLS, _SPEND, _GIVEN, _MADE, _KIND = (
    _NAMES.index(name)
    for name in ("at", "counted", "calls", "spend", "input_tokens", "output_tokens", "kind")
)


class OpenFile(Protocol):
    def add_rows(self, rows: Sequence[tuple[Any, ...]]) -> None: ...

    def write_group(self) -> None: ...

    def close(self, metadata: Mapping[str, str]) -> None: ...


class ReadRows(Protocol):
    def __call__(self, path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
        """
        Yield these columns of each row in order, without the first `skip` rows. Raises ValueError if they
        cannot be read.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A file format. `writer` is a number that changes whenever the same rows would become other bytes."""

    name: str
    ending: str
    writer: int
    is_focus: bool = False  # True if the files of this format contain hourly charges instead of records
    # function that opens a file for the columns of a table
    open: Callable[[Path, Mapping[str, str]], OpenFile]
    # function that reads the metadata from the end of a file; it raises ValueError if there is no metadata
    read_footer: Callable[[bytes], dict[str, str]]
    read_rows: ReadRows


@dataclass(eq=False)
class LakeFileSums:
    """The sums over a file's rows that its manifest states."""

    rows: int = 0
    calls: int = 0
    spend: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_at: int | None = None
    last_at: int = 0

    def add_rows(self, rows: Sequence[tuple[Any, ...]]) -> None:
        times = [row[_AT] for row in rows]
        first = min(times)
        self.first_at = first if self.first_at is None else min(first, self.first_at)
        self.last_at = max(self.last_at, max(times))
        self.rows += len(rows)
        counted = [row for row in rows if row[_COUNTED]]
        self.calls += sum([row[_CALLS] for row in counted])
        self.spend += sum([row[_SPEND] or 0 for row in counted])
        self.input_tokens += sum([row[_GIVEN] or 0 for row in counted])
        self.output_tokens += sum([row[_MADE] or 0 for row in counted])

    def add_sums(self, other: LakeFileSums) -> None:
        self.rows += other.rows
        self.calls += other.calls
        self.spend += other.spend
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens

    def counted_rows(self) -> manifest.CountedRows:
        return manifest.CountedRows(
            calls=self.calls,
            spend=money.units_to_text(self.spend),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


@dataclass(eq=False)
class _Partition:
    """The file of one date while it is built. `added`: rows that are not written to it yet."""

    path: Path
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    file: OpenFile | None = None
    added: int = 0
    sums: LakeFileSums = field(default_factory=LakeFileSums)


class DeliveryFiles:
    """
    Builds the files of a delivery from its entries, in order. `finish_and_describe` returns their manifest.
    """

    focus: str | None = None  # the FOCUS version if the files contain charges

    def __init__(
        self,
        directory: Path,
        delivery_range: DeliveryRange,
        *,
        route: str,
        format: FileFormat,
        leave_out: Sequence[str] = (),
        stem: str = "",
        table: LakeTable = AI_TABLE,
    ) -> None:
        """Prepare the files. `stem`: the beginning of their names, by default made from `delivery_range`."""
        self._directory = directory
        self._series = delivery_range
        self._stem = stem or file_stem(delivery_range)
        self._route = route
        self._format = format
        self._table = table
        self._left_out = LeftOutColumns(leave_out, table)
        self._shadow = list(table.columns).index("shadow")
        self._partitions: dict[int, _Partition] = {}
        self._digest = RowDigest(table)
        self._sums = LakeFileSums()
        self._kinds: Counter[str] = Counter()
        self._shadows = 0
        self._next_number = delivery_range.first
        self._damaged: list[int] = []
        self._waiting_rows = 0
        self._added = 0

    def add_entry(self, entry: LogEntry) -> None:
        """Add the records of an entry. A number without a record counts as damaged."""
        rows = []
        self._damaged += range(self._next_number, entry.first)
        for number, record in enumerate(entry.records, entry.first):
            if record is None:
                self._damaged.append(number)
                continue
            row = self._table.row_of(
                record, number=number, committed_at=entry.committed_at, log_edition=self._series.edition
            )
            rows.append(row)
        self._next_number = entry.last + 1
        self.add_rows(rows)

    def add_rows(self, rows: Sequence[LakeRow]) -> None:
        values = [row.values for row in rows]
        self._digest.add_rows(values)
        self._kinds.update([row[_KIND] for row in values])
        self._shadows += sum([row[self._shadow] for row in values])
        self._collect_rows(rows)

    def _collect_rows(self, rows: Sequence[LakeRow]) -> None:
        of_days = defaultdict[int, list[tuple[Any, ...]]](list)
        for day, values in rows:
            of_days[day].append(values)
        for day, rows_of_day in of_days.items():
            partition = self._find_or_add_partition(day)
            partition.sums.add_rows(rows_of_day)
            partition.rows += self._left_out.blank_values(rows_of_day)
        self._waiting_rows += len(rows)

    def _find_or_add_partition(self, day: int) -> _Partition:
        partition = self._partitions.get(day)
        if partition is None:
            path = self._directory / f"{format_date(day)}.{self._format.ending}"
            partition = self._partitions[day] = _Partition(path)
        return partition

    @property
    def has_full_part(self) -> bool:
        return self._waiting_rows >= PART_ROWS

    def write_largest_part(self) -> None:
        """
        Add rows to the file of the date with the most waiting rows, and write a row group if one is full.
        Call this on a thread.
        """
        open_ones = [partition for partition in self._partitions.values() if partition.file is not None]
        may_be = open_ones if len(open_ones) >= MOST_OPEN else list(self._partitions.values())
        largest = max(may_be, key=lambda partition: len(partition.rows))
        if largest.rows:
            self._move_rows_to_file(largest, PART_ROWS)
        if self._added >= GROUP_ROWS:
            self._write_group(max(self._partitions.values(), key=lambda partition: partition.added))

    def _move_rows_to_file(self, partition: _Partition, max_rows: int) -> None:
        if partition.file is None:
            partition.file = self._format.open(partition.path, self._table.columns)
        rows = partition.rows[: min(max_rows, GROUP_ROWS - partition.added)]
        partition.rows = partition.rows[len(rows) :]
        partition.file.add_rows(rows)
        partition.added += len(rows)
        self._waiting_rows -= len(rows)
        self._added += len(rows)

    def _write_group(self, partition: _Partition) -> None:
        assert partition.file is not None
        partition.file.write_group()
        self._added -= partition.added
        partition.added = 0

    def finish_and_describe(self) -> manifest.LakeManifest:
        """
        Finish all files. In the returned manifest, `landed_at` (its time) and `before` (hash of the route's
        previous manifest) are empty until it is stored.
        """
        self._damaged += range(self._next_number, self._series.last + 1)
        digest = self._digest.hexdigest()
        for partition in self._partitions.values():
            self._sums.add_sums(partition.sums)
        files = self._finish_files(digest)
        return manifest.LakeManifest(
            route=self._route,
            edition=self._series.edition,
            first=self._series.first,
            last=self._series.last,
            writer=self._format.writer,
            schema=VERSION,
            digest=digest,
            landed_at="",
            numbers=manifest.DeliveryNumbers(
                rows=self._sums.rows, shadow=self._shadows, damaged=self._damaged
            ),
            kinds=dict(sorted(self._kinds.items())),
            counted=self._sums.counted_rows(),
            files=files,
            focus=self.focus,
        )

    def _finish_files(self, digest: str) -> list[manifest.LakeFile]:
        return [self._finish_file(day, self._partitions[day], digest) for day in sorted(self._partitions)]

    def _finish_file(self, day: int, partition: _Partition, digest: str) -> manifest.LakeFile:
        while partition.rows:
            self._move_rows_to_file(partition, PART_ROWS)
            if partition.added == GROUP_ROWS:
                self._write_group(partition)
        assert partition.file is not None
        if partition.added:
            self._write_group(partition)
        partition.file.close(footer_metadata(self._series, route=self._route, digest=digest))
        partition.file = None
        return self._describe_file(format_date(day), partition.path, partition.sums)

    def _describe_file(self, date: str, path: Path, sums: LakeFileSums) -> manifest.LakeFile:
        with path.open("rb") as file:
            sum = file_digest(file, "sha256").hexdigest()
        counted = sums.counted_rows()
        return manifest.LakeFile(
            key=data_file_name(self._stem, date, self._format.ending, table=self._table.name),
            date=date,
            bytes=path.stat().st_size,
            sha256=sum,
            rows=sums.rows,
            calls=counted.calls,
            spend=counted.spend,
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            first_at=_moment_text(sums.first_at or 0),
            last_at=_moment_text(sums.last_at),
        )

    def path_of(self, file: manifest.LakeFile) -> Path:
        return self._directory / f"{file.date}.{self._format.ending}"


def footer_metadata(delivery_range: DeliveryRange, *, route: str, digest: str) -> dict[str, str]:
    return {
        "tollhouse.route": route,
        "tollhouse.edition": delivery_range.edition,
        "tollhouse.first": str(delivery_range.first),
        "tollhouse.last": str(delivery_range.last),
        "tollhouse.schema": str(VERSION),
        "tollhouse.digest": digest,
    }


def _moment_text(microseconds: int) -> str:
    return rfc3339(microseconds * (NS // 1_000_000)) or ""
