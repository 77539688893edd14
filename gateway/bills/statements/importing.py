"""
Import of report files: bounded reading, recognition by content, and grouping into statements.

A file that cannot be read raises Invalid with a hint. A damaged row is listed and counted; the other rows
are still read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from gateway.bills.statements.cells import ReportSumCollector
from gateway.bills.statements.source import CsvTable, ReportSource, StatementDocument
from gateway.bills.statements.sources.list import SOURCES
from gateway.bills.statements.values import Damaged, Row
from gateway.core import parquet
from gateway.normalise.reading.values import decimal_or_text
from spool.bounded_reading import MAX_DECODED, MAX_ROW, MAX_ROWS, BoundedLines, check_json, too_large_error
from spool.errors import Invalid
from spool.statements import CoveredDays, ImportedFile, Statement

MAX_UNPACKED = 1024**3  # maximum unpacked bytes, if the caller sets no limit
_PIECE = 1024 * 1024  # bytes to copy per step
_MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8, which a file may begin with
_GZIP = b"\x1f\x8b"
_HEAD_LINES = 1000
_HEAD = 4096  # bytes at the start of a file examined to recognize it
_DELIMITERS = (",", "\t", ";")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_json = msgspec.json.Decoder(float_hook=decimal_or_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """
    A report file: either its `content`, or the `path` of a file read as a stream and unpacked if
    it is gzip.

    `read_at` is the latest time at which the provider can have produced it. `most_bytes` limits the unpacked size.
    """

    name: str
    read_at: float
    content: bytes = b""
    path: Path | None = None
    most_bytes: int = MAX_UNPACKED

    @contextmanager
    def open_unpacked(self) -> Iterator[BinaryIO]:
        """Open the file for reading. Raises Invalid if it cannot be read or is larger than `most_bytes`."""
        if self.path is None and not self.content.startswith(parquet.MAGIC):
            yield io.BytesIO(self.content)
            return
        with tempfile.TemporaryFile() as unpacked:
            try:
                with io.BytesIO(self.content) if self.path is None else self.path.open("rb") as packed:
                    is_packed = packed.read(2) == _GZIP
                    packed.seek(0)
                    source = gzip.GzipFile(fileobj=packed) if is_packed else packed
                    size = _copy_bytes(source, unpacked, self.most_bytes + 1)
            except (OSError, EOFError, zlib.error) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                raise Invalid(f"{self.path or self.name} cannot be read: {reason}") from error
            if size > self.most_bytes:
                raise Invalid(
                    f"{self.path or self.name} has more than {self.most_bytes} bytes "
                    "(reconciliation.max_file_bytes); import a shorter span"
                )
            unpacked.seek(0)
            yield unpacked


def _copy_bytes(source: BinaryIO | gzip.GzipFile, target: IO[bytes], limit: int) -> int:
    remaining = limit
    while remaining and (piece := source.read(min(remaining, _PIECE))):
        target.write(piece)
        remaining -= len(piece)
    target.flush()
    return limit - remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReport:
    """The result of reading all files of one bill source."""

    source: ReportSource
    names: tuple[str, ...]
    statement: Statement | None  # None if the imported files contain no data
    read: int
    damaged: int
    named: tuple[str, ...]
    repeated: int = 0  # number of repeated rows; each of them is counted only once
    repeated_named: tuple[str, ...] = ()
    equal: int = 0  # number of identical rows without an id; all of them are counted


class ReportReader:
    """
    Reads the parts of one report and combines them into one statement.

    Rows outside the span `asked` (start and end) are ignored. Raises Invalid if a part is not a report of the
    source, or exceeds a limit.
    """

    def __init__(
        self, source: ReportSource, *, max_unpacked_bytes: int, asked: tuple[int, int] | None = None
    ) -> None:
        self._source = source
        self._cells = ReportSumCollector(most=max_unpacked_bytes, asked=asked)
        self._files: list[ImportedFile] = []
        self._read_at: float | None = None
        self._again: list[str] = []
        self._rows_again = 0

    def note_repeated_file(self, name: str, rows: int) -> None:
        """Note a file whose content was already read with `rows` rows, and skip it."""
        self._again.append(f"{name}: the whole file, {rows} rows")
        self._rows_again += rows

    def extend_span(self, start: int, end: int) -> None:
        """Extend the span that the report covers, even where it has no rows."""
        self._cells.extend_span(start, end)

    def read_document_and_count_cells(
        self, file: ReportFile, opened: StatementDocument | CsvTable, digest: str = ""
    ) -> int:
        """`digest`: of the unpacked content of a file; a page of a pull has none."""
        source, before = self._source, self._cells.read
        try:
            if isinstance(opened, StatementDocument) and source.read_document is not None:
                source.read_document(opened, self._cells)
            elif isinstance(opened, CsvTable) and source.read_table is not None:
                source.read_table(opened, self._cells)
        except Damaged as error:
            raise Invalid(f"{file.name} is not a report of {source.title}: {error}") from error
        except csv.Error as error:
            raise Invalid(f"{file.name} is not a CSV file: {error}") from error
        read = self._cells.read - before
        if not digest and self._files:
            read_before = self._files.pop().rows
            self._files.append(ImportedFile(file.name, digest, read_before + read))
        else:
            self._files.append(ImportedFile(file.name, digest, read))
        self._read_at = file.read_at if self._read_at is None else min(file.read_at, self._read_at)
        return read

    def build_report(self, *, account: str | None, settle_s: float = 0) -> ParsedReport:
        source = self._source
        cells = self._cells
        statement = None
        if cells.covers and self._read_at is not None:
            settled_until = self._read_at - max(source.settle_s, settle_s)
            if cells.refreshed_at is not None:
                settled_until = min(settled_until, cells.refreshed_at)
            only_account = next(iter(cells.accounts)) if len(cells.accounts) == 1 else ""
            statement = Statement(
                source=source.name,
                account=only_account if account is None else account,
                start=min(start for start, _ in cells.covers.values()),
                end=max(end for _, end in cells.covers.values()),
                covers=tuple(CoveredDays(bill, start, end) for bill, (start, end) in cells.covers.items()),
                rows=cells.to_statement_rows(source.name, settled_until=settled_until),
                read_at=self._read_at,
                settled_until=settled_until,
                name=", ".join(dict.fromkeys(file.name for file in self._files))[:200],
                files=tuple(self._files),
                days_in_part=cells.days_in_part,
            )
        return ParsedReport(
            source=source,
            names=tuple(dict.fromkeys(file.name for file in self._files)),
            statement=statement,
            read=cells.read,
            damaged=cells.damaged,
            named=tuple(cells.named),
            repeated=cells.repeated + self._rows_again,
            repeated_named=(*self._again, *cells.repeated_named),
            equal=cells.equal,
        )


def report_file_at(path: Path, *, max_unpacked_bytes: int, now: float) -> ReportFile:
    """
    Return a report file whose content is read later. Raises Invalid if it does not exist or cannot be
    accessed.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror or error}") from error
    return ReportFile(
        name=path.name, path=path, read_at=min(status.st_mtime, now), most_bytes=max_unpacked_bytes
    )


