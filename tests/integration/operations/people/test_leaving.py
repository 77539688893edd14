"""A person who leaves: what the person has, the steps that end it, and their receipt."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.configuration.sections import Config
from spool.registry.scopes import ENROLL
from tests.integration.conftest import Serve
from tests.integration.operations.people.test_privacy import run
from tests.integration.operations.people.test_sign_in import PASSWORD, signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.test_linked_names import sent, world_of
from tests.integration.test_one_identity import World, checked

BEN, LOGIN, HANA = "ben@example.com", "b.adler", "hana@example.com"
ALL = ["seats", "devices", "keys", "roles", "account"]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as running:
        yield running


async def world_of_ben(serve: Serve) -> World:
    """Give Ben a seat, a key, a role and an account under two linked names, and the same to Hana."""
    world = await world_of(serve, Config())
    await sent(world, random.Random(1), [LOGIN, HANA])
    checked(await world.ask("POST", "/people", {"people": [{"users": [LOGIN, BEN], "name": "Ben Adler"}]}))
    view = checked(
        await world.ask(
            "POST", "/views", {"name": "All", "filter": {"source": ["otel"]}, "principal_dimension": "model"}
        )
    )["view"]
    seats = [{"user": LOGIN, "since": "2026-01-01"}, {"user": HANA, "since": "2026-01-01"}]
    checked(
        await world.ask("POST", "/plans", {"name": "Team", "view": view["id"], "fee": "20", "seats": seats})
    )
    for name, user in (("ci-ben", BEN), ("ci-hana", HANA)):
        key = {"name": name, "use_cases": ["Send AI Telemetry"], "labels": {"user": user}}
        checked(await world.ask("POST", "/keys", key))
        checked(await world.ask("POST", "/operators", {"email": user, "password": "correct horse battery"}))
    fleet = await world.serving.make_key("fleet", scopes=[ENROLL])
    for id, user in (("laptop-ben", LOGIN), ("laptop-hana", HANA)):
        body = json.dumps({"device_id": id, "user": user}).encode()
        answer = await world.serving.send("/v1/ai-control-plane/enroll", body, key=fleet)
        assert 200 <= answer.status < 300, answer.body
    role = {"name": "Search", "data_access": "none", "permission_sets": [], "members": [BEN, HANA]}
    checked(await world.ask("POST", "/roles", role))
    return world


async def leave(world: World, **choices: Any) -> list[Mapping[str, Any]]:
    steps: list[Mapping[str, Any]] = checked(await world.ask("POST", f"/people/{LOGIN}/leave", choices))[
        "leaving"
    ]["steps"]
    return steps


async def left(world: World, name: str) -> list[tuple[str, str]]:
    """Return what a person still has, as step and name."""
    found = checked(await world.ask("POST", f"/people/{name}/leave", {"dry_run": True}))["leaving"]
    return [(step["step"], step["name"]) for step in found["steps"]]


async def test_leaving_ends_what_a_person_has_and_nothing_of_others(serve: Serve) -> None:
    """
    A dry run lists the steps and changes nothing. Then each thing ends, the costs keep the name, what others have
    stays, and a repeated request has nothing left to do.
    """
    world = await world_of_ben(serve)
    before, other = await left(world, BEN), await left(world, HANA)
    assert [*zip(ALL, ["Team", "laptop-ben", "ci-ben", "Search", BEN], strict=True)] == before
    planned = await leave(world, on="2026-11-30", dry_run=True)
    assert [(each, "planned") for each in ALL] == [(step["step"], step["state"]) for step in planned]
    assert before == await left(world, BEN)
    done = await leave(world, on="2026-11-30")
    assert [(each, "done", "") for each in ALL] == [
        (each["step"], each["state"], each["reason"]) for each in done
    ]
    [seat, other_seat] = checked(await world.ask("GET", "/plans"))["plans"][0]["seats"]
    assert ("2026-12-01", "") == (seat["until"], other_seat["until"])
    states = {each["id"]: each["state"] for each in checked(await world.ask("GET", "/devices"))["devices"]}
    assert "revoked" == states["laptop-ben"] != states["laptop-hana"]
    keys = {each["name"]: each["status"] for each in checked(await world.ask("GET", "/keys"))["keys"]}
    assert ("Disabled", "Enabled") == (keys["ci-ben"], keys["ci-hana"])
    accounts = {
        row["email"]: row["status"] for row in checked(await world.ask("GET", "/operators"))["operators"]
    }
    assert ("Disabled", "Enabled") == (accounts[BEN], accounts[HANA])
    [role] = checked(await world.ask("GET", "/roles", is_builtin="false"))["roles"]
    assert [HANA] == role["members"]
    assert {"Ben Adler"} == {
        row["name"] for row in checked(await world.ask("GET", "/people", user=BEN))["people"]
    }
    assert other == await left(world, HANA)
    assert [] == await leave(world, on="2026-11-30")
    later = await leave(world, on="2026-11-15")
    assert ["seats"] == [step["step"] for step in later]  # an earlier day shortens the seat again


async def test_a_step_may_be_chosen_and_one_that_fails_stops_no_other(serve: Serve) -> None:
    """Only the chosen steps are taken. A step that a rule refuses says why, and the other steps are still taken."""
    world = await world_of_ben(serve)
    assert ["keys"] == [step["step"] for step in await leave(world, steps=["keys"])]
    refused = await world.ask("POST", f"/people/{LOGIN}/leave", {"steps": ["car"]})
    assert (400, True) == (refused.status, "seats, devices, keys, roles, account" in refused.words)
    for day in ("soon", "9999-12-31", "1969-12-31"):
        assert 400 == (await world.ask("POST", f"/people/{LOGIN}/leave", {"on": day})).status
    checked(await world.ask("PATCH", f"/operators/{BEN}", {"role": "admin"}))
    accounts = checked(await world.ask("GET", "/operators"))["operators"]
    for account in accounts:
        if account["role"] == "admin" and account["email"] != BEN:
            checked(await world.ask("PATCH", f"/operators/{account['email']}", {"status": "Disabled"}))
    found = {step["step"]: step for step in await leave(world)}
    assert "failed" == found["account"]["state"]
    assert found["account"]["reason"]
    assert "done" == found["seats"]["state"] == found["roles"]["state"]


async def test_a_step_needs_the_right_of_the_change_by_hand(server: OperatorServer) -> None:
    """Without the right to change keys, the key stays enabled, and the receipt says who may disable it."""
    officer = {"name": "Officer", "data_access": "full", "permission_sets": ["organization_administration"]}
    await server.ask("POST", "/roles", {**officer, "members": [HANA]})
    headers = await signed_in(server, "none", HANA)
    key = {"name": "ci-ben", "use_cases": ["Send AI Telemetry"], "labels": {"user": BEN}}
    await server.ask("POST", "/keys", key)
    await server.ask("POST", "/operators", {"email": BEN, "password": PASSWORD})
    answer = await server.over_http("POST", f"/people/{BEN}/leave", {}, headers=headers)
    assert 200 == answer.status, answer.payload
    steps = {each["step"]: each for each in answer.payload["leaving"]["steps"]}
    assert ("not_allowed", "done") == (steps["keys"]["state"], steps["account"]["state"])
    assert "API key management; an Admin can" in steps["keys"]["reason"]
    [row] = (await server.ask("GET", "/keys", name="ci-ben")).payload["keys"]
    assert "Enabled" == row["status"]
    own = await server.over_http("POST", f"/people/{HANA}/leave", {}, headers=headers)
    own_steps = own.payload["leaving"]["steps"]  # nobody may lock himself out
    assert [("roles", "failed"), ("account", "failed")] == [
        (each["step"], each["state"]) for each in own_steps
    ]
    assert all(each["reason"] for each in own_steps)


async def test_commands_show_a_person_and_let_them_leave(serve: Serve) -> None:
    """`people show` lists what a person has, and `people leave` prints the receipt."""
    world = await world_of_ben(serve)
    shown = await run(world, "people", "show", BEN)
    for text in ("Ben Adler", LOGIN, "Team", "ci-ben", "laptop-ben", "Search", "planned"):
        assert text in shown
    seats = ("people", "leave", LOGIN, "--on", "2026-11-30", "--step", "seats")
    assert "planned" in await run(world, *seats, "--dry-run")
    assert "ends the seat after 2026-11-30" in await run(world, *seats)
    assert "ends the seat" not in await run(world, *seats)
