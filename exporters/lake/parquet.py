"""
Files of rows in Parquet, with pyarrow from the optional extra `lake`. Only this module writes Parquet.

Times are microseconds in UTC, because Spark does not read nanoseconds. Money is DECIMAL(38, 27), the unit of
the totals. Texts with few different values have a dictionary. With the same writer number and pyarrow
version, equal rows become equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from exporters.lake.columns import COUNT, METERS, MONEY, TAGS, TEXT, TIME, TRUTH, WORD

GROUP_ROWS: Final = 32 * 1024
_BATCH_ROWS: Final = 4096  # rows converted into Python objects at once
_MONEY: Final = pa.decimal128(38, 27)
_METER: Final = pa.decimal128(38, 6)
_TYPES: Final[Mapping[str, Any]] = {
    TEXT: pa.string(),
    WORD: pa.string(),
    COUNT: pa.int64(),
    TRUTH: pa.bool_(),
    TIME: pa.timestamp("us", tz="UTC"),
    MONEY: _MONEY,
    TAGS: pa.map_(pa.string(), pa.string()),
    METERS: pa.map_(pa.string(), _METER),
}
_WITH_STATISTICS: Final = (COUNT, TIME, MONEY, TRUTH)


class ParquetFile:
    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        self._types = list(columns.values())
        self._schema = pa.schema([(name, _TYPES[type]) for name, type in columns.items()])
        self._parts: list[Any] = []
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=3,
            use_dictionary=[name for name, type in columns.items() if type == WORD],
            write_statistics=[name for name, type in columns.items() if type in _WITH_STATISTICS],
            store_schema=False,
        )

    def add_rows(self, rows: Sequence[tuple[Any, ...]]) -> None:
        columns = zip(*rows, strict=True)
        arrays = [_build_array(type, values) for type, values in zip(self._types, columns, strict=True)]
        self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def write_group(self) -> None:
        table = pa.Table.from_batches(self._parts, schema=self._schema)
        self._parts = []
        self._writer.write_table(table, row_group_size=GROUP_ROWS)

    def close(self, metadata: Mapping[str, str]) -> None:
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()


def read_metadata(file: Any) -> dict[str, str]:
    """
    Return the metadata of a file's footer, its number of rows, and its lowest and highest record number.

    `file` is a path, or the bytes of the file's end. Raises ValueError if there is no footer.
    """
    try:
        metadata = pq.read_metadata(file)
    except pa.ArrowException as error:
        raise ValueError(f"it is not a Parquet file: {error}") from error
    own = {key.decode(): value.decode() for key, value in (metadata.metadata or {}).items()}
    return {**own, "rows": str(metadata.num_rows), **_least_and_most_record_number(metadata)}


def _least_and_most_record_number(metadata: Any) -> dict[str, str]:
    if "number" not in metadata.schema.names:
        return {}
    index = metadata.schema.names.index("number")
    groups = [metadata.row_group(n).column(index).statistics for n in range(metadata.num_row_groups)]
    ranges = [statistics for statistics in groups if statistics is not None and statistics.has_min_max]
    if not ranges:
        return {}
    return {
        "least": str(min(statistics.min for statistics in ranges)),
        "most": str(max(statistics.max for statistics in ranges)),
    }


def read_rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> Iterator[tuple[Any, ...]]:
    """Implement ReadRows. The values of a column that the file does not have are None."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                skipped = min(skip, batch.num_rows)
                skip -= skipped
                batch = batch.slice(skipped)
                column_values = [
                    batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
                    for name in columns
                ]
                yield from zip(*column_values, strict=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the file cannot be read: {error}") from error


def _build_array(type: str, values: Sequence[Any]) -> Any:
    if values.count(None) == len(values):  # in most files, half of the columns have only null values
        return pa.nulls(len(values), _TYPES[type])
    if type == MONEY:
        return _decimal_array(values, _MONEY)
    if type == TAGS:
        return _map_array(values, lambda texts: pa.array(texts, pa.string()))
    if type == METERS:
        return _map_array(values, lambda units: _decimal_array(units, _METER))
    return pa.array(values, _TYPES[type])


def _decimal_array(values: Sequence[int | None], type: Any) -> Any:
    data = b"".join([(value or 0).to_bytes(16, "little", signed=True) for value in values])
    not_null = pa.array([value is not None for value in values], pa.bool_())
    validity = not_null.buffers()[1]
    return pa.Array.from_buffers(type, len(values), [validity, pa.py_buffer(data)])


def _map_array(values: Sequence[Sequence[tuple[str, Any]] | None], build_item_array: Any) -> Any:
    sizes = [len(value) if value else 0 for value in values]
    ends = list(accumulate(sizes, initial=0))
    offsets = [end if size else None for end, size in zip(ends, sizes, strict=False)] + [ends[-1]]
    pairs = chain.from_iterable(filter(None, values))
    names, texts = zip(*pairs, strict=True) if ends[-1] else ((), ())
    keys = pa.array(names, pa.string())
    items = build_item_array(texts)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)