def read_reports(
    files: Iterable[ReportFile],
    *,
    source: str | None,
    account: str | None,
    max_unpacked_bytes: int,
    settle_s: float = 0,
) -> list[ParsedReport]:
    """
    Read files into statements, in the given order. Each file is read only after the one before it.

    Raises Invalid if a file belongs to no known source.
    """
    readers: list[tuple[ReportSource, ReportReader]] = []
    # digest of a report's content -> its reader and number of rows
    seen: dict[str, tuple[ReportReader, int]] = {}
    for file in files:
        with file.open_unpacked() as stream:
            content = _digest_stream(stream)
            known = seen.get(content)
            if known is not None:
                read_by, rows = known
                read_by.note_repeated_file(file.name, rows)
                continue
            opened = _open_report(file, stream)
            recognised = _recognise_source(_part_for_recognition(opened), file.name, source)
            reader = next(
                (
                    reader
                    for known_source, reader in readers
                    if known_source is recognised and recognised.in_parts
                ),
                None,
            )
            if reader is None:
                reader = ReportReader(recognised, max_unpacked_bytes=max_unpacked_bytes)
                readers.append((recognised, reader))
            seen[content] = reader, reader.read_document_and_count_cells(file, opened, content)
    return [reader.build_report(account=account, settle_s=settle_s) for _, reader in readers]


def _part_for_recognition(opened: StatementDocument | CsvTable) -> StatementDocument | CsvTable:
    """Return the part of a report that is enough to recognize it, such as the first JSON lines."""
    if isinstance(opened, StatementDocument) and isinstance(opened.root, JsonLines):
        return StatementDocument(root=opened.root.limited_to_first_lines())
    return opened


