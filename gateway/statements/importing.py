"""
Files of reports become statements: read with bounds, recognised by what is in them, and grouped.

A file that cannot be read is Invalid with what to do; a damaged row is named, counted, and costs no other
row.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.normalise.reading.values import exact
from gateway.statements import parquet
from gateway.statements.cells import Cells
from gateway.statements.source import DAY_S, Document, ReportSource, Table
from gateway.statements.sources.list import SOURCES
from gateway.statements.values import Damaged, Row
from spool.errors import Invalid
from spool.statements.values import Statement

MAX_UNPACKED = 1024**3  # bytes of a file that nobody bounded
_DELIMITERS = (",", "\t", ";")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_json = msgspec.json.Decoder(float_hook=exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """
    `content` as it was read, inflated. `read_at`: when the provider said it, at the latest. `most_bytes` bounds what a
    file comes to that is packed in itself.
    """

    name: str
    content: bytes
    read_at: float
    most_bytes: int = MAX_UNPACKED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """What was read of the files of one source."""

    source: ReportSource
    names: tuple[str, ...]
    statement: Statement | None  # None: there is nothing in it
    read: int
    damaged: int
    named: tuple[str, ...]
    repeated: int = 0  # rows that came again, and count once
    repeated_named: tuple[str, ...] = ()
    equal: int = 0  # rows as others are, without an id: each counts


class ReportReader:
    """
    Reads the parts of one report, one after the other, into one statement.

    With `asked`, nothing of another time is read. Invalid if a part is not a report of the source, or there is
    too much.
    """

    def __init__(self, source: ReportSource, *, most: int, asked: tuple[int, int] | None = None) -> None:
        self._source = source
        self._cells = Cells(most=most, asked=asked)
        self._names: dict[str, None] = {}
        self._read_at: float | None = None
        self._again: list[str] = []
        self._rows_again = 0

    def again(self, name: str, rows: int) -> None:
        """Leave out a file whose content was read before, with so many rows."""
        self._again.append(f"{name}: the whole file, {rows} rows")
        self._rows_again += rows

    def cover(self, start: int, end: int) -> None:
        """The report is of this span, also where it has no row."""
        self._cells.cover(start, end)

    def add(self, file: ReportFile, opened: Document | Table) -> int:
        """Read a part; returns the number of its rows that could be read."""
        source, before = self._source, self._cells.read
        try:
            if isinstance(opened, Document) and source.read_document is not None:
                source.read_document(opened, self._cells)
            elif isinstance(opened, Table) and source.read_table is not None:
                source.read_table(opened, self._cells)
        except Damaged as error:
            raise Invalid(f"{file.name} is not a report of {source.title}: {error}") from error
        except csv.Error as error:
            raise Invalid(f"{file.name} is not CSV file: {error}") from error
        self._names[file.name] = None
        self._read_at = file.read_at if self._read_at is None else min(file.read_at, self._read_at)
        return self._cells.read - before

    def report(self, *, account: str | None, settle_s: float = 0) -> ReadReport:
        source = self._source
        cells = self._cells
        statement = None
        if cells.start is not None and cells.end is not None and self._read_at is not None:
            settled_until = self._read_at - max(source.settle_s, settle_s)
            if cells.refreshed_at is not None:
                settled_until = min(settled_until, cells.refreshed_at)
            found = next(iter(cells.accounts)) if len(cells.accounts) == 1 else ""
            statement = Statement(
                source=source.name,
                account=found if account is None else account,
                start=cells.start // DAY_S * DAY_S if source.whole_days else cells.start,
                end=-(-cells.end // DAY_S) * DAY_S if source.whole_days else cells.end,
                rows=cells.rows(source.name, settled_until=settled_until),
                read_at=self._read_at,
                settled_until=settled_until,
                name=", ".join(self._names)[:200],
            )
        return ReadReport(
            source=source,
            names=tuple(self._names),
            statement=statement,
            read=cells.read,
            damaged=cells.damaged,
            named=tuple(cells.named),
            repeated=cells.repeated + self._rows_again,
            repeated_named=(*self._again, *cells.repeated_named),
            equal=cells.equal,
        )


def open_report(path: Path, *, most: int, now: float) -> ReportFile:
    """
    A file, inflated if it is packed with gzip. Invalid if it cannot be read or is larger than `most` bytes.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.peek(2)[:2] == b"\x1f\x8b"
            content = (gzip.GzipFile(fileobj=file) if is_packed else file).read(most + 1)
            changed = path.stat().st_mtime
    except (OSError, EOFError, zlib.error) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(f"{path} cannot be read: {words}") from error
    if len(content) > most:
        raise Invalid(
            f"{path} has more than {most} bytes (reconciliation.max_file_bytes): import a shorter span"
        )
    return ReportFile(name=path.name, content=content, read_at=min(changed, now), most_bytes=most)


