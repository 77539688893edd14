"""The ClickHouse table: its columns are those of a data lake, and its views return the newest state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

import msgspec

from exporters.lake.columns import COLUMNS, COUNT, METERS, MONEY, TAGS, TEXT, TIME, TRUTH, WORD

MOST_RECORDS: Final = 100_000  # maximum records per request, because the compressed request is held in memory
WINDOW: Final = 10_000  # number of blocks for which a table without replication remembers insert tokens
_TYPES: Final = {
    TEXT: "String",
    WORD: "LowCardinality(String)",
    COUNT: "Nullable(Int64)",
    TRUTH: "Bool",
    TIME: "Nullable(DateTime64(6, 'UTC'))",
    MONEY: "Nullable(Decimal(38, 27))",
    TAGS: "Map(LowCardinality(String), String)",
    METERS: "Map(LowCardinality(String), Decimal(38, 6))",
}
_ALWAYS: Final = {
    "number": "Int64",
    "calls": "Int64",
    "at": "DateTime64(6, 'UTC')",
    "committed_at": "DateTime64(6, 'UTC')",
}
COLUMN_TYPES: Final = {name: _ALWAYS.get(name, _TYPES[type]) for name, type in COLUMNS.items()}


class TableSums(msgspec.Struct, frozen=True, array_like=True):
    """
    Sums of the rows in a range of numbers of an edition. `numbers` counts distinct numbers. `spend`
    is decimal text.
    """

    edition: str
    first: int
    last: int
    rows: int
    numbers: int
    calls: int
    spend: str
    input_tokens: int
    output_tokens: int


def create_statements(table: str) -> str:
    """
    Return the SQL that creates the table and its views. An operator runs it, because the gateway creates neither.
    """
    columns = ",\n".join(f"  `{name}` {type}" for name, type in COLUMN_TYPES.items())
    text = files(__package__).joinpath("table.sql").read_text("utf-8")
    return text.format(table=table, columns=columns, window=WINDOW)


def alter_statements(table: str, stored_types: Mapping[str, str]) -> Iterator[str]:
    """Yield the ALTER for each column that a table lacks or has with another type."""
    for name, type in COLUMN_TYPES.items():
        stored_type = stored_types.get(name)
        if stored_type is None:
            yield f"ALTER TABLE {table} ADD COLUMN `{name}` {type}"
        elif stored_type.replace(" ", "") != type.replace(" ", ""):
            yield f"ALTER TABLE {table} MODIFY COLUMN `{name}` {type} (it is {stored_type})"