def _digest_stream(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    stream.seek(0)
    return digest.hexdigest()


def _recognise_source(
    opened: StatementDocument | CsvTable, name: str, source_name: str | None
) -> ReportSource:
    if source_name is not None:
        source = SOURCES.get(source_name)
        if source is None:
            raise Invalid(f"there is no source {source_name!r}; use one of: {', '.join(SOURCES)}")
        if (source.read_document if isinstance(opened, StatementDocument) else source.read_table) is None:
            raise Invalid(
                f"{name}: {source.title} does not come as {'JSON' if isinstance(opened, StatementDocument) else 'CSV'}"
            )
        return source
    for source in SOURCES.values():
        try:
            if isinstance(opened, StatementDocument):
                known = source.is_document is not None and source.is_document(opened)
            else:
                known = source.is_table is not None and source.is_table(opened)
        except (AttributeError, TypeError):  # the document's structure differs from this source's reports
            known = False
        if known:
            return source
    raise Invalid(
        f"the source of {name} is not recognized; choose it (--source), one of: {', '.join(SOURCES)}"
    )


def _open_report(file: ReportFile, stream: BinaryIO) -> StatementDocument | CsvTable:
    head = stream.read(_HEAD)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    stream.seek(0)
    if start in (b"{", b"["):
        return _open_json(file.name, stream)
    return (
        _open_parquet(file, stream) if head.startswith(parquet.MAGIC) else _open_csv(file.name, stream, head)
    )


def open_document(file: ReportFile) -> StatementDocument:
    """Open a JSON or JSON lines document. Raises Invalid if the file is neither."""
    with file.open_unpacked() as stream:
        document = _open_json(file.name, stream)
        if not isinstance(document.root, JsonLines):
            return document
        check_json(file.name, file.content)
        return StatementDocument(root=list(document.root))


def _open_json(name: str, stream: BinaryIO) -> StatementDocument:
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if _is_json_lines(stream, size):
        return StatementDocument(root=JsonLines(name, stream))
    if size > MAX_DECODED:
        raise too_large_error(name)
    content = stream.read().removeprefix(_MARK)
    check_json(name, content)
    try:
        return StatementDocument(root=_json.decode(content))
    except RecursionError as error:
        raise Invalid(f"{name} is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        reason = "neither JSON nor JSON lines" if b"\n" in content.strip() else "not JSON"
        raise Invalid(f"{name} is {reason}: {error}") from error


def _is_json_lines(stream: BinaryIO, size: int) -> bool:
    first = stream.readline(MAX_ROW).removeprefix(_MARK)
    follows = stream.tell() < size
    stream.seek(0)
    if not follows or not first.endswith(b"\n"):
        return False
    try:
        check_json("", first)
        _json.decode(first)
    except (Invalid, msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


class JsonLines:
    """
    The values of a JSON lines file, decoded again on each iteration. Raises Invalid at a line that is not JSON.
    """

    def __init__(self, name: str, stream: BinaryIO, *, max_lines: int | None = None) -> None:
        self._name = name
        self._stream = stream
        self._most = max_lines

    def limited_to_first_lines(self) -> JsonLines:
        return JsonLines(self._name, self._stream, max_lines=_HEAD_LINES)

    def __iter__(self) -> Iterator[Any]:
        self._stream.seek(0)
        number = 0
        while number != self._most and (line := self._stream.readline(MAX_DECODED + 1)):
            number += 1
            if number > MAX_ROWS:
                raise Invalid(f"{self._name} has more than {MAX_ROWS} lines; import a shorter span")
            line = line.removeprefix(_MARK) if number == 1 else line
            if not line.strip():
                continue
            check_json(f"{self._name}: line {number}", line)
            try:
                yield _json.decode(line)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise Invalid(
                    f"{self._name} is neither JSON nor JSON lines: line {number}: {error}"
                ) from error


def _open_parquet(file: ReportFile, stream: BinaryIO) -> CsvTable:
    names = parquet.read_columns(file.name, stream, max_unpacked_bytes=file.most_bytes)
    named = {name: _column_name(name) for name in names}
    rows = parquet.read_rows(file.name, stream, max_unpacked_bytes=file.most_bytes)
    return CsvTable(
        columns=tuple(named.values()),
        rows=((number, {named[name]: cell for name, cell in row.items()}) for number, row in rows),
    )


def _column_name(name: str) -> str:
    """
    Return the column name in lowercase. `lineItem/UsageType` of a legacy CUR becomes `line_item_usage_type`.
    """
    if "/" in name:
        name = _CAPITAL.sub("_", name).replace("/", "_")
    return name.strip().lower()


def _open_csv(name: str, stream: BinaryIO, head: bytes) -> CsvTable:
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    lines = BoundedLines(name, io.TextIOWrapper(stream, encoding, newline=""))
    try:
        first = next(lines, "")
        delimiter = max(_DELIMITERS, key=first.count)
        rows = csv.reader(chain([first], lines), delimiter=delimiter)
        columns = tuple(map(_column_name, next(rows, [])))
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is neither JSON nor CSV in UTF-8") from error
    except csv.Error as error:
        raise Invalid(f"{name} is not a CSV file: {error}") from error
    if len(columns) < 2:
        raise Invalid(f"{name} is neither JSON nor CSV with a header line")
    return CsvTable(columns=columns, rows=_table_rows(name, rows, lines, columns), lines=lines)


def _table_rows(
    name: str, rows: Any, lines: BoundedLines, columns: tuple[str, ...]
) -> Iterator[tuple[int, Row]]:
    lines.start_counting_next_row()
    try:
        for number, cells in enumerate(rows, start=1):
            lines.start_counting_next_row()
            if number > MAX_ROWS:
                raise Invalid(f"{name} has more than {MAX_ROWS} rows; import a shorter span")
            if any(cells):
                yield rows.line_num, dict(zip(columns, cells, strict=False))
    except UnicodeDecodeError as error:
        raise Invalid(f"{name} is neither JSON nor CSV in UTF-8") from error
