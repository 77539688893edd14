"""`lake verify --data` compares each day of calls with the totals, to the last digit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exporters.lake.past.log_recount import ledger_differences
from exporters.lake.tables import LakeDay
from gateway.cli.lake.command import lake as command
from gateway.cli.lake.recounts import RouteAccounting
from spool import money
from spool.record import NS, Record
from tests.exporters.spools import StoppedClock, call, counter
from tests.integration.lake.lakes import configured, opened
from tests.integration.lake.test_views import AT_NS, records
from tests.rounds import part

DAY = "2026-09-21"


async def fill(directory: Path, format: str) -> None:
    """
    Land calls, a counter, a record kept for reference, a cached call, and a correction that became known
    on another day.
    """
    paid: dict[str, Any] = {"cost": f"0.{1:027d}", "cost_source": "reported"}
    more: list[Record] = [
        counter(60, start_time=AT_NS),
        call(61, start_time=AT_NS - 24 * 3600 * NS, **paid),
        call(62, start_time=AT_NS, status="cached", **paid),
    ]
    clock = StoppedClock(AT_NS / NS + 60)
    lake: dict[str, Any] = {"path": directory / "lake", "format": format}
    async with opened(directory / "data", clock) as house, house.forwarding(**lake):
        await house.add([*records(), *more])
        await house.until(queued=0)


@pytest.fixture(scope="module", params=part(["parquet", "ndjson"], every=2))
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("days")
    asyncio.run(fill(directory, request.param))
    return configured(directory, format=request.param)


def verify(config: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["verify", "--config", str(config), "--json", *words])


def test_every_day_is_that_of_the_ledger(config: Path) -> None:
    """
    Days with every kind of record agree with the totals of the ledger. A sample of files, or only their footers, is
    not compared.
    """
    found = json.loads(verify(config, "--data").stdout)
    assert found["ledger"] == "2 days compared"
    assert found["differences"] == []
    for words in (["--data", "--sample", "50%"], ["--footers"], ["--data", "--without-books"]):
        assert "ledger" not in json.loads(verify(config, *words).stdout)


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [({"calls": 99}, "missing", 1), ({"calls": 1}, "foreign", 1), ({"spend": money.UNIT}, "repriced", 0)],
)
def test_a_day_that_differs_has_a_name(
    change: dict[str, int], kind: str, code: int, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a day of the lake has fewer or more calls than the totals, the verification fails and names the day. Other
    prices are no failure.
    """
    of_ledger = RouteAccounting.ledger_totals_by_day

    def changed(books: RouteAccounting, first: str, last: str) -> dict[str, LakeDay]:
        found = of_ledger(books, first, last)
        assert found is not None
        return {**found, DAY: found[DAY]._replace(**change)}

    monkeypatch.setattr(RouteAccounting, "ledger_totals_by_day", changed)
    result = verify(config, "--data")
    (difference,) = json.loads(result.stdout)["differences"]
    assert result.exit_code == code
    assert difference["kind"] == kind
    assert difference["name"] == DAY
    assert "the totals " in difference["words"]


def test_what_waits_is_not_compared(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A record that has not been landed yet is in the totals but not in the lake, so `lake verify` does not compare
    and says what to do first.
    """
    monkeypatch.setattr(RouteAccounting, "has_waiting_records", lambda books: True)
    found = json.loads(verify(config, "--data").stdout)
    assert found["ledger"].startswith("not compared: records wait for the lake (tollhouse lake land)")
    assert [] == found["differences"]


def test_calls_from_before_the_route_are_explained() -> None:
    """
    If a route began later than the ledger, calls that the lake lacks on the first days are explained by this. Calls
    that only the lake has are never explained.
    """
    whole = LakeDay(calls=5, spend=7, input_tokens=10, output_tokens=3)
    part = whole._replace(calls=2, spend=3, input_tokens=4, output_tokens=1)
    for lake, ledger, began_later, kinds in (
        ({DAY: whole}, {DAY: whole}, True, []),
        ({DAY: part}, {DAY: whole}, True, ["before_start"]),
        ({DAY: part}, {DAY: whole}, False, ["missing"]),
        ({DAY: whole}, {DAY: part}, True, ["foreign"]),
        ({}, {DAY: whole}, False, ["missing"]),
    ):
        found = list(ledger_differences(lake, ledger, began_later=began_later))
        assert kinds == [each.kind for each in found]
