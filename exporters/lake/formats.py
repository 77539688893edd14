"""The file formats of data lakes. Their libraries are imported when needed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from exporters.lake.columns import LakeTable
from exporters.lake.names import DeliveryRange
from exporters.lake.partitions import DeliveryFiles, FileFormat, OpenFile


def _open_parquet(path: Path, columns: Mapping[str, str]) -> OpenFile:
    from exporters.lake.parquet import ParquetFile

    return ParquetFile(path, columns)


def _read_parquet_footer(end: bytes) -> dict[str, str]:
    from exporters.lake.parquet import read_metadata

    return read_metadata(io.BytesIO(end))


def _read_parquet_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    from exporters.lake.parquet import read_rows

    return read_rows(path, columns, skip=skip)


def _open_ndjson(path: Path, columns: Mapping[str, str]) -> OpenFile:
    from exporters.lake.ndjson import NdjsonFile

    return NdjsonFile(path, columns)


def _read_ndjson_footer(end: bytes) -> dict[str, str]:
    from exporters.lake.ndjson import read_metadata

    return read_metadata(end)


def _read_ndjson_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    from exporters.lake.ndjson import read_rows

    return read_rows(path, columns, skip=skip)


def _open_csv(path: Path, columns: Mapping[str, str]) -> OpenFile:
    from exporters.lake.ndjson import CsvFile

    return CsvFile(path, columns)


def _read_csv_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    from exporters.lake.ndjson import read_csv_rows

    return read_csv_rows(path, columns, skip=skip)


PARQUET: Final = FileFormat(
    name="parquet",
    ending="parquet",
    writer=3,
    open=_open_parquet,
    read_footer=_read_parquet_footer,
    read_rows=_read_parquet_rows,
)
NDJSON: Final = FileFormat(
    name="ndjson",
    ending="ndjson.zst",
    writer=3,
    open=_open_ndjson,
    read_footer=_read_ndjson_footer,
    read_rows=_read_ndjson_rows,
)
FOCUS: Final = FileFormat(
    name="focus",
    ending="focus.csv.zst",
    writer=2,
    is_focus=True,
    open=_open_csv,
    read_footer=_read_ndjson_footer,
    read_rows=_read_csv_rows,
)
FOCUS_PARQUET: Final = FileFormat(
    name="focus-parquet",
    ending="focus.parquet",
    writer=3,
    is_focus=True,
    open=_open_parquet,
    read_footer=_read_parquet_footer,
    read_rows=_read_parquet_rows,
)
# longer file name endings first, because they may end in a shorter one
FORMATS: Final[Mapping[str, FileFormat]] = {
    format.name: format for format in (FOCUS_PARQUET, FOCUS, PARQUET, NDJSON)
}


def new_delivery_files(
    directory: Path,
    delivery_range: DeliveryRange,
    *,
    route: str,
    format: FileFormat,
    leave_out: Sequence[str],
    table: LakeTable,
) -> DeliveryFiles:
    if not format.is_focus:
        return DeliveryFiles(
            directory, delivery_range, route=route, format=format, leave_out=leave_out, table=table
        )
    from exporters.lake.charges import FocusFiles

    return FocusFiles(directory, delivery_range, route=route, format=format, leave_out=leave_out, table=table)
