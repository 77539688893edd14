"""
The most expensive, largest and longest calls of a range over the operator API, and how far the search went.
"""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli.operator.money.report import _call_cost
from gateway.money.costs.measures import MAX_TOP
from gateway.operations.records import listing
from gateway.operations.records.filters import MAX_LIMIT
from spool.record import NS
from tests.integration.operations.records.test_recent import numbers
from tests.integration.operations.server import OperatorServer, operator_server
from tests.spool.contract.examples import add, call

DAY_S = 86400


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, hold=10) as server:
        yield server


def day_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


async def seven_calls(server: OperatorServer) -> int:
    """
    Add recent calls and an expensive one from two months ago. Call 2 is the most expensive recent one. Return
    the current time.
    """
    now = int(server.clock.now())
    at = now * NS
    await add(
        server.services.spool.log,
        call(1, start_time=at, end_time=at + 9 * NS, estimated_cost="0.30", cost_source="estimated"),
        call(
            2, start_time=at, end_time=at + NS, cost="9.00", cost_source="reported", team="search", user="eva"
        ),
        call(3, start_time=at, end_time=at + 5 * NS, cost="0.9", cost_source="reported", input_tokens=10**6),
        call(4, start_time=(now - 60 * DAY_S) * NS, cost="99", cost_source="reported"),
        call(5, start_time=at, estimated_cost="50", cost_source="estimated", status="cached"),
        call(6, start_time=at, estimated_cost="50", cost_source="estimated", shadow=True),
        call(7, start_time=at, user="(nobody)"),
    )
    return now


async def test_calls_are_sorted_by_what_they_cost_and_took(server: OperatorServer) -> None:
    """
    Calls are sorted as numbers by cost, size or duration, with unknown values last. Calls that a cache answered or
    that are counted elsewhere cost nothing. Pages continue the order.
    """
    await seven_calls(server)
    assert [2, 3, 1] == (await numbers(server, sort_key="cost", sort_order="desc"))[:3]
    assert [3] == (await numbers(server, sort_key="tokens", sort_order="desc"))[:1]
    assert [1, 3, 2] == (await numbers(server, sort_key="duration", sort_order="desc"))[:3]
    first = (await server.ask("GET", "/records", sort_key="cost", sort_order="desc", limit="2")).payload
    assert [2, 3] == [row["number"] for row in first["records"]]
    following = await numbers(server, cursor=first["pagination"]["cursor"]["next_cursor"])
    assert 1 == following[0]


async def test_costs_of_listed_calls_add_up_to_the_report(tmp_path: Path) -> None:
    """A duplicate has no cost in a list of calls, so that the costs of the list are those of the totals."""
    async with operator_server(tmp_path) as server:
        await seven_calls(server)
        rows = (await server.ask("GET", "/records", sort_key="cost", sort_order="desc")).payload["records"]
        assert [6] == [row["number"] for row in rows if row.get("shadow")]
        # an answer from a cache of the gateway costs nothing either
        listed = sum((_call_cost(row) or Decimal(0) for row in rows if row["status"] != "cached"), Decimal(0))
        report = (await server.ask("GET", "/report", range="last_30d")).payload
        assert Decimal(report["total"]["cost"]) == listed == Decimal("10.2")


async def test_calls_are_filtered_by_bounds(server: OperatorServer) -> None:
    """
    Calls can be filtered by a bound, which is an operator and a number. Anything else is refused with an example.
    """
    await seven_calls(server)
    assert {2, 3} == set(await numbers(server, cost=">0.5"))
    assert {3} == set(await numbers(server, cost="<=0.9", tokens=">=1000000"))
    assert {1, 3} == set(await numbers(server, duration=">1"))
    for wrong in ("0.5", ">", ">x", "=1", "> 1", ">1e9", ">-1"):
        refused = await server.ask("GET", "/records", cost=wrong)
        assert refused.status == 400, wrong
        assert "cost=>0.5" in refused.payload["error"]["message"], wrong


async def test_the_span_is_that_of_costs(server: OperatorServer) -> None:
    """The default range for lists of calls is thirty days, by the start time of the call, as for costs."""
    now = await seven_calls(server)
    assert 4 not in await numbers(server, sort_key="cost")
    day = day_of(now - 70 * DAY_S)
    assert 4 == (await numbers(server, **{"sort_key": "cost", "sort_order": "desc", "from": day}))[0]
    assert 4 == (await numbers(server, sort_key="cost", sort_order="desc", range="last_90d"))[0]
    assert 400 == (await server.ask("GET", "/records", range="last_90d", **{"from": day})).status
    assert 400 == (await server.ask("GET", "/records", range="ever")).status


async def test_filters_of_costs_hold_for_calls(server: OperatorServer) -> None:
    """Cost filters also work for calls, including exclusions and tags."""
    server.services.money.ledger.tags = ("service",)
    await seven_calls(server)
    await add(server.services.spool.log, call(8, tags={"service": "checkout"}, team="ads"))
    assert [8] == await numbers(server, **{"tag:service": "checkout"})
    assert {"search", "ads"}.isdisjoint(
        row["team"] for row in (await server.ask("GET", "/records?team!=search&team!=ads")).payload["records"]
    )
    assert 400 == (await server.ask("GET", "/records?prompt!=x")).status


