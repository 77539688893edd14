"""The statements of `tollhouse lake sql --for`: the views for every reader return the same from one lake."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from click.testing import CliRunner
from sqlglot import exp

from exporters.lake.columns import COLUMNS
from exporters.lake.views.statements import DIALECTS, VIEWS, view_statements
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import READERS
from gateway.cli.lake.command import lake as command
from spool.log.planning.corrections import correction_id, correction_subtracting_duplicate
from spool.record import NS, Correction, Inference, Record
from tests.exporters.spools import StoppedClock, call, calls, record_id
from tests.integration.lake.lakes import configured, opened

SAMPLES = Path(__file__).parents[3] / "deploy" / "lake"
AT_NS = 1_790_000_000 * NS  # 2026-09-21
PAID: dict[str, Any] = {"cost": "0.1", "cost_source": "reported", "team": "search", "start_time": AT_NS}
QUESTIONS = {
    "once": "SELECT count(*), count(DISTINCT id), sum(spend), min(CAST(date AS VARCHAR)) FROM once",
    "spend": "SELECT count(*), sum(spend), sum(usd) FROM spend",
    "calls": "SELECT id, spend, corrections FROM calls ORDER BY id",
    "daily": "SELECT CAST(day AS VARCHAR), calls, spend, input_tokens, output_tokens FROM daily",
    "by_owner": 'SELECT CAST(day AS VARCHAR), team, "user", calls, spend FROM by_owner ORDER BY team NULLS LAST',
    "late": "SELECT id, CAST(known_on AS VARCHAR) FROM late",
    "focus": "SELECT SubAccountId, ResourceId, sum(BilledCost), sum(x_Calls), count(*) FROM focus GROUP BY ALL"
    " ORDER BY 1",
}


def sample(reader: str) -> DestinationSettings:
    """Return the destination of the statements in deploy/."""
    is_google = "s3" not in DIALECTS[reader].stores
    url = "gs://acme-costs/tollhouse" if is_google else "s3://acme-costs/tollhouse"
    return DestinationSettings(name="lake", type="gcs" if is_google else "s3", url=url)


def records() -> list[Record]:
    first, *others = calls(1, 20, **PAID)
    assert not isinstance(first, Correction)
    correction = Correction(
        id=record_id(99),
        source="test",
        corrects=first.id,
        before=call(1, **PAID),
        after=call(1, **{**PAID, "cost": "0.3"}),
        reason="final_cost",
        known_at=AT_NS + 2 * 24 * 3600 * NS,
        start_time=AT_NS,
    )
    shadow, gone = call(22, shadow=True, **PAID), call(23, **PAID)
    assert isinstance(gone, Inference)
    same_call = correction_subtracting_duplicate(gone, 0, first.id, gone, now_ns=AT_NS + 2 * 24 * 3600 * NS)
    return [first, *others, correction, call(21, **{**PAID, "team": None}), shadow, gone, same_call]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lake")

    async def land() -> None:
        clock = StoppedClock(AT_NS / NS + 60)
        async with opened(directory / "data", clock) as house, house.forwarding(path=directory / "lake"):
            await house.add(records())
            await house.until(queued=0)

    asyncio.run(land())
    return directory / "lake"


def answers(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[Any, ...]]]:
    return {view: connection.execute(question).fetchall() for view, question in QUESTIONS.items()}


@pytest.fixture(scope="module")
def expected(lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the results of DuckDB's own statements."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(view_statements("duckdb", DestinationSettings(type="file", path=lake)))
    return answers(connection)


def test_views_are_the_truth(expected: dict[str, list[tuple[Any, ...]]]) -> None:
    """
    The views of every reader return the values of the records. The 24 records include one that is only for
    reference, a correction of 0.2 that became known on another day, and a call with the correction that took it
    back.
    """
    assert [(25, 25, Decimal("2.3"), "2026-09-21")] == expected["once"]
    assert [(24, Decimal("2.3"), Decimal("2.3"))] == expected["spend"]
    assert [("2026-09-21", 21, Decimal("2.3"), 231, 0)] == [
        (day, count, spend, given, made or 0) for day, count, spend, given, made in expected["daily"]
    ]
    assert (record_id(1).hex(), Decimal("0.3"), 1) in expected["calls"]
    assert 22 == len(expected["calls"])
    assert record_id(23).hex() not in {id for id, _, _ in expected["calls"]}
    assert {record_id(99).hex(), correction_id(record_id(23), 1).hex()} == {id for id, _ in expected["late"]}
    assert {"2026-09-23"} == {known_on for _, known_on in expected["late"]}


@pytest.mark.parametrize("reader", [each for each in DIALECTS if each != "duckdb"])
def test_every_reader_says_the_same(
    reader: str, lake: Path, expected: dict[str, list[tuple[Any, ...]]]
) -> None:
    """
    Each reader's views are translated to DuckDB, by a library that knows each dialect, and run on the same files.
    """
    _, begin, views = view_statements(reader, sample(reader)).partition("-- Each id once")
    # the SQL dialect of Athena's views; its tables have another
    language = "trino" if reader == "athena" else reader
    own = [each for each in sqlglot.parse(begin + views, read=language) if each is not None]
    assert list(VIEWS[1:]) == [table.name for each in own if (table := each.find(exp.Table)) is not None]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA tollhouse; SET search_path = 'tollhouse'")
    mine = view_statements("duckdb", DestinationSettings(type="file", path=lake)).partition(";")[0]
    connection.execute(mine)
    for each in own:
        connection.execute(each.sql(dialect="duckdb"))
    assert expected == answers(connection)


@pytest.mark.parametrize("reader", DIALECTS)
def test_tables_have_every_column(reader: str) -> None:
    """If the lake gets a new column, every reader's statements have it."""
    table, _, _ = view_statements(reader, sample(reader)).partition("-- Each id once")
    quoted = [f"`{name}`" if reader != "snowflake" else f'"{name.upper()}"' for name in COLUMNS]
    if reader != "duckdb":  # DuckDB reads the column names from the files
        assert [] == [name for name in quoted if name not in table]
    assert "tollhouse/ai_telemetry/v1" in table


