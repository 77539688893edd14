"""
A child process that reads one Parquet file from its standard input. Its memory limit bounds the unpacked
data, so a small file that unpacks to gigabytes cannot exhaust the machine.

It writes JSON lines: column names, then rows. All cells are text, because the report readers expect CSV
cells.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

# limit for the process that reads Parquet; Python and the library alone use about a quarter of it
MEMORY_BYTES: Final = 160 * 1024 * 1024
WRONG: Final = 2  # exit code: not Parquet, or damaged
TOO_LARGE: Final = 3  # exit code: more memory, rows or bytes than allowed
_BATCH_ROWS: Final = 64  # rows that exist as Python objects at the same time
_BUFFER_BYTES: Final = 64 * 1024  # bytes per piece of a column


def print_parquet_columns_or_rows(
    printed_part: str, max_unpacked_bytes: int, max_rows: int, max_row_characters: int
) -> int:
    _limit_memory()
    try:
        import pyarrow
        import pyarrow.parquet

        pyarrow.set_cpu_count(1)
        file = pyarrow.parquet.ParquetFile(
            pyarrow.PythonFile(os.fdopen(0, "rb")), buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
        metadata = file.metadata
        unpacked = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        if unpacked > max_unpacked_bytes:
            return _print_refusal(
                f"has more than {max_unpacked_bytes} bytes unpacked (reconciliation.max_file_bytes)"
            )
        if metadata.num_rows > max_rows:
            return _print_refusal(f"has more than {max_rows} rows")
        _print_column_names(metadata.schema.to_arrow_schema().names)
        for number, row in enumerate(_file_rows(file) if printed_part == "rows" else (), start=1):
            if number > max_rows:
                return _print_refusal(f"has more than {max_rows} rows")
            line = json.dumps(row, ensure_ascii=False)
            if len(line) > max_row_characters:
                return _print_refusal(f"has more than {max_row_characters} characters in row {number}")
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except MemoryError:
        return _print_refusal(f"takes more than {MEMORY_BYTES // 1024**2} MiB to read")
    except (pyarrow.ArrowException, OSError, ValueError, RecursionError, OverflowError) as error:
        sys.stderr.write(" ".join(str(error).split())[:300])
        return WRONG
    return 0


def _file_rows(file: Any) -> Iterator[list[str | None]]:
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        columns = [column.to_pylist() for column in batch.columns]
        for cells in zip(*columns, strict=True):
            yield [cell_text(cell) for cell in cells]


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        return  # without this limit on memory, the limits on bytes and rows still apply


def _print_refusal(message: str) -> int:
    sys.stderr.write(message)
    return TOO_LARGE


def _print_column_names(column_names: list[str]) -> None:
    sys.stdout.write(json.dumps(column_names, ensure_ascii=False) + "\n")


def cell_text(value: Any) -> str | None:
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
    return json.dumps(_maps_as_dicts(value), ensure_ascii=False)


def _maps_as_dicts(value: Any) -> Any:
    """Return a value as JSON has it. pyarrow returns maps as lists of pairs."""
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return {cell_text(key): cell_text(item) for key, item in value}
    if isinstance(value, list):
        return [cell_text(item) for item in value]
    return {key: cell_text(item) for key, item in value.items()}


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    status = print_parquet_columns_or_rows(sys.argv[1], *map(int, sys.argv[2:]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # skip the library's slow release of memory
