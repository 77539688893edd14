"""Views over a lake for readers that speak SQL, made from the destination's settings."""

from __future__ import annotations

from importlib.resources import files

from exporters.lake.columns import TABLE, VERSION
from exporters.settings import DestinationSettings


def duckdb_views(settings: DestinationSettings) -> str:
    """
    The views `lake` (every row), `once` (each id once, which matters after a restore) and `spend` (what counts).
    """
    place = (settings.url or str(settings.path)).rstrip("/")
    if settings.format == "parquet":
        place = f"{place}/{TABLE}/v{VERSION}/*/*.parquet".replace("'", "''")
        read = f"read_parquet('{place}', hive_partitioning = true, union_by_name = true)"
    else:
        place = f"{place}/{TABLE}/v{VERSION}/*/*.ndjson.zst".replace("'", "''")
        read = f"read_json('{place}', format = 'newline_delimited', hive_partitioning = true, union_by_name = true)"
    return files(__package__).joinpath("duckdb.sql").read_text("utf-8").replace("{rows}", read)
