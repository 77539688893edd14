"""Enrolment tokens over real sockets: a token enrols a bounded number of devices, and does nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.sections import Config, DeviceSettings
from gateway.operations.money.insights import make_insight_updater
from gateway.service.addresses.table import FOR_SENDERS, OPERATOR_ADDRESSES
from gateway.service.app import TollhouseApp
from spool.registry.enrolment_tokens import KEPT_S, EnrolmentTokenTable, TokenDraft
from spool.registry.notices import WARNING
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.registry.tables.inventory import Machine
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Answer, Serve, Serving
from tests.integration.test_two_gateways import shared_config
from tests.moved_clock import MovedClock
from tests.spool.kept import audit_rows
from tests.spool.postgres_cluster import Schema
from tests.waiting import limited

ENROL = "/v1/ai-control-plane/enroll"
BEAT = "/v1/ai-control-plane/heartbeat"


def config(**devices: Any) -> Config:
    return Config(spool=SpoolSettings(hold=0, counter_wait=0), devices=DeviceSettings(**devices))


def tokens(server: Serving) -> EnrolmentTokenTable:
    registry = server.app.services.storage.registry
    assert registry is not None
    return registry.enrolment_tokens


async def make(server: Serving, uses: int = 1, **fields: Any) -> str:
    expires_at = fields.pop("expires_at", time.time() + 3600)
    draft = TokenDraft(**{"name": "jamf", "uses": uses, "expires_at": expires_at, **fields})
    [(_, secret)] = await tokens(server).create([draft], actor=ACTOR)
    return secret


async def enrol(server: Serving, token: str, id: str, **body: Any) -> Answer:
    content = {"device_id": id, "fingerprint": f"of {id}", "want_key": True, **body}
    return await server.send(ENROL, json.dumps(content).encode(), key=token)


def said(answer: Answer) -> Any:
    return json.loads(answer.body)


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, said(answer)["error"]["type"]


def device(server: Serving, id: str) -> Any:
    return server.app.services.single.devices.table.find(id)


def filled(path: str) -> str:
    """Return a path with an allowed word in each place."""
    return re.sub(r"{\w+(?::(\w+)[^}]*)?}", lambda place: place[1] or "word", path)


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
async def test_a_token_enrols_as_many_devices_as_it_has_uses(serving: Serving) -> None:
    """
    Each device gets its own key and the token's labels. A repeat of the same device is no use, even if the token
    is used up, because the first answer may have been lost.
    """
    token = await make(serving, 2, labels={"team": "search"})
    answers = await asyncio.gather(*(enrol(serving, token, f"laptop-{n}") for n in range(5)))
    accepted = [said(answer) for answer in answers if answer.status == 200]
    assert [2, 3] == [
        len(accepted),
        sum(error(a) == (403, "token_used_up") for a in answers if a.status != 200),
    ]
    id, key = accepted[0]["device"]["id"], accepted[0]["key"]
    assert {"team": "search"} == device(serving, id).all_labels
    assert "token jamf" == device(serving, id).enrolled_by
    assert key == said(await enrol(serving, token, id))["key"]
    beat = await serving.send(BEAT, json.dumps({"device_id": id}).encode(), key=key)
    assert (200, "enrolled") == (beat.status, said(beat)["device"]["state"])
    registry = serving.app.services.storage.registry
    assert registry is not None
    rows = [row for row in await audit_rows(registry) if row.action in ("token.create", "device.enrol")]
    assert ["token.create", "device.enrol", "device.enrol"] == [row.action for row in rows]
    assert {"token jamf"} == {row.actor for row in rows[1:]}
    assert all(token.rpartition("_")[2] not in str(row) for row in await audit_rows(registry))


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
async def test_a_token_opens_no_other_address(serving: Serving) -> None:
    """Every other address of senders answers 401 or 403, and the operator API does not know the token."""
    token = await make(serving, 5)
    checked = 0
    for row in FOR_SENDERS:
        if row.scope is None or row.scope == ENROLL:
            continue
        answer = await serving.send(filled(row.path), b"{}", method=row.methods[0], key=token)
        assert answer.status in (401, 403), (row.path, answer.status, answer.body)
        checked += 1
    assert checked > 40
    for operator_row in OPERATOR_ADDRESSES:
        if operator_row.needs is None:
            continue
        path, method = filled(operator_row.path), operator_row.methods[0]
        answer = await serving.send(path, b"{}", method=method, key=token)
        assert answer.status in (401, 403), (operator_row.path, answer.status)
    assert [] == serving.app.services.single.devices.table.all()


async def test_only_the_enrolment_address_has_the_scope() -> None:
    assert [ENROL] == [row.path for row in FOR_SENDERS if row.scope == ENROLL]


async def test_a_wrong_secret_and_an_ended_token(serve: Serve) -> None:
    """
    A token with an unknown secret, an expired one and a revoked one get 401. After a revocation, a device whose
    answer was lost gets 401 as well.
    """
    clock = MovedClock()
    server = await serve(config=config(), clock=clock)
    token = await make(server, 5, expires_at=clock.now() + 60)
    assert (401, "unknown_key") == error(await enrol(server, token[:-1] + "x", "laptop-1"))
    assert (401, "unknown_key") == error(await enrol(server, "the_0011223344556677_x", "laptop-1"))
    assert 200 == (await enrol(server, token, "laptop-1")).status
    clock.move(61)
    assert (401, "token_ended") == error(await enrol(server, token, "laptop-2"))
    other = await make(server, 5, expires_at=clock.now() + 60)
    assert 200 == (await enrol(server, other, "laptop-2")).status
    lifecycle = server.app.services.single.devices
    assert (2, 0) == await lifecycle.revoke_token("jamf", ACTOR, devices=False)
    assert (401, "token_ended") == error(await enrol(server, other, "laptop-2"))
    assert "enrolled" == device(server, "laptop-2").state
    assert (2, 2) == await lifecycle.revoke_token("jamf", ACTOR, devices=True)
    assert ["revoked"] * 2 == [device(server, f"laptop-{n}").state for n in (1, 2)]
    clock.move(KEPT_S + 61)
    await make(server, 1, expires_at=clock.now() + 60)
    assert 1 == len(tokens(server).all())


@pytest.mark.proves("A leaked token is used for another machine")
async def test_a_token_for_a_serial_number(serving: Serving) -> None:
    """
    A token for a serial number refuses a device that states another one. A device that states none counts as the
    token's machine.
    """
    token = await make(serving, serial="C02XYZ")
    assert (403, "other_serial") == error(await enrol(serving, token, "laptop-1", serial="C02ABC"))
    assert 200 == (await enrol(serving, token, "laptop-1", serial="c02xyz")).status
    assert (403, "token_used_up") == error(await enrol(serving, token, "laptop-2"))


async def test_deleting_a_device_gives_no_use_back(serving: Serving) -> None:
    """
    Deleting or resetting a device gives no use of its token back, because a leaked token would become valid again.
    A reset is for another machine, which needs another use.
    """
    token = await make(serving, 2)
    lifecycle = serving.app.services.single.devices
    assert 200 == (await enrol(serving, token, "laptop-1")).status
    await lifecycle.delete_device("laptop-1", ACTOR)
    assert 200 == (await enrol(serving, token, "laptop-2")).status
    assert (403, "token_used_up") == error(await enrol(serving, token, "laptop-3"))
    await lifecycle.reset_device("laptop-2", ACTOR)
    assert (403, "token_used_up") == error(await enrol(serving, token, "laptop-2", fingerprint="another"))


@pytest.mark.proves("A leaked token is used for another machine")
async def test_a_token_does_not_touch_other_devices(serve: Serve) -> None:
    """
    A token does not open devices of others: a device that another key enrolled belongs to its fingerprint. A device
    that an operator admitted gets its first key with a use of the token.
    """
    server = await serve(config=config())
    fleet = await server.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    token = await make(server, 1)
    assert 200 == (await enrol(server, fleet, "laptop-1", fingerprint="", want_key=False)).status
    before = device(server, "laptop-1")
    server.app.services.single.devices.table.change_and_write_soon(
        "laptop-1", lambda known: known.with_changes_and_next_version(enrolled_at=1.0)
    )
    assert (409, "another_fingerprint") == error(await enrol(server, token, "laptop-1", user="eve"))
    assert before.user == device(server, "laptop-1").user
    await server.app.services.single.devices.admit_device("laptop-2", ACTOR)
    assert "key" in said(await enrol(server, token, "laptop-2"))
    assert (403, "token_used_up") == error(await enrol(server, token, "laptop-3"))


async def test_new_devices_may_need_a_token(serve: Serve) -> None:
    """With devices.require_token, shared keys enrol no new device. Known devices and tokens continue to work."""
    server = await serve(config=config(require_token=True))
    fleet = await server.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    assert (403, "token_required") == error(await enrol(server, fleet, "laptop-1"))
    beat = await server.send(BEAT, b'{"device_id": "laptop-1"}', key=fleet)
    assert (403, "token_required") == error(beat)
    assert 200 == (await enrol(server, await make(server), "laptop-1")).status
    await server.app.services.single.devices.admit_device("laptop-2", ACTOR)
    assert "key" in said(await enrol(server, fleet, "laptop-2"))


async def test_only_expected_machines_enrol(serve: Serve) -> None:
    """
    With devices.policy = "expected", other machines are pending with the reason. A token for a serial number decides,
    whatever the machine states. After an import, a pending machine is enrolled at its next request.
    """
    server = await serve(config=config(policy="expected"))
    registry = server.app.services.storage.registry
    assert registry is not None
    fleet = await server.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    assert "pending" == said(await enrol(server, fleet, "early", serial="C02B"))["device"]["state"]
    machines = [Machine(serial="C02A"), Machine(serial="C02B"), Machine(hostname="mill.example.com")]
    await registry.inventory.replace_machines(machines, source="csv", confirmed=False, actor=ACTOR)
    expected = {
        "by-serial": ({"serial": "c02a"}, "enrolled"),
        "by-host": ({"hostname": "mill"}, "enrolled"),
        "C02A": ({}, "enrolled"),
        "other": ({"serial": "C02X", "hostname": "mill2"}, "pending"),
        "nothing": ({}, "pending"),
    }
    for id, (body, state) in expected.items():
        assert state == said(await enrol(server, fleet, id, **body))["device"]["state"], id
        assert ("not_expected" if state == "pending" else "") == device(server, id).cause
    assert "enrolled" == said(await enrol(server, await make(server, serial="C02A"), "a"))["device"]["state"]
    assert "pending" == said(await enrol(server, await make(server, serial="C02Z"), "z"))["device"]["state"]
    assert (
        "pending"
        == said(await enrol(server, fleet, "early", fingerprint="", serial="C02B"))["device"]["state"]
    )
    assert "enrolled" == said(await enrol(server, fleet, "early", serial="C02B"))["device"]["state"]
    assert "key" in said(await enrol(server, fleet, "early", serial="C02B"))


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
async def test_two_gateways_share_the_count(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """
    60 machines with 50 uses at once at two gateways become exactly 50 devices. After a revocation, neither gateway
    accepts the token. Devices that the other gateway enrolled are revoked as well.
    """
    schema = new_schema()
    shared = shared_config(schema.dsn, schema.name, tmp_path)
    one, other = [await serve(config=shared, key_name=name) for name in ("one", "other")]
    token = await make(one, 50)
    pair = (one, other)
    pending = [(pair[n % 2], f"laptop-{n}") for n in range(60)]
    outcomes: dict[str, str] = {}
    async with limited():
        while pending:
            answers = await asyncio.gather(*(enrol(server, token, id) for server, id in pending))
            for (_, id), answer in zip(pending, answers, strict=True):
                outcomes[id] = "" if answer.status == 200 else error(answer)[1]
            # 429: above the rate of a token; a client repeats the request
            pending = [(server, id) for server, id in pending if outcomes[id] == "too_many_enrolments"]
            await asyncio.sleep(0.2)
    assert 50 == sum(not outcome for outcome in outcomes.values())
    assert {"", "token_used_up"} == set(outcomes.values())
    for server in pair:
        await server.app.services.single.devices.table.read_changes_of_other_processes(None)
        assert 50 == len(server.app.services.single.devices.table.all())
    began = time.monotonic()
    devices = one.app.services.single.devices
    assert (1, 50) == await devices.revoke_token("jamf", ACTOR, devices=True)
    while (await enrol(other, token, "laptop-99")).status != 401:
        assert time.monotonic() - began < 60
    states = {row.state for row in one.app.services.single.devices.table.all()}
    assert {"revoked"} == states


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
async def test_the_limit_of_an_hour_holds_for_enrolments_at_once(serving: Serving) -> None:
    """Ten machines that enrol at once with two enrolments an hour become two devices."""
    token = await make(serving, 10, per_hour=2)
    answers = await asyncio.gather(*(enrol(serving, token, f"laptop-{n}") for n in range(10)))
    assert [200] * 2 + [429] * 8 == sorted(answer.status for answer in answers)
    assert 2 == len(serving.app.services.single.devices.table.all())


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
async def test_two_gateways_share_the_limit_of_an_hour(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """Devices that one gateway enrolled count at the other, once it has read them."""
    schema = new_schema()
    shared = shared_config(schema.dsn, schema.name, tmp_path)
    one, other = [await serve(config=shared, key_name=name) for name in ("one", "other")]
    token = await make(one, 50, per_hour=5)
    assert [200] * 3 == [(await enrol(one, token, f"one-{n}")).status for n in range(3)]
    await other.app.services.single.devices.table.read_changes_of_other_processes(None)
    answers = [await enrol(other, token, f"other-{n}") for n in range(4)]
    assert [200, 200, 429, 429] == [answer.status for answer in answers]
    assert 3500 < int(answers[-1].headers["Retry-After"]) <= 3600
    await one.app.services.single.devices.table.read_changes_of_other_processes(None)
    assert 429 == (await enrol(one, token, "one-more")).status
    assert 200 == (await enrol(one, token, "other-0")).status


async def test_a_token_enrols_only_some_devices_within_an_hour(serve: Serve) -> None:
    """
    Above the limit of an hour, new devices get 429 with the time to wait, also after a restart. Known devices and
    other tokens are not limited, and an approval is no enrolment.
    """
    clock = MovedClock()
    server = await serve(config=config(policy="approve"), clock=clock)
    expires_at = clock.now() + 86_400
    token = await make(server, 9, per_hour=2, expires_at=expires_at)
    other = await make(server, 9, name="other", per_hour=0)
    lifecycle = server.app.services.single.devices
    assert 200 == (await enrol(server, token, "a")).status
    clock.move(600)
    assert 200 == (await enrol(server, token, "b")).status
    for id in ("a", "b"):
        await lifecycle.approve_device(id, ACTOR)
    await server.app.stop()
    server.app = TollhouseApp(server.app.config, version="0", clock=clock)
    await server.app.start()
    refused = await enrol(server, token, "c")
    assert (429, "too_many_enrolments") == error(refused)
    assert 2999 <= int(refused.headers["Retry-After"]) <= 3001
    assert "2 devices within an hour" in said(refused)["error"]["message"]
    assert "--per-hour" in said(refused)["error"]["message"]
    updater = make_insight_updater(server.app.services.operators)
    assert await updater.has_changed_state()  # so it warns within a minute, on the token's first day
    await updater.find_and_store_insights()
    registry = server.app.services.storage.registry
    assert registry is not None
    [found] = await registry.insights.detector_insights()
    assert ("token_burst", WARNING) == (str(found.finding).partition(":")[0], found.severity)
    assert 200 == (await enrol(server, token, "a")).status
    assert {200} == {(await enrol(server, other, f"other-{n}")).status for n in range(5)}
    clock.move(int(refused.headers["Retry-After"]))
    assert 200 == (await enrol(server, token, "c")).status
    assert 429 == (await enrol(server, token, "d")).status


@pytest.mark.parametrize("body", [{"serial": 5}, {"serial": "x" * 300}])
async def test_a_wrong_serial_number_is_no_fault(serving: Serving, body: Mapping[str, Any]) -> None:
    token = await make(serving)
    assert (await enrol(serving, token, "laptop-1", **body)).status in (200, 400)
