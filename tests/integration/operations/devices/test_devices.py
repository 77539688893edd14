"""Devices over the operator API: lists, states, changes and their actors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.spool.kept import audit_rows

FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as opened:
        for n, user in enumerate(("ada", "bob", "ada")):
            told = DeviceReport(id=f"d{n}", hostname=f"h{n}", user=user, labels={"floor": str(n)})
            await lifecycle(opened).enrol_or_update(told, FLEET, "10.0.0.1")
        yield opened


def lifecycle(server: OperatorServer) -> DeviceLifecycle:
    return server.services.senders.require_devices()


async def listed(server: OperatorServer, **query: str) -> list[str]:
    answer = await server.ask("GET", "/devices", **query)
    assert 200 == answer.status, answer.payload
    return [row["id"] for row in answer.payload["devices"]]


async def test_the_list(server: OperatorServer) -> None:
    """The list of devices has the usual envelope, filters and sorts. The shown states are current."""
    assert ["d0", "d1", "d2"] == await listed(server)
    assert ["d2", "d1"] == await listed(server, sort_key="hostname", sort_order="desc", limit="2")
    assert ["d0", "d2"] == await listed(server, user="ada")
    assert ["d1"] == await listed(server, label="floor=1")
    await lifecycle(server).revoke_device("d1", Actor(ADA, "socket"))
    server.clock.move(200)
    now = server.clock.now()
    heard: dict[str, Any] = {"last_seen": now, "last_heartbeat": now, "newest_calls": {"codex": now}}
    lifecycle(server).table.change_and_write_soon("d2", lambda known: replace(known, **heard))
    lifecycle(server).table.change_and_write_soon(
        "d0", lambda known: replace(known, last_heartbeat=known.last_seen)
    )
    for state, expected in (("unknown", ["d0"]), ("revoked", ["d1"]), ("reporting", ["d2"])):
        assert expected == await listed(server, state=state)
    assert [["d0"], ["d2"]] == [await listed(server, link=link) for link in ("offline", "online")]
    refused = await server.ask("GET", "/devices", state="asleep")
    assert 400 == refused.status and "losing" in refused.error[2]


def _device(server: OperatorServer, id: str) -> Any:
    return lifecycle(server).table.find(id)


async def test_one_device(server: OperatorServer) -> None:
    """The answer about one device has all fields except the fingerprint."""
    await lifecycle(server).enrol_or_update(DeviceReport(id="d0", fingerprint="secret-print"), FLEET, "")
    answer = await server.ask("GET", "/devices/d0")
    device = answer.payload["device"]
    assert device["id"] == "d0"
    assert device["enrolled_by"] == "fleet"
    assert device["has_key"] is False
    assert "secret-print" not in str(answer.payload)
    assert 404 == (await server.ask("GET", "/devices/nobody")).status


async def test_changes_and_their_audit_rows(server: OperatorServer) -> None:
    """
    Approve, revoke, reset and label are audited with the actor, the device, and the values before and after.
    """
    for method, path, body in (
        ("POST", "/devices/d0/revoke", None),
        ("POST", "/devices/d0/approve", None),
        ("POST", "/devices/d0/reset", None),
        ("PATCH", "/devices/d0", {"labels": {"team": "search", "floor": "9"}}),
        ("PATCH", "/devices/d0", {"labels": {"floor": None}}),
    ):
        answer = await server.ask(method, path, body)
        assert 200 == answer.status, answer.payload
    assert {"team": "search", "floor": "0"} == answer.payload["device"]["labels"]
    rows = [row for row in await audit_rows(server.registry) if row.target == "d0"]
    assert ["key fleet", ADA, ADA, ADA, ADA, ADA] == [row.actor for row in rows]
    actions = ["enrol", "revoke", "approve", "reset", "label", "label"]
    assert [f"device.{word}" for word in actions] == [row.action for row in rows]


async def test_a_device_is_admitted_and_deleted(server: OperatorServer) -> None:
    """A device is deleted by its exact id, and the audit names the actor."""
    answer = await server.ask("POST", "/devices", {"id": "d9"})
    assert answer.status == 201
    assert answer.payload["device"]["id"] == "d9"
    assert answer.payload["device"]["enrolled_by"] == ADA
    assert None is answer.payload["device"]["last_seen"]  # the device has not reported yet
    for query in ({}, {"confirm": "d"}):
        assert 400 == (await server.ask("DELETE", "/devices/d9", **query)).status
    assert 200 == (await server.ask("DELETE", "/devices/d9", confirm="d9")).status
    assert 404 == (await server.ask("DELETE", "/devices/d9", confirm="d9")).status
    assert ["d0", "d1", "d2"] == await listed(server)
    rows = [row for row in await audit_rows(server.registry) if row.target == "d9"]
    assert [("device.admit", ADA), ("device.delete", ADA)] == [(row.action, row.actor) for row in rows]


REFUSED: Sequence[tuple[str, str, Any, int]] = [
    ("POST", "/devices/d0/approve", None, 409),
    ("POST", "/devices/nobody/revoke", None, 404),
    ("POST", "/devices", {"id": "d0"}, 409),
    ("POST", "/devices", {"id": "a b"}, 400),
    ("PATCH", "/devices/d0", {"labels": {"no good": "x"}}, 400),
    ("PATCH", "/devices/d0", {"labels": {"team": "x" * 300}}, 400),
    ("PATCH", "/devices/d0", {"state": "revoked"}, 400),
]


async def test_what_is_refused(server: OperatorServer) -> None:
    """An invalid change is refused with a reason, and nothing changes."""
    before = _device(server, "d0")
    for method, path, body, status in REFUSED:
        assert status == (await server.ask(method, path, body)).status, (method, path, body)
        assert before == _device(server, "d0"), (method, path, body)


async def test_names_that_nobody_enrolled(server: OperatorServer) -> None:
    """Unenrolled names are listed with the key that reported them, newest first."""
    for n, name in enumerate(("x", "y", "x")):
        lifecycle(server).table.store_unenrolled_name(name, key="sender", now=float(n))
    rows = (await server.ask("GET", "/unenrolled")).payload["unenrolled"]
    assert [("x", 2, "sender"), ("y", 1, "sender")] == [
        (row["name"], row["count"], row["key"]) for row in rows
    ]
