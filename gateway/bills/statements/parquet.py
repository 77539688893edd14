"""
Rows of a Parquet file, as those of CSV, and files in brotli, with what the extra `lake` brings.

A process of its own reads the file, whose memory is bounded: see `gateway.bills.statements.parquet_child`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, BinaryIO, Final

from gateway.bills.statements.parquet_child import MEMORY_BYTES, TOO_LARGE
from gateway.bills.statements.values import Row
from spool.bounded_reading import MAX_ROW, MAX_ROWS
from spool.errors import Invalid

MAGIC = b"PAR1"
_BROTLI = "a file in brotli needs the extra lake: pip install 'tollhouse[lake]'"
_MISSING = "a Parquet file needs the extra lake: pip install 'tollhouse[lake]', or import the report as CSV"
_CHILD: Final = "gateway.bills.statements.parquet_child"


def columns_of(name: str, file: BinaryIO, *, most: int) -> tuple[str, ...]:
    """
    Return the names of columns. Invalid if it is no Parquet file, or more than `most` bytes once it is unpacked.
    """
    with _lines(name, file, "columns", most) as lines:
        return tuple(next(lines))


def rows_of(name: str, file: BinaryIO, *, most: int) -> Iterator[tuple[int, Row]]:
    """Yield each row, with its number from 1, by the names of `columns_of`. Invalid where the file is damaged."""
    with _lines(name, file, "rows", most) as lines:
        names = next(lines)
        for number, cells in enumerate(lines, start=1):
            yield number, dict(zip(names, cells, strict=True))


def brotli_of(name: str, content: bytes) -> Any:
    """Return what a file in brotli has, to be read like a file. Invalid without the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise Invalid(f"{name}: {_BROTLI}") from error
    return pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "brotli")


@contextmanager
def _lines(name: str, file: BinaryIO, what: str, most: int) -> Iterator[Iterator[list[Any]]]:
    """The lines of the process, which ends with this."""
    if find_spec("pyarrow") is None:
        raise Invalid(f"{name}: {_MISSING}")
    file.seek(0)
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    command = [sys.executable, "-P", "-m", _CHILD, what, str(most), str(MAX_ROWS), str(MAX_ROW)]
    environment = {
        **{key: os.environ[key] for key in ("PATH", "PYTHONPATH", "TZ") if key in os.environ},
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the one that the bound of the process is of
        "MALLOC_ARENA_MAX": "1",
    }
    with subprocess.Popen(
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield _read(name, process)
        finally:
            process.kill()


def _read(name: str, process: subprocess.Popen[bytes]) -> Iterator[list[Any]]:
    """Yield lines until the process ends. Invalid with what it says if it does not end well."""
    assert process.stdout is not None and process.stderr is not None
    count = -1  # without the names
    for line in process.stdout:
        yield json.loads(line)
        count += 1
    words = process.stderr.read(1000).decode("utf-8", "replace")
    status = process.wait()
    if status < 0 or "bad_alloc" in words:  # a library that had no memory left, and no other end
        words, status = f"takes more than {MEMORY_BYTES // 1024**2} MiB to read", TOO_LARGE
    if status == TOO_LARGE:
        raise Invalid(f"{name} {words}: import a shorter span, or CSV")
    if status and count < 0:
        raise Invalid(f"{name} is no Parquet file: {words or f'its reader ended with {status}'}")
    if status:
        raise Invalid(f"{name} is damaged after row {count}: {words or f'its reader ended with {status}'}")
