"""
Every named time range answers with every comparison and grouping over a ledger of 400 days, whose sums of more
than 62 days ago are whole days.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from spool.engines import POSTGRES, SQLITE
from spool.ledger.dimensions import GRANULARITIES
from spool.ledger.periods import PREVIOUS, RANGES, SAME_WEEKDAYS
from spool.settings import StorageSettings
from tests.integration.conftest import ON_ONE_SERVER
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part, some
from tests.spool.contract.examples import add, call, counted_from
from tests.spool.postgres_cluster import Schemas

# the 71st day of a quarter, in the middle of a day
NOW = datetime(2026, 12, 10, 13, 20, tzinfo=UTC)
TODAY = NOW.replace(hour=0, minute=0)
DAYS = 400
HOURS = (5, 11, 15)
CALLS = [
    (TODAY - timedelta(days=day, hours=-hour), Decimal(1 + (day * 7 + hour) % 13))
    for day in range(DAYS)
    for hour in HOURS
    if day or hour < NOW.hour
]
OWN = "2026-02-01..2026-02-28"
PAST = (PREVIOUS, SAME_WEEKDAYS, OWN)
COMPARISONS = (PREVIOUS, SAME_WEEKDAYS, *RANGES, OWN)
GROUPINGS = ("model", "team", "source", "model,team")
# Both engines read the same rows of hours and days; what is above them is proved on the first. Each step meets every
# range and every comparison.
ON_ENGINES = pytest.mark.parametrize(
    ("stored", "every"), part([(SQLITE, 13), (POSTGRES, 13)], every=2), indirect=["stored"], scope="module"
)
ON_SQLITE = pytest.mark.parametrize("stored", [SQLITE], indirect=True)
pytestmark = ON_ONE_SERVER


@pytest.fixture(scope="module")
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StorageSettings]:
    """Storage of the engine that a test names."""
    if request.param != POSTGRES:
        yield StorageSettings(engine=request.param)
        return
    schemas: Schemas = request.getfixturevalue("schemas")
    schema = schemas.take()
    yield schema.settings(tmp_path_factory.mktemp("stored"))
    schemas.give_back(schema)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    stored: StorageSettings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OperatorServer]:
    """A server with the ledger, which takes a second to count. Tests only read it."""
    folder, clock = tmp_path_factory.mktemp("year"), MovedClock(NOW.timestamp())
    async with operator_server(folder, engine=stored.engine, clock=clock, stored=stored) as server:
        calls = [
            call(
                number, at=at.timestamp(), request_model=f"m{number % 3}", cost=str(cost), cost_source="reported",
                team=f"t{number % 2}",
            )
            for number, (at, cost) in enumerate(CALLS)
        ]  # fmt: skip
        await add(server.services.spool.log, counted_from("2024-12-31"), *calls)
        await server.services.money.ledger.catch_up(server.services.spool.log)
        await server.services.money.ledger.sum_up_and_delete_hours()
        yield server


async def asked(server: OperatorServer, path: str, **query: str) -> Any:
    answer = await server.ask("GET", f"{path}?{urlencode(query)}")
    assert 200 == answer.status, (query, answer.payload)
    return answer.payload


def spent(span: Mapping[str, str]) -> Decimal:
    since, until = (datetime.fromisoformat(span[end]) for end in ("from", "to"))
    return sum((cost for at, cost in CALLS if since <= at < until), Decimal(0))


@ON_ENGINES
async def test_every_range_answers_with_every_comparison(server: OperatorServer, every: int) -> None:
    """
    The sums of both times are exact for the dates that the answer states. The report, its chart and the
    comparison state the same dates and sums.
    """
    for named, (number, against) in some([*product(RANGES, enumerate(COMPARISONS))], every=every):
        by = GROUPINGS[number % len(GROUPINGS)]
        report = await asked(server, "/report", range=named, by=by, compare=against, show="cost")
        total, past = report["total"], report["report"]["compared"]["before"]
        assert spent(report["report"]) == Decimal(total["cost"])
        has_parts = "previous" in total
        if has_parts:
            assert spent(past) == Decimal(total["previous"]["cost"]), (named, against)
            assert spent(past) == sum(Decimal(row["previous"]["cost"]) for row in report["rows"])
        change = await asked(server, "/comparison", range=named, by=by, against=against)
        assert past == change["comparison"]["compared"]["before"]
        assert Decimal(total["cost"]) == Decimal(change["total"]["cost"])
        assert has_parts == (change["total"]["change"] is not None)
        assert spent(past) == Decimal(change["total"]["against"]["cost"])


@ON_ENGINES
async def test_every_chart_answers(server: OperatorServer, every: int) -> None:
    """
    Charts of every bin size have the total of the table. If hours of the earlier time are no longer stored, an
    hourly chart has no earlier time. Times of different lengths have no earlier rows.
    """
    ranges = ("last_7d", "last_30d", "last_90d", "this_quarter", "this_year")
    for against, named, per in some([*product(PAST, ranges, GRANULARITIES)], every=every):
        if per == "hourly" and named not in ("last_7d", "last_30d"):
            continue
        chart = await asked(
            server, "/report", range=named, by="team", per=per, top="5", compare=against, show="cost"
        )
        assert spent(chart["report"]) == sum(Decimal(row["cost"]) for row in chart["rows"])
        times, total = chart["report"]["compared"], chart["total"]
        is_unknown = per == "hourly" and (named, against) == ("last_30d", SAME_WEEKDAYS)
        assert is_unknown == (times is None), (named, per, against)
        assert (is_unknown or against == OWN) == ("previous" not in total), (named, per, against)
        if "previous" in total:
            assert spent(times["before"]) == Decimal(total["previous"]["cost"])


@ON_SQLITE
async def test_both_times_are_cut_to_whole_days_only_before_the_border(server: OperatorServer) -> None:
    """Within 62 days both times end with the last full hour. Earlier, both are cut to whole days of UTC."""
    week = (await asked(server, "/report", range="last_7d", compare=PREVIOUS))["report"]["compared"]
    assert ("2026-12-03T13:00:00+00:00", "hour") == (week["before"]["to"], week["grain"])
    quarter = (await asked(server, "/report", range="last_90d", compare=PREVIOUS))["report"]["compared"]
    assert ("12 Sep to 9 Dec", "14 Jun to 10 Sep") == (quarter["now"]["text"], quarter["before"]["text"])
    assert "day" == quarter["grain"]
    assert spent({"from": quarter["now"]["to"], "to": NOW.isoformat()}) == Decimal(quarter["since_cut"])
    refused = await server.ask(
        "GET",
        "/comparison?from=2026-12-01T05:00&to=2026-12-01T08:00&against=2026-02-01T05:00..2026-02-01T08:00",
    )
    assert 400 == refused.status
    assert "whole day in UTC" in refused.payload["error"]["message"]


@ON_SQLITE
async def test_a_wrong_comparison_is_named(server: OperatorServer) -> None:
    """If a comparison is wrong, the error names the parameter."""
    for path, name in (("/report", "compare"), ("/comparison", "against")):
        for wrong in ("last", "2026-02-01..x", "2026-02-03..2026-02-01"):
            refused = await server.ask("GET", f"{path}?range=this_month&{name}={wrong}")
            assert 400 == refused.status, wrong
        assert (await server.ask("GET", f"{path}?{name}=last")).payload["error"]["message"].startswith(name)
