"""Devices over the operator API: lists, states, changes and who made them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.authentication.access import Bearer
from gateway.devices.lifecycle import DeviceLifecycle, DeviceReport
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL
from tests.integration.operator.house import ADA, OperatorHouse, operator_house
from tests.spool.kept import audit_rows

pytestmark = pytest.mark.asyncio
FLEET = Bearer("fleet", frozenset({ENROLL}))


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[OperatorHouse]:
    async with operator_house(tmp_path) as opened:
        for n, user in enumerate(("ada", "bob", "ada")):
            told = DeviceReport(id=f"d{n}", hostname=f"h{n}", user=user, labels={"floor": str(n)})
            await lifecycle(opened).enrol(told, FLEET, "10.0.0.1")
        yield opened


def lifecycle(house: OperatorHouse) -> DeviceLifecycle:
    return house.services.require_devices()


async def listed(house: OperatorHouse, **query: str) -> list[str]:
    answer = await house.ask("GET", "/devices", **query)
    assert 200 == answer.status, answer.payload
    return [row["id"] for row in answer.payload["devices"]]


async def test_the_list(house: OperatorHouse) -> None:
    """The service's envelope, filters and sorts; states are those of now."""
    assert ["d0", "d1", "d2"] == await listed(house)
    assert ["d2", "d1"] == await listed(house, sort_key="hostname", sort_order="desc", limit="2")
    assert ["d0", "d2"] == await listed(house, user="ada")
    assert ["d1"] == await listed(house, label="floor=1")
    await lifecycle(house).revoke("d1", Actor(ADA, "socket"))
    house.clock.move(200)
    lifecycle(house).table.touch(replace(_device(house, "d2"), last_seen=house.clock.now()))
    for state, expected in (("silent", ["d0"]), ("revoked", ["d1"]), ("enrolled", ["d2"])):
        assert expected == await listed(house, state=state)
    refused = await house.ask("GET", "/devices", state="asleep")
    assert 400 == refused.status and "silent" in refused.error[2]


def _device(house: OperatorHouse, id: str) -> Any:
    return lifecycle(house).table.find(id)


async def test_one_device(house: OperatorHouse) -> None:
    """Everything that is known of it but for its fingerprint."""
    await lifecycle(house).enrol(DeviceReport(id="d0", fingerprint="secret-print"), FLEET, "")
    answer = await house.ask("GET", "/devices/d0")
    device = answer.payload["device"]
    assert ("d0", "fleet", False) == (device["id"], device["enrolled_by"], device["has_key"])
    assert "secret-print" not in str(answer.payload)
    assert 404 == (await house.ask("GET", "/devices/nobody")).status


async def test_changes_and_their_audit_rows(house: OperatorHouse) -> None:
    """Approve, revoke, reset and label: by whom, on what, from what to what."""
    for method, path, body in (
        ("POST", "/devices/d0/revoke", None),
        ("POST", "/devices/d0/approve", None),
        ("POST", "/devices/d0/reset", None),
        ("PATCH", "/devices/d0", {"labels": {"team": "search", "floor": "9"}}),
        ("PATCH", "/devices/d0", {"labels": {"floor": None}}),
    ):
        answer = await house.ask(method, path, body)
        assert 200 == answer.status, answer.payload
    assert {"team": "search", "floor": "0"} == answer.payload["device"]["labels"]
    rows = [row for row in await audit_rows(house.registry) if row.target == "d0"]
    assert ["key fleet", ADA, ADA, ADA, ADA, ADA] == [row.actor for row in rows]
    actions = ["enrol", "revoke", "approve", "reset", "label", "label"]
    assert [f"device.{word}" for word in actions] == [row.action for row in rows]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/devices/d0/approve", None, 409),
        ("POST", "/devices/nobody/revoke", None, 404),
        ("PATCH", "/devices/d0", {"labels": {"no good": "x"}}, 400),
        ("PATCH", "/devices/d0", {"labels": {"team": "x" * 300}}, 400),
        ("PATCH", "/devices/d0", {"state": "revoked"}, 400),
    ],
)
async def test_what_is_refused(house: OperatorHouse, method: str, path: str, body: Any, status: int) -> None:
    """With a reason, and nothing is changed."""
    before = _device(house, "d0")
    assert status == (await house.ask(method, path, body)).status
    assert before == _device(house, "d0")


async def test_names_that_nobody_enrolled(house: OperatorHouse) -> None:
    """Listed with the key that brought them, newest first."""
    for n, name in enumerate(("x", "y", "x")):
        lifecycle(house).table.note_unenrolled(name, key="sender", now=float(n))
    rows = (await house.ask("GET", "/unenrolled")).payload["unenrolled"]
    assert [("x", 2, "sender"), ("y", 1, "sender")] == [(row["name"], row["count"], row["key"]) for row in rows]
