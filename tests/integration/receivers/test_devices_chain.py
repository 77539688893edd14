"""Operators' decisions about a device at one Tollhouse reach the next one, with limits."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from gateway.devices.machine_state import REVOKED_THERE
from spool.devices.device import ENROLLED, REVOKED, REVOKED_UPSTREAM, Device
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import json_span
from tests.spool.kept import audit_rows
from tests.waiting import until

ENROL = "/v1/ai-control-plane/enroll"
SCOPES = (ENROLL, HEARTBEAT, INGEST)


async def enrol(server: Serving, key: str, status: int = 200, **body: Any) -> Any:
    answer = await server.send(ENROL, json.dumps({"device_id": "laptop", **body}).encode(), key=key)
    assert status == answer.status, answer.body
    return json.loads(answer.body)


def device(server: Serving) -> Device:
    found = server.app.services.single.devices.table.find("laptop")
    assert found is not None
    return found


@dataclass
class Chain:
    """
    A gateway near the devices, and the gateway to which it reports, under a key that the far one
    lists in chain_keys.
    """

    near: Serving
    far: Serving
    fleet: str  # the key at the near gateway that the devices use
    gateway: str  # the near gateway's key at the far gateway

    async def do(self, verb: str) -> None:
        await getattr(self.near.app.services.single.devices, verb)("laptop", ACTOR)

    async def is_told(self) -> None:
        await until(lambda: device(self.near).sent_version == device(self.near).version)


@pytest_asyncio.fixture
async def chain(serve: Serve, tmp_path: Path) -> Chain:
    far = await serve(chain_keys=("near",))
    gateway = await far.make_key("near", scopes=SCOPES)
    secret = tmp_path / "near.key"
    secret.write_text(gateway)
    key = UpstreamKey(name="near", secret_file=secret, scopes=SCOPES)
    upstream = UpstreamSettings(base_url=far.url, kind="tollhouse", keys=(key,))
    near = await serve(config=Config(spool=SpoolSettings(hold=0, counter_wait=0), upstream=upstream))
    made = Chain(near, far, await near.make_key("fleet", scopes=SCOPES), gateway)
    await enrol(near, made.fleet, fingerprint="first")
    await made.is_told()
    return made


async def test_far_gateway_learns_of_a_revocation_and_an_approval(chain: Chain) -> None:
    """
    After a revocation the far gateway refuses the device itself. After an approval it accepts the device again.
    """
    fleet = await chain.far.make_key("fleet", scopes=SCOPES)
    await chain.do("revoke_device")
    await until(lambda: device(chain.far).state == REVOKED)
    await enrol(chain.far, fleet, 410, fingerprint="first")
    await chain.do("approve_device")
    await until(lambda: device(chain.far).state == ENROLLED)
    await enrol(chain.far, fleet, fingerprint="first")
    registry = chain.far.app.services.storage.registry
    assert registry is not None
    rows = [row for row in await audit_rows(registry) if row.action in ("device.revoke", "device.approve")]
    assert [("key near", "device.revoke"), ("key near", "device.approve")] == [
        (row.actor, row.action) for row in rows
    ]


async def test_a_device_that_the_far_gateway_revoked_is_marked(chain: Chain) -> None:
    """
    If the far gateway revoked a device, the near gateway still counts its calls and states this as a cause. An
    approval at the far gateway ends the cause with the next change of the device.
    """
    far, near = chain.far.app.services.single.devices, chain.near.app.services.single.devices
    await far.revoke_device("laptop", ACTOR)
    await enrol(chain.near, chain.fleet, fingerprint="first", hostname="mill")
    await until(lambda: device(chain.near).held is not None)
    assert REVOKED_UPSTREAM == device(chain.near).held
    assert REVOKED_THERE in near.machine_state(device(chain.near)).causes
    await far.approve_device("laptop", ACTOR)
    await enrol(chain.near, chain.fleet, fingerprint="first", hostname="mill-2")
    await until(lambda: device(chain.near).held is None)
    assert REVOKED_THERE not in near.machine_state(device(chain.near)).causes


async def test_far_gateway_learns_of_a_reset(chain: Chain) -> None:
    """
    After a reset, another machine may enrol under the id at the far gateway as well, despite its other fingerprint.
    """
    await chain.do("reset_device")
    await enrol(chain.near, chain.fleet, fingerprint="second")
    await until(lambda: device(chain.far).fingerprint == "second")
    await chain.is_told()
    assert None is device(chain.near).held


async def test_records_from_before_a_revocation_are_not_refused(chain: Chain) -> None:
    """
    Earlier records of a revoked device may still wait at the gateway that revoked it, so its key may send
    them. Other keys may not.
    """
    await chain.do("revoke_device")
    await until(lambda: device(chain.far).state == REVOKED)
    attributes = [{"key": "device.id", "value": {"stringValue": "laptop"}}]
    spans = [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [json_span()]}]}]
    body = json.dumps({"resourceSpans": spans}).encode()
    for key, rejected in ((chain.gateway, "0"), (chain.far.key, "1")):
        answer = await chain.far.send("/v1/traces", body, key=key)
        assert f"rejected={rejected};" in answer.headers["Tollhouse-Receipt"]
    [record] = await chain.far.records()
    assert "laptop" == record.device


async def test_a_revocation_by_an_operator_there_is_stronger(chain: Chain) -> None:
    """
    An approval at the near gateway cannot end a revocation by an operator at the far one, and the near
    gateway says so.
    """
    await chain.far.app.services.single.devices.revoke_device("laptop", ACTOR)
    await chain.do("revoke_device")
    await chain.is_told()
    await chain.do("approve_device")
    await until(lambda: device(chain.near).held is not None)
    assert device(chain.far).state == REVOKED
    assert device(chain.far).revoked_by == ""


@pytest.mark.proof
async def test_operator_revocation_replaces_that_of_the_near_gateway(chain: Chain) -> None:
    """
    If an operator at the far gateway also revokes a device that the near gateway revoked, the revocation belongs to
    this operator.
    """
    await chain.do("revoke_device")
    await until(lambda: device(chain.far).state == REVOKED)
    await chain.far.app.services.single.devices.revoke_device("laptop", ACTOR)
    assert "" == device(chain.far).revoked_by


@pytest.mark.parametrize("change", [{"state": REVOKED}, {"reset": True, "fingerprint": "second"}])
async def test_a_key_that_is_not_named_revokes_and_resets_nothing(
    serve: Serve, change: dict[str, Any]
) -> None:
    """Every laptop has the fleet's key, so `*` in server.chain_keys matches no such key."""
    server = await serve()
    fleet = await server.make_key("fleet", scopes=SCOPES)
    await enrol(server, fleet, fingerprint="first")
    answer = await server.send(ENROL, json.dumps({"device_id": "laptop", **change}).encode(), key=fleet)
    assert answer.status == (409 if "reset" in change else 200)
    assert device(server).state == ENROLLED
    assert device(server).fingerprint == "first"


