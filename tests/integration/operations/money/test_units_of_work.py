"""What a session, a run of an agent or a pull request cost, over the operator API."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from spool.ledger.work import UNITS, unit_number_from_name_or_digest
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
# Each row has session, run, run that started it, pull request and cost.
SPENT = (
    ("first", None, None, "acme/shop#42", "1"),
    ("first", "a", None, "acme/shop#42", "2"),
    ("first", "b", "a", "acme/shop#43", "4"),
    ("second", "a", None, None, "8"),
    (None, None, None, None, "16"),
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    calls = [
        call(
            number,
            at=NOW.timestamp() - 7200,
            session=session,
            run=run,
            parent_run=parent,
            tags={"pull_request": pull_request} if pull_request else {},
            cost=cost,
            cost_source="reported",
        )
        for number, (session, run, parent, pull_request, cost) in enumerate(SPENT)
    ]
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, counted_from("2026-08-20"), *calls)
        yield server


async def asked(server: OperatorServer, query: str) -> Any:
    answer = await server.ask("GET", f"/report?{query}")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def costs(server: OperatorServer, by: str, more: str = "") -> dict[str | None, str]:
    return {row[by]: row["cost"] for row in (await asked(server, f"by={by}{more}"))["rows"]}


async def test_each_unit_has_its_cost(server: OperatorServer) -> None:
    """Units add up to the total with the calls that have none. A run's id counts within its session."""
    first, second = (server.as_shown("session", name) for name in ("first", "second"))
    assert {first: "7", second: "8", None: "16"} == await costs(server, "session")
    assert {"acme/shop#42": "3", "acme/shop#43": "4", None: "24"} == await costs(server, "pull_request")
    runs: dict[str | None, str] = {None: "17"}
    runs |= {server.as_shown("run", run, session=session): cost for session, run, _, _, cost in SPENT if run}
    assert runs == await costs(server, "run")
    assert {first: "7"} == await costs(server, "session", "&where=session=first")
    assert {first: "7"} == await costs(server, "session", f"&where=session={first}")
    assert {second: "8", None: "16"} == await costs(server, "session", "&where=session!=first")
    assert {second: "8", None: "16", "(other)": "7"} == await costs(server, "session", "&top=1")
    assert {first: "3"} == await costs(server, "session", "&where=pull_request=acme/shop%2342")
    assert {first: "4", second: "8", None: "16"} == await costs(
        server, "session", "&where=pull_request!=acme/shop%2342"
    )
    assert {None: "16"} == await costs(server, "pull_request", "&where=session=")
    sessions = await asked(server, "unit=session&show=cost,units,cost_per_unit")
    assert ("31", "2", "7.5") == tuple(sessions["total"][name] for name in ("cost", "units", "cost_per_unit"))


REFUSED = (
    ("/report?by=session,run", "Group by one of them"),
    ("/report?by=session&unit=run&show=units", "filter by it instead"),
    ("/report?by=session&from=2026-01-01&to=2026-09-01", "at most 92 days"),
    ("/report?by=team&unit=session&show=units&range=this_year", "at most 92 days"),
    ("/report?by=session&cost_type=billed_cost", "use a counted cost_type"),
    ("/report?by=team&where=run=a&cost_type=amortized_cost&missing=counted", "use a counted cost_type"),
    ("/report?by=team&scope=aggregated", "by=session or by=run"),
    ("/report?by=pull_request&scope=aggregated", "by=session or by=run"),
    ("/report?by=team&unit=run&scope=aggregated&show=units", "cannot be used with unit"),
    ("/comparison?by=session&against=2025-09-01..2026-08-31", "at most 92 days"),
    ("/comparison?by=session&cost_type=billed_cost", "use a counted cost_type"),
    ("/forecast?where=repository=acme/shop&per=yearly", "per=quarterly"),
    ("/what-if?by=team&where=repository=acme/shop&model=gpt-4o", "GET /report"),
    ("/work/session/first?range=this_year", "at most 92 days"),
)
ANSWERED = (
    *(f"/report?by=team,{unit}&per=daily&top=1000&compare=previous&currency=EUR" for unit in UNITS),
    "/report?by=session&per=monthly&format=csv&from=2026-06-22&to=2026-09-21",
    "/report?by=run&unit=team&show=units&top_by=calls",
    "/report?by=session&per=hourly&range=today",
    "/report?by=team&where=ticket=SHOP-7&per=hourly&range=yesterday",
    "/report?by=team&unit=run&show=units&per=hourly&range=today",
    "/report?by=session&cost_type=metered_cost",
    "/report?by=session&cost_type=covered_cost&show=cost,saved,estimated",
    "/comparison?by=pull_request&range=this_month&cost_type=real_cost&top=1",
    "/forecast?where=repository=acme/shop&per=quarterly",
    "/marks?where=session=first&range=last_90d",
)


