"""The table in ClickHouse: its columns are those of a lake, and its views are the newest truth. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

import msgspec

from exporters.lake.columns import COLUMNS, COUNT, METERS, MONEY, TAGS, TEXT, TIME, TRUTH, WORD

MOST_RECORDS: Final = 100_000  # of a request: it is in memory, compressed, while it is sent
WINDOW: Final = 10_000  # blocks whose tokens a table that is not replicated remembers
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
    """Rows of some numbers of an edition; `numbers` is how many of the numbers are there. `spend` is decimal text."""

    edition: str
    first: int
    last: int
    rows: int
    numbers: int
    calls: int
    spend: str
    input_tokens: int
    output_tokens: int


def statements(table: str) -> str:
    """The table and its views, for an operator to run: the gateway makes none of them."""
    columns = ",\n".join(f"  `{name}` {type}" for name, type in COLUMN_TYPES.items())
    text = files(__package__).joinpath("table.sql").read_text("utf-8")
    return text.format(table=table, columns=columns, window=WINDOW)


def differences(table: str, found: Mapping[str, str]) -> Iterator[str]:
    """The ALTER that mends each column that a table lacks or has under another type."""
    for name, type in COLUMN_TYPES.items():
        there = found.get(name)
        if there is None:
            yield f"ALTER TABLE {table} ADD COLUMN `{name}` {type}"
        elif there.replace(" ", "") != type.replace(" ", ""):
            yield f"ALTER TABLE {table} MODIFY COLUMN `{name}` {type} (it is {there})"
