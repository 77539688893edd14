"""The views over a lake: one text for every reader of SQL, from the columns of the table, an address and a function."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from exporters.lake.columns import COLUMNS, TABLE, VERSION
from exporters.lake.views.dialects import DIALECTS, Dialect
from exporters.settings import DestinationSettings

VIEWS: Final = ("lake", "once", "spend", "calls", "daily", "by_owner", "late", "focus")
_HOSTS: Final = {
    "s3": "https://{bucket}.s3.{region}.amazonaws.com",
    "gcs": "https://storage.googleapis.com/{bucket}",
}
_CHARGES: Final = {
    "focus": "read_csv('{}focus.csv.zst', all_varchar = true)",
    "focus-parquet": "read_parquet('{}focus.parquet', union_by_name = true)",
}


def views_for(engine: str, settings: DestinationSettings) -> str:
    """
    Return VIEWS: `lake` (every row), `once` (each id once, which matters after a restore), `spend` (what counts),
    `calls` (with their corrections), `daily`, `by_owner`, `late` and `focus`; of a lake of charges `focus` alone.
    ValueError for files that the reader does not read.
    """
    dialect = DIALECTS[engine]
    check_readable(dialect, settings)
    values = values_of(dialect, settings)
    if settings.format.startswith("focus"):
        return _text("charges").format_map(values)
    return _text(engine).format_map(values) + _views(dialect)


def _text(name: str) -> str:
    return files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def _views(dialect: Dialect) -> str:
    column = {name: dialect.quoted(name) for name in (*COLUMNS, "date")}
    at = column["at"]
    known = f"coalesce({column['known_at']}, {column['committed_at']})"
    values = {
        **{f"c_{name}": quoted for name, quoted in column.items()},
        "columns": ", ".join(column.values()),
        "call_columns": ", ".join(_of_call(name, quoted) for name, quoted in column.items()),
        "usd": dialect.usd.format(column["spend"]),
        "day": dialect.day.format(at),
        "known_day": dialect.day.format(known),
        "hour": dialect.hour.format(at),
        "s": dialect.schema,
    }
    return _text("views").format_map(values)


def _of_call(name: str, quoted: str) -> str:
    if name != "spend":
        return f"c.{quoted}"
    return (
        f"CASE WHEN k.corrections IS NULL THEN c.{quoted} "
        f"ELSE coalesce(c.{quoted}, 0) + coalesce(k.changed, 0) END AS {quoted}"
    )


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
