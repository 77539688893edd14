"""The formats of files, by the names that `format` has in [[destinations]]; a library is imported when it is needed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from exporters.lake.partitions import FileFormat, OpenFile


def _open_parquet(path: Path, columns: Mapping[str, str]) -> OpenFile:
    from exporters.lake.parquet import ParquetFile

    return ParquetFile(path, columns)


def _parquet_footer(end: bytes) -> dict[str, str]:
    from exporters.lake.parquet import read_metadata

    return read_metadata(io.BytesIO(end))


def _parquet_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    from exporters.lake.parquet import read_rows

    return read_rows(path, columns, skip=skip)


def _open_ndjson(path: Path, columns: Mapping[str, str]) -> OpenFile:
    from exporters.lake.ndjson import NdjsonFile

    return NdjsonFile(path, columns)


def _ndjson_footer(end: bytes) -> dict[str, str]:
    from exporters.lake.ndjson import read_metadata

    return read_metadata(end)


def _ndjson_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    from exporters.lake.ndjson import read_rows

    return read_rows(path, columns, skip=skip)


PARQUET: Final = FileFormat(
    name="parquet",
    ending="parquet",
    writer=1,
    open=_open_parquet,
    read_footer=_parquet_footer,
    read_rows=_parquet_rows,
)
NDJSON: Final = FileFormat(
    name="ndjson",
    ending="ndjson.zst",
    writer=1,
    open=_open_ndjson,
    read_footer=_ndjson_footer,
    read_rows=_ndjson_rows,
)
FORMATS: Final[Mapping[str, FileFormat]] = {format.name: format for format in (PARQUET, NDJSON)}