@pytest.mark.parametrize("reader", DIALECTS)
def test_statements_to_copy_are_those_of_the_command(reader: str, tmp_path: Path) -> None:
    """The files in deploy/lake equal the output of `tollhouse lake sql --for`."""
    assert READERS == tuple(DIALECTS)
    settings = sample(reader)
    config = configured(tmp_path, type=settings.type, url=settings.url)
    result = CliRunner().invoke(command, ["sql", "--for", reader, "--config", str(config)])
    assert 0 == result.exit_code, result.output
    assert (SAMPLES / f"{reader}.sql").read_text() == result.stdout


@pytest.mark.parametrize(
    ("fields", "reader", "words"),
    [
        ({"type": "file", "path": "lake"}, "athena", "athena cannot read stores of type file; it reads s3"),
        ({"type": "file", "path": "lake", "format": "ndjson"}, "spark", "views for spark need Parquet"),
        ({"type": "clickhouse", "url": "https://house:8443/costs"}, "spark", "spark cannot read destinations of type"),
        ({"type": "kafka", "url": "broker:9093"}, "duckdb", "duckdb cannot read destinations of type kafka"),
    ],
)  # fmt: skip
def test_what_a_reader_does_not_read_is_said(
    fields: dict[str, str], reader: str, words: str, tmp_path: Path
) -> None:
    """If a reader cannot read the lake, the command says so and prints no statement."""
    config = configured(tmp_path, **fields)
    result = CliRunner().invoke(command, ["sql", "--for", reader, "--config", str(config)])
    assert 2 == result.exit_code and words in result.output


def test_the_table_of_clickhouse_is_printed(tmp_path: Path) -> None:
    """The printed statement for ClickHouse is the one with which `tollhouse check` compares a table."""
    config = configured(tmp_path, type="clickhouse", url="https://house:8443/costs", table="calls_of_ai")
    for words in ((), ("--for", "clickhouse")):
        result = CliRunner().invoke(command, ["sql", *words, "--config", str(config)])
        assert 0 == result.exit_code, result.output
        assert result.stdout.startswith("CREATE TABLE calls_of_ai (")
