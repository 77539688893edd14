"""How each reader of SQL writes types, names and days. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from exporters.lake.columns import COUNT, METERS, MONEY, TAGS, TEXT, TIME, TRUTH, WORD


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """
    `stores` are the types of destinations that the reader reads, with the beginning of its addresses there. The
    functions take an expression of a time, in UTC.
    """

    name: str
    stores: Mapping[str, str]
    types: Mapping[str, str]
    day: str  # with {} for the time
    hour: str
    usd: str = "CAST({} AS DECIMAL(18, 6))"
    quoted: Callable[[str], str] = field(default=lambda name: f'"{name}"')
    schema: str = ""  # before the names of views
    column: str = "  {quoted} {type}"  # how a table of files has it; {name} is its name in the files


def _backticks(name: str) -> str:
    return f"`{name}`"


def _in_capitals(name: str) -> str:
    """Quote a name as Snowflake keeps one without quotes: whoever asks needs none."""
    return f'"{name.upper()}"'


def _types(
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


DUCKDB: Final = Dialect(
    name="duckdb",
    stores={"s3": "s3", "gcs": "gs", "azure": "az", "file": ""},
    types=_types(
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
CLICKHOUSE: Final = Dialect(
    name="clickhouse",
    stores={"s3": "https", "gcs": "https", "file": ""},
    types=_types(
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
    quoted=_backticks,
)
ATHENA: Final = Dialect(
    name="athena",
    column="  `{name}` {type}",  # statements that make tables have other quotes there
    stores={"s3": "s3"},
    types=_types(
        text="string",
        count="bigint",
        truth="boolean",
        time="timestamp",
        money="decimal(38,27)",
        tags="map<string,string>",
        meters="map<string,decimal(38,6)>",
    ),
    day="CAST({} AS DATE)",
    hour="date_trunc('hour', {})",
)
BIGQUERY: Final = Dialect(
    name="bigquery",
    stores={"gcs": "gs"},
    types=_types(
        text="STRING",
        count="INT64",
        truth="BOOL",
        time="TIMESTAMP",
        money="BIGNUMERIC(38, 27)",
        tags="STRUCT<key_value ARRAY<STRUCT<key STRING, value STRING>>>",
        meters="STRUCT<key_value ARRAY<STRUCT<key STRING, value NUMERIC(35, 6)>>>",
    ),
    day="DATE({}, 'UTC')",
    hour="TIMESTAMP_TRUNC({}, HOUR, 'UTC')",
    usd="CAST({} AS NUMERIC(18, 6))",
    quoted=_backticks,
    schema="tollhouse.",
)
SNOWFLAKE: Final = Dialect(
    name="snowflake",
    stores={"s3": "s3", "gcs": "gcs"},
    types=_types(
        text="VARCHAR",
        count="NUMBER(19, 0)",
        truth="BOOLEAN",
        time="TIMESTAMP_NTZ",
        money="NUMBER(38, 27)",
        tags="VARIANT",
        meters="VARIANT",
    ),
    day="CAST({} AS DATE)",
    hour="DATE_TRUNC('HOUR', {})",
    usd="CAST({} AS NUMBER(18, 6))",
    column="  {quoted} {type} AS (value:{name}::{type})",
    quoted=_in_capitals,
)
SPARK: Final = Dialect(
    name="spark",
    stores={"s3": "s3a", "gcs": "gs", "file": "file"},
    types=_types(
        text="STRING",
        count="BIGINT",
        truth="BOOLEAN",
        time="TIMESTAMP",
        money="DECIMAL(38, 27)",
        tags="MAP<STRING, STRING>",
        meters="MAP<STRING, DECIMAL(38, 6)>",
    ),
    day="CAST({} AS DATE)",
    hour="date_trunc('HOUR', {})",
    quoted=_backticks,
)
DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each for each in (DUCKDB, CLICKHOUSE, ATHENA, BIGQUERY, SNOWFLAKE, SPARK)
}
