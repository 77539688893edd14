"""Who looked: every face and page that shows figures of a person stores one row for each viewer, person and day."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar
from yarl import URL

from gateway.configuration.sections import Config, PrivacySettings
from gateway.core.paths import OPERATOR_API
from spool.people import HASH
from spool.viewed_people import SEVERAL
from tests.integration.conftest import Serve
from tests.integration.operations.people.test_privacy import CANARY, allow, erased, run, stored
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_linked_names import sent, world_of
from tests.integration.test_one_identity import ANN, ASKED, OpenWorld, World, checked
from tests.integration.test_one_identity import open_world as open_world
from tests.rounds import part

ROOT = "root@example.com"


async def viewings(world: World, **query: str) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = checked(await world.ask("GET", "/people/viewings", **query))["viewings"]
    return rows


async def seen(world: World, **query: str) -> set[tuple[str, str, str, str]]:
    return {(row["viewer"], row["user"], row["face"], row["page"]) for row in await viewings(world, **query)}


HASHED = "hash of the address"
# Inputs whose answers show something else than figures of the named person
OTHERS = {
    "report_without": set(),
    "role": {SEVERAL},
    "definition": set(),
    "seat": {SEVERAL},
    "view": {HASHED, SEVERAL},
}


@pytest.mark.parametrize("name", part([*ASKED], every=2))
async def test_every_input_that_names_a_person_stores_the_viewer(open_world: OpenWorld, name: str) -> None:
    """Every question of every face that finds the calls of a person, asked twice, stores each row once."""
    world = await open_world(HASH)
    await allow(world)
    for _ in range(2 if name not in ("view", "role", "seat", "definition") else 1):
        await ASKED[name](world, ANN)
    rows = await viewings(world)
    people = {HASHED if row["user"] == world.people.hash_address(ANN) else row["user"] for row in rows}
    assert OTHERS.get(name, {HASHED}) == people
    assert len(rows) == len({tuple(row.values()) for row in rows})
    viewers = {
        "costs": "reader",
        "costs_by_filters": "reader",
        "tool": "assistant",
        "tool_containing": "assistant",
    }
    assert {viewers.get(name, ROOT)} >= {row["viewer"] for row in rows} - (
        {"reader"} if name == "view" else set()
    )


async def test_lists_records_and_faces(serve: Serve) -> None:
    """A list of people is one row, a single call names its person, and own figures are no viewing."""
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(1), [CANARY, "bob", ROOT])
    checked(await world.ask("GET", "/report", by="model", range="last_7d"))
    checked(await world.ask("GET", "/report", where=f"user={ROOT}", range="last_7d"))
    assert set() == await seen(world)
    for _ in range(2):
        checked(await world.ask("GET", "/report", by="user", range="last_7d"))
    assert {(ROOT, SEVERAL, "command", "/report")} == await seen(world)
    listed = checked(await world.ask("GET", "/records"))["records"]
    [record] = [each for each in listed if each["user"] == CANARY]
    checked(await world.ask("GET", f"/records/{record['id']}"))
    assert [] == checked(await world.ask("GET", "/people/stated"))["stated_names"], "an empty list is no row"
    expected = {("/report", SEVERAL), ("/records", SEVERAL), ("/records/{id}", CANARY)}
    assert expected == {(page, person) for _, person, _, page in await seen(world)}
    assert {(ROOT, CANARY, "command", "/records/{id}")} == await seen(world, user=CANARY)


async def test_the_console_is_a_face(serve: Serve) -> None:
    """A person who is signed in to the console, and who may see only own calls, stores no row for these."""
    world = await world_of(serve, Config())
    await allow(world)
    await sent(world, random.Random(1), [CANARY, "eva@example.com"])
    filters = [{"dimension": "user", "values": ["eva@example.com"]}]
    body = {"name": "Eva", "data_access": "limited", "filters": filters, "members": ["eva@example.com"],
            "permission_sets": ["view_costs"]}  # fmt: skip
    checked(await world.ask("POST", "/roles", body))
    for email, role in (("eva@example.com", "none"), ("max@example.com", "viewer")):
        account = {"email": email, "role": role, "password": "correct horse battery"}
        checked(await world.ask("POST", "/operators", account))
        url = URL(world.serving.url + OPERATOR_API)
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            signed = {"email": email, "password": "correct horse battery"}
            origin = {"Origin": world.serving.url}
            async with browser.post(url / "sessions", json=signed, headers=origin) as answer:
                assert answer.status < 300, await answer.text()
            async with browser.get((url / "report").with_query(by="user", range="last_7d")) as answer:
                assert 200 == answer.status, await answer.text()
    assert {("max@example.com", SEVERAL, "console", "/report")} == await seen(world)


async def test_only_the_granted_right_lists_viewings(serve: Serve) -> None:
    world = await world_of(serve, Config())
    assert 403 == (await world.ask("GET", "/people/viewings")).status


async def test_a_limit_and_a_reason(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of a viewer and day, people share one row. A command states its reason."""
    config = Config(privacy=PrivacySettings(max_viewed=2))
    world = await world_of(serve, config)
    await allow(world)
    await sent(world, random.Random(1), ["a", "b", "c"])
    monkeypatch.setenv("TOLLHOUSE_REASON", "Ticket 7: größer")
    for user in "abcd":
        await run(world, "report", "--range", "last_7d", "--where", f"user={user}")
    rows = await viewings(world)
    assert {"a", "b", SEVERAL} == {row["user"] for row in rows}
    assert {"Ticket 7: größer"} == {row["reason"] for row in rows}
    monkeypatch.setenv("TOLLHOUSE_REASON", "x" * 201)
    assert "200 printable characters" in await run(world, "report", "--where", "user=a", code=2)


