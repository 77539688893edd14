"""Roles for operators: the operator API, previews, and who may change what."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from spool.registry.operators import Person
from spool.registry.permission_sets import PERMISSION_SETS
from tests.integration.operations.server import ADA, INGEST, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
SPENT = (
    ("search", "o3", 0, "1"),
    ("search", "gpt-4o", 20, "2"),
    ("ads", "o3", 0, "4"),
    ("search", "o3", 40, "8"),
)
BOB, PASSWORD = "bob@example.com", "correct horse battery"
NEW = {
    "name": "Search & co",
    "data_access": "limited",
    "filters": [{"dimension": "team", "values": ["search"]}],
    "permission_sets": ["view_costs"],
    "members": [BOB],
}

Run = Callable[..., str]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    now = NOW.timestamp()
    async with operator_server(tmp_path, clock=MovedClock(now)) as server:
        calls = [
            call(
                number,
                at=now - days * 86400,
                team=team,
                request_model=model,
                cost=cost,
                cost_source="reported",
            )
            for number, (team, model, days, cost) in enumerate(SPENT)
        ]
        await add(server.services.spool.log, *calls)
        yield server


async def signed_in(server: OperatorServer, email: str, role: str) -> dict[str, str]:
    await server.ask("POST", "/operators", {"email": email, "password": PASSWORD, "role": role})
    answer = await server.over_http("POST", "/sessions", {"email": email, "password": PASSWORD})
    assert 201 == answer.status, answer.payload
    return {
        "Cookie": f"tollhouse={answer.cookies['tollhouse'].value}",
        "X-CSRF-Token": answer.payload["session"]["csrf_token"],
    }


async def preview(server: OperatorServer, **given: Any) -> dict[str, Any]:
    answer = await server.ask("POST", "/roles/preview", given)
    assert 200 == answer.status, answer.payload
    found: dict[str, Any] = answer.payload["preview"]
    return found


async def test_the_life_of_a_role(server: OperatorServer) -> None:
    """A role is addressed by id or name. Rules and fields are those of the API for keys."""
    made = (await server.ask("POST", "/roles", NEW)).payload["role"]
    assert made == (await server.ask("GET", f"/roles/{made['id']}")).payload["role"]
    changed = await server.ask("PATCH", "/roles/SEARCH%20&%20co", {"description": "What search spends"})
    assert (made["id"], "What search spends") == tuple(
        changed.payload["role"][each] for each in ("id", "description")
    )
    listed = await server.ask("GET", "/roles", is_builtin="false")
    assert [changed.payload["role"]] == listed.payload["roles"]
    assert (409, "already_exists") == (await server.ask("POST", "/roles", NEW)).error[:2]
    assert (400, "invalid") == (await server.ask("POST", "/roles", {**NEW, "name": ""})).error[:2]
    assert BOB in (await server.ask("DELETE", f"/roles/{made['id']}")).error[2]
    await server.ask("PATCH", f"/roles/{made['id']}", {"members": []})
    assert {"deleted": made["id"]} == (await server.ask("DELETE", f"/roles/{made['id']}")).payload
    assert (404, "not_found") == (await server.ask("GET", "/roles/search")).error[:2]
    assert len(PERMISSION_SETS) == len(
        (await server.ask("GET", "/permission-sets")).payload["permission_sets"]
    )


async def test_a_preview_says_what_a_person_sees_now(server: OperatorServer) -> None:
    """
    The preview shows rights, allowed addresses, values, and costs of the last 30 days within the filters. The
    test recounts them.
    """
    await server.ask("POST", "/roles", NEW)
    seen = await preview(server, person=BOB.upper())
    assert (BOB, "none", ["Search & co"], "limited") == tuple(
        seen[each] for each in ("person", "account_role", "roles", "data_access")
    )
    assert [[{"dimension": "team", "values": ["search"], "mode": "is"}]] == seen["filters"]
    assert [{"id": "view_costs", "name": "View Costs"}] == seen["permission_sets"]
    opened = {f"{each['method']} {each['path']}" for each in seen["calls"]}
    assert {"GET /report"} == opened & {
        "GET /report",
        "GET /keys",
        "POST /views",
        "GET /session",
        "POST /sessions",
    }
    values = {each["dimension"]: each for each in seen["dimensions"]}
    assert [{"value": "search", "cost": "3", "calls": 2}] == values["team"]["values"]
    assert ["gpt-4o", "o3"] == [each["value"] for each in values["model_family"]["values"]]
    assert ("3", 2, "USD") == tuple(seen["total"][each] for each in ("cost", "calls", "currency"))
    everything = await preview(server, person=BOB, account_role="viewer")
    assert everything["roles"] == ["Member", "Search & co"]
    assert everything["data_access"] == "full"
    assert everything["total"]["cost"] == "7"


async def test_draft_is_previewed_without_being_stored(server: OperatorServer) -> None:
    """
    A draft is previewed for nobody, for a person in addition to their roles, or in place of the role that
    it would change.
    """
    made = (await server.ask("POST", "/roles", NEW)).payload["role"]
    draft = {
        "name": "",
        "data_access": "limited",
        "filters": [{"dimension": "team", "values": ["search"], "mode": "except"}],
    }
    alone = await preview(server, role=draft)
    assert alone["person"] is None
    assert alone["roles"] == ["Draft"]
    assert alone["total"]["cost"] == "4"
    assert alone["calls"] == []
    both = await preview(server, role=draft, person=BOB)
    assert both["roles"] == ["Draft", "Search & co"]
    assert both["total"]["cost"] == "7"
    instead = await preview(server, role=draft, person=BOB, replaces=made["id"])
    assert instead["roles"] == ["Draft"]
    assert instead["total"]["cost"] == "4"
    assert [made] == (await server.ask("GET", "/roles", is_builtin="false")).payload["roles"]
    nothing = await preview(server, person="eve@example.com")
    assert nothing["data_access"] == "none"
    assert nothing["total"]["cost"] == "0"
    assert [each["values"] for each in nothing["dimensions"]] == [[]] * 5


async def test_a_group_is_previewed(server: OperatorServer) -> None:
    """
    A group's preview shows what its roles give to everybody. A person's preview uses the groups of
    the latest sign-in.
    """
    await server.ask("POST", "/roles", {**NEW, "members": [], "groups": ["finance"]})
    assert ["Search & co"] == (await preview(server, groups=["finance"]))["roles"]
    person = Person(
        email=BOB, role="viewer", decides_role=True, issuer="https://idp", subject="b", groups=("finance",)
    )
    sign_in: Any = {"address": "here", "life_s": 600.0, "takes_over_accounts": False}
    await server.registry.operators.sign_in_person(person, **sign_in)
    seen = await preview(server, person=BOB)
    assert seen["groups"] == ["finance"]
    assert seen["account_role"] == "none"
    assert seen["roles"] == ["Search & co"]
    seen = await preview(server, person=BOB, groups=[])
    assert seen["groups"] == []
    assert seen["roles"] == []


NO_PREVIEW: Sequence[tuple[Any, int, str]] = [
    ({}, 400, "name a person"),
    ({"person": "bob"}, 400, "e-mail address"),
    ({"person": BOB, "account_role": "king"}, 400, "none, viewer"),
    ({"person": BOB, "replaces": "x"}, 400, "`replaces` names the role that a draft replaces"),
    ({"role": {"name": "x", "data_access": "full"}, "replaces": "nobody"}, 404, "no role"),
    ({"role": {"name": "x", "data_access": "limited"}}, 400, "at least one filter"),
    ({"role": {**NEW, "filters": [{"dimension": "colour", "values": ["red"]}]}}, 400, "Use one of: "),
]


async def test_what_cannot_be_previewed(server: OperatorServer) -> None:
    """If a preview is impossible, the message names the field and the rule."""
    for given, status, said in NO_PREVIEW:
        answer = await server.ask("POST", "/roles/preview", given)
        assert answer.status == status, answer.payload
        assert said in answer.error[2], answer.payload


async def test_the_values_of_a_preview_are_bounded(server: OperatorServer) -> None:
    """
    The preview has the twenty most expensive values of each dimension, and the number that it leaves out.
    """
    calls = [
        call(
            100 + number,
            at=NOW.timestamp(),
            team="search",
            user=f"u{number}",
            cost=str(number),
            cost_source="reported",
        )
        for number in range(30)
    ]
    await add(server.services.spool.log, *calls)
    users = next(each for each in (await preview(server, person=ADA, account_role="viewer"))["dimensions"]
                 if each["dimension"] == "user")  # fmt: skip
    assert len(users["values"]) == 20
    assert users["values"][0]["value"] == "u29"
    assert users["left_out"] > 0


@pytest.mark.proves("A person who manages keys creates one that changes roles")
async def test_keys_that_change_roles_need_administration(server: OperatorServer) -> None:
    """
    A person who manages only keys can neither create nor take over a key that could give them more rights.
    The 403 names the missing right.
    """
    role = {
        "name": "Keys",
        "data_access": "full",
        "permission_sets": ["api_key_management"],
        "members": [BOB],
    }
    made = (await server.ask("POST", "/roles", role)).payload["role"]
    await server.create("roles", scopes=["access-control:create_role"])
    bobs = await signed_in(server, BOB, "none")

    async def tried() -> list[int]:
        calls: list[tuple[str, str, Any]] = [
            ("POST", "/keys", {"name": "mine", "scopes": ["access-control:update_role"]}),
            ("PATCH", "/keys/telemetry", {"scopes": ["access-control:create_role"]}),
            ("PATCH", "/keys/roles", {"description": "mine"}),
            ("POST", "/keys/roles/rotate", {}),
            ("POST", "/keys/roles/enable", None),
        ]
        answers = [await server.over_http(method, path, body, headers=bobs) for method, path, body in calls]
        assert all("Organization Administration" in each.error[2] for each in answers if each.status == 403)
        return [each.status for each in answers]

    answer = await server.over_http("POST", "/keys", {"name": "telemetry", "scopes": [INGEST]}, headers=bobs)
    assert 201 == answer.status
    assert [403] * 5 == await tried()
    more = {"permission_sets": ["api_key_management", "organization_administration"]}
    await server.ask("PATCH", f"/roles/{made['id']}", more)
    assert [201, 200, 200, 200, 200] == await tried()


async def test_a_preview_of_a_limited_person_lists_what_is_open(server: OperatorServer) -> None:
    """Addresses about all calls are closed to a limited person, whatever the permission sets."""
    await server.ask("POST", "/roles", {**NEW, "permission_sets": ["view_costs", "view_operation"]})
    bobs = await signed_in(server, BOB, "none")
    seen = await preview(server, person=BOB)
    opened = {each["path"] for each in seen["calls"] if each["method"] == "GET" and "{" not in each["path"]}
    closed = {"/status", "/keys", "/dead", "/report", "/views"} - opened
    assert {"/status", "/keys", "/dead"} == closed
    for path in ("/status", "/keys", "/dead", "/report", "/views"):
        answer = await server.over_http("GET", path, headers=bobs)
        assert (403 if path in closed else 200) == answer.status, path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on a data directory that no server uses."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()

    def command(*words: str, code: int = 0, input: str | None = None) -> str:
        result = CliRunner().invoke(main, [*words, "--data", str(tmp_path / "store")], input=input)
        assert code == result.exit_code, (result.output, result.exception)
        return result.stderr if code else result.stdout

    return command


def test_a_limited_role_names_accounts_that_show_more(run: Run, tmp_path: Path) -> None:
    """
    A limited role does not limit accounts whose own role shows more, so a warning names these accounts. It is given
    when the role is created or changed, and when an account gets another role. A new account shows no more.
    """

    def told(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, "--data", str(tmp_path / "store")], input=PASSWORD + "\n")
        assert 0 == result.exit_code, result.output
        return result.stderr

    def role_of(email: str) -> str:
        rows = json.loads(run("operators", "list", "--json"))["operators"]
        return str(next(row["role"] for row in rows if row["email"] == email))

    assert "sees everything" not in told("operators", "create", BOB)
    assert "viewer" == role_of(BOB)
    warning = f"{BOB} has the account role Member and therefore sees everything. To limit it: tollhouse operators edit"
    assert warning in told("roles", "create", *SEARCH, "--member", BOB)
    assert warning in told("roles", "edit", "Search", "--description", "those of search")
    assert "" == told("operators", "edit", BOB, "--role", "none")
    assert "" == told("roles", "edit", "Search", "--description", "search")
    assert f"{BOB} has the account role Operator" in told("operators", "edit", BOB, "--role", "operator")
    assert "" == told("roles", "create", "--name", "All", "--data-access", "full", "--member", BOB)
    assert "" == told("operators", "create", "eve@example.com")
    assert "none" == role_of("eve@example.com")
    assert "" == told("operators", "create", "max@example.com", "--role", "admin")
    assert "admin" == role_of("max@example.com")


SEARCH = ("--name", "Search", "--where", "team=search", "--where", "team=", "--where", "model!=o3")


def test_roles_have_a_command(run: Run) -> None:
    """Commands cover the whole life of a role. Filters are written as for views."""
    made = json.loads(
        run("roles", "create", *SEARCH, "--member", BOB, "--permission-set", "view_costs", "--json")
    )["role"]
    assert made["data_access"] == "limited"
    assert made["members"] == [BOB]
    assert made["permission_sets"] == ["view_costs"]
    assert [
        {"dimension": "team", "mode": "is", "values": ["search", None]},
        {"dimension": "model", "mode": "except", "values": ["o3"]},
    ] == made["filters"]
    assert {"Member", "Search"} <= set(run("roles", "list").split())
    changed = run("roles", "edit", "Search", "--description", "those of search")
    assert (
        f"changed role Search (id {made['id']}): shows calls with team=search, team=, model!=o3; permission sets "
        f"view_costs; members {BOB}\n"
    ) == changed
    new = run("roles", "create", "--name", "Everything", "--data-access", "full")
    assert re.fullmatch(r"created role Everything \(id .+\): shows all calls; nobody has it yet\n", new)
    run("roles", "delete", "Everything")
    assert "api_key_management" in run("roles", "permission-sets")
    assert "team=search, team=, model!=o3" in run("roles", "show", "search")
    seen = run("roles", "preview", BOB)
    assert {"limited", "Search"} <= set(seen.split())
    tried = run(
        "roles",
        "preview",
        BOB,
        "--where",
        "team=ads",
        "--permission-set",
        "view_records",
        "--replaces",
        "Search",
    )
    assert "View Records" in tried
    assert "View Costs" not in tried
    assert "Member" in run("roles", "preview", "--account-role", "viewer", "--in-group", "finance")
    run("roles", "edit", "search", "--data-access", "full", "--description", "All of it")
    changed = json.loads(run("roles", "show", made["id"], "--json"))["role"]
    assert changed["data_access"] == "full"
    assert changed["filters"] == []
    assert changed["members"] == [BOB]
    assert f"has members: {BOB}" in run("roles", "delete", "Search", code=2)
    run("roles", "edit", "Search", "--nobody")
    assert "role Search deleted" in run("roles", "delete", "Search")
    assert "no role has" in run("roles", "show", "Search", code=2)


WRONG_USE: Sequence[tuple[tuple[str, ...], str]] = [
    (("create", "--name", "x"), "--where, or --data-access"),
    (("create", "--name", "x", "--where", "team"), "NAME=VALUE"),
    (
        ("create", "--name", "x", "--where", "team=a", "--data-access", "full"),
        "--where needs --data-access limited",
    ),
    (("create", "--name", "x", "--data-access", "ful"), "did you mean 'full'"),
    (("create", "--name", "x", "--data-access", "limited"), "at least one filter"),
    (("create", "--name", "x", "--permission-set", "view_cost"), "did you mean 'view_costs'"),
    (("edit", "member"), "nothing to change"),
    (("edit", "member", "--nobody"), "built in"),
    (("edit", "member", "--nobody", "--member", BOB), "either --nobody"),
    (("preview",), "name a person"),
    (("preview", BOB, "--member", BOB), "use the argument EMAIL"),
]


def test_wrong_use_of_the_command(run: Run) -> None:
    """A usage error ends with exit code 2 and a message that states the rule."""
    for words, said in WRONG_USE:
        assert said in run("roles", *words, code=2), (words, said)


def test_an_account_gets_another_role_by_command(run: Run) -> None:
    """An account may also get no role of its own."""
    run("operators", "create", BOB, "--role", "none", input=PASSWORD + "\n")
    for role in ("viewer", "none"):
        assert role == json.loads(run("operators", "edit", BOB, "--role", role, "--json"))["operator"]["role"]
    assert "Member, Operator, Admin or none" in run("operators", "edit", BOB, "--role", "king", code=2)
