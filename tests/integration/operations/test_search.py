"""One address finds everything that has a name, within what a person may see."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.core.paths import OPERATOR_API
from gateway.devices import machine_state
from gateway.http import requests
from gateway.operations.installation.search import LISTS, MAX_TEXT, MOST
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.clusters import ReportedCluster
from spool.deliveries.values import RouteSpec
from spool.devices.device import Device
from spool.record import AI_TELEMETRY
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
EVA = "eva@example.com"
MOST_CALLS = 40  # maximum calls of functions for each machine among which a name is searched
# team, user, pull request and session of each call
CALLS = (
    ("search", "ada", "acme/shop#111", "first-session"),
    ("search", "ada", "acme/shop#1112", None),
    ("checkout", "ben", "acme/secret#111", None),
    ("100%_team", "x", None, None),
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    calls = [
        call(
            number,
            at=NOW.timestamp() - 7200,
            team=team,
            user=user,
            session=session,
            tags={"pull_request": pull_request} if pull_request else {},
            cost="1",
            cost_source="reported",
        )
        for number, (team, user, pull_request, session) in enumerate(CALLS)
    ]
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, counted_from("2026-08-20"), *calls)
        await server.ask("GET", "/report?range=last_30d")  # counts the calls
        yield server


async def found(server: OperatorServer, text: str) -> list[tuple[str, str]]:
    answer = await server.ask("GET", "/search", q=text)
    assert 200 == answer.status, answer.payload
    return [(each["kind"], each["name"]) for each in answer.payload["found"]]


async def test_a_pull_request_is_found_by_its_number(server: OperatorServer) -> None:
    """
    A search finds a pull request by its number alone, with # and with the repository. Equal numbers come first.
    """
    for text in ("111", "#111"):
        names = [name for kind, name in await found(server, text) if kind == "pull_request"]
        assert ["acme/secret#111", "acme/shop#111", "acme/shop#1112"] == names
    assert [("pull_request", "acme/shop#111"), ("pull_request", "acme/shop#1112")] == await found(
        server, "shop#111"
    )
    assert ("pull_request", "acme/shop#111") == (await found(server, "ACME/SHOP#111"))[0]


async def test_names_in_calls_and_in_lists(server: OperatorServer) -> None:
    """
    A search finds teams, sessions, machines, keys, views and others by a part of a name. Special characters of
    patterns are plain text in a search.
    """
    await server.ask("POST", "/devices", {"id": "laptop-ada"})
    await server.ask(
        "POST", "/keys", {"name": "Checkout key", "scopes": ["ai-telemetry-ingest:ingest-ai-telemetry"]}
    )
    view = {"name": "Search costs", "filter": {"team": ["search"]}, "principal_dimension": "model"}
    assert 201 == (await server.ask("POST", "/views", view)).status
    assert [("team", "search"), ("view", "Search costs")] == await found(server, "search")
    assert ("team", "checkout") == (await found(server, "checkout"))[0]
    assert ("key", "Checkout key") in await found(server, "CHECKOUT")
    assert [("user", "ada"), ("machine", "laptop-ada")] == [
        each for each in await found(server, "ada") if each[0] in ("user", "machine")
    ]
    assert [("team", "100%_team")] == await found(server, "%_")
    assert [] == [name for kind, name in await found(server, "_hop") if kind == "pull_request"]
    session = server.as_shown("session", "first-session")
    assert [("session", session)] == await found(server, "first-session") == await found(server, session)


async def test_a_person_finds_only_what_the_person_may_see(server: OperatorServer) -> None:
    """
    A search by a person with one team finds names of this team, and neither other teams nor lists that need another
    permission set.
    """
    await server.ask("POST", "/devices", {"id": "laptop-ada"})
    filters = [{"dimension": "team", "values": ["search"], "mode": "is"}]
    role = {"data_access": "limited", "filters": filters, "permission_sets": ["view_costs"]}
    made = await server.ask("POST", "/roles", {"name": "Part", "members": [EVA], **role})
    assert 201 == made.status, made.payload
    eva = await signed_in(server, "none", EVA)

    async def seen(text: str) -> Any:
        answer = await server.over_http("GET", f"/search?q={text}", headers=eva)
        assert 200 == answer.status, answer.payload
        return answer.payload

    assert ["acme/shop#111", "acme/shop#1112"] == [each["name"] for each in (await seen("111"))["found"]]
    for hidden in ("checkout", "secret", "ben", "Part", "laptop"):
        assert [] == (await seen(hidden))["found"], hidden
    assert {"key", "machine", "role", "setting"}.isdisjoint((await seen("ada"))["search"]["kinds"])
    nobody = await signed_in(server, "none", "nobody@example.com")
    answer = await server.over_http("GET", "/search?q=ada", headers=nobody)
    assert ([], []) == (answer.payload["found"], answer.payload["search"]["kinds"])


async def test_results_of_a_kind_have_a_limit(server: OperatorServer) -> None:
    for number in range(MOST + 2):
        await server.ask("POST", "/devices", {"id": f"laptop-{number:02}"})
    names = [name for kind, name in await found(server, "laptop") if kind == "machine"]
    assert [f"laptop-{number:02}" for number in range(MOST)] == names


@pytest.mark.parametrize("text", ("", " ", "a\0b", "a\nb", "a" * (MAX_TEXT + 1)))
async def test_a_text_that_cannot_be_sought(server: OperatorServer, text: str) -> None:
    answer = await server.ask("GET", "/search", q=text)
    assert (400, "invalid_parameter") == answer.error[:2]


async def test_a_search_without_a_text(server: OperatorServer) -> None:
    answer = await server.ask("GET", "/search")
    assert (400, "invalid_parameter") == answer.error[:2]


async def test_clusters_and_routes(server: OperatorServer) -> None:
    """A search finds a cluster and a route, which no person creates."""
    mill = ReportedCluster(account="1", region="eu", name="mill", state="init_ok")
    await server.services.senders.require_clusters().table.store_report(mill)
    await server.services.spool.deliveries.set_routes(
        [RouteSpec(name="mills/ai-telemetry", topic=AI_TELEMETRY)]
    )
    assert [("cluster", "mill"), ("route", "mills/ai-telemetry")] == await found(server, "mill")


def test_the_kinds_are_the_lists_with_names() -> None:
    """The search knows each list whose address returns names, and each of its kinds is such a list."""
    paths = {
        row.path.removeprefix(OPERATOR_API)
        for row in OPERATOR_ADDRESSES
        if row.lists and row.names is not None
    }
    assert paths == set(LISTS.values())


async def test_a_search_describes_no_row(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search among many machines neither describes a row nor computes a state."""
    await enrol(server, 300)
    used = []

    def note(*_: Any, **__: Any) -> Any:
        used.append("described")
        raise AssertionError

    monkeypatch.setattr(requests, "list_envelope", note)
    monkeypatch.setattr(machine_state, "evaluate_machine_state", note)
    assert [("machine", "laptop-007")] == await found(server, "laptop-007")
    assert [f"laptop-{number:03}" for number in range(MOST)] == [
        name for kind, name in await found(server, "laptop") if kind == "machine"
    ]
    assert [] == used


async def test_a_further_machine_costs_few_calls(server: OperatorServer) -> None:
    """
    For a further machine, a search calls at most as many functions as its names need. When each row was described, it
    called hundreds.
    """
    calls = []
    for machines in (100, 300):
        await enrol(server, machines)
        await found(server, "laptop-099")
        counted = Counter[str]()
        sys.setprofile(lambda _, event, __, counted=counted: counted.update((event,)))  # type: ignore[misc]
        try:
            assert ("machine", "laptop-099") in await found(server, "laptop-099")
        finally:
            sys.setprofile(None)
        calls.append(counted["call"] + counted["c_call"])
    assert (calls[1] - calls[0]) / 200 < MOST_CALLS


async def enrol(server: OperatorServer, machines: int) -> None:
    table = server.services.senders.require_devices().table
    now = server.clock.now()
    for number in range(machines):
        id = f"laptop-{number:03}"
        await table.replace_row(Device(id=id, enrolled_at=now, enrolled_by="test", last_seen=now))
