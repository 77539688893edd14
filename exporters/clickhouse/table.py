"""The ClickHouse table: columns as in a data lake, and views of the newest state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

import msgspec

from exporters.lake.columns import COLUMNS, COUNT, METERS, MONEY, TAGS, TEXT, TIME, TRUTH, WORD

MOST_RECORDS: Final = 100_000  # records per request, compressed in memory
WINDOW: Final = 10_000  # blocks whose tokens a table without replication remembers
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
    Sums over the rows from one life of the log (`edition`) with numbers from `first` to `last`. `numbers`:
    distinct numbers. `spend`: decimal text.
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


def table_creation_sql(table: str) -> str:
    """
    Return the statements that create the table, for an operator to run, because the gateway creates nothing.
    """
    columns = ",\n".join(f"  `{name}` {type}" for name, type in COLUMN_TYPES.items())
    text = files(__package__).joinpath("table.sql").read_text("utf-8")
    return text.format(table=table, columns=columns, window=WINDOW)


def table_alteration_statements(table: str, stored_types: Mapping[str, str]) -> Iterator[str]:
    for name, type in COLUMN_TYPES.items():
        stored_type = stored_types.get(name)
        if stored_type is None:
            yield f"ALTER TABLE {table} ADD COLUMN `{name}` {type}"
        elif stored_type.replace(" ", "") != type.replace(" ", ""):
            yield f"ALTER TABLE {table} MODIFY COLUMN `{name}` {type} (it is {stored_type})"
