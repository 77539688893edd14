"""Views for operators: the operator API, the command, and reports inside a view."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from spool.clock import SystemClock
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
NEW = {"name": "Search & co", "filter": {"team": ["search"]}, "principal_dimension": "model"}
# each row has team, model, and the number of days ago
SPENT = ("search", "o3", 0, "1"), ("search", "gpt-4o", 20, "2"), ("ads", "o3", 0, "4")
Run = Callable[..., str]


def spent(now: float) -> list[Any]:
    return [
        call(number, at=now - days * 86400, team=team, request_model=model, cost=cost, cost_source="reported")
        for number, (team, model, days, cost) in enumerate(SPENT)
    ]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *spent(NOW.timestamp()))
        yield server


async def test_the_life_of_a_view(server: OperatorServer) -> None:
    """A view is addressed by id or name. Rules and fields are those of the API for keys."""
    made = (await server.ask("POST", "/views", NEW)).payload["view"]
    assert made == (await server.ask("GET", f"/views/{made['id']}")).payload["view"]
    changed = await server.ask("PATCH", "/views/SEARCH%20&%20co", {"range": "this_year"})
    assert made["id"] == changed.payload["view"]["id"]
    assert changed.payload["view"]["range"] == "this_year"
    assert [changed.payload["view"]] == (await server.ask("GET", "/views")).payload["views"]
    assert (409, "already_exists") == (await server.ask("POST", "/views", NEW)).error[:2]
    assert (400, "invalid") == (await server.ask("POST", "/views", {**NEW, "name": ""})).error[:2]
    assert {"deleted": made["id"]} == (await server.ask("DELETE", f"/views/{made['id']}")).payload
    assert (404, "not_found") == (await server.ask("GET", "/views/search")).error[:2]


async def test_reports_inside_a_view(server: OperatorServer) -> None:
    """The filters of the view and of the query both apply. A range may be given by name."""
    await server.ask("POST", "/views", NEW)

    async def cost(**query: str) -> str:
        answer = await server.ask("GET", "/report", show="cost", **query)
        assert 200 == answer.status, answer.payload
        total: str = answer.payload["total"]["cost"]
        return total

    assert await cost() == "7"
    assert await cost(view="Search & co") == "3"
    assert "2" == await cost(view="search & CO", where="model!=o3")
    assert "0" == await cost(view="Search & co", where="team=ads")
    assert "1" == await cost(view="Search & co", range="last_7d")
    for query, words in (({"view": "nobody"}, "no view"), ({"range": "ever"}, "range must be one of today"),
                         ({"range": "this_month", "from": "2026-09-01"}, "without from and to")):  # fmt: skip
        status, _, message = (await server.ask("GET", "/report", **query)).error
        assert status == 400
        assert words in message


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands on a data directory without a server. It contains the calls in `spent`."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "store"

    async def fill() -> None:
        # an hour ago, because a record that has just arrived would still be open
        clock = MovedClock(SystemClock().now() - 3600)
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=clock)
        await add(spool.log, *spent(clock.now()))
        await spool.close()

    asyncio.run(fill())

    def command(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [*words, "--data", str(directory)])
        assert code == result.exit_code, (result.output, result.exception)
        return result.output

    return command


def test_views_have_a_command(run: Run) -> None:
    """A report in a view uses the view's settings unless an option overrides them."""
    words = (
        "--where",
        "team=search",
        "--where",
        "team=",
        "--where",
        "model!=o1",
        "--by",
        "user",
        "--by",
        "model",
    )
    described = ("--range", "last_90d", "--growth", "50", "--cost-type", "reported_cost")
    made = json.loads(
        run("views", "create", "--name", "Search", "--principal", "team", *words, *described, "--json")
    )
    view = made["view"]
    assert view["filter"] == {"team": ["search", None], "!model": ["o1"]}
    assert view["group_by"] == ["user", "model"]
    assert {"enabled": True, "threshold_type": "Percent", "threshold_value": 50} == view["anomalies"]
    assert view["id"] in run("views", "list")
    assert "last_90d" in run("views", "show", "search")

    lines = run("report", "--view", "Search").splitlines()
    assert ["USER", "MODEL", "REPORTED"] == [
        name for name in lines[0].split() if name in ("USER", "MODEL", "REPORTED")
    ]
    assert ["gpt-4o", "o3", "total"] == [
        line.split()[1] if "total" not in line else "total" for line in lines[1:]
    ]
    narrow = run("report", "--view", "search", "--by", "team", "--range", "last_7d", "--csv").splitlines()
    assert narrow[1].startswith("search,1,")
    assert len(narrow) == 2

    run("views", "edit", "search", code=2)
    run("views", "edit", "search", "--everything", "--no-anomalies")
    changed = json.loads(run("views", "show", "search", "--json"))["view"]
    assert changed["filter"] == {}
    assert changed["anomalies"]["enabled"] is False
    assert "view search deleted" in run("views", "delete", "search")
    assert "no view has" in run("views", "show", "search", code=2)


WRONG_VIEWS: Sequence[tuple[tuple[str, ...], str]] = [
    (("--where", "team"), "NAME=VALUE"),
    (("--where", "colour=red"), "Use one of: "),
    (("--range", "ever"), "is not known"),
    (("--notify", "nobody"), "not a channel of [[notify]]"),
]


def test_a_wrong_view_is_refused(run: Run) -> None:
    """A wrong view is refused with the accepted values, and nothing is created."""
    for words, said in WRONG_VIEWS:
        assert said in run("views", "create", "--name", "Search", "--principal", "team", *words, code=2), (
            words,
            said,
        )
        assert [] == json.loads(run("views", "list", "--json"))["views"], (words, said)


def test_a_report_in_billed_money(run: Run) -> None:
    """
    An option or the view selects billed costs. The report states how final its days are and has no call counts.
    """
    run("views", "create", "--name", "Bill", "--principal", "team", "--cost-type", "billed_cost")
    for asked in (("--cost-type", "billed_cost"), ("--view", "Bill")):
        told = run("report", *asked, "--from", "2026-01-05", "--to", "2026-01-11")
        assert (
            "days with bills: 0 closed, 0 provisional, 7 open; days without a final bill have no billed costs"
            in told
        )
        assert "CALLS" not in told
        filled = run("report", *asked, "--from", "2026-01-05", "--to", "2026-01-11", "--missing", "counted")
        assert "7 open; days without a final bill use counted costs: 0 in total" in filled
    assert "missing applies only to billed costs" in run("report", "--missing", "counted", code=2)
