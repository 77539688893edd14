"""
The files of one delivery: a file for each date, written to a local directory group by group.

Rows wait in memory until there is a whole group of them; then those of the date that has most are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, Protocol

from exporters.lake import manifest
from exporters.lake.columns import AI_TABLE, COLUMNS, VERSION, LakeTable, Row
from exporters.lake.digest import RowDigest
from exporters.lake.names import Series, data_name, date_of, stem_of
from spool.ledger import money
from spool.log.values import Entry
from spool.record import NS, rfc3339

GROUP_ROWS: Final = 64 * 1024  # rows in memory together
MOST_OPEN: Final = 64  # files that have a part of their rows
_NAMES: Final = list(COLUMNS)
_AT, _COUNTED, _CALLS, _SPEND, _GIVEN, _MADE, _KIND = (
    _NAMES.index(name)
    for name in ("at", "counted", "calls", "spend", "input_tokens", "output_tokens", "kind")
)


class OpenFile(Protocol):
    """A file that is being written."""

    def write(self, rows: Sequence[tuple[Any, ...]]) -> None: ...

    def close(self, metadata: Mapping[str, str]) -> None: ...


class ReadRows(Protocol):
    def __call__(self, path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
        """Yield some columns of the rows behind the first `skip`, in order. ValueError if they cannot be read."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """`writer` is a number that moves with whatever changes the bytes of the same rows."""

    name: str
    ending: str
    writer: int
    is_focus: bool = False  # its rows are charges by the hour, not records
    open: Callable[[Path, Mapping[str, str]], OpenFile]  # with the columns of the table
    read_footer: Callable[[bytes], dict[str, str]]  # of the end of a file; ValueError if it has none
    read_rows: ReadRows


@dataclass(eq=False)
class FileSums:
    """The sums of rows that a manifest has of a file."""

    rows: int = 0
    calls: int = 0
    spend: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_at: int | None = None
    last_at: int = 0

    def add(self, values: tuple[Any, ...]) -> None:
        at = values[_AT]
        self.rows += 1
        self.first_at = at if self.first_at is None else min(at, self.first_at)
        self.last_at = max(at, self.last_at)
        if values[_COUNTED]:
            self.calls += values[_CALLS]
            self.spend += values[_SPEND] or 0
            self.input_tokens += values[_GIVEN] or 0
            self.output_tokens += values[_MADE] or 0

    def counted(self) -> manifest.CountedRows:
        return manifest.CountedRows(
            calls=self.calls,
            spend=money.text(self.spend),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


@dataclass(eq=False)
class _Partition:
    """The rows of a date that wait, and those that are in its file."""

    path: Path
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    file: OpenFile | None = None
    sums: FileSums = field(default_factory=FileSums)


class DeliveryFiles:
    """Takes the entries of a delivery in order; `close` returns the manifest of what is in the directory."""

    focus: str | None = None  # the version of FOCUS, if the rows of its files are charges

    def __init__(
        self,
        directory: Path,
        series: Series,
        *,
        route: str,
        format: FileFormat,
        leave_out: Sequence[str] = (),
        stem: str = "",
        table: LakeTable = AI_TABLE,
    ) -> None:
        """`stem` is what the names of the files begin with, if it is not made of the series."""
        self._directory = directory
        self._series = series
        self._stem = stem or stem_of(series)
        self._route = route
        self._format = format
        self._table = table
        self._left_out = [place for name in leave_out if (place := table.place(name)) is not None]
        self._shadow = list(table.columns).index("shadow")
        self._partitions: dict[int, _Partition] = {}
        self._digest = RowDigest(table)
        self._sums = FileSums()
        self._kinds: Counter[str] = Counter()
        self._shadows = 0
        self._next = series.first
        self._damaged: list[int] = []
        self._waiting = 0

    def add(self, entry: Entry) -> None:
        """Rows of the entry's records; a number without a record is damaged."""
        rows = []
        self._damaged += range(self._next, entry.first)
        for number, record in enumerate(entry.records, entry.first):
            if record is None:
                self._damaged.append(number)
                continue
            row = self._table.row_of(
                record, number=number, committed_at=entry.committed_at, edition=self._series.edition
            )
            rows.append(row)
        self._next = entry.last + 1
        self.add_rows(rows)

    def add_rows(self, rows: Sequence[Row]) -> None:
        self._digest.add([row.values for row in rows])
        for row in rows:
            self._kinds[row.values[_KIND]] += 1
            self._shadows += row.values[self._shadow]
            self._keep(row)

    def _keep(self, row: Row) -> None:
        values = row.values
        if self._left_out:
            changed = list(values)
            for place in self._left_out:
                changed[place] = None
            values = tuple(changed)
        partition = self._partitions.get(row.day)
        if partition is None:
            path = self._directory / f"{date_of(row.day)}.{self._format.ending}"
            partition = self._partitions[row.day] = _Partition(path)
        partition.rows.append(values)
        partition.sums.add(values)
        self._sums.add(values)
        self._waiting += 1

    @property
    def has_group(self) -> bool:
        """True if a group of rows waits to be written."""
        return self._waiting >= GROUP_ROWS

    def write_group(self) -> None:
        """Write the rows that wait for the date that has most of them. May take a while."""
        open_ones = [each for each in self._partitions.values() if each.file is not None]
        may_be = open_ones if len(open_ones) >= MOST_OPEN else list(self._partitions.values())
        largest = max(may_be, key=lambda each: len(each.rows))
        if largest.rows:
            self._write(largest)

    def _write(self, partition: _Partition) -> None:
        if partition.file is None:
            partition.file = self._format.open(partition.path, self._table.columns)
        partition.file.write(partition.rows)
        self._waiting -= len(partition.rows)
        partition.rows = []

    def close(self) -> manifest.LakeManifest:
        """
        Write what waits and end every file. `landed_at` and `before` are empty: they are known when it lands.
        """
        self._damaged += range(self._next, self._series.last + 1)
        digest = self._digest.text()
        files = self._files(digest)
        return manifest.LakeManifest(
            route=self._route,
            edition=self._series.edition,
            first=self._series.first,
            last=self._series.last,
            writer=self._format.writer,
            schema=VERSION,
            digest=digest,
            landed_at="",
            numbers=manifest.Numbers(rows=self._sums.rows, shadow=self._shadows, damaged=self._damaged),
            kinds=dict(sorted(self._kinds.items())),
            counted=self._sums.counted(),
            files=files,
            focus=self.focus,
        )

    def _files(self, digest: str) -> list[manifest.LakeFile]:
        """End the file of each date."""
        return [self._end(day, self._partitions[day], digest) for day in sorted(self._partitions)]

    def _end(self, day: int, partition: _Partition, digest: str) -> manifest.LakeFile:
        if partition.rows:
            self._write(partition)
        assert partition.file is not None
        partition.file.close(footer(self._series, route=self._route, digest=digest))
        partition.file = None
        return self._ended(date_of(day), partition.path, partition.sums)

    def _ended(self, date: str, path: Path, sums: FileSums) -> manifest.LakeFile:
        with path.open("rb") as file:
            sum = file_digest(file, "sha256").hexdigest()
        counted = sums.counted()
        return manifest.LakeFile(
            key=data_name(self._stem, date, self._format.ending, table=self._table.name),
            date=date,
            bytes=path.stat().st_size,
            sha256=sum,
            rows=sums.rows,
            calls=counted.calls,
            spend=counted.spend,
            input_tokens=counted.input_tokens,
            output_tokens=counted.output_tokens,
            first_at=_moment(sums.first_at or 0),
            last_at=_moment(sums.last_at),
        )

    def path_of(self, file: manifest.LakeFile) -> Path:
        """The local file."""
        return self._directory / f"{file.date}.{self._format.ending}"


def footer(series: Series, *, route: str, digest: str) -> dict[str, str]:
    """The metadata of each file of a delivery."""
    return {
        "tollhouse.route": route,
        "tollhouse.edition": series.edition,
        "tollhouse.first": str(series.first),
        "tollhouse.last": str(series.last),
        "tollhouse.schema": str(VERSION),
        "tollhouse.digest": digest,
    }


def _moment(microseconds: int) -> str:
    return rfc3339(microseconds * (NS // 1_000_000)) or ""
