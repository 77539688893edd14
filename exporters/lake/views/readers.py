"""What each reader of SQL needs to see the files of a lake as one table: columns, an address, a function. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from exporters.lake.columns import COLUMNS, TABLE, VERSION
from exporters.lake.views.dialects import Dialect
from exporters.settings import DestinationSettings

_HOSTS: Final = {
    "s3": "https://{bucket}.s3.{region}.amazonaws.com",
    "gcs": "https://storage.googleapis.com/{bucket}",
}
_CHARGES: Final = {
    "focus": "read_csv('{}focus.csv.zst', all_varchar = true)",
    "focus-parquet": "read_parquet('{}focus.parquet', union_by_name = true)",
}


def check_readable(dialect: Dialect, settings: DestinationSettings) -> None:
    """ValueError for files that the reader does not read."""
    if settings.type not in dialect.stores:
        raise ValueError(
            f"{dialect.name} reads no store of type {settings.type}; it reads {', '.join(dialect.stores)}"
        )
    if settings.format != "parquet" and dialect.name != "duckdb":
        raise ValueError(
            f"views for {dialect.name} are over Parquet; {settings.name} has the format {settings.format}"
        )


def values_of(dialect: Dialect, settings: DestinationSettings) -> Mapping[str, str]:
    """Return what the statement of a reader, or of charges, has places for."""
    columns = (
        dialect.column.format(name=name, quoted=dialect.quoted(name), type=dialect.types[type])
        for name, type in COLUMNS.items()
    )
    place = _place(dialect, settings)
    return {"columns": ",\n".join(columns), "place": place, "rows": _rows(dialect, settings, place)}


def _place(dialect: Dialect, settings: DestinationSettings) -> str:
    """The address of the files as a reader writes it, in a text of SQL."""
    scheme = dialect.stores[settings.type]
    path = str(settings.path) if settings.type == "file" else settings.url.partition("://")[2]
    start = f"{scheme}://" if scheme else ""
    return f"{start}{path.rstrip('/')}/{TABLE}/v{VERSION}".replace("'", "''")


def _rows(dialect: Dialect, settings: DestinationSettings, place: str) -> str:
    """The function that reads files by their names; "" where a reader has tables of files instead."""
    if dialect.name == "clickhouse":
        return _clickhouse_rows(dialect, settings, place)
    if dialect.name != "duckdb":
        return ""
    if settings.format in _CHARGES:
        return _CHARGES[settings.format].format(f"{place}/*/*.")
    if settings.format == "parquet":
        return f"read_parquet('{place}/*/*.parquet', hive_partitioning = true, union_by_name = true)"
    columns = ", ".join(f"'{name}': '{dialect.types[type]}'" for name, type in COLUMNS.items())
    options = f"hive_partitioning = true, columns = {{{columns}}}"
    return f"read_json('{place}/*/*.ndjson.zst', format = 'newline_delimited', {options})"


def _clickhouse_rows(dialect: Dialect, settings: DestinationSettings, place: str) -> str:
    columns = ", ".join(f"`{name}` {dialect.types[type]}" for name, type in COLUMNS.items()).replace(
        "'", "\\'"
    )
    if settings.type == "file":
        return f"file('{place}/*/*.parquet', 'Parquet', '{columns}')"
    bucket, _, path = place.partition("://")[2].partition("/")
    host = f"{settings.endpoint.rstrip('/')}/{bucket}" if settings.endpoint else _HOSTS[settings.type]
    host = host.format(bucket=bucket, region=settings.region or "us-east-1")
    return f"s3('{host}/{path}/*/*.parquet', 'Parquet', '{columns}')"
