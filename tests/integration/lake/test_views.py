"""
The statements of `tollhouse lake sql --for`. DuckDB runs its own here; ClickHouse's are run in tests/clients.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

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
SAMPLE = DestinationSettings(
    name="lake", type="s3", url="s3://acme-costs/tollhouse"
)  # of the files in SAMPLES
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


async def land(directory: Path) -> None:
    clock = StoppedClock(AT_NS / NS + 60)
    async with opened(directory / "data", clock) as house, house.forwarding(path=directory / "lake"):
        await house.add(records())
        await house.until(queued=0)


async def test_views_are_the_truth(tmp_path: Path) -> None:
    """
    The views return the values of the records. The 25 records include one that is only for reference, a correction
    of 0.2 that became known on another day, and a call with the correction that took it back.
    """
    await land(tmp_path)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(view_statements("duckdb", DestinationSettings(type="file", path=tmp_path / "lake")))
    assert set(VIEWS) - {"lake"} == set(QUESTIONS)
    answers = {view: connection.execute(question).fetchall() for view, question in QUESTIONS.items()}
    assert [(25, 25, Decimal("2.3"), "2026-09-21")] == answers["once"]
    assert [(24, Decimal("2.3"), Decimal("2.3"))] == answers["spend"]
    assert [("2026-09-21", 21, Decimal("2.3"), 231, 0)] == [
        (day, count, spend, given, made or 0) for day, count, spend, given, made in answers["daily"]
    ]
    assert (record_id(1).hex(), Decimal("0.3"), 1) in answers["calls"]
    assert 22 == len(answers["calls"])
    assert record_id(23).hex() not in {id for id, _, _ in answers["calls"]}
    assert {record_id(99).hex(), correction_id(record_id(23), 1).hex()} == {id for id, _ in answers["late"]}
    assert {"2026-09-23"} == {known_on for _, known_on in answers["late"]}
    owners = [
        ("2026-09-21", "search", None, 20, Decimal("2.2")),
        ("2026-09-21", None, None, 1, Decimal("0.1")),
    ]
    assert owners == answers["by_owner"]
    charges = [("search", "gpt-4o", Decimal("2.2"), 20, 1), (None, "gpt-4o", Decimal("0.1"), 1, 1)]
    assert charges == answers["focus"]


def test_clickhouse_reads_every_column() -> None:
    """If the lake gets a new column, ClickHouse's statement has it. DuckDB reads the column names from the files."""
    table, _, _ = view_statements("clickhouse", SAMPLE).partition("-- Each id once")
    assert [] == [name for name in COLUMNS if f"`{name}`" not in table]


@pytest.mark.parametrize("reader", DIALECTS)
def test_statements_to_copy_are_those_of_the_command(reader: str, tmp_path: Path) -> None:
    """The files in deploy/lake equal the output of `tollhouse lake sql --for`."""
    assert READERS == tuple(DIALECTS)
    config = configured(tmp_path, type=SAMPLE.type, url=SAMPLE.url)
    result = CliRunner().invoke(command, ["sql", "--for", reader, "--config", str(config)])
    assert 0 == result.exit_code, result.output
    assert (SAMPLES / f"{reader}.sql").read_text() == result.stdout


@pytest.mark.parametrize(
    ("fields", "reader", "words"),
    [
        ({"type": "azure", "url": "az://costs/lake", "account": "costs"}, "clickhouse", "it reads s3, gcs, file"),
        ({"type": "file", "path": "lake", "format": "ndjson"}, "clickhouse", "views for clickhouse need Parquet"),
        ({"type": "clickhouse", "url": "https://house:8443/costs"}, "duckdb", "duckdb cannot read destinations"),
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