async def test_an_upstream_that_does_not_follow_is_named(serve: Serve, tmp_path: Path) -> None:
    """
    If the upstream does not accept the revocation of a device, the entry of the device names the upstream setting
    that is missing.
    """
    far = await serve()
    secret = tmp_path / "near.key"
    secret.write_text(await far.make_key("near", scopes=SCOPES))
    key = UpstreamKey(name="near", secret_file=secret, scopes=SCOPES)
    upstream = UpstreamSettings(base_url=far.url, kind="tollhouse", keys=(key,))
    near = await serve(config=Config(upstream=upstream))
    await enrol(near, await near.make_key("fleet", scopes=SCOPES))
    await until(lambda: device(near).sent_version == device(near).version)
    await near.app.services.single.devices.revoke_device("laptop", ACTOR)
    await until(lambda: "server.chain_keys" in (device(near).held or ""))
    assert ENROLLED == device(far).state


async def test_an_unknown_device_is_not_enrolled_by_its_revocation(chain: Chain) -> None:
    """
    If another gateway reports the revocation of an unknown device, the answer says that it is revoked, but nothing
    is stored.
    """
    answer = await enrol(chain.far, chain.gateway, device_id="other", state=REVOKED)
    assert REVOKED == answer["device"]["state"]
    assert None is chain.far.app.services.single.devices.table.find("other")


async def test_states_of_assistants_reach_the_next_gateway(chain: Chain) -> None:
    """
    Both gateways have the agent's facts. A call that the near gateway forwards makes the assistant `reporting`
    at the far one as well.
    """
    facts = {
        "assistants": {"copilot": {"state": "unused"}, "codex": {"state": "overridden", "cause": "project"}}
    }
    body = {"device_id": "laptop", "fingerprint": "first", "os": "macos 26.1", **facts}
    answer = await chain.near.send(
        "/v1/ai-control-plane/heartbeat", json.dumps(body).encode(), key=chain.fleet
    )
    assert answer.status == 200
    await until(lambda: b"assistants" in device(chain.far).heartbeat)
    assert facts["assistants"] == json.loads(device(chain.far).heartbeat)["assistants"]
    attributes = [
        {"key": key, "value": {"stringValue": value}}
        for key, value in (("device.id", "laptop"), ("service.name", "github-copilot"))
    ]
    span = json_span(endTimeUnixNano=str(time.time_ns()))
    call = {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]}
    traces = json.dumps({"resourceSpans": [call]}).encode()
    assert 200 == (await chain.near.send("/v1/traces", traces, key=chain.fleet)).status
    await until(lambda: "copilot" in device(chain.far).newest_calls)
    rows = await chain.far.app.services.operators.senders.require_fleet().machine_rows()
    states = [(each.name, each.state) for row in rows for each in row.assistants]
    assert [("codex", "overridden"), ("copilot", "reporting")] == states
