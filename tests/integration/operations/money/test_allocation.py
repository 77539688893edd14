"""
The effect of a published definition on costs, reports, views, budgets and recent records, and the
diff before publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.money.allocation.language import join_definitions, parse_definition
from spool.clock import SystemClock
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
SPENT = (
    ("search", "o3", 0, "1"),
    ("Search ", "gpt-4o", 20, "2"),
    ("ads", "o3", 0, "4"),
    (None, "o3", 30, "8"),
)

OWNER = "User:Defined:Owner"
DEFINITION = """
Dimensions:
  Owner:
    Name: Who pays
    DefaultValue: Nobody
    Rules:
      - Type: GroupBy
        Source: Team
        Transforms: [{Type: Normalize}]
  Area:
    Rules:
      - Type: Group
        Name: Product
        Conditions: [{Source: User:Defined:Owner, Equals: [search, ads]}]
"""
NARROWER = (
    DEFINITION.replace("[search, ads]", "search").partition("  Area:")[0]
    + """
  Reach:
    Rules: [{Type: GroupBy, Source: model}]
"""
)


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


def publish(server: OperatorServer, text: str = DEFINITION, version: str = "1") -> None:
    definition = parse_definition(text.encode(), server.services.money.ledger.builtin_and_tag_dimensions())
    server.services.money.published.put_in_force(join_definitions({"": definition}), version=version)


async def costs(server: OperatorServer, groups: str, **query: str) -> dict[Any, str]:
    """Return the costs of this year by the values of the groups."""
    answer = await server.ask("GET", f"/report?by={groups}", show="cost", range="this_year", **query)
    assert 200 == answer.status, answer.payload
    rows = [tuple(row.values()) for row in answer.payload["rows"]]
    assert "15" == answer.payload["total"]["cost"] or "where" in query or "view" in query
    return {row[:-1] if len(row) > 2 else row[0]: row[-1] for row in rows}


async def test_reports_by_published_dimensions(server: OperatorServer) -> None:
    """Published dimensions group and filter all stored data at once, and do not change the total."""
    assert 400 == (await server.ask("GET", f"/report?by={OWNER}")).status
    publish(server)
    assert {"ads": "4", "search": "3", "Nobody": "8"} == await costs(server, OWNER)
    assert {("Product", "gpt-4o"): "2", ("Product", "o3"): "5", (None, "o3"): "8"} == await costs(
        server, "User:Defined:Area,model"
    )
    assert {"search": "1", "Search ": "2"} == await costs(server, "team", where=f"{OWNER}=search")
    assert {"ads": "4", None: "8"} == await costs(server, "team", where=f"{OWNER}!=search")
    report = (await server.ask("GET", "/report")).payload["report"]
    assert [OWNER, "User:Defined:Area"] == report["dimensions"][-2:]
    assert {OWNER: "Who pays", "User:Defined:Area": "Area"}.items() <= report["names"].items()
    comparison = await server.ask("GET", f"/comparison?by={OWNER}")
    assert {"ads", "search", "Nobody"} >= {row[OWNER] for row in comparison.payload["rows"]}
    publish(server, "Dimensions: {Area: {Rules: [{Type: GroupBy, Source: model}]}}", "2")
    assert {"gpt-4o": "2", "o3": "13"} == await costs(server, "User:Defined:Area")
    assert 400 == (await server.ask("GET", f"/report?by={OWNER}")).status


async def test_views_and_budgets_of_published_dimensions(server: OperatorServer) -> None:
    """
    Views and budgets use the current definition. If their dimension is no longer published, they say so.
    """
    view = {"name": "Search", "filter": {OWNER: ["search"]}, "principal_dimension": OWNER}
    assert (400, "invalid") == (await server.ask("POST", "/views", view)).error[:2]
    publish(server)
    made = (await server.ask("POST", "/views", view)).payload["view"]
    assert {"search": "3"} == await costs(server, OWNER, view="Search")
    everything = {**view, "name": "All", "filter": {}}
    all_of_it = (await server.ask("POST", "/views", everything)).payload["view"]
    budget = {"name": "Each", "view": {"id": all_of_it["id"]}, "default_amount": "3", "per": OWNER,
              "alerts": {"100": "Y"}}  # fmt: skip
    answer = await server.ask("POST", "/budgets", budget)
    assert answer.status == 201, answer.payload
    assert answer.payload["budget"]["per_label"] == "Who pays", answer.payload
    insights = (await server.ask("GET", "/insights")).payload["insights"]
    assert "Budget Each: 2 of Who pays past a threshold" in [each["title"] for each in insights]
    owners = await server.ask("GET", f"/budgets/{answer.payload['budget']['id']}/owners")
    assert {"ads": "4", "search": "3"} == {each["owner"]: each["actual"] for each in owners.payload["owners"]}
    found = await server.ask("GET", "/records", view="Search")
    assert {"search", "Search "} == {row["team"] for row in found.payload["records"]}
    server.services.money.published.put_in_force(join_definitions({}), version="2")
    broken = (await server.ask("GET", f"/views/{made['id']}")).payload["view"]["broken"]
    assert f"no longer has {OWNER}" in broken
    assert 400 == (await server.ask("GET", "/report", view="Search")).status


async def test_a_diff(server: OperatorServer) -> None:
    """
    The diff states the costs of a month for each element before and after. Totals are equal, and
    nothing is published.
    """
    publish(server)
    answer = await server.ask("POST", "/allocation/diff", {"definition": NARROWER, "month": "2026-08"})
    assert 200 == answer.status, answer.payload
    assert {"cost": "8", "calls": 1} == answer.payload["total"]
    answer = await server.ask("POST", "/allocation/diff", {"definition": NARROWER})
    payload = answer.payload
    assert {"cost": "7", "calls": 3} == payload["total"]
    assert payload["diff"]["from"] == "2026-09-01T00:00:00+00:00"
    assert payload["diff"]["version"] == "1"
    assert "2026-08-22T14:00:00+00:00" == payload["diff"]["border"]["kept_since"]
    states = {each["id"]: each["state"] for each in payload["dimensions"]}
    assert {OWNER: "unchanged", "User:Defined:Reach": "new", "User:Defined:Area": "gone"} == states
    for dimension in payload["dimensions"]:
        for side in ("before", "after"):
            amounts = [int(each[side]["cost"]) for each in dimension["elements"] if each[side] is not None]
            assert sum(amounts) in ((7,) if amounts else (0,))
    assert [("o3", None, {"cost": "5", "calls": 2}), ("gpt-4o", None, {"cost": "2", "calls": 1})] == [
        tuple(each.values()) for each in payload["dimensions"][1]["elements"]
    ]
    assert [OWNER, "User:Defined:Area"] == [each.id for each in server.services.money.published.dimensions()]


async def test_a_diff_of_a_namespace(server: OperatorServer) -> None:
    """
    A namespace's definition replaces only its own dimensions, and must not define a dimension of another namespace.
    """
    known = server.services.money.ledger.builtin_and_tag_dimensions()
    model = b"Dimensions: {M: {Rules: [{Type: GroupBy, Source: model}]}}"
    parts = {"": parse_definition(DEFINITION.encode(), known), "ml": parse_definition(model, known)}
    server.services.money.published.put_in_force(join_definitions(parts), version="3")
    other = "Dimensions: {N: {Rules: [{Type: GroupBy, Source: user}]}}"
    answer = await server.ask("POST", "/allocation/diff", {"definition": other, "namespace": "ml"})
    states = {each["id"].rpartition(":")[2]: each["state"] for each in answer.payload["dimensions"]}
    assert {"N": "new", "M": "gone"} == states
    answer = await server.ask("POST", "/allocation/diff", {"definition": DEFINITION, "namespace": "ml"})
    assert 422 == answer.status
    assert "belongs to the default namespace" in answer.payload["errors"][0]["error"]


async def test_what_no_diff_is_made_of(server: OperatorServer) -> None:
    """
    A diff is refused for a faulty definition, with the place of each fault, and for an invalid or future month.
    """
    wrong = "Dimensions: {D: {Rules: [{Type: GroupBy, Source: modle}, {Type: Grop}]}}"
    answer = await server.ask("POST", "/allocation/diff", {"definition": wrong})
    assert (422, "invalid_definition") == answer.error[:2]
    assert [["Dimensions", "D", "Rules", 0, "Source"], ["Dimensions", "D", "Rules", 1, "Type"]] == [
        each["path"] for each in answer.payload["errors"]
    ]
    for month, words in (
        ("2026-13", "YYYY-MM"),
        ("2026-9", "YYYY-MM"),
        ("2026-10", "in the future"),
        ("1999-01", "2000"),
    ):
        status, _, message = (
            await server.ask("POST", "/allocation/diff", {"definition": DEFINITION, "month": month})
        ).error
        assert status == 400, message
        assert words in message, message


def test_the_diff_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The diff command also works without a server. For a faulty definition, it prints every fault and ends.
    """
    monkeypatch.chdir(tmp_path)
    at = SystemClock().now() - 3600  # an hour ago, because a record that has just arrived would still be open

    async def fill() -> None:
        clock = MovedClock(at)
        spool = await open_spool(tmp_path / "store", settings=SpoolSettings(hold=0), clock=clock)
        long_ago = datetime.fromtimestamp(at - 40 * 86400, UTC)
        await add(spool.log, counted_from(f"{long_ago:%Y-%m-%d}"), spent(clock.now())[2])
        await spool.close()

    asyncio.run(fill())
    (tmp_path / "definition.yaml").write_text(DEFINITION)
    month = datetime.fromtimestamp(at, UTC).strftime("%Y-%m")
    arguments = ["allocation", "diff", "definition.yaml", "--data", "store", "--month", month]
    done = CliRunner().invoke(main, arguments)
    assert 0 == done.exit_code, done.output
    assert "Who pays (User:Defined:Owner): new" in done.output
    assert ["ads", "-", "4.0000", "-"] == next(
        line.split() for line in done.output.splitlines() if "ads" in line
    )
    publish = ["allocation", "publish", "definition.yaml", "--data", "store"]
    assert 0 == CliRunner().invoke(main, publish).exit_code
    for more in (
        [],
        ["--against"],
    ):  # the column's title is the version, both by default and if the option names it
        told = CliRunner().invoke(
            main, ["report", "--by", OWNER, "--range", "last_7d", "--data", "store", *more]
        )
        assert 0 == told.exit_code, told.output
        assert any(line.startswith("WHO PAYS ") for line in told.output.splitlines()), told.output
    (tmp_path / "definition.yaml").write_text("Dimensions: {D: {Rules: [{Type: GroupBy, Source: modle}]}}")
    done = CliRunner().invoke(main, arguments)
    assert 2 == done.exit_code
    assert "Dimensions.D.Rules.0.Source: there is no such source; did you mean model? (modle)" in done.output
