"""ClickHouse rows: each is stored once even if answers are lost, and operators get clear messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporters.clickhouse.exporter import ClickHouseExporter
from exporters.clickhouse.server import ClickHouseServer
from exporters.clickhouse.table import COLUMN_TYPES, MOST_RECORDS, table_creation_sql
from exporters.destinations import catalogue
from exporters.errors import Misconfigured, Retryable
from exporters.probe import OK, REFUSED
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from tests.exporters.clickhouse.server import Table, served
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, House, opened

SETTINGS = DestinationSettings(name="lake", type="clickhouse")
STATEMENTS = Path(__file__).parents[3] / "deploy/clickhouse/ai_telemetry.sql"


async def landed(house: House, url: str, *, leave_out: tuple[str, ...] = (), mark: str = "") -> list[str]:
    """Deliver records 1 to 10 as a new process would, and return the marks that the exporter stored."""
    marks: list[str] = []

    async def entries() -> AsyncIterator[LogEntry]:
        for entry in await house.storage.log.read("ai-telemetry", 1, 10):
            yield entry

    async def keep(mark: str) -> None:
        marks.append(mark)

    server = ClickHouseServer(replace(SETTINGS, url=url), None, clock=SystemClock())
    landings = house.storage.small.open_table(LANDINGS)
    exporter = ClickHouseExporter(server, landings, max_records=10, leave_out=leave_out)
    one = Delivery(id=1, route=ROUTE, first=1, last=10, attempts=0, idempotency_key="k", mark=mark or None)
    try:
        assert Settlement(delivered=10) == await exporter.write_delivery(one, entries(), keep)
    finally:
        await exporter.close()
    return marks


async def test_rows_of_a_lost_response_are_looked_up_not_resent(tmp_path: Path) -> None:
    """Rows that the table already has are settled, even if the server has forgotten every token."""
    table = Table()
    table.forgets = True
    async with served(table) as url, opened(tmp_path) as house:
        await house.add(calls(1, 10))
        table.fails = "answer"
        with pytest.raises(Retryable):
            await landed(house, url)
        await landed(house, url)
    assert 10 == len(table.rows) == len({row["id"] for row in table.rows})
    assert 1 == len(table.inserts)


async def test_a_part_that_is_there_is_sent_whole_with_the_same_bytes_and_token(tmp_path: Path) -> None:
    """
    An insert over several months may be stored in part. It is sent again whole, with the same bytes and the
    same token, so ClickHouse drops duplicates.
    """
    table = Table()
    async with served(table) as url, opened(tmp_path) as house:
        await house.add(calls(1, 10))
        await landed(house, url)
        del table.rows[5:]
        await landed(house, url)
    (first, second) = table.inserts
    assert first == second


async def test_rows_of_others_park_and_nothing_is_added(tmp_path: Path) -> None:
    """
    If the table has rows of a copy of this installation, with the same numbers and other ids, the route parks
    and adds nothing.
    """
    table = Table()
    async with served(table) as url, opened(tmp_path) as house:
        await house.add(calls(1, 10))
        table.rows.append({"number": 3, "id": "ff"})
        with pytest.raises(Misconfigured, match="other rows with the numbers 1 to 10"):
            await landed(house, url)
        assert [] == table.inserts
        table.rows.clear()
        with pytest.raises(Misconfigured, match="the log changed under a delivery"):
            await landed(house, url, mark="lake1;clickhouse=1;digest=0")
        assert [] == table.inserts


@pytest.mark.parametrize(
    ("fails", "error"), [("password", Misconfigured), ("column", Misconfigured), ("busy", Retryable)]
)
async def test_a_refusal_parks_or_waits_and_never_drops(
    fails: str, error: type[Exception], tmp_path: Path
) -> None:
    """
    The server's error code decides whether a refused insert waits or parks the route, because most errors
    come with status 500.
    """
    table = Table()
    async with served(table) as url, opened(tmp_path) as house:
        await house.add(calls(1, 10))
        table.fails = fails
        with pytest.raises(error) as raised:
            await landed(house, url)
        assert raised.type is error
        await landed(house, url)
    assert 10 == len(table.rows)


async def test_a_route_delivers_all_and_settles(tmp_path: Path) -> None:
    """Deliveries follow one another through the forwarder. A lost answer in between adds no duplicates."""
    table = Table()
    table.forgets = True
    secret = tmp_path / "secret"
    secret.write_text("writer\npassword\n")
    async with served(table) as url, opened(tmp_path / "spool") as house:
        await house.add(calls(1, 35, tags={"customer": "ada", "env": "prod"}))
        table.fails = "answer"
        left_out = ("source", "tags.customer")
        async with house.forwarding(type="clickhouse", url=url, secret_file=secret, leave_out=left_out):
            await house.until(queued=0)
    assert list(range(1, 36)) == sorted(row["number"] for row in table.rows)
    assert {"writer"} == table.users and not any("source" in row for row in table.rows)
    assert [{"env": "prod"}] * 35 == [row["tags"] for row in table.rows]
    assert {"costs"} == {each["database"] for each in table.asked}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({}, OK, "with the engine ReplacingMergeTree"),
        ({"columns": {}}, REFUSED, "the table ai_telemetry does not exist"),
        (
            {"columns": {**COLUMN_TYPES, "spend": "Float64"}},
            REFUSED,
            "MODIFY COLUMN `spend` Nullable(Decimal",
        ),
        (
            {"columns": {name: type for name, type in COLUMN_TYPES.items() if name != "tags"}},
            REFUSED,
            "ADD COLUMN `tags` Map(",
        ),
        ({"engine": "MergeTree ORDER BY id"}, REFUSED, "use ReplacingMergeTree"),
        ({"engine": "ReplacingMergeTree ORDER BY id"}, REFUSED, "MODIFY SETTING non_replicated"),
    ],
)
async def test_check_reports_differences_of_a_table_as_statements(
    change: dict[str, Any], status: str, words: str
) -> None:
    """The check of a table only reads. It reports each difference as a statement to run."""
    table = Table()
    for name, value in change.items():
        setattr(table, name, value)
    async with served(table) as url:
        probe = catalogue.TYPES["clickhouse"].probe
        found = await probe(replace(SETTINGS, url=url), None, SystemClock())
    assert found.status == status, found.words
    assert words in (found.words or ""), found.words
    assert [] == table.inserts


async def test_no_message_holds_the_password(tmp_path: Path) -> None:
    """No error message contains the password, even for an address where no server listens."""
    secret = tmp_path / "secret"
    secret.write_text("writer\nhunter2\n")
    source = SecretSource("one", file=secret, most_lines=2)
    server = ClickHouseServer(replace(SETTINGS, url="http://127.0.0.1:1/x"), source, clock=SystemClock())
    with pytest.raises(Retryable) as raised:
        await server.fetch_column_types()
    await server.close()
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "http://house.example:8123/costs"}, "only for loopback addresses"),
        ({"url": "https://house.example:8443/costs/more"}, "an address like https://HOST:PORT/DATABASE"),
        ({"url": "https://me:pw@house.example:8443/costs"}, "must not contain a user"),
        ({"batch_records": MOST_RECORDS + 1}, "at most 100,000"),
        ({"table": "a;b"}, "letters, digits"),
        ({"required": False}, "a table needs every record"),
        ({"leave_out": ("spend",)}, "cannot be left out"),
        ({"leave_out": ("usr",)}, "did you mean 'user'"),
    ],
)
def test_settings_say_what_is_wrong_before_anything_is_opened(changes: dict[str, Any], words: str) -> None:
    """Each problem in ClickHouse's settings is one sentence. A batch at the limit is accepted."""
    url = "https://house.example:8443/costs"
    at_bound = replace(SETTINGS, url=url, batch_records=MOST_RECORDS, leave_out=("user", "tags.a"))
    assert [] == list(catalogue.destination_problems([at_bound]))
    (problem,) = catalogue.destination_problems([replace(at_bound, **changes)])
    assert words in problem


def test_the_file_has_the_table_that_rows_are_made_for() -> None:
    """The file of statements that operators run creates exactly the table that rows are made for."""
    assert table_creation_sql("ai_telemetry") == STATEMENTS.read_text()
