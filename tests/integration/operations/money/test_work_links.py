"""Links of sessions, branches and commits: over the operator API, by command, and who may add them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.operations.money.work_links.declared import WorkLinkTable, expire_links, follow_links
from spool.installation import FILE
from spool.ledger.work import OTHER, WorkUnitHasher, unit_number_from_name_or_digest
from spool.ledger.work_links import WorkUnitLinks
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.money.test_units_of_work import command
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call
from tests.waiting import until

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
DAY_S = 86_400
ROOT = Actor("root@example.com", "tests")
EVA = "eva@example.com"
SHOP = {"repository": "acme/shop", "branch": "fix"}
# Each row has the days before NOW, session, tags, team and cost.
SPENT: tuple[tuple[int, str | None, dict[str, str], str, str], ...] = (
    (0, "first", {}, "search", "1"),
    (0, "first", {"pull_request": "acme/shop#7"}, "search", "2"),
    (0, "second", SHOP, "search", "4"),
    (9, "second", SHOP, "search", "8"),
    (0, "third", {**SHOP, "repository": "acme/other"}, "search", "16"),
    (0, None, {"commit": "c0ffee", "ticket": "T-1"}, "search", "32"),
    (0, None, {}, "ads", "64"),
    (0, "first", {}, "ads", "128"),
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    calls = [
        call(
            number,
            at=NOW.timestamp() - 7200 - days * DAY_S,
            session=session,
            tags=tags,
            team=team,
            cost=cost,
            cost_source="reported",
        )
        for number, (days, session, tags, team, cost) in enumerate(SPENT)
    ]
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, *calls)
        yield server


async def costs(server: OperatorServer, by: str, more: str = "") -> dict[str | None, str]:
    answer = await server.ask("GET", f"/report?by={by}&range=last_30d{more}")
    assert 200 == answer.status, answer.payload
    return {row[by]: row["cost"] for row in answer.payload["rows"]}


async def listed(server: OperatorServer, query: str) -> list[str]:
    """Return the costs of the calls that a list of records shows."""
    answer = await server.ask("GET", f"/records?{query}")
    assert 200 == answer.status, answer.payload
    return sorted((row["cost"] for row in answer.payload["records"]), key=int)


async def link(server: OperatorServer, **fields: str) -> dict[str, Any]:
    answer = await server.ask("POST", "/work/links", fields)
    assert 201 == answer.status, answer.payload
    row: dict[str, Any] = answer.payload["work_link"]
    return row


async def test_a_link_acts_on_calls_that_state_nothing(server: OperatorServer) -> None:
    """
    Past calls are linked at once, and later ones too. A call keeps the pull request that it states. After the link is
    deleted, each sum is as before.
    """
    before = await costs(server, "pull_request")
    assert before == {"acme/shop#7": "2", None: "253"}
    made = await link(server, session="first", pull_request="acme/shop#42")
    assert made["session"] == server.as_shown("session", "first")
    assert await costs(server, "pull_request") == {"acme/shop#7": "2", "acme/shop#42": "129", None: "124"}
    assert await costs(server, "session", "&where=pull_request=acme/shop%2342") == {
        server.as_shown("session", "first"): "129"
    }
    later = call(100, at=NOW.timestamp() - 60, session="first", cost="256", cost_source="reported")
    await add(server.services.spool.log, later)
    assert (await costs(server, "pull_request"))["acme/shop#42"] == "385"
    assert 200 == (await server.ask("DELETE", f"/work/links/{made['id']}")).status
    assert await costs(server, "pull_request") == {**before, None: "509"}


async def test_a_branch_is_cut_by_days(server: OperatorServer) -> None:
    """A branch belongs to one repository, and its name may be used again after the last day of a link."""
    for since, last, number in (("", "2026-09-14", "1"), ("2026-09-15", "", "2")):
        row = await link(server, **SHOP, since=since, until=last, pull_request=number)
        assert row["pull_request"] == f"acme/shop#{number}"
    assert await costs(server, "pull_request") == {
        "acme/shop#1": "8",
        "acme/shop#2": "4",
        "acme/shop#7": "2",
        None: "241",
    }
    conflict = await server.ask(
        "POST", "/work/links", {**SHOP, "since": "2026-09-14", "until": "2026-09-14", "pull_request": "3"}
    )
    assert conflict.status == 409
    assert "branch fix of acme/shop is already linked to acme/shop#1" in conflict.error[2]
    assert (await server.ask("GET", "/work/links?pull_request=acme/shop%232")).payload["work_links"][0][
        "since"
    ] == "2026-09-15"


async def test_the_narrowest_link_decides(server: OperatorServer) -> None:
    """A session is narrower than a branch. The ticket of a call is linked apart from its pull request."""
    await link(server, **SHOP, pull_request="1")
    await link(server, session="second", pull_request="acme/shop#2")
    await link(server, commit="c0ffee", ticket="T-2")
    await link(server, commit="c0ffee", pull_request="acme/shop#3")
    found = await costs(server, "pull_request")
    assert ("12", "32", None) == (found["acme/shop#2"], found["acme/shop#3"], found.get("acme/shop#1"))
    assert await costs(server, "ticket") == {"T-1": "32", None: "223"}


async def test_lists_of_calls_show_the_linked_calls(server: OperatorServer) -> None:
    """The filter of the list finds the calls of which the cost consists, also as an exclusion."""
    await link(server, session="first", pull_request="acme/shop#42")
    await link(server, **SHOP, until="2026-09-14", pull_request="acme/shop#42")
    assert (await costs(server, "pull_request"))["acme/shop#42"] == "137"
    for more in ("", "&sort_key=cost&range=last_30d"):
        assert ["1", "8", "128"] == await listed(server, f"pull_request=acme/shop%2342{more}")
        assert ["2"] == await listed(server, f"pull_request=acme/shop%237{more}")
        assert ["4", "16", "32", "64"] == await listed(server, f"pull_request={more}")
        assert ["2", "4", "16", "32", "64"] == await listed(server, f"pull_request!=acme/shop%2342{more}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of session, branch, commit and run"),
        ({"session": "s", "commit": "c", "ticket": "T"}, "exactly one of session, branch, commit and run"),
        ({"session": "s"}, "exactly one of pull_request, ticket, parent_session and parent_run"),
        (
            {"session": "s", "ticket": "T", "pull_request": "p"},
            "exactly one of pull_request, ticket, parent_session and parent_run",
        ),
        ({"branch": "b", "ticket": "T"}, "branch and repository belong together"),
        ({"session": "s", "repository": "r", "ticket": "T"}, "branch and repository belong together"),
        ({"session": "s", "ticket": "T", "since": "2026-09-01"}, "apply only to a branch"),
        ({**SHOP, "ticket": "T", "since": "soon"}, "since must be a day"),
        ({**SHOP, "ticket": "T", "since": "2026-09-02", "until": "2026-09-01"}, "must not be after"),
        ({**SHOP, "repository": "ada:secret@example.com", "ticket": "T"}, "repository must be a name"),
        ({"session": "s", "ticket": "a\nb"}, "printable"),
        ({"session": "s" * 257, "ticket": "T"}, "1 to 256"),
        ({"session": 1, "ticket": "T"}, "session"),
        ({"run": "a" * 32, "ticket": "T"}, "a run can be linked only to its parent_run"),
        ({"run": "r", "parent_run": "a" * 32}, "run must be the digest that costs show"),
        ({"run": "a" * 32, "parent_run": "p"}, "parent_run must be the digest that costs show"),
        ({"session": "s", "parent_run": "a" * 32}, "only a run can have a parent_run"),
        ({"commit": "c", "parent_session": "s"}, "only a session can have a parent_session"),
        ({"session": "s", "parent_session": "s"}, "this session would then be above itself"),
        ({"run": "a" * 32, "parent_run": "a" * 32}, "this run would then be above itself"),
        ({"session": "s", "parent_session": "p", "since": "2026-09-01"}, "apply only to a branch"),
    ],
)
async def test_what_is_wrong_is_named(server: OperatorServer, body: dict[str, Any], words: str) -> None:
    answer = await server.ask("POST", "/work/links", body)
    assert answer.status == 400
    assert words in answer.error[2]


async def aggregated(server: OperatorServer, by: str) -> dict[str | None, str]:
    return await costs(server, by, "&scope=aggregated")


async def test_a_session_includes_the_sessions_that_it_started(server: OperatorServer) -> None:
    """
    A linked session counts with the one that started it, with its past and later calls. Own costs and the total do not
    change. A circle is refused. After the link is deleted, each sum is as before.
    """
    first, second, third = (server.as_shown("session", name) for name in ("first", "second", "third"))
    own, before = await costs(server, "session"), await aggregated(server, "session")
    assert (own[first], own[second], own[third]) == ("131", "12", "16")
    made = await link(server, session="second", parent_session="first")
    assert (second, first) == (made["session"], made["parent_session"])
    below = await link(server, session="third", parent_session=second)
    assert {**before, first: "159", second: "28"} == await aggregated(server, "session")
    assert own == await costs(server, "session")
    later = call(100, at=NOW.timestamp() - 60, session="third", cost="256", cost_source="reported")
    await add(server.services.spool.log, later)
    assert {first: "415", second: "284", third: "272"}.items() <= (
        await aggregated(server, "session")
    ).items()
    for child, parent in (("first", "third"), ("first", "first")):
        answer = await server.ask("POST", "/work/links", {"session": child, "parent_session": parent})
        assert (400, True) == (answer.status, "would then be above itself" in answer.error[2])
    answer = await server.ask("POST", "/work/links", {"session": "third", "parent_session": "first"})
    assert (409, True) == (answer.status, f"already linked to {second}" in answer.error[2])
    answer = await server.ask("PATCH", f"/work/links/{made['id']}", {"parent_session": "third"})
    assert 400 == answer.status
    page = (await server.ask("GET", "/work/session/first?range=last_30d")).payload
    assert ("131", "415") == (page["own"]["cost"], page["aggregated"]["cost"])
    assert [(second, "12", "284")] == [
        (row["session"], row["own"]["cost"], row["aggregated"]["cost"]) for row in page["started_sessions"]
    ]
    printed = await command(server, "work", "show", "session", "first", "--range", "last_30d")
    assert ["$12.00", "$284.00"] == next(
        line for line in printed.splitlines() if f"session {second}" in line
    ).split()[-2:], printed
    page = (await server.ask("GET", "/work/session/third?range=last_30d")).payload
    assert ([{"session": second}, {"session": first}], []) == (page["started_by"], page["started_sessions"])
    for row in (made, below):
        assert 200 == (await server.ask("DELETE", f"/work/links/{row['id']}")).status
    assert {**before, third: "272"} == await aggregated(server, "session")
    page = (await server.ask("GET", "/work/session/first?range=last_30d")).payload
    assert ("131", []) == (page["aggregated"]["cost"], page["started_sessions"])


async def test_a_run_includes_the_runs_that_it_started(server: OperatorServer) -> None:
    """
    A linked run is in the tree of the run that started it, with the runs below it. A run that states its parent keeps
    it. A run without calls can be a parent as well.
    """
    lead, helper, deep, silent = (f"{number:032x}" for number in range(1, 5))
    runs = ((lead, None, "512"), (helper, None, "1024"), (deep, helper, "2048"))
    added = [
        call(place, at=NOW.timestamp() - 60, run=run, parent_run=parent, cost=cost, cost_source="reported")
        for place, (run, parent, cost) in enumerate(runs, start=50)
    ]
    await add(server.services.spool.log, *added)
    a, b, c, d = (server.as_shown("run", run) for run in (lead, helper, deep, silent))
    await link(server, run=helper, parent_run=a)
    await link(server, run=deep, parent_run=lead)  # this run states another parent itself
    await link(server, run=lead, parent_run=silent)
    assert {d: "3584", a: "3584", b: "3072", c: "2048"}.items() <= (await aggregated(server, "run")).items()
    for id in (lead, silent):
        page = (await server.ask("GET", f"/work/run/{id}?range=last_30d")).payload
        rows = [(row["run"], row["parent"], row["aggregated"]["cost"]) for row in page["runs"]]
        below = [(a, None if id == lead else d, "3584"), (b, a, "3072"), (c, b, "2048")]
        assert below == (rows if id == lead else rows[1:])
        assert "3584" == page["aggregated"]["cost"]
    page = (await server.ask("GET", f"/work/run/{deep}?range=last_30d")).payload
    assert [b, a, d] == [row["run"] for row in page["started_by"]]
    answer = await server.ask("POST", "/work/links", {"run": silent, "parent_run": helper})
    assert (400, True) == (answer.status, "this run would then be above itself" in answer.error[2])


async def test_odd_but_valid_links_are_stored(server: OperatorServer) -> None:
    """The largest texts and days work, and so does an id that looks like a digest but is none."""
    await link(server, **SHOP, ticket="T" * 256, since="0001-01-01", until="9999-12-31")
    await link(server, session="f" * 16, ticket="T")
    await link(server, session="(other)", ticket="T")
    assert await costs(server, "ticket") == {"T" * 256: "12", "T-1": "32", None: "211"}


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": OTHER, "ticket": "T"},
        {"session": "first", "ticket": OTHER},
        {"commit": "c0ffee", "pull_request": OTHER},
        {"branch": OTHER, "repository": "acme/shop", "ticket": "T"},
        {"branch": "fix", "repository": OTHER, "ticket": "T"},
    ],
)
async def test_no_link_names_the_units_that_are_not_listed(
    server: OperatorServer, fields: dict[str, str]
) -> None:
    """
    A link to the units that are no longer listed is refused, because it would move the cost of all of them, or add
    to it.
    """
    answer = await server.ask("POST", "/work/links", fields)
    assert 400 == answer.status
    assert [] == (await server.ask("GET", "/work/links")).payload["work_links"]


async def test_a_repeated_link_is_the_same_link(server: OperatorServer) -> None:
    """If a job sends a link again, it gets the same link, and the audit list has one row."""
    first = await link(server, session="first", ticket="T")
    assert first == await link(server, session=server.as_shown("session", "first"), ticket="T")
    rows = (await server.ask("GET", "/audit")).payload["audit"]
    assert ["work_link.create"] == [row["action"] for row in rows if row["action"].startswith("work_link")]
    changed = await server.ask("PATCH", f"/work/links/{first['id']}", {"ticket": "U"})
    assert changed.payload["work_link"]["ticket"] == "U"
    assert (await costs(server, "ticket"))["U"] == "131"


async def test_a_job_may_state_the_last_day_later(server: OperatorServer) -> None:
    """The same link with other days replaces the days. A branch that is linked to another pull request stays linked."""
    first = await link(server, **SHOP, pull_request="1")
    second = await link(server, **SHOP, since="2026-09-01", until="2026-09-14", pull_request="1")
    assert first["id"] == second["id"]
    await link(server, **SHOP, since="2026-09-15", pull_request="2")
    answer = await server.ask("POST", "/work/links", {**SHOP, "pull_request": "1"})
    assert (409, True) == (answer.status, "already linked to acme/shop#2" in answer.error[2])
    found = await costs(server, "pull_request")
    assert ("8", "4") == (found["acme/shop#1"], found["acme/shop#2"])


@pytest.mark.parametrize(
    ("unit", "fields"),
    [
        ("session", {"session": "first", "ticket": "T"}),
        ("session", {"session": "second", "parent_session": "first"}),
        ("repository", {**SHOP, "ticket": "T"}),
    ],
)
async def test_no_link_names_a_unit_that_is_no_longer_listed(
    server: OperatorServer, unit: str, fields: dict[str, str]
) -> None:
    """
    A session that is no longer listed can neither be linked nor be the parent of another, and a branch needs a listed
    repository. The calls of such a unit are in one sum with those of others, and the refusal says so.
    """
    await costs(server, "session")  # this query counts the calls
    text = SHOP["repository"] if unit == "repository" else server.as_shown("session", "first")
    await server.storage.ledger._change_rows(
        lambda rows: rows.merge_units_into_other(unit, [unit_number_from_name_or_digest(unit, text)])
    )
    answer = await server.ask("POST", "/work/links", fields)
    assert answer.status == 409
    assert f"this {unit} is one of the units in `(other)`" in answer.error[2]


async def test_who_may_link(server: OperatorServer) -> None:
    """
    A person with restricted access sees the cost of a link only in their own calls, and may neither list nor add links.
    """
    body = {"session": "first", "ticket": "T"}
    row = await link(server, **body)
    draft = NewRole(
        name="Ads",
        data_access=LIMITED,
        filters=(RoleFilter(dimension="team", values=("ads",)),),
        members=(EVA,),
        permission_sets=("view_costs", "view_records", "modify_dimension_definitions"),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    eva = await signed_in(server, "none", EVA)
    for method, path, sent in (
        ("GET", "/work/links", None),
        ("POST", "/work/links", {"session": "second", "ticket": "T"}),
        ("PATCH", f"/work/links/{row['id']}", {"ticket": "U"}),
        ("DELETE", f"/work/links/{row['id']}", None),
    ):
        assert 403 == (await server.over_http(method, path, sent, headers=eva)).status
    own = await server.over_http("GET", "/report?by=ticket&range=last_30d", headers=eva)
    assert {"T": "128", None: "64"} == {row["ticket"]: row["cost"] for row in own.payload["rows"]}


async def test_lost_and_foreign_changes_reach_the_totals(server: OperatorServer) -> None:
    """Links that another gateway stored, or that the totals lost, are used without a further request."""
    table, ledger = server.registry.declared_table(WorkLinkTable), server.storage.ledger
    await table.create(
        table.draft(session=server.as_shown("session", "first"), ticket="T"), max_rows=None, actor=ROOT
    )
    assert "T" not in await costs(server, "ticket")
    following = asyncio.create_task(follow_links(ledger, server.registry))
    try:
        await until(lambda: _has(server, "T"))
        await table.create(
            table.draft(session=server.as_shown("session", "second"), ticket="U"), max_rows=None, actor=ROOT
        )
        await until(lambda: _has(server, "U"))
    finally:
        following.cancel()
    await ledger.apply_links(
        WorkUnitLinks()
    )  # the ledger then has no links, as after the totals were replaced
    assert not await _has(server, "T")
    following = asyncio.create_task(follow_links(ledger, server.registry))
    try:
        await until(lambda: _has(server, "T"))
    finally:
        following.cancel()


async def test_expired_links_are_deleted(server: OperatorServer) -> None:
    """
    A link whose pull request had no calls for `work.retention_units` is deleted. A link with later calls stays, and so
    does each link if the totals do not reach back that far.
    """
    table, ledger = server.registry.declared_table(WorkLinkTable), server.storage.ledger
    old = await link(server, session="first", ticket="old")
    busy = await link(server, session="second", ticket="busy")
    unused = await link(server, session="nobody", ticket="unused")
    fork = await link(server, session="second", parent_session="first")
    old_fork = await link(server, session="first", parent_session="nobody")
    await ledger.catch_up(server.storage.log)
    await expire_links(ledger, table)
    assert 5 == table.count()
    server.clock.move(400 * DAY_S)
    new = await link(server, session="new", ticket="new")
    now = server.clock.now() - 60
    await add(server.storage.log, call(200, at=now, session="second"), call(201, at=now))
    await ledger.catch_up(server.storage.log)
    await expire_links(ledger, table)
    assert {busy["id"], new["id"], fork["id"]} == {row.id for row in table.all()}
    await follow_once(server)
    rows = (await server.ask("GET", "/audit")).payload["audit"]
    gone = {row["target"]: row["actor"] for row in rows if row["action"] == "work_link.delete"}
    expired = (old["id"], unused["id"], old_fork["id"])
    assert gone == dict.fromkeys(expired, "work.retention_units")


async def follow_once(server: OperatorServer) -> None:
    """Let the background task run until the totals use the stored links."""
    table, ledger = server.registry.declared_table(WorkLinkTable), server.storage.ledger
    following = asyncio.create_task(follow_links(ledger, server.registry))

    async def is_used() -> bool:
        state = await ledger._read_rows(lambda rows: rows.state_values())
        return state.get("links", 0) == table.unit_links.data_version

    try:
        await until(is_used)
    finally:
        following.cancel()


async def _has(server: OperatorServer, ticket: str) -> bool:
    return ticket in await costs(server, "ticket")


async def test_by_command(tmp_path: Path) -> None:
    """
    Links of units of work are added, listed and deleted by command without a server. A wrong link ends the command
    with an error.
    """

    async def run(*words: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, main, ["work", *words, "--data", str(tmp_path)])

    linked = await run("link", "--session", "first", "--pull-request", "acme/shop#42", "--json")
    assert 0 == linked.exit_code, linked.output
    id = orjson.loads(linked.stdout)["work_link"]["id"]
    digests = WorkUnitHasher((tmp_path / FILE).read_bytes())
    first, fork = (digests.digest_of_id("session", name) for name in ("first", "fork"))
    window = ("--from", "2026-09-01", "--until", "2026-09-30")
    branch = await run(
        "link", "--branch", "fix", "--repository", "acme/shop", *window, "--pull-request", "42"
    )
    assert 0 == branch.exit_code, branch.output
    shown = (await run("links")).stdout
    assert first in shown and "2026-09-30" in shown
    forked = await run("link", "--session", "fork", "--parent-session", "first")
    assert 0 == forked.exit_code, forked.output
    assert fork in (await run("links", "--parent-session", first)).stdout
    started = await run("link", "--run", "a" * 32, "--parent-run", "b" * 32)
    assert 0 == started.exit_code, started.output
    wrong = await run("link", "--branch", "fix", "--ticket", "T")
    assert 2 == wrong.exit_code
    assert "branch and repository belong together" in wrong.stderr
    assert f"link {id} deleted" in (await run("unlink", id)).stdout
    assert id not in (await run("links")).stdout
