"""Views over a lake for readers that speak SQL, made from the destination's settings."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from exporters.lake.columns import (
    COLUMNS,
    COUNT,
    METERS,
    MONEY,
    TABLE,
    TAGS,
    TEXT,
    TIME,
    TRUTH,
    VERSION,
    WORD,
)
from exporters.settings import DestinationSettings

_TYPES: Final = {
    TEXT: "VARCHAR", WORD: "VARCHAR", COUNT: "BIGINT", TRUTH: "BOOLEAN", TIME: "TIMESTAMPTZ", MONEY: "DECIMAL(38,27)",
    TAGS: "MAP(VARCHAR, VARCHAR)", METERS: "MAP(VARCHAR, DECIMAL(38,6))",
}  # fmt: skip
_CHARGES: Final = {
    "focus": "read_csv('{}focus.csv.zst', all_varchar = true)",
    "focus-parquet": "read_parquet('{}focus.parquet', union_by_name = true)",
}


def duckdb_views(settings: DestinationSettings) -> str:
    """
    The views `lake` (every row), `once` (each id once, which matters after a restore), `spend` (what counts), `calls`
    (with their corrections), `daily`, `by_owner` and `late`; of charges `focus` alone.
    """
    place = (settings.url or str(settings.path)).rstrip("/")
    if settings.format in _CHARGES:
        place = f"{place}/{TABLE}/v{VERSION}/*/*.".replace("'", "''")
        read, text = _CHARGES[settings.format].format(place), "charges.sql"
        return files(__package__).joinpath(text).read_text("utf-8").replace("{rows}", read)
    if settings.format == "parquet":
        place = f"{place}/{TABLE}/v{VERSION}/*/*.parquet".replace("'", "''")
        read = f"read_parquet('{place}', hive_partitioning = true, union_by_name = true)"
    else:
        place = f"{place}/{TABLE}/v{VERSION}/*/*.ndjson.zst".replace("'", "''")
        columns = ", ".join(f"'{name}': '{_TYPES[type]}'" for name, type in COLUMNS.items())
        read = f"read_json('{place}', format = 'newline_delimited', hive_partitioning = true, columns = {{{columns}}})"
    return files(__package__).joinpath("duckdb.sql").read_text("utf-8").replace("{rows}", read)
