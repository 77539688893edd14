"""The formats of files, by the names that `format` has in [[destinations]]; a library is imported when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from exporters.lake.partitions import FileFormat, OpenFile


def _open_parquet(path: Path) -> OpenFile:
    from exporters.lake.parquet import ParquetFile

    return ParquetFile(path)


PARQUET: Final = FileFormat(name="parquet", ending="parquet", writer=1, open=_open_parquet)
FORMATS: Final[Mapping[str, FileFormat]] = {format.name: format for format in (PARQUET,)}