async def test_a_wrong_question_names_the_right_one(server: OperatorServer) -> None:
    """Each combination that the sums of units cannot answer is a 422 that says what to ask. All others are answered."""
    for path, words in REFUSED:
        answer = await server.ask("GET", path)
        assert answer.status == 422, (path, answer.payload)
        assert words in answer.payload["error"]["message"], path
    for top in ("0", "1001", "x"):
        answer = await server.ask("GET", f"/report?by=session&top={top}")
        assert (400, "top must be") == (answer.status, answer.payload["error"]["message"][:11])
    for path in ANSWERED:
        assert 200 == (await server.ask("GET", path)).status, path


async def test_a_comparison_knows_units(server: OperatorServer) -> None:
    """A comparison by session shows which sessions changed the costs."""
    answer = await server.ask("GET", "/comparison?by=session&range=last_7d")
    assert {row["session"]: row["change"] for row in answer.payload["rows"]} == {
        server.as_shown("session", "first"): "7",
        server.as_shown("session", "second"): "8",
        None: "16",
    }


async def test_an_id_that_is_a_digest(server: OperatorServer) -> None:
    """A filter by an id finds only the session or run with that id, in totals, lists and pages."""
    for unit, id in (("session", "first"), ("run", "b")):
        digest = server.as_shown(unit, id, session="first")
        ids = (digest.partition(":")[2], f"{unit}:{'0' * 16}", f"{unit}:{'f' * 16}", digest.upper())
        for number, name in enumerate(ids, start=60 if unit == "session" else 70):
            given: dict[str, Any] = {unit: name}
            spent = call(number, at=NOW.timestamp() - 7200, cost="0.5", cost_source="reported", **given)
            await add(server.services.spool.log, spent)
        # an id in the form of a digest is found by its own digest, never beside the unit of that digest
        forged: dict[str, Any] = {unit: digest}
        await add(server.services.spool.log, call(90 + len(unit), at=NOW.timestamp() - 7200, **forged))
        for name in ids:
            shown = server.as_shown(unit, name)
            assert {shown: "0.5"} == await costs(server, unit, f"&where={unit}={name}")
            one = await unit_of_work(server, unit, name)
            assert (shown, "0.5") == (one["work"]["id"], one["own"]["cost"])
            assert {name} == {row[unit] for row in await records(server, unit, name)}
            assert {name} == {row[unit] for row in await records(server, unit, shown)}
        assert [digest] == [*await costs(server, unit, f"&where={unit}={digest}")]
        assert {id} == {row[unit] for row in await records(server, unit, digest)}
        assert {digest} == {row[unit] for row in await records(server, unit, server.as_shown(unit, digest))}


async def records(server: OperatorServer, unit: str, value: str) -> Sequence[Mapping[str, Any]]:
    answer = await server.ask("GET", f"/records?{unit}={quote(value)}")
    assert 200 == answer.status, answer.payload
    rows: Sequence[Mapping[str, Any]] = answer.payload["records"]
    return rows