async def test_it_says_how_far_it_looked_and_keeps_the_best(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Only the newest records up to the limit are searched. A bounded number of calls is ranked, and these are
    the first in the order.
    """
    monkeypatch.setattr(listing, "RANKED_STEP", 2)
    monkeypatch.setattr(listing, "MOST_RANKED", 2)
    server.services.spool.max_listed_records = lambda: 5
    log = server.services.spool.log
    for n in range(1, 9):
        at = int(server.clock.now()) * NS
        await add(log, call(n, start_time=at, cost=f"{(n * 3) % 7}.5", cost_source="reported"))
        server.clock.move(60)
    answer = (await server.ask("GET", "/records", sort_key="cost", sort_order="desc")).payload
    # The costs of calls 4 to 8 are 5.5, 1.5, 4.5, 0.5 and 3.5.
    assert [4, 6] == [row["number"] for row in answer["records"]]
    assert [7, 5] == await numbers(server, sort_key="cost", sort_order="asc")
    looked = answer["looked_through"]
    assert looked["records"] == 5
    assert looked["most"] == 5
    assert looked["until"] is None
    assert looked["since"] == answer["records"][0]["committed_at"]


async def test_an_old_span_is_looked_at_where_its_records_are(server: OperatorServer) -> None:
    """
    An old range is searched where its records are, even if many newer records exist. The answer states until
    when it searched.
    """
    log, begin = server.services.spool.log, int(server.clock.now()) // DAY_S * DAY_S
    for day in range(4):
        server.clock.move(begin + day * DAY_S + 3600 - server.clock.now())
        await add(
            log, call(day + 1, start_time=int(server.clock.now()) * NS, cost="1", cost_source="reported")
        )
    server.services.spool.max_listed_records = lambda: 2
    first = day_of(begin)
    answer = (await server.ask("GET", "/records", **{"sort_key": "cost", "from": first, "to": first})).payload
    assert [1] == [row["number"] for row in answer["records"]]
    assert answer["looked_through"]["until"] is not None


def test_the_command_lists_the_dearest_calls(tmp_path: Path) -> None:
    """
    `report --calls` prints a line per call, the most expensive first. Bounds and filters apply, and invalid
    options are refused.
    """

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--data", str(tmp_path / "data")])
        return f"{result.exit_code} {result.output}"

    run("demo", "--days", "3", "--records", "420")
    table = run("report", "--calls", "--top", "4").splitlines()
    assert "0 STARTED" == table[0][:9]
    rows = orjson.loads(run("report", "--calls", "--top", "200", "--json")[2:])["records"]
    more = orjson.loads(run("report", "--calls", "--top", "220", "--json")[2:])["records"]
    assert (200, 220, rows) == (len(rows), len({row["number"] for row in more}), more[:200])
    by_id = run("report", "--calls", "--where", f"id={rows[9]['id']}", "--json")
    assert rows[9:10] == orjson.loads(by_id[2:])["records"]
    dearest = [Decimal(row["cost"] or row["estimated_cost"]) for row in rows[:4]]
    places = 2 if min(dearest) >= Decimal("0.01") else 4
    assert [f"${cost:,.{places}f}" for cost in dearest] == [line.split()[3] for line in table[1:5]]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in table[1:5])
    assert "records received since" in table[5]
    as_csv = list(csv.DictReader(run("report", "--calls", "--top", "4", "--csv")[2:].splitlines()))
    assert [row["id"] for row in rows[:4]] == [row["id"] for row in as_csv[:4]]
    bound = (dearest[1] + dearest[2]) / 2
    assert 2 == len(
        orjson.loads(run("report", "--calls", "--where", f"cost>{bound}", "--json")[2:])["records"]
    )
    team = rows[0]["team"]
    own = orjson.loads(run("report", "--calls", "--where", f"team={team}", "--json")[2:])["records"]
    assert {team} == {row["team"] for row in own}
    for wrong in (("--where", "team"), ("--top-by", "calls"), ("--by", "team")):
        assert run("report", "--calls", *wrong).startswith("2 "), wrong
    assert run("report", "--top-by", "duration").startswith("2 ")


async def test_one_bound_of_calls_and_one_of_groups(server: OperatorServer, tmp_path: Path) -> None:
    """The API, the help and the error of the command name the same bounds."""

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, ["report", *words, "--data", str(tmp_path)], terminal_width=10_000)
        return f"{result.exit_code} {result.output}"

    assert 200 == (await server.ask("GET", "/records", limit=str(MAX_LIMIT))).status
    refused = await server.ask("GET", "/records", limit=str(MAX_LIMIT + 1))
    assert f"from 1 to {MAX_LIMIT}" in refused.payload["error"]["message"]
    refused = await server.ask("GET", "/report", by="team", top=str(MAX_TOP + 1))
    assert f"from 1 to {MAX_TOP}" in refused.payload["error"]["message"]
    assert f"1<=x<={MAX_TOP}" in run("--help")
    assert f"1<=x<={MAX_TOP}" in run("--top", str(MAX_TOP + 1))
    assert f"at most {MAX_TOP} at once" in run("--calls", "--limit", str(MAX_TOP + 1))
