"""
Files of JSON or CSV lines, compressed with zstd in frames of FRAME_ROWS lines. Readers skip the last frame,
which has metadata.

A JSON line has the non-null columns by name, money as decimal text, and times in RFC 3339.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from exporters.lake.columns import COLUMNS, METERS, MONEY, TAGS, TIME
from spool import money
from spool.meters import quantity_from_millionths
from spool.printable import csv_lines
from spool.record import NS, rfc3339

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME_ROWS: Final = 4096
_LEVEL: Final = 3
_SKIPPED: Final = (0x184D2A50).to_bytes(4, "little")  # magic number of a frame that readers skip
_END: Final = b"TOLLLAKE"  # last bytes of a file, after metadata and its length
_US: Final = NS // 1_000_000


class NdjsonFile:
    """A file of JSON lines. `close` adds the metadata."""

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._file: BinaryIO = path.open("wb")

    def add_rows(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for start in range(0, len(rows), FRAME_ROWS):
            self._write_frame(self._encode_rows(rows[start : start + FRAME_ROWS]))

    def write_group(self) -> None:
        """Do nothing, because every frame is written at once."""

    def _encode_rows(self, rows: Sequence[tuple[Any, ...]]) -> bytes:
        return b"".join([encode_line(row, self._columns) for row in rows])

    def _write_frame(self, lines: bytes) -> None:
        self._file.write(zstd.compress(lines, _LEVEL))

    def close(self, metadata: Mapping[str, str]) -> None:
        text = orjson.dumps(dict(metadata))
        body = text + len(text).to_bytes(4, "little") + _END
        self._file.write(_SKIPPED + len(body).to_bytes(4, "little") + body)
        self._file.close()


class CsvFile(NdjsonFile):
    """A file of CSV lines. All values are texts."""

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        super().__init__(path, columns)
        self._write_frame(csv_lines([columns]).encode())

    def _encode_rows(self, rows: Sequence[tuple[Any, ...]]) -> bytes:
        return csv_lines(rows).encode()


def read_metadata(end: bytes) -> dict[str, str]:
    """Return the metadata in the end of a file. Raises ValueError."""
    tail = len(_END) + 4
    if not end.endswith(_END) or len(end) < tail:
        raise ValueError("it has no metadata at its end")
    size = int.from_bytes(end[-tail : -len(_END)], "little")
    metadata: dict[str, str] = orjson.loads(end[-tail - size : -tail])
    return metadata


def read_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    """Implement ReadRows for JSON lines: values have JSON types."""
    try:
        with zstd.open(path, "rb") as file:
            for line in islice(file, skip, None):
                row = orjson.loads(line)
                yield tuple(row.get(name) for name in columns)
    except (zstd.ZstdError, EOFError, OSError) as error:
        raise ValueError(f"the file cannot be read: {error}") from error


def read_csv_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    """Implement ReadRows for CSV lines: values are texts."""
    try:
        with zstd.open(path, "rt", encoding="utf-8", newline="") as file:
            for row in islice(csv.DictReader(file), skip, None):
                yield tuple(row[name] for name in columns)
    except (zstd.ZstdError, EOFError, OSError, csv.Error, KeyError) as error:
        raise ValueError(f"the file cannot be read: {error}") from error


def encode_line(values: tuple[Any, ...], columns: Mapping[str, str] = COLUMNS) -> bytes:
    """Encode the non-null values of a row as one JSON line."""
    row = {
        name: _json_value(type, value)
        for (name, type), value in zip(columns.items(), values, strict=True)
        if value is not None
    }
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _json_value(type: str, value: Any) -> Any:
    if type == MONEY:
        return money.units_to_text(value)
    if type == TIME:
        return rfc3339(value * _US)
    if type == TAGS:
        return dict(value)
    if type == METERS:
        return {name: quantity_from_millionths(units) for name, units in value}
    return value