async def test_aggregated_costs_include_started_runs(server: OperatorServer) -> None:
    """With scope=aggregated, a run has the cost of the runs that it started. Such costs have no total."""
    a, b = (server.as_shown("run", run, session="first") for run in "ab")
    other = server.as_shown("run", "a", session="second")
    answer = await asked(server, "by=run&scope=aggregated")
    assert {a: "6", b: "4", other: "8", None: "17"} == {row["run"]: row["cost"] for row in answer["rows"]}
    assert answer["total"] is None
    assert "aggregated" == answer["report"]["scope"]
    assert {other: "8", a: "6", None: "17"} == await costs(server, "run", "&scope=aggregated&top=2")
    assert {None: "17", other: "8", "(other)": "6"} == await costs(server, "run", "&top=1")
    refused = await server.ask("GET", "/report?by=run&scope=both")
    assert 400 == refused.status
    assert "scope" in refused.payload["error"]["message"]


async def unit_of_work(server: OperatorServer, unit: str, id: str) -> Any:
    answer = await server.ask("GET", f"/work/{unit}/{quote(id, safe='')}")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def test_one_unit_shows_its_runs_as_a_tree(server: OperatorServer) -> None:
    """A unit has its own cost, its runs with the runs that they started, and its calls without a run."""
    first = server.as_shown("session", "first")
    a, b = (server.as_shown("run", run, session="first") for run in "ab")
    for name in ("first", first):
        shown = await unit_of_work(server, "session", name)
        assert {"unit": "session", "id": first} == {key: shown["work"][key] for key in ("unit", "id")}
        assert ("7", "7", "1") == tuple(shown[key]["cost"] for key in ("own", "aggregated", "without_run"))
        rows = [(row["run"], row["parent"], row["level"], row["own"]["cost"]) for row in shown["runs"]]
        assert [(a, None, 1, "2"), (b, a, 2, "4")] == rows
        assert ["6", "4"] == [row["aggregated"]["cost"] for row in shown["runs"]]
    shown = await unit_of_work(server, "run", b)
    assert [{"run": a, "session": first}] == shown["started_by"]
    assert ("4", "4") == tuple(shown[key]["cost"] for key in ("own", "aggregated"))
    shown = await unit_of_work(server, "pull_request", "acme/shop#42")
    assert ("3", None) == (shown["own"]["cost"], shown["aggregated"])
    assert [a] == [row["run"] for row in shown["runs"]]
    assert 404 == (await server.ask("GET", "/work/team/search")).status
    nothing = await unit_of_work(server, "session", "unknown")
    assert (0, []) == (nothing["own"]["calls"], nothing["runs"])


async def test_a_delegation_is_no_call(server: OperatorServer) -> None:
    """A run that makes two calls and starts one run has 2 calls and 1 delegation. The started run has none."""
    at = NOW.timestamp() - 3600
    calls = [("lead", None), ("lead", None), ("helper", "lead")]
    added = [
        call(number, at=at, session="s", run=run, parent_run=parent)
        for number, (run, parent) in enumerate(calls, start=50)
    ]
    await add(server.services.spool.log, *added)
    lead, helper = (server.as_shown("run", run, session="s") for run in ("lead", "helper"))
    for unit, id in (("session", "s"), ("run", lead)):
        shown = await unit_of_work(server, unit, id)
        found = {row["run"]: (row["own"]["calls"], row["delegations"]) for row in shown["runs"]}
        assert {lead: (2, 1), helper: (1, 0)} == found
    assert 3 == (await unit_of_work(server, "session", "s"))["own"]["calls"]
    printed = await command(server, "work", "show", "session", "s")
    assert ["RUN", "AGENTS", "CALLS", "DELEGATIONS"] == printed.splitlines()[0].split()[:4]
    assert ["2", "1"] == next(line for line in printed.splitlines() if lead in line).split()[2:4]