async def test_nothing_is_stored_if_it_is_off(serve: Serve) -> None:
    world = await world_of(serve, Config(privacy=PrivacySettings(viewings=0)))
    await allow(world)
    checked(await world.ask("GET", "/report", where="user=ada", range="last_7d"))
    assert [] == await viewings(world)


async def test_export_has_viewings_and_erasure_removes_the_name(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], tmp_path: Path
) -> None:
    """An export lists who looked. An erasure leaves the rows without the name, whoever is viewer or viewed."""
    config, outside = storage_of
    world = await world_of(serve, config)
    await allow(world)
    await sent(world, random.Random(1), [CANARY, "bob"])
    checked(await world.ask("GET", "/report", where=f"user={CANARY}", range="last_7d"))
    checked(await world.ask("GET", "/report", by="user", range="last_7d"))
    await run(world, "people", "export", CANARY, "--out", str(tmp_path / "out"))
    person = json.loads((tmp_path / "out" / "person.json").read_text())
    assert {(CANARY, "/report"), (SEVERAL, "/report")} == {
        (row["user"], row["page"]) for row in person["viewings"]
    }
    assert [] == person["own_viewings"]

    receipt = await erased(world)
    [pseudonym] = {*receipt["file"]["erasures"][0]["names"].values()}
    assert {pseudonym, SEVERAL} == {row["user"] for row in await viewings(world)}
    assert CANARY.encode() not in await stored(world, outside)
    before = await viewings(world)
    for by in ("", "model", "user"):
        checked(await world.ask("GET", "/report", where=f"user={CANARY}", by=by, range="last_7d"))
    checked(await world.ask("GET", "/records", user=CANARY))
    assert before == await viewings(world), "an empty answer stores no name"
    assert CANARY.encode() not in await stored(world, outside)
    later = json_span("gpt-4o", startTimeUnixNano=str(time.time_ns()), endTimeUnixNano=str(time.time_ns()))
    later["attributes"].append({"key": "user.id", "value": {"stringValue": CANARY}})
    assert 200 == (await world.serving.send("/v1/traces", json_traces(later))).status
    storage = world.serving.app.services.storage
    await storage.ledger.catch_up(storage.log)
    checked(await world.ask("GET", "/report", where=f"user={CANARY}", range="last_7d"))
    assert {pseudonym, SEVERAL, CANARY} == {row["user"] for row in await viewings(world)}, "a new person"


async def test_hostile_names_are_stored_as_they_can_be(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]]
) -> None:
    """Names that no engine can store, long names, and many names at once are no error."""
    world = await world_of(serve, replace(storage_of[0], privacy=PrivacySettings()))
    await allow(world)
    many = [f"name-{number}" for number in range(25)]
    await sent(world, random.Random(1), many)
    for name in ("a\0b", "x" * 300, "<b>&", "(other)", "(erased)", ""):
        found = await world.ask("GET", "/report", where=f"user={name}", range="last_7d")
        assert found.status in (200, 400), found.payload
    key = {"start_date": "2026-01-01", "granularity": "yearly", "filters": json.dumps({"user": many})}
    world.reader = await world.serving.make_key("reader", scopes=["billing:read_costs"])
    assert 200 == (await world.costs(**key)).status
    people = {row["user"] for row in await viewings(world)}
    assert people <= {"ab", "<b>&", SEVERAL}
    assert SEVERAL in people
