"""
SQL views over a data lake. One text serves both SQL engines; a dialect defines types, names and dates. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

VIEWS: Final = ("lake", "once", "spend", "calls", "daily", "by_owner", "late", "focus")
_HOSTS: Final = {
    "s3": "https://{bucket}.s3.{region}.amazonaws.com",
    "gcs": "https://storage.googleapis.com/{bucket}",
}
_CHARGES: Final = {
    "focus": "read_csv('{}focus.csv.zst', all_varchar = true)",
    "focus-parquet": "read_parquet('{}focus.parquet', union_by_name = true)",
}


def view_statements(engine: str, settings: DestinationSettings) -> str:
    """
    Return the SQL of VIEWS for an engine, or only of `focus` for a data lake of charges.

    The views are `lake` (every row), `once` (each id once, which matters after a restore), `spend` (counted
    rows), `calls` (with their corrections), `daily`, `by_owner`, `late` and `focus`. Raises ValueError if the
    engine cannot read the files.
    """
    dialect = DIALECTS[engine]
    check_engine_can_read(dialect, settings)
    rows = _rows_sql(dialect, settings)
    if settings.format.startswith("focus"):
        return _read_sql("charges").format(rows=rows)
    return _read_sql(engine).format(rows=rows) + _views_sql(dialect)


def _read_sql(name: str) -> str:
    return files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def _views_sql(dialect: SqlDialect) -> str:
    column = {name: dialect.quote(name) for name in (*COLUMNS, "date")}
    at = column["at"]
    known_since = f"coalesce({column['known_at']}, {column['committed_at']})"
    values = {
        **{f"c_{name}": quoted for name, quoted in column.items()},
        "columns": ", ".join(column.values()),
        "call_columns": ", ".join(_call_column_sql(name, quoted) for name, quoted in column.items()),
        "usd": dialect.usd.format(column["spend"]),
        "day": dialect.day.format(at),
        "known_day": dialect.day.format(known_since),
        "hour": dialect.hour.format(at),
    }
    return _read_sql("views").format_map(values)


def _call_column_sql(name: str, quoted: str) -> str:
    if name != "spend":
        return f"c.{quoted}"
    return (
        f"CASE WHEN k.corrections IS NULL THEN c.{quoted} "
        f"ELSE coalesce(c.{quoted}, 0) + coalesce(k.changed, 0) END AS {quoted}"
    )


def check_engine_can_read(dialect: SqlDialect, settings: DestinationSettings) -> None:
    if settings.type not in dialect.stores:
        raise ValueError(
            f"{dialect.name} cannot read stores of type {settings.type}; it reads {', '.join(dialect.stores)}"
        )
    if settings.format != "parquet" and dialect.name != "duckdb":
        raise ValueError(
            f"views for {dialect.name} need Parquet, but {settings.name} has the format {settings.format}"
        )


def _files_address(dialect: SqlDialect, settings: DestinationSettings) -> str:
    scheme = dialect.stores[settings.type]
    path = str(settings.path) if settings.type == "file" else settings.url.partition("://")[2]
    start = f"{scheme}://" if scheme else ""
    return f"{start}{path.rstrip('/')}/{TABLE}/v{VERSION}".replace("'", "''")


def _rows_sql(dialect: SqlDialect, settings: DestinationSettings) -> str:
    address = _files_address(dialect, settings)
    if dialect.name == "clickhouse":
        return _clickhouse_rows_sql(dialect, settings, address)
    if settings.format in _CHARGES:
        return _CHARGES[settings.format].format(f"{address}/*/*.")
    if settings.format == "parquet":
        return f"read_parquet('{address}/*/*.parquet', hive_partitioning = true, union_by_name = true)"
    columns = ", ".join(f"'{name}': '{dialect.types[type]}'" for name, type in COLUMNS.items())
    options = f"hive_partitioning = true, columns = {{{columns}}}"
    return f"read_json('{address}/*/*.ndjson.zst', format = 'newline_delimited', {options})"


def _clickhouse_rows_sql(dialect: SqlDialect, settings: DestinationSettings, address: str) -> str:
    columns = ", ".join(f"`{name}` {dialect.types[type]}" for name, type in COLUMNS.items()).replace(
        "'", "\\'"
    )
    if settings.type == "file":
        return f"file('{address}/*/*.parquet', 'Parquet', '{columns}')"
    bucket, _, path = address.partition("://")[2].partition("/")
    host = f"{settings.endpoint.rstrip('/')}/{bucket}" if settings.endpoint else _HOSTS[settings.type]
    host = host.format(bucket=bucket, region=settings.region or "us-east-1")
    return f"s3('{host}/{path}/*/*.parquet', 'Parquet', '{columns}')"


@dataclass(frozen=True, kw_only=True)
class SqlDialect:
    """
    An SQL engine. `stores` maps each destination type that the engine can read to the beginning of its addresses.

    `day` and `hour` are SQL functions of a time in UTC.
    """

    name: str
    stores: Mapping[str, str]
    types: Mapping[str, str]
    day: str  # SQL for the day of a time; {} stands for the time
    hour: str
    usd: str = "CAST({} AS DECIMAL(18, 6))"
    quote: Callable[[str], str] = field(default=lambda name: f'"{name}"')


def _quote_with_backticks(name: str) -> str:
    return f"`{name}`"


def _types_by_column_type(
    *, text: str, count: str, truth: str, time: str, money: str, tags: str, meters: str
) -> Mapping[str, str]:
    return {
        TEXT: text,
        WORD: text,
        COUNT: count,
        TRUTH: truth,
        TIME: time,
        MONEY: money,
        TAGS: tags,
        METERS: meters,
    }


DUCKDB: Final = SqlDialect(
    name="duckdb",
    stores={"s3": "s3", "gcs": "gs", "azure": "az", "file": ""},
    types=_types_by_column_type(
        text="VARCHAR",
        count="BIGINT",
        truth="BOOLEAN",
        time="TIMESTAMPTZ",
        money="DECIMAL(38,27)",
        tags="MAP(VARCHAR, VARCHAR)",
        meters="MAP(VARCHAR, DECIMAL(38,6))",
    ),
    day="CAST({} AT TIME ZONE 'UTC' AS DATE)",
    hour="date_trunc('hour', {} AT TIME ZONE 'UTC')",
)
CLICKHOUSE: Final = SqlDialect(
    name="clickhouse",
    stores={"s3": "https", "gcs": "https", "file": ""},
    types=_types_by_column_type(
        text="Nullable(String)",
        count="Nullable(Int64)",
        truth="Nullable(Bool)",
        time="Nullable(DateTime64(6, 'UTC'))",
        money="Nullable(Decimal(38, 27))",
        tags="Map(String, Nullable(String))",
        meters="Map(String, Nullable(Decimal(38, 6)))",
    ),
    day="CAST({} AS Nullable(Date))",
    hour="date_trunc('hour', {}, 'UTC')",
    usd="CAST({} AS Nullable(Decimal(18, 6)))",
    quote=_quote_with_backticks,
)
DIALECTS: Final[Mapping[str, SqlDialect]] = {dialect.name: dialect for dialect in (DUCKDB, CLICKHOUSE)}
