"""Costs are compared only with a time that was counted as a whole: in reports, comparisons, overview and commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.money.comparison.split import PARTS
from gateway.money.costs.earlier_period import NONE, PART, WHOLE
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.integration.operations.server import operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
# the first counted day, and what is known then of August, of the week before and of yesterday
BEGUN = {
    "2026-07-31": (WHOLE, WHOLE, WHOLE),
    "2026-08-01": (WHOLE, WHOLE, WHOLE),
    "2026-08-02": (PART, WHOLE, WHOLE),
    "2026-09-10": (NONE, PART, WHOLE),
    "2026-09-21": (NONE, NONE, NONE),
}
RANGES = ("this_month", "last_7d", "today")


def spent_since(first: str) -> Iterator[Any]:
    """Yield a call of a dollar at each midnight, the first of the team search and all others without a team."""
    day, number = date.fromisoformat(first), 0
    while day <= NOW.date():
        at = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        yield call(number, at=at, cost="1", cost_source="reported", team=None if number else "search")
        day, number = day + timedelta(days=1), number + 1


def amounts(row: Any) -> set[Any]:
    names = ("change", *PARTS, "against")
    return {row[name] for name in names if not isinstance(row[name], dict)}


@pytest.mark.parametrize("first", part([*BEGUN], every=2))
async def test_only_a_whole_past_is_compared(tmp_path: Path, first: str) -> None:
    """
    Costs are compared only with a past that was counted as a whole. Filters do not change this: a team without
    calls in such a past is compared with a cost of nothing.
    """
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *spent_since(first))

        async def asked(path: str, **query: str) -> Any:
            answer = await server.ask("GET", f"{path}?{urlencode(query)}")
            assert 200 == answer.status, answer.payload
            return answer.payload

        overview = (await asked("/overview"))["overview"]
        for name, known in zip(RANGES, BEGUN[first], strict=True):
            for where in ({}, {"where": "team=search"}):
                report = await asked("/report", range=name, compare="previous", by="team", **where)
                change = await asked("/comparison", range=name, by="team", **where)
                for past in (report["report"]["past"], change["comparison"]["past"]):
                    assert known == past["state"], (name, where)
                    assert f"{first}T00:00:00.000Z" == past["known_from"]
                is_whole = known == WHOLE
                assert is_whole == (report["report"]["compared"] is not None)
                assert is_whole == (change["comparison"]["compared"] is not None)
                assert all(is_whole == ("previous" in row) for row in (*report["rows"], report["total"]))
                for row in (*change["rows"], change["total"]):
                    assert is_whole == (None not in amounts(row))
                words = f"Counting began on {date.fromisoformat(first):%-d %b}, so there is nothing to compare with."
                has_spent = change["total"]["cost"] != "0"
                assert (not is_whole and has_spent) == (words == change["comparison"]["sentence"])
        for shown, known in ((overview["month"], BEGUN[first][0]), (overview["today"], BEGUN[first][2])):
            assert known == shown["past"]["state"]
            assert (known == WHOLE) == (shown["previous"] is not None)


@pytest.mark.parametrize(
    ("first", "days"), part([("2026-09-01", 10), ("2026-09-20", 1), ("2026-09-21", 0)], every=2)
)
async def test_the_longest_range_with_a_past_is_offered(tmp_path: Path, first: str, days: int) -> None:
    """
    The longest range whose past was counted as a whole is offered and can be compared. A range that is one day
    longer is not compared.
    """
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *spent_since(first))

        async def past_of_last(count: int) -> Any:
            since = f"{NOW.date() - timedelta(days=count - 1)}"
            answer = await server.ask("GET", f"/report?{urlencode({'from': since, 'compare': 'previous'})}")
            return answer.payload["report"]["past"]

        assert days == (await past_of_last(30))["comparable_days"]
        assert not days or WHOLE == (await past_of_last(days))["state"]
        assert WHOLE != (await past_of_last(days + 1))["state"]


def test_commands_say_when_counting_began(tmp_path: Path) -> None:
    async def fill() -> None:
        clock = MovedClock(NOW.timestamp())
        spool = await open_spool(tmp_path / "store", settings=SpoolSettings(hold=0), clock=clock)
        await add(spool.log, *spent_since("2026-09-05"))
        await spool.close()

    asyncio.run(fill())

    def report(*words: str) -> str:
        days = ("--from", "2026-09-01", "--to", "2026-09-21")
        result = CliRunner().invoke(main, ["report", *days, *words, "--data", str(tmp_path / "store")])
        assert 0 == result.exit_code, (result.output, result.exception)
        return result.output

    assert "counting began on 2026-09-05, so nothing is compared" in report("--compare")
    assert "CHANGE" not in report("--compare")
    against = report("--against")
    assert "$17.00. Counting began on 5 Sep, so there is nothing to compare with." in against
    assert "CHANGE" not in against
    assert "against" not in json.loads(report("--against", "--json"))["total"].values()
    assert len(report("--against", "--csv").splitlines()) == 2


async def test_unknown_calls_are_no_driver(tmp_path: Path) -> None:
    """
    The sentence of a comparison names a team as the driver, even if calls without a team changed more. Those calls
    stay in the table.
    """
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        spent = (
            ("2026-08-01", None, "1"),
            ("2026-08-02", "search", "2"),
            ("2026-09-02", None, "500"),
            ("2026-09-02", "search", "5"),
        )
        made = [
            call(
                number, at=datetime.fromisoformat(f"{day}T00:00+00:00").timestamp(), team=team, cost=cost,
                cost_source="reported",
            )
            for number, (day, team, cost) in enumerate(spent)
        ]  # fmt: skip
        await add(server.services.spool.log, *made)
        payload = (await server.ask("GET", "/comparison?by=team")).payload
        times = "1 to 21 Sep 14:00 against 1 to 21 Aug 14:00"
        assert [None, "search"] == [row["team"] for row in payload["rows"]]
        assert (
            f"{times}: $502.00 more: search +$3.00, at $45,454.55 a million tokens, before $18,181.82."
            == payload["comparison"]["sentence"]
        )
        alone = (await server.ask("GET", "/comparison?by=user")).payload
        assert (
            f"{times}: $502.00 more, in calls without a known name, or in small groups."
            == alone["comparison"]["sentence"]
        )
