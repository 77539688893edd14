"""The fleet over the operator API: inventory, coverage, the list of machines, and their protection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from gateway.devices.fleet.use_days import UseDayRecorder
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.money.lost_calls import FleetLosses
from gateway.operations.devices.fleet import describe_losses
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.use_days import USE_DAYS
from spool.registry.operators import Actor
from spool.registry.permission_sets import VIEW_COSTS, VIEW_OPERATION
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import ENROLL
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.spool.kept import audit_rows

FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))
LIST = b"serial,hostname,user,team,os,last seen\n" + b"".join(
    b"S%d,h%d,ada@example.com,search,macOS 26.1,2026-11-26\n" % (n, n) for n in range(6)
)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as opened:
        yield opened


def lifecycle(server: OperatorServer) -> DeviceLifecycle:
    return server.services.senders.require_devices()


async def beat(server: OperatorServer, id: str, **facts: Any) -> None:
    report = DeviceReport(id=id, hostname=id, heartbeat=msgspec.json.encode(facts))
    await lifecycle(server).store_heartbeat_and_issue_token(report, FLEET, "")


async def coverage(server: OperatorServer) -> Any:
    answer = await server.ask("GET", "/fleet/coverage")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def listed(server: OperatorServer, **query: str) -> list[str]:
    answer = await server.ask("GET", "/fleet/devices", **query)
    assert 200 == answer.status, answer.payload
    return [row["id"] for row in answer.payload["devices"]]


async def test_without_an_inventory_all_devices_count(server: OperatorServer) -> None:
    empty = await coverage(server)
    assert (0, None, None) == (empty["machines"], empty["covered_percent"], empty["inventory"])
    await beat(server, "h0", assistants={"codex": {"state": "unused"}})
    await beat(server, "h1", assistants={"codex": {"state": "overridden", "cause": "project"}})
    found = await coverage(server)
    assert (2, 1, 50.0, 0) == (
        found["machines"],
        found["covered"],
        found["covered_percent"],
        found["unexpected"],
    )
    [cause] = found["causes"]
    assert ("overridden", "project", 1, {"codex": 1}) == tuple(
        cause[name] for name in ("state", "cause", "devices", "assistants")
    )
    assert ("uses settings of a project", True) == (cause["words"], "folder" in cause["repair"])
    assert {"codex": {"unused": 1, "overridden": 1}} == found["assistants"]


async def test_coverage_of_an_inventory(server: OperatorServer) -> None:
    """
    With an inventory, each expected machine is reporting, not reporting, silent or missing. A device that the
    inventory does not list is unexpected.
    """
    answer = await server.ask("PUT", "/fleet/inventory", LIST, source="jamf")
    assert 200 == answer.status, answer.payload
    assert (6, 0, 0) == tuple(answer.payload[name] for name in ("added", "removed", "repeated"))
    await beat(server, "h5")
    server.clock.move(600)
    await beat(server, "laptop", serial="S0", assistants={"codex": {"state": "unused"}}, os="macOS 26.2")
    await beat(server, "h1", assistants={"codex": {"state": "not_configured", "cause": "no_policy"}})
    await beat(server, "stranger")
    lifecycle(server).table.change_and_write_soon(
        "laptop", lambda known: replace(known, newest_calls={"codex": server.clock.now()})
    )
    found = await coverage(server)
    assert {"reporting": 1, "at_risk": 1, "unknown": 1, "missing": 3} == {
        state: number for state, number in found["states"].items() if number
    }
    assert (1, 0) == (found["offline"], found["away"])
    assert (6, 1, 16.6, 1, 4) == tuple(
        found[name] for name in ("machines", "covered", "covered_percent", "unexpected", "enrolled_devices")
    )
    [team] = found["teams"]
    assert {"team": "search", "machines": 6, "covered": 1, "covered_percent": 16.6, "lost_calls": 0} == team
    assert "jamf" == found["inventory"]["source"]
    assert ["h5", "stranger", "h1", "S2", "S3", "S4", "laptop"] == await listed(server)
    assert ["h5"] == await listed(server, link="offline")
    assert ["laptop"] == await listed(server, covered="true")
    assert [] == await listed(server, away="true")
    assert ["h1"] == await listed(server, cause="not_configured.no_policy")
    assert ["h1"] == await listed(server, cause="codex.not_configured.no_policy")
    assert [] == await listed(server, cause="copilot.not_configured.no_policy")
    assert ["S2", "S3", "S4"] == await listed(server, state="missing")
    assert ["stranger"] == await listed(server, expected="false")
    assert ["h1", "laptop"] == await listed(server, assistant="codex")
    assert 6 == len(await listed(server, system="macos"))
    assert 6 == len(await listed(server, user="ADA@example.com"))
    one = (await server.ask("GET", "/fleet/devices", id="laptop")).payload["devices"][0]
    assert ("S0", "macOS 26.2", "macos", "search") == tuple(
        one[name] for name in ("serial", "os", "system", "team")
    )
    assert one["inventory_last_seen"].startswith("2026-11-26")
    [missing] = (await server.ask("GET", "/fleet/devices", id="S2")).payload["devices"]
    assert ("macOS 26.1", "macos") == (missing["os"], missing["system"])
    refused = await server.ask("GET", "/fleet/devices", state="asleep")
    assert 400 == refused.status


async def test_machines_that_are_silent_for_long(server: OperatorServer) -> None:
    """
    The fleet and the devices can be filtered by how long a machine was silent, exact to the second. A new device is
    not silent yet, and a machine that never reported counts as silent for any time.
    """
    await server.ask("PUT", "/fleet/inventory", b"serial,hostname\nS0,h0\nS1,h1\n", source="jamf")
    await beat(server, "h0", serial="S0")
    begin = server.clock.now()
    lifecycle(server).table.change_and_write_soon(
        "h0", lambda known: replace(known, newest_calls={"codex": begin})
    )
    server.clock.move(3 * 86400 - 1)
    await server.ask("POST", "/devices", {"id": "new"})
    await beat(server, "h2")
    assert ["S1"] == await listed(server, no_report_for="3d")
    server.clock.move(1)
    assert {"h0", "S1"} == set(await listed(server, no_report_for="3d"))
    assert {"h0", "S1"} == set(await listed(server, no_report_for="72h", sort_key="last_seen"))
    assert {"h0", "S1", "h2", "new"} == set(await listed(server, no_call_for="3d"))
    assert {"S1", "h2", "new"} == set(await listed(server, no_call_for="4d"))
    devices = await server.ask("GET", "/devices", no_report_for="3d")
    assert ["h0"] == [row["id"] for row in devices.payload["devices"]]
    row = (await server.ask("GET", "/fleet/devices", id="h0")).payload["devices"][0]
    assert row["last_call"] == row["last_seen"] is not None
    for path, age in (
        ("/fleet/devices", "no_report_for"),
        ("/devices", "no_call_for"),
        ("/keys", "unused_for"),
    ):
        for wrong in ("", "3", "d", "-1d", "3 weeks", "nan"):
            answer = await server.ask("GET", path, **{age: wrong})
            expected = 200 if wrong == "3" else 400
            assert expected == answer.status, (path, wrong)


async def test_keys_that_nobody_uses(server: OperatorServer) -> None:
    """A key counts as unused since its last use. A new key does not count as unused for long."""
    await server.ask("POST", "/keys", {"name": "first", "scopes": [ENROLL]})
    server.clock.move(30 * 86400)
    await server.ask("POST", "/keys", {"name": "second", "scopes": [ENROLL]})

    async def unused(age: str) -> list[str]:
        answer = await server.ask("GET", "/keys", unused_for=age)
        return [row["name"] for row in answer.payload["keys"]]

    assert ["first"] == await unused("30d")
    assert [] == await unused("31d")


async def test_addresses_of_the_list_are_protected(server: OperatorServer) -> None:
    """E-mail addresses of an inventory list are protected: nothing stored and no answer contains them."""
    await server.ask("PUT", "/fleet/inventory", LIST, source="intune")
    inventory = server.registry.inventory.current
    assert inventory is not None
    assert {machine.user[:6] for machine in inventory.machines} == {"email:"}
    assert "ada@example" not in str((await server.ask("GET", "/fleet/devices")).payload)


async def test_a_list_is_whole_or_refused(server: OperatorServer) -> None:
    """
    An inventory list is accepted as a whole or refused. If it is unreadable, empty, or lacks more than a third of
    the machines, nothing changes, and no audit row is written.
    """
    assert 200 == (await server.ask("PUT", "/fleet/inventory", LIST, source="csv")).status
    before = server.registry.inventory.current
    cut = b"".join(line + b"\n" for line in LIST.splitlines()[:4])  # this file has 3 of the 6 machines
    for content, status, words in (
        (LIST[:-8], 400, "line 7"),
        (b"serial\n", 400, "no machines"),
        (b"", 400, "no column"),
        (b"\xff\xfe", 400, "UTF-8"),
        (cut, 409, "lacks 3 of 6"),
    ):
        answer = await server.ask("PUT", "/fleet/inventory", content, source="csv")
        assert status == answer.status, answer.payload
        assert words in answer.error[2]
    for query in ({"source": "excel"}, {}, {"source": "csv", "confirm": "yes"}, {"source": "csv", "x": "1"}):
        assert 400 == (await server.ask("PUT", "/fleet/inventory", LIST, **query)).status
    assert 415 == (await server.ask("PUT", "/fleet/inventory", {"serial": "S1"}, source="csv")).status
    assert server.registry.inventory.current is before
    rows = [row for row in await audit_rows(server.registry) if row.action == "fleet.inventory"]
    assert [(ADA, "csv")] == [(row.actor, row.target) for row in rows]
    confirmed = await server.ask("PUT", "/fleet/inventory", cut, source="csv", confirm="true")
    assert (200, 3) == (confirmed.status, confirmed.payload["removed"])
    # This file has 2 of the 3 machines, so exactly a third is removed.
    third = b"".join(line + b"\n" for line in LIST.splitlines()[:3])
    assert 200 == (await server.ask("PUT", "/fleet/inventory", third, source="csv")).status


async def test_an_inventory_list_may_be_as_large_as_the_setting_says(server: OperatorServer) -> None:
    devices = lifecycle(server)
    for most, status in ((len(LIST) - 1, 413), (len(LIST), 200)):
        devices.settings = replace(devices.settings, max_inventory_bytes=most)
        answer = await server.ask("PUT", "/fleet/inventory", LIST, source="csv")
        assert status == answer.status
        assert status == 200 or "(devices.max_inventory_bytes)" in answer.error[2]


async def test_admitted_machines_are_devices_without_keys(server: OperatorServer) -> None:
    """
    Each serial number of an admitted machine becomes a device, once. A device that is already known, and a serial
    number with a blank, do not.
    """
    await beat(server, "h0", serial="S0")
    content = LIST + b"S 9,h9,,,,\n"
    answer = await server.ask("PUT", "/fleet/inventory", content, source="jamf", admit="true")
    assert 5 == answer.payload["admitted"]
    assert {"h0", "S1", "S2", "S3", "S4", "S5"} == {each.id for each in lifecycle(server).table.all()}
    assert not any(each.has_key for each in lifecycle(server).table.all())
    found = await coverage(server)
    assert (6, 7) == (found["states"]["missing"], found["machines"])
    again = await server.ask("PUT", "/fleet/inventory", content, source="jamf", admit="true")
    assert (0, 0) == (again.payload["admitted"], again.payload["added"])


async def test_people_with_a_seat_but_no_machine(server: OperatorServer) -> None:
    view = {"name": "all", "filter": {}, "principal_dimension": "model"}
    assert 201 == (await server.ask("POST", "/views", view)).status
    seats = [
        {"user": "ada@example.com", "since": "2020-01-01"},
        {"user": "bob@example.com", "since": "2020-01-01"},
        {"user": "mia@example.com", "since": "2020-01-01", "until": "2020-02-01"},
    ]
    plan = {"name": "Copilot", "view": "all", "fee": "19", "seats": seats}
    made = await server.ask("POST", "/plans", plan)
    assert 201 == made.status, made.payload
    await server.ask("PUT", "/fleet/inventory", LIST, source="csv")
    people = (await coverage(server))["people"]
    assert (2, 1) == (people["with_seat"], people["without_machine"])
    assert 1 == len(people["without_machine_names"])


async def test_lost_calls_of_days_are_shown_with_their_estimated_cost(server: OperatorServer) -> None:
    """The last seven days are shown, or the days of the query. Both ends are included."""
    today = datetime.fromtimestamp(server.clock.now(), UTC).date()
    days = [(today - timedelta(days=number)).isoformat() for number in range(9)]
    recorder = UseDayRecorder(lifecycle(server), server.storage.small.open_table(USE_DAYS))
    slots = {days[7]: [9, 8, 2], days[6]: [9, 4, 1], days[0]: [30, 6, 2]}
    codex = {"state": "reporting", "use": "losing", "slots": slots}
    await beat(server, "h1", assistants={"codex": codex})
    await recorder.store_changed_days()
    found = (await coverage(server))["losses"]
    assert {"since": days[6], "until": days[0], "calls": 3, "slots": 10, "people": 1, "machines": 1} == {
        name: found[name] for name in ("since", "until", "calls", "slots", "people", "machines")
    }
    assert (None, "0.00", None) == tuple(
        found[name] for name in ("estimated_cost", "counted_cost", "covered_cost_percent")
    )
    for query, calls in (
        ({"since": days[7]}, 5),
        ({"since": days[8], "until": days[7]}, 2),
        ({"until": days[1]}, 3),
        ({"since": days[0], "until": days[0]}, 2),
    ):
        answer = await server.ask("GET", "/fleet/coverage", **query)
        assert calls == answer.payload["losses"]["calls"], query


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"since": "yesterday"}, "since must be a day such as"),
        ({"until": "2026-02-30"}, "until must be a day such as"),
        ({"since": "0001-01-01"}, "since must be a day from 1970"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "until must be 0 to 399 days after since"),
        ({"since": "2025-01-01", "until": "2026-02-05"}, "until must be 0 to 399 days after since"),
    ],
)
async def test_invalid_days_of_losses_are_refused(
    server: OperatorServer, query: dict[str, str], problem: str
) -> None:
    answer = await server.ask("GET", "/fleet/coverage", **query)
    assert 400 <= answer.status < 500
    assert problem in str(answer.payload)


async def test_the_longest_time_of_losses_is_400_days(server: OperatorServer) -> None:
    answer = await server.ask("GET", "/fleet/coverage", since="2025-01-01", until="2026-02-04")
    assert answer.status == 200


@pytest.mark.parametrize("shows_costs", [True, False])
def test_costs_of_losses_are_hidden_if_groups_must_be_large(*, shows_costs: bool) -> None:
    losses = FleetLosses(
        first="2026-11-24",
        last="2026-11-30",
        calls=3,
        estimated=Decimal(6),
        counted=Decimal(5),
        calls_by_team={},
    )
    shown = describe_losses(losses, shows_costs=shows_costs)
    costs = [shown[name] for name in ("estimated_cost", "counted_cost", "covered_cost_percent")]
    assert (["6.00", "5.00", 45.4] if shows_costs else [None, None, None]) == costs
    assert shown["calls"] == 3


async def test_lost_costs_need_the_right_to_view_costs(server: OperatorServer) -> None:
    """Who sees the fleet and no costs sees how many calls are missing."""
    today = datetime.fromtimestamp(server.clock.now(), UTC).date().isoformat()
    recorder = UseDayRecorder(lifecycle(server), server.storage.small.open_table(USE_DAYS))
    await beat(server, "h1", assistants={"codex": {"state": "reporting", "slots": {today: [9, 4, 1]}}})
    await recorder.store_changed_days()
    headers = await signed_in(server, "none")
    draft = NewRole(name="Watch", data_access=FULL, permission_sets=(VIEW_OPERATION,), members=(ADA,))
    actor = Actor("root", "here")
    role = await server.registry.roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=actor)
    for sets, cost in (((VIEW_OPERATION,), None), ((VIEW_OPERATION, VIEW_COSTS), "0.00")):
        changed = {"permission_sets": sets}
        await server.registry.roles.change(
            role.id, changed, known_dimensions=(), limits=RoleLimits(), actor=actor
        )
        answer = await server.over_http("GET", "/fleet/coverage", headers=headers)
        assert (1, cost) == tuple(answer.payload["losses"][name] for name in ("calls", "counted_cost"))