async def test_a_session_over_midnight_continues(server: OperatorServer) -> None:
    """A report of yesterday has the calls of that day. It says which sessions have calls before or after."""
    midnight = NOW.replace(hour=0, minute=0, second=0)
    spent = ((-1800, "both", "0.10"), (1800, "both", "0.20"), (-1800, "evening", "0.40"))
    added = [
        call(number, at=midnight.timestamp() + s, session=session, cost=cost, cost_source="reported")
        for number, (s, session, cost) in enumerate(spent, start=50)
    ]
    await add(server.services.spool.log, *added)
    both, evening = (server.as_shown("session", name) for name in ("both", "evening"))
    rows = (await asked(server, "by=session&range=yesterday"))["rows"]
    assert {both: ("0.1", True), evening: ("0.4", False)} == {
        row["session"]: (row["cost"], row["continues"]) for row in rows
    }
    for query in ("by=team&range=yesterday", "by=pull_request&range=yesterday"):
        assert not any("continues" in row for row in (await asked(server, query))["rows"])
    for range, cost, continues in (("yesterday", "0.1", True), ("last_7d", "0.3", False)):
        answer = await server.ask("GET", f"/work/session/both?range={range}")
        assert (cost, continues) == (answer.payload["own"]["cost"], answer.payload["work"]["continues"])
    words = "more calls in the day before or after this period"
    printed = await command(server, "report", "--by", "session", "--range", "yesterday")
    assert f"1 of 2 rows have {words}" in printed
    assert f"it has {words}" in await command(
        server, "work", "show", "session", "both", "--range", "yesterday"
    )
    assert words not in await command(server, "work", "show", "session", "evening", "--range", "yesterday")


