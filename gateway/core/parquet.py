"""
Readers of Parquet and brotli, with pyarrow from the extra `lake`.

A separate process with bounded memory reads Parquet: see `gateway.core.parquet_child`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, BinaryIO, Final

from gateway.core.parquet_child import MEMORY_BYTES, TOO_LARGE
from spool.bounded_reading import MAX_ROW, MAX_ROWS
from spool.errors import Invalid

MAGIC = b"PAR1"
_BROTLI = "to read brotli, install the extra lake: pip install 'tollhouse[lake]'"
_MISSING = (
    "to read Parquet, install the extra lake (pip install 'tollhouse[lake]'), or import the report as CSV"
)
_CHILD: Final = "gateway.core.parquet_child"


def read_columns(name: str, file: BinaryIO, *, max_unpacked_bytes: int) -> tuple[str, ...]:
    """
    Return the columns. Raises Invalid if the file is not Parquet, or has more than `max_unpacked_bytes` bytes unpacked.
    """
    with _rows_from_reader_process(name, file, "columns", max_unpacked_bytes) as lines:
        return tuple(next(lines))


def read_rows(
    name: str, file: BinaryIO, *, max_unpacked_bytes: int
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows, numbered from 1. Raises Invalid if the file is damaged."""
    with _rows_from_reader_process(name, file, "rows", max_unpacked_bytes) as lines:
        names = next(lines)
        for number, cells in enumerate(lines, start=1):
            yield number, dict(zip(names, cells, strict=True))


def open_brotli(name: str, content: bytes) -> Any:
    """Return a reader of the decompressed content. Raises Invalid if the extra `lake` is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise Invalid(f"{name}: {_BROTLI}") from error
    return pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "brotli")


@contextmanager
def _rows_from_reader_process(
    name: str, file: BinaryIO, printed_part: str, max_unpacked_bytes: int
) -> Iterator[Iterator[list[Any]]]:
    if find_spec("pyarrow") is None:
        raise Invalid(f"{name}: {_MISSING}")
    file.seek(0)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    command = [
        sys.executable,
        "-P",
        "-m",
        _CHILD,
        printed_part,
        str(max_unpacked_bytes),
        str(MAX_ROWS),
        str(MAX_ROW),
    ]
    environment = {
        **{key: os.environ[key] for key in ("PATH", "PYTHONPATH", "TZ") if key in os.environ},
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # only this allocator respects the process's memory limit
        "MALLOC_ARENA_MAX": "1",
    }
    with subprocess.Popen(
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield _read_printed_json_lines(name, process)
        finally:
            process.kill()


def _read_printed_json_lines(name: str, process: subprocess.Popen[bytes]) -> Iterator[list[Any]]:
    """
    Yield the JSON lines that a reader process prints. If the process fails, raises Invalid with its message.
    """
    assert process.stdout is not None and process.stderr is not None
    count = -1  # -1, because the first line has the column names and is no row
    for line in process.stdout:
        yield json.loads(line)
        count += 1
    message = process.stderr.read(1000).decode("utf-8", "replace")
    status = process.wait()
    # the library reports a lack of memory only in this way
    if status < 0 or "bad_alloc" in message:
        message, status = f"takes more than {MEMORY_BYTES // 1024**2} MiB to read", TOO_LARGE
    if status == TOO_LARGE:
        raise Invalid(f"{name} {message}; import a shorter span, or CSV")
    if status and count < 0:
        raise Invalid(f"{name} is not a Parquet file: {message or f'its reader ended with {status}'}")
    if status:
        raise Invalid(f"{name} is damaged after row {count}: {message or f'its reader ended with {status}'}")
