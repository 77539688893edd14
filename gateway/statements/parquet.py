"""
Rows of a Parquet file, as those of CSV, and files in brotli: the one module that reads them, with what the extra
`lake` brings.

Cells are text, whatever their type, because the readers of reports take what CSV has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from gateway.statements.values import Row
from spool.errors import Invalid

MAGIC = b"PAR1"
_BROTLI = "a file in brotli needs the extra lake: pip install 'tollhouse[lake]'"
_BATCH_ROWS = 512  # that are objects of Python at once
_MISSING = "a Parquet file needs the extra lake: pip install 'tollhouse[lake]', or import the report as CSV"


def columns_of(name: str, content: bytes, *, most: int) -> tuple[str, ...]:
    """
    Return the names of columns. Invalid if it is no Parquet file, or more than `most` bytes once it is unpacked.
    """
    metadata = _opened(name, content).metadata
    unpacked = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    if unpacked > most:
        raise Invalid(
            f"{name} has more than {most} bytes unpacked (reconciliation.max_file_bytes): import a shorter span"
        )
    names: list[str] = metadata.schema.to_arrow_schema().names
    return tuple(names)


def rows_of(name: str, content: bytes) -> Iterator[tuple[int, Row]]:
    """Yield each row, with its number from 1, by the names of `columns_of`. Invalid where the file is damaged."""
    import pyarrow

    number = 0
    try:
        for batch in _opened(name, content).iter_batches(batch_size=_BATCH_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield number, {column: _text(value) for column, value in row.items()}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise Invalid(f"{name} is damaged after row {number}: {error}") from error


def brotli_of(name: str, content: bytes) -> Any:
    """Return what a file in brotli has, to be read like a file. Invalid without the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise Invalid(f"{name}: {_BROTLI}") from error
    return pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "brotli")


def _opened(name: str, content: bytes) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Invalid(f"{name}: {_MISSING}") from error
    try:
        return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise Invalid(f"{name} is no Parquet file: {error}") from error


def _text(value: Any) -> str | None:
    """Return a cell as CSV writes it; None if it is null."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return at.isoformat()
    if isinstance(value, int | date):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a map as an object: pairs are how it is read."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {_text(key): _text(each) for key, each in value}
    if isinstance(value, list):
        return [_text(each) for each in value]
    return {key: _text(each) for key, each in value.items()}