async def test_a_session_continues_only_by_visible_calls(server: OperatorServer) -> None:
    """A person with restricted access does not learn that a session has calls of another team on the next day."""
    midnight = NOW.replace(hour=0, minute=0, second=0).timestamp()
    spent = (
        (-1800, "ours", "ads"),
        (1800, "ours", "ads"),
        (-1800, "mixed", "ads"),
        (1800, "mixed", "search"),
    )
    added = [
        call(number, at=midnight + s, session=session, team=team, cost="1", cost_source="reported")
        for number, (s, session, team) in enumerate(spent, start=50)
    ]
    await add(server.services.spool.log, *added)
    draft = NewRole(
        name="Ads",
        data_access=LIMITED,
        filters=(RoleFilter(dimension="team", values=("ads",)),),
        members=("eva@example.com",),
        permission_sets=("view_costs",),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(
        draft, known_dimensions=known, limits=RoleLimits(), actor=Actor(ADA, "tests")
    )
    eva = await signed_in(server, "none", "eva@example.com")
    path = "/report?by=session&range=yesterday"
    for rows, expected in (
        ((await server.over_http("GET", path, headers=eva)).payload["rows"], {"ours": True, "mixed": False}),
        ((await server.ask("GET", path)).payload["rows"], {"ours": True, "mixed": True}),
    ):
        found = {row["session"]: row["continues"] for row in rows}
        assert {server.as_shown("session", name): continues for name, continues in expected.items()} == found
    one = await server.over_http("GET", "/work/session/mixed?range=yesterday", headers=eva)
    assert one.payload["work"]["continues"] is False


async def command(server: OperatorServer, *arguments: str) -> str:
    called = partial(CliRunner().invoke, main, [*arguments, "--data", str(server.socket.parent)])
    done = await asyncio.to_thread(called)
    assert 0 == done.exit_code, done.output
    return done.output


async def test_sessions_of_a_user_may_be_hidden(server: OperatorServer) -> None:
    """With [work] people = false, no query combines sessions or runs with users. All other queries are answered."""
    server.services.money.ledger._work = replace(server.services.money.ledger._work, people=False)
    for path in (
        "/report?by=session,user",
        "/report?by=run&where=user=ada",
        "/report?by=user&where=session=first",
        "/report?by=user&unit=session&show=units",
        "/comparison?by=session&where=user!=ada",
    ):
        answer = await server.ask("GET", path)
        assert 400 == answer.status, path
        assert "people is false" in answer.payload["error"]["message"]
    for path in ("/report?by=session,team", "/report?by=pull_request,user", "/work/session/first"):
        assert 200 == (await server.ask("GET", path)).status, path


async def test_a_list_states_what_it_leaves_out(server: OperatorServer) -> None:
    """No session that is missing in a list costs more than the stated sum. A whole list states none."""
    assert (await asked(server, "by=session&top=1"))["report"]["other_units"] is None
    unlisted = unit_number_from_name_or_digest("session", server.as_shown("session", "first"))
    await server.storage.ledger._change_rows(lambda rows: rows.merge_units_into_other("session", [unlisted]))
    expected = {"calls": 3, "cost": "7"}
    for query in ("by=session&top=1", "by=session", "by=team&by=session", "by=session&per=daily"):
        assert expected == (await asked(server, query))["report"]["other_units"]
    answer = await asked(server, "by=session&where=pull_request=acme/shop%2343")
    assert {"calls": 1, "cost": "4"} == answer["report"]["other_units"]
    second = server.as_shown("session", "second")
    for query in (f"by=session&where=session={second}", "by=pull_request", "by=session&scope=aggregated"):
        assert (await asked(server, query))["report"]["other_units"] is None
    table = await server.ask("GET", "/report?by=session&format=csv")
    assert "3 7" == table.headers.get("Tollhouse-Other-Units")


async def test_a_csv_of_all_sessions_adds_up_to_the_total(server: OperatorServer) -> None:
    """A report lists 100 sessions and the sum of the others. The CSV with top=all has a row for each session."""
    calls = [
        call(100 + number, at=NOW.timestamp() - 3600, session=f"={number}", cost=f"{number}.01", cost_source="reported")
        for number in range(1, 131)
    ]  # fmt: skip
    await add(server.services.spool.log, *calls)
    total = (await asked(server, "by=session"))["total"]["cost"]
    for top, rows in (("", 102), ("&top=all", 133), ("&top=all&where=session!=first", 132)):
        answer = await server.ask("GET", f"/report?by=session&show=cost&format=csv{top}")
        assert answer.status == 200, answer.payload
        found = list(csv.DictReader(io.StringIO(answer.payload)))
        assert rows == len(found)
        assert "where" in top or Decimal(total) == sum(Decimal(row["cost"]) for row in found)
    refused = await server.ask("GET", "/report?by=session&top=all")
    assert (400, "top=all needs format=csv") == (refused.status, refused.payload["error"]["message"])


async def test_percentiles_of_units_are_exact(server: OperatorServer) -> None:
    """
    The median and the 95th percentile of the cost per run are those of all runs of a row, each with all its calls.
    Calls of runs that are no longer listed are stated next to them.
    """
    chance = random.Random(7)
    costs: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    calls = []
    for number in range(100, 400):
        team, run = chance.choice(("ads", "ml")), f"run-{chance.randrange(60)}"
        costs[team, run] += (cost := Decimal(chance.randrange(1, 10**6)).scaleb(-6))
        calls.append(
            call(number, at=NOW.timestamp() - 7200 - number, session="s", run=run, team=team, cost=str(cost),
                 cost_source="reported")
        )  # fmt: skip
    await add(server.services.spool.log, *calls)

    def ranked(amounts: list[Decimal], percent: int) -> Decimal:
        return sorted(amounts)[ceil(len(amounts) * percent / 100) - 1]

    query = "by=team&unit=run&show=units,cost_per_unit,median_per_unit,p95_per_unit&where=session=s"

    async def check(unlisted: set[str]) -> None:
        answer = await asked(server, query)
        listed: dict[str, dict[str, Decimal]] = {"ads": {}, "ml": {}}
        both: defaultdict[str, Decimal] = defaultdict(Decimal)
        for (team, run), cost in costs.items():
            if run not in unlisted:
                listed[team][run] = cost
                both[run] += cost
        rows = [*((listed[row["team"]], row) for row in answer["rows"]), (both, answer["total"])]
        assert 3 == len(rows)
        for expected, row in rows:
            amounts = [*expected.values()]
            assert (str(len(amounts)), ranked(amounts, 50), ranked(amounts, 95)) == (
                row["units"], Decimal(row["median_per_unit"]), Decimal(row["p95_per_unit"])
            )  # fmt: skip
        others = answer["report"]["other_units"]
        left_out = [cost for (_, run), cost in costs.items() if run in unlisted]
        assert sum(left_out) == (Decimal(others["cost"]) if others else 0)
        assert bool(left_out) == (others is not None)
        table = await server.ask("GET", f"/report?{query}&format=csv")
        assert [row["p95_per_unit"] for row in csv.DictReader(table.payload.splitlines())] == [
            row["p95_per_unit"] for row in answer["rows"]
        ]
        header = table.headers.get("Tollhouse-Other-Units")
        assert header == (f"{others['calls']} {others['cost']}" if others else None)

    await check(set())
    gone = {f"run-{number}" for number in range(0, 60, 3)}
    numbers = [
        unit_number_from_name_or_digest("run", server.as_shown("run", run, session="s")) for run in gone
    ]
    await server.storage.ledger._change_rows(lambda rows: rows.merge_units_into_other("run", numbers))
    await check(gone)
    refused = await server.ask("GET", "/report?unit=stream:orders&show=p95_per_unit")
    assert 400 == refused.status
    assert "use a dimension" in refused.payload["error"]["message"]


@pytest.mark.parametrize("unit", part([*UNITS], every=3))
async def test_calls_without_a_unit_have_a_row(server: OperatorServer, tmp_path: Path, unit: str) -> None:
    """Each list by unit has a row of calls without it, so that its rows add up to the total, in every form."""
    path = f"/report?by={unit}&show=cost,calls"
    answer = (await server.ask("GET", path)).payload
    [without] = [row for row in answer["rows"] if row[unit] is None]
    assert Decimal(without["cost"]) >= 16
    assert Decimal(answer["total"]["cost"]) == sum(Decimal(row["cost"]) for row in answer["rows"]) == 31
    rows = [*csv.DictReader(io.StringIO((await server.ask("GET", f"{path}&format=csv")).payload))]
    assert [without["cost"]] == [row["cost"] for row in rows if not row[unit]]
    changes = (await server.ask("GET", f"/comparison?by={unit}&range=last_7d")).payload["rows"]
    assert [without["cost"]] == [row["change"] for row in changes if row[unit] is None]
    words = ["report", "--by", unit, "--range", "this_month", "--data", str(tmp_path)]
    shown = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert 0 == shown.exit_code, shown.output
    [line] = [line for line in shown.stdout.splitlines() if line.startswith(f"(no {unit.replace('_', ' ')})")]
    assert f"${without['cost']}.00" in line


async def test_the_command_shows_how_many_units_are_listed(server: OperatorServer, tmp_path: Path) -> None:
    words = ["work", "status", "--data", str(tmp_path)]
    shown = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert 0 == shown.exit_code, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["session", "2", "100,000", "0"] in lines
    assert ["run", "3", "100,000", "0"] in lines
    assert ["0", "of", "10,000", "links"] in lines
    assert ["0", "of", "200,000", "spans"] in [line[:4] for line in lines]


async def test_the_command_shows_percentiles_per_run(server: OperatorServer, tmp_path: Path) -> None:
    """
    The command shows percentiles of the cost per run, here of runs that cost $2, $4 and $8. If a run is no longer
    listed, the command says what is left out.
    """
    measures = "units,cost_per_unit,median_per_unit,p95_per_unit"
    words = ["report", "--by", "source", "--unit", "run", "--show", measures, "--data", str(tmp_path)]
    shown = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert 0 == shown.exit_code, shown.output
    assert ["3", "$4.6667", "$4.0000", "$8.0000"] == shown.stdout.splitlines()[-1].split()[-4:]
    assert "no longer listed" not in shown.stderr
    number = unit_number_from_name_or_digest("run", server.as_shown("run", "a", session="second"))
    await server.storage.ledger._change_rows(lambda rows: rows.merge_units_into_other("run", [number]))
    shown = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert ["2", "$3.0000", "$2.0000", "$4.0000"] == shown.stdout.splitlines()[-1].split()[-4:]
    assert "no longer listed have 1 calls and cost 8" in shown.stderr


async def test_a_quarter_has_92_days_in_every_zone(server: OperatorServer) -> None:
    """A quarter in which clocks change is an hour longer than 92 times 24 hours, and is answered."""
    for query in ("from=2025-10-01&to=2025-12-31", "from=2026-01-01&to=2026-03-31"):
        answer = await server.ask("GET", f"/report?by=session&{query}&tz=Europe/Berlin&compare=previous")
        assert 200 == answer.status, answer.payload