def read_reports(
    files: Sequence[ReportFile], *, source: str | None, account: str | None, most: int, settle_s: float = 0
) -> list[ReadReport]:
    """The statements of files, in their order. Invalid if one is of no known source."""
    readers: list[tuple[ReportSource, ReportReader]] = []
    seen: dict[bytes, tuple[ReportReader, int]] = {}  # with the number of rows
    for file in files:
        known = seen.get(file.content)
        if known is not None:
            read_by, rows = known
            read_by.again(file.name, rows)
            continue
        opened = _opened(file)
        found = _recognised(opened, file.name, source)
        reader = next((reader for each, reader in readers if each is found and found.in_parts), None)
        if reader is None:
            reader = ReportReader(found, most=most)
            readers.append((found, reader))
        seen[file.content] = reader, reader.add(file, opened)
    return [reader.report(account=account, settle_s=settle_s) for _, reader in readers]


def _recognised(opened: Document | Table, name: str, wanted: str | None) -> ReportSource:
    if wanted is not None:
        source = SOURCES.get(wanted)
        if source is None:
            raise Invalid(f"there is no source {wanted!r}; there are: {', '.join(SOURCES)}")
        if (source.read_document if isinstance(opened, Document) else source.read_table) is None:
            raise Invalid(f"{name}: {source.title} is no {'JSON' if isinstance(opened, Document) else 'CSV'}")
        return source
    for source in SOURCES.values():
        try:
            if isinstance(opened, Document):
                known = source.is_document is not None and source.is_document(opened)
            else:
                known = source.is_table is not None and source.is_table(opened)
        except (AttributeError, TypeError):  # of another form than the source's
            known = False
        if known:
            return source
    raise Invalid(f"{name} is of no known source; name it with --source: {', '.join(SOURCES)}")


def _opened(file: ReportFile) -> Document | Table:
    start = file.content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        return open_document(file)
    return _parquet(file) if file.content.startswith(parquet.MAGIC) else _table(file)


def open_document(file: ReportFile) -> Document:
    """Invalid if it is neither JSON nor JSON lines."""
    content = file.content.removeprefix(b"\xef\xbb\xbf")
    try:
        return Document(root=_json.decode(content))
    except RecursionError as error:
        raise Invalid(f"{file.name} is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            raise Invalid(f"{file.name} is not JSON: {error}") from error
    try:
        return Document(root=[_json.decode(line) for line in lines])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Invalid(f"{file.name} is neither JSON nor JSON lines: {error}") from error


def _parquet(file: ReportFile) -> Table:
    names = parquet.columns_of(file.name, file.content, most=file.most_bytes)
    named = {name: _column(name) for name in names}
    rows = parquet.rows_of(file.name, file.content)
    return Table(
        columns=tuple(named.values()),
        rows=((number, {named[name]: cell for name, cell in row.items()}) for number, row in rows),
    )


def _column(name: str) -> str:
    """Return a name in small letters; `lineItem/UsageType` of a legacy CUR as later ones spell it."""
    if "/" in name:
        name = _CAPITAL.sub("_", name).replace("/", "_")
    return name.strip().lower()


def _table(file: ReportFile) -> Table:
    try:
        text = file.content.decode(
            "utf-16" if file.content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        )
    except UnicodeDecodeError as error:
        raise Invalid(f"{file.name} is neither JSON nor CSV in UTF-8") from error
    head = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=head.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        columns = tuple(map(_column, next(lines, [])))
    except csv.Error as error:
        raise Invalid(f"{file.name} is not CSV file: {error}") from error
    if len(columns) < 2:
        raise Invalid(f"{file.name} is neither JSON nor CSV with a line of names")
    return Table(columns=columns, rows=_table_rows(lines, columns))


def _table_rows(lines: Any, columns: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    for cells in lines:
        if any(cells):
            yield lines.line_num, dict(zip(columns, cells, strict=False))
