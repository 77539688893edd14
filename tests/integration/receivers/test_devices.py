"""The devices API over real sockets: first contacts, keys, names and states."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.configuration.sections import Config, DeviceSettings
from gateway.configuration.server import ServerSettings
from gateway.devices import lifecycle as rules
from gateway.devices.lifecycle import FIRST_KEY_S
from gateway.devices.reports import DeviceReport
from gateway.operations.money.insights import make_insight_updater
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.app import TollhouseApp
from spool.devices import table as device_table
from spool.devices.device import Device
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Answer, Serve, Serving
from tests.integration.payloads import json_span, proto_span
from tests.moved_clock import MovedClock
from tests.spool.kept import audit_rows

PLANE = "/v1/ai-control-plane/"
ALL = (ENROLL, HEARTBEAT, PING, INGEST)


def config(**devices: Any) -> Config:
    return Config(spool=SpoolSettings(hold=0, counter_wait=0), devices=DeviceSettings(**devices))


async def ask(server: Serving, what: str, body: Mapping[str, Any], key: str, **headers: str) -> Answer:
    return await server.send(PLANE + what, json.dumps(body).encode(), key=key, headers=headers)


def said(answer: Answer) -> Any:
    return json.loads(answer.body)


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, said(answer)["error"]["type"]


def traces(device: str | None = None, *, name: str = "device.id", **span: Any) -> bytes:
    """Return one call whose resource names a device."""
    attributes = [{"key": name, "value": {"stringValue": device}}] if device else []
    return json.dumps(
        {
            "resourceSpans": [
                {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [json_span(**span)]}]}
            ]
        }
    ).encode()


def found(server: Serving, id: str = "laptop-1") -> Device:
    device = server.app.services.single.devices.table.find(id)
    assert device is not None
    return device


async def audited(server: Serving) -> list[tuple[str, str, str]]:
    registry = server.app.services.storage.registry
    assert registry is not None
    rows = await audit_rows(registry)
    return [(row.actor, row.action, row.target) for row in rows if row.action.startswith("device.")]


async def test_a_first_heartbeat_enrols_when_its_key_may(serving: Serving) -> None:
    """
    A first heartbeat enrols the device if its key may enrol. The device is listed, and the audit list names the
    key.
    """
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    answer = await ask(serving, "heartbeat", {"device_id": "laptop-1", "hostname": "mill"}, key)
    expected = {"device": {"id": "laptop-1", "state": "enrolled", "heartbeat_interval_s": 60}}
    assert answer.status == 200
    assert said(answer) == expected
    assert found(serving).hostname == "mill"
    assert found(serving).enrolled_by == "fleet"
    assert [("key fleet", "device.enrol", "laptop-1")] == await audited(serving)


async def test_a_first_heartbeat_under_a_key_that_may_not_enrol(serving: Serving) -> None:
    """A key that may not enrol gets a 403 that names the scope, and nothing is enrolled."""
    key = await serving.make_key("beat", scopes=(HEARTBEAT,))
    answer = await ask(serving, "heartbeat", {"device_id": "laptop-1"}, key)
    assert (403, "missing_scope") == error(answer)
    assert ENROLL in said(answer)["error"]["message"]
    assert [] == serving.app.services.single.devices.table.all()


async def test_two_first_contacts_at_once_are_one_device(serving: Serving) -> None:
    """
    If a heartbeat, an enrolment and telemetry of a new device arrive at the same time, they make one device with
    one audit row and one key.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    answers = await asyncio.gather(
        ask(serving, "enroll", {"device_id": "laptop-1", "want_key": True}, key),
        ask(serving, "enroll", {"device_id": "laptop-1", "want_key": True}, key),
        ask(serving, "heartbeat", {"device_id": "laptop-1"}, key),
        serving.send("/v1/traces", traces("laptop-1"), key=key),
    )
    assert [200] * 4 == [answer.status for answer in answers]
    assert 1 == sum("key" in said(answer) for answer in answers[:2])
    assert 1 == len(await audited(serving))


async def test_policy_approve(serve: Serve) -> None:
    """A pending device gets 200 with its state but no key. An operator's approval enrols it."""
    server = await serve(config=config(policy="approve"))
    key = await server.make_key("fleet", scopes=ALL)
    wants = {"device_id": "laptop-1", "want_key": True}
    answer = await ask(server, "enroll", wants, key)
    assert answer.status == 200
    assert said(answer)["device"]["state"] == "pending"
    assert "key" not in said(answer)
    assert (
        "pending" == said(await ask(server, "heartbeat", {"device_id": "laptop-1"}, key))["device"]["state"]
    )
    await server.send("/v1/traces", traces("laptop-1"), key=key)
    await server.app.services.single.devices.approve_device("laptop-1", ACTOR)
    answer = await ask(server, "enroll", wants, key)
    assert said(answer)["device"]["state"] == "enrolled"
    assert "key" in said(answer)
    await server.send("/v1/traces", traces("laptop-1"), key=said(answer)["key"])
    assert [None, "laptop-1"] == [record.device for record in await server.records()]


async def test_policy_closed(serve: Serve) -> None:
    """With the policy `closed`, no new device is enrolled, but telemetry is still accepted."""
    server = await serve(config=config(policy="closed"))
    key = await server.make_key("fleet", scopes=ALL)
    for what in ("enroll", "heartbeat"):
        assert (403, "enrolment_closed") == error(await ask(server, what, {"device_id": "laptop-1"}, key))
    assert 200 == (await server.send("/v1/traces", traces("laptop-1"), key=key)).status
    assert ["laptop-1"] == [name.name for name in server.app.services.single.devices.table.unenrolled_names()]


async def test_too_many_devices(serve: Serve) -> None:
    """
    Beyond devices.max, new devices get 429. Known devices continue, and telemetry of a new device is accepted.
    """
    server = await serve(config=config(max=1))
    key = await server.make_key("fleet", scopes=ALL)
    assert 200 == (await ask(server, "enroll", {"device_id": "a"}, key)).status
    assert (429, "too_many_devices") == error(await ask(server, "enroll", {"device_id": "b"}, key))
    assert 200 == (await ask(server, "heartbeat", {"device_id": "a"}, key)).status
    assert 200 == (await server.send("/v1/traces", traces("b"), key=key)).status
    assert [None] == [record.device for record in await server.records()]


async def test_a_key_leaves_room_for_the_devices_of_another(serve: Serve) -> None:
    """
    One key enrols invented names up to its share. Another key can still enrol its first device, and the
    operator sees the first key.
    """
    server = await serve(config=config(max=10))
    fleet, other = await server.make_key("fleet", scopes=ALL), await server.make_key("other", scopes=ALL)
    statuses = [(await ask(server, "enroll", {"device_id": f"made-up-{n}"}, fleet)).status for n in range(7)]
    assert [200] * 5 + [429] * 2 == statuses
    assert 200 == (await ask(server, "heartbeat", {"device_id": "laptop-1"}, other)).status
    text = (await server.app.services.single.exposition.current_text()).decode()
    assert 'tollhouse_limit_held_by_key{key="fleet",name="devices.max"} 5.0' in text
    operators = server.app.services.operators
    await make_insight_updater(operators).find_and_store_insights()
    titles = [
        each.title for each in await operators.installation.require_registry().insights.detector_insights()
    ]
    assert [title for title in titles if "fleet" in title and "devices.max" in title]


async def test_names_of_one_key_push_out_no_name_of_another(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The list of unenrolled names is bounded. If it is full, the oldest name of the key with the most
    names is dropped.
    """
    monkeypatch.setattr(device_table, "MAX_UNENROLLED", 3)
    other = await serving.make_key("other", scopes=(INGEST,))
    await serving.send("/v1/traces", traces("real"), key=other)
    for n in range(5):
        await serving.send("/v1/traces", traces(f"made-up-{n}"))
    names = serving.app.services.single.devices.table.unenrolled_names()
    assert {"real", "made-up-3", "made-up-4"} == {each.name for each in names}


async def test_too_many_enrolments_of_one_key(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    After a burst of enrolments, the key gets 429 with Retry-After. Other keys are not limited, and telemetry
    of the limited key is accepted.
    """
    assert rules.ENROLMENTS == 2000
    assert rules.ENROLMENTS_PER_S == 1.0
    limits = serving.app.services.single.devices._limits
    monkeypatch.setattr(limits, "_burst", 2)
    # the rate is so low that the duration of the requests does not matter
    monkeypatch.setattr(limits, "_per_s", 0.001)
    key, other = await serving.make_key("fleet", scopes=ALL), await serving.make_key("other", scopes=ALL)
    statuses = [(await ask(serving, "enroll", {"device_id": f"d{n}"}, key)).status for n in range(4)]
    assert [200, 200, 429] == [statuses[0], statuses[1], statuses[-1]]
    refused = await ask(serving, "heartbeat", {"device_id": "d3"}, key)
    assert (429, "too_many_enrolments") == error(refused)
    assert int(refused.headers["Retry-After"]) >= 1
    assert 200 == (await serving.send("/v1/traces", traces("d4"), key=key)).status
    assert 200 == (await ask(serving, "enroll", {"device_id": "d5"}, other)).status


async def test_a_second_fingerprint(serving: Serving) -> None:
    """
    An enrolment with another fingerprint gets 409 and one audit row. After a reset, the other machine can enrol.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    first = await ask(serving, "enroll", {"device_id": "laptop-1", "fingerprint": "a", "want_key": True}, key)
    for what in ("enroll", "heartbeat"):
        answer = await ask(serving, what, {"device_id": "laptop-1", "fingerprint": "b"}, key)
        assert (409, "another_fingerprint") == error(answer)
    assert found(serving).flagged_at is not None
    assert ["device.enrol", "device.second_fingerprint"] == [
        action for _, action, _ in await audited(serving)
    ]
    await serving.app.services.single.devices.reset_device("laptop-1", ACTOR)
    assert 401 == (await serving.send("/v1/traces", traces(), key=said(first)["key"])).status
    second = await ask(
        serving, "enroll", {"device_id": "laptop-1", "fingerprint": "b", "want_key": True}, key
    )
    assert said(second)["key"] != said(first)["key"]


async def test_device_key_without_fingerprint_is_in_only_one_answer(serving: Serving) -> None:
    """
    Without a fingerprint, the key is in only one answer. With a fingerprint it is repeated until its first
    use, because an answer may be lost.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    bare = {"device_id": "bare", "want_key": True}
    told = [said(await ask(serving, "enroll", bare, key)).get("key") for _ in range(2)]
    assert told[0].startswith("thd_bare_")
    assert told[1] is None
    known = {"device_id": "known", "want_key": True, "fingerprint": "f"}
    first, again = [said(await ask(serving, "enroll", known, key)).get("key") for _ in range(2)]
    assert first == again
    assert 200 == (await serving.send("/v1/traces", traces(), key=first)).status
    assert "key" not in said(await ask(serving, "enroll", known, key))


@pytest.mark.proves("A laptop moves another's spend, or gets its key")
async def test_facts_change_with_the_fingerprint_or_the_own_key(serving: Serving) -> None:
    """
    Every laptop has the fleet's key. Without the fingerprint, that key cannot assign another device's spend
    to another team or user.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    mine = {"device_id": "laptop-1", "labels": {"team": "search"}, "user": "ada", "hostname": "mill"}
    own = said(await ask(serving, "enroll", {**mine, "fingerprint": "a", "want_key": True}, fleet))["key"]
    theirs = {**mine, "labels": {"team": "ads"}, "user": "eve", "hostname": "evil"}
    for what in ("enroll", "heartbeat"):
        answer = await ask(serving, what, {**theirs, "want_key": True}, fleet)
        assert answer.status == 200
        assert "key" not in said(answer)
    device = found(serving)
    assert device.labels == {"team": "search"}
    assert device.user == "ada"
    assert device.hostname == "mill"
    await ask(serving, "heartbeat", {**mine, "user": "cid", "fingerprint": "a"}, fleet)
    assert "cid" == found(serving).user
    await ask(serving, "heartbeat", {**mine, "user": "ben"}, own)
    assert "ben" == found(serving).user


@pytest.mark.proves("heartbeats for others")
@pytest.mark.proves("Somebody keeps a lost laptop alive, or takes over a cluster")
async def test_nobody_else_speaks_for_a_device_that_used_its_own_key(serving: Serving) -> None:
    """
    With the fleet's key, heartbeat, ping and enrolment get 403. The last-seen times of the device and of its
    cluster do not change.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    mine = {"device_id": "laptop-1", "fingerprint": "a", "labels": {"kind": "cluster", "cluster": "mill"}}
    own = said(await ask(serving, "enroll", {**mine, "want_key": True}, fleet))["key"]
    assert 200 == (await ask(serving, "ping", {"device_id": "laptop-1"}, fleet)).status
    assert 200 == (await ask(serving, "heartbeat", mine, own)).status
    before, clusters = found(serving), serving.app.services.single.clusters
    (cluster,) = clusters.table.all()
    for what in ("enroll", "heartbeat", "ping"):
        assert (403, "device_key_needed") == error(await ask(serving, what, mine, fleet))
        assert (403, "device_key_needed") == error(
            await ask(serving, what, mine | {"agent_version": "2"}, fleet)
        )
    await ask(serving, "heartbeat", {**mine, "device_id": "laptop-2"}, fleet)
    assert found(serving) == before
    assert clusters.table.all() == [cluster]
    assert (409, "another_fingerprint") == error(
        await ask(serving, "enroll", {**mine, "fingerprint": "b"}, fleet)
    )
    assert 200 == (await ask(serving, "heartbeat", mine, own)).status
    assert found(serving).last_heartbeat != before.last_heartbeat


async def test_a_key_waits_for_the_fingerprint_of_the_first_contact(serving: Serving) -> None:
    """
    A heartbeat that enrols a device states its fingerprint. A request with another fingerprint, or with none,
    gets no key.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    await ask(serving, "heartbeat", {"device_id": "laptop-1", "fingerprint": "a"}, fleet)
    wants = {"device_id": "laptop-1", "want_key": True}
    assert "key" not in said(await ask(serving, "enroll", wants, fleet))
    assert 409 == (await ask(serving, "enroll", {**wants, "fingerprint": "b"}, fleet)).status
    assert "key" in said(await ask(serving, "enroll", {**wants, "fingerprint": "a"}, fleet))


async def test_a_key_without_a_fingerprint_is_its_devices_alone(serving: Serving) -> None:
    """
    A device key that was issued without a fingerprint stays with its device. A later request with a
    fingerprint changes nothing and gets no key.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    bare = {"device_id": "laptop-1", "want_key": True}
    assert "key" in said(await ask(serving, "enroll", bare, fleet))
    assert "key" not in said(await ask(serving, "enroll", {**bare, "fingerprint": "evil"}, fleet))
    assert "" == found(serving).fingerprint


@pytest.mark.proves("the key of a first contact")
async def test_a_device_of_first_contact_keeps_its_key_from_strangers(tmp_path: Path) -> None:
    """
    If telemetry enrolled a device, a stranger cannot get its key: an hour later, the device gets its first key only
    after an operator's reset.
    """
    clock = MovedClock()
    settings = replace(
        config(), data_dir=tmp_path, server=ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    )
    server = TollhouseApp(settings, version="0", clock=clock)
    await server.start()
    lifecycle, bearer = server.services.single.devices, AuthenticatedKey("fleet", frozenset(ALL))
    asked = DeviceReport(id="laptop-1", fingerprint="f", want_key=True)
    try:
        await lifecycle.enrol_or_list_device("laptop-1", bearer)
        clock.move(FIRST_KEY_S)
        assert (await lifecycle.enrol_or_update(asked, bearer, ""))[1] is None
        await lifecycle.reset_device("laptop-1", ACTOR)
        assert (await lifecycle.enrol_or_update(asked, bearer, ""))[1] is not None
    finally:
        await server.stop()


@pytest.mark.parametrize("id", ["a_b_c", "thd_1_2", "x" * 128, "ada@mill:3._-"])
async def test_a_device_key_opens_what_is_its_own(serving: Serving, id: str) -> None:
    """
    A device key opens ingest, heartbeat and ping of its device. It opens no enrolment and no other device,
    whatever characters the id has.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    key = said(await ask(serving, "enroll", {"device_id": id, "want_key": True}, fleet))["key"]
    assert 200 == (await serving.send("/v1/traces", traces(), key=key)).status
    assert 200 == (await ask(serving, "heartbeat", {"device_id": id}, key)).status
    assert {"ok": True} == said(await ask(serving, "ping", {"device_id": id}, key))
    assert (403, "missing_scope") == error(await ask(serving, "enroll", {"device_id": id}, key))
    for what in ("heartbeat", "ping"):
        assert (403, "other_device") == error(await ask(serving, what, {"device_id": "other"}, key))
    forged = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert 401 == (await serving.send("/v1/traces", traces(), key=forged)).status
    assert [id] == [record.device for record in await serving.records()]


@pytest.mark.proves("A lost laptop keeps sending")
async def test_a_revoked_device(serving: Serving) -> None:
    """
    A revoked device's key is refused at once, even on an open connection. Earlier records stay. An approval
    restores the device, but not its old key.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    key = said(await ask(serving, "enroll", {"device_id": "laptop-1", "want_key": True}, fleet))["key"]
    assert 200 == (await serving.send("/v1/traces", traces(), key=key)).status
    await serving.app.services.single.devices.revoke_device("laptop-1", ACTOR)
    assert 401 == (await serving.send("/v1/traces", traces(), key=key)).status
    for what in ("enroll", "heartbeat", "ping"):
        assert (410, "device_revoked") == error(await ask(serving, what, {"device_id": "laptop-1"}, fleet))
    named = await serving.send("/v1/traces", traces(), key=fleet, headers={"X-Device-Id": "laptop-1"})
    assert 410 == named.status
    assert ["laptop-1"] == [record.device for record in await serving.records()]
    await serving.app.services.single.devices.approve_device("laptop-1", ACTOR)
    assert 200 == (await ask(serving, "heartbeat", {"device_id": "laptop-1"}, fleet)).status
    assert 401 == (await serving.send("/v1/traces", traces(), key=key)).status
    actions = [action for _, action, _ in await audited(serving)]
    assert ["device.enrol", "device.revoke", "device.approve"] == actions


async def test_a_revoked_device_among_others(serving: Serving) -> None:
    """
    Items of a revoked device are rejected for good and named in the partial success. Other devices' items are
    stored, and the accounting balances.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    await ask(serving, "enroll", {"device_id": "bad"}, fleet)
    await serving.app.services.single.devices.revoke_device("bad", ACTOR)
    bad, good = json.loads(traces("bad")), json.loads(traces("good"))
    body = json.dumps({"resourceSpans": [*bad["resourceSpans"], *good["resourceSpans"]]}).encode()
    answer = await serving.send("/v1/traces", body, key=fleet)
    assert "1" == said(answer)["partialSuccess"]["rejectedSpans"]
    assert ["good"] == [record.device for record in await serving.records()]
    books = await serving.app.services.storage.log.books()
    assert list(books.imbalances) == []
    assert books.topics["ai-telemetry"]["rejected.device_revoked"] == 1


async def test_telemetry_enrols_on_first_contact_at_any_endpoint(serve: Serve) -> None:
    """
    If the key may enrol, a device that a resource, a header or gRPC metadata names is enrolled. The resource
    takes precedence over the header.
    """
    server = await serve(grpc_listen="127.0.0.1:0")
    key = await server.make_key("fleet", scopes=ALL)
    await server.send("/v1/traces", traces("by-resource"), key=key)
    await server.send("/v1/traces", traces(), key=key, headers={"X-Device-Id": "by-header"})
    await server.send("/v1/traces", traces("nearer"), key=key, headers={"X-Device-Id": "by-header"})
    await server.send("/v1/traces", traces("a/b", name="device.id"), key=key)
    await server.send("/v1/traces", traces("instance", name="service.instance.id"), key=key)
    await server.send("/v1/traces", traces("host", name="host.id"), key=key)
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.append(proto_span())
    async with grpc.aio.insecure_channel(server.app.grpc_address) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        )
        await export(
            request.SerializeToString(), metadata=(("authorization", key), ("x-device-id", "by-grpc"))
        )
    expected = ["by-resource", "by-header", "nearer", None, None, None, "by-grpc"]
    assert expected == [record.device for record in await server.records()]
    assert set(filter(None, expected)) == {
        device.id for device in server.app.services.single.devices.table.all()
    }


async def test_host_ids_name_devices_by_setting(serve: Serve) -> None:
    """With the setting `devices.host_id`, the host id in telemetry names a device."""
    server = await serve(config=config(host_id=True))
    key = await server.make_key("fleet", scopes=ALL)
    await server.send("/v1/traces", traces("host-1", name="host.id"), key=key)
    assert ["host-1"] == [record.device for record in await server.records()]


async def test_telemetry_under_a_key_that_may_not_enrol(serving: Serving) -> None:
    """
    If telemetry arrives under a key that may not enrol, it is accepted with a tag for the device. Nobody is
    enrolled, and the name of the device is listed.
    """
    for _ in range(2):
        assert 200 == (await serving.send("/v1/traces", traces("laptop-1"))).status
    (name,) = serving.app.services.single.devices.table.unenrolled_names()
    assert name.name == "laptop-1"
    assert name.count == 2
    assert name.key == "sender"
    assert [(None, "laptop-1")] * 2 == [
        (record.device, record.tags["device"]) for record in await serving.records()
    ]
    key = await serving.make_key("fleet", scopes=ALL)
    await ask(serving, "enroll", {"device_id": "laptop-1"}, key)
    await serving.send("/v1/traces", traces("laptop-1"))
    assert "laptop-1" == (await serving.records())[-1].device
    assert [] == serving.app.services.single.devices.table.unenrolled_names()


@pytest.mark.proves("A laptop moves another's spend, or gets its key")
async def test_telemetry_naming_a_device_under_a_strangers_key(serving: Serving) -> None:
    """
    If telemetry names a device under another device's key, its record has no `device`, only the tag
    `claimed_device`, and is counted. Under the device's own key, the record has the device.
    """
    fleet = await serving.make_key("fleet", scopes=ALL)
    key = said(await ask(serving, "enroll", {"device_id": "laptop-1", "want_key": True}, fleet))["key"]
    for sender in (fleet, serving.key, key):
        assert 200 == (await serving.send("/v1/traces", traces("laptop-1"), key=sender)).status
    assert 200 == (await serving.send("/v1/traces", traces("elsewhere"), key=key)).status
    records = await serving.records()
    assert [None, None, "laptop-1", "laptop-1"] == [record.device for record in records]
    claims = [record.tags.get("claimed_device") for record in records]
    assert ["laptop-1", "laptop-1", None, "elsewhere"] == claims
    text = (await serving.app.services.single.exposition.current_text()).decode()
    assert "tollhouse_records_claimed_device_total 3.0" in text
    assert 'tollhouse_devices{state="unknown"} 1.0' in text


async def test_counters_carry_their_device(serving: Serving) -> None:
    """Metric points, including cumulative ones, get their device like spans."""
    key = await serving.make_key("fleet", scopes=ALL)
    point = {
        "asInt": "5",
        "timeUnixNano": "1790000000000000000",
        "startTimeUnixNano": "1780000000000000000",
        "attributes": [
            {"key": "type", "value": {"stringValue": "input"}},
            {"key": "model", "value": {"stringValue": "m"}},
        ],
    }
    for temporality in (1, 2):
        moved = {**point, "timeUnixNano": str(1790000000000000000 + temporality)}
        data = {"dataPoints": [moved], "aggregationTemporality": temporality, "isMonotonic": True}
        body = {
            "resourceMetrics": [
                {
                    "resource": {"attributes": [{"key": "device.id", "value": {"stringValue": "laptop-1"}}]},
                    "scopeMetrics": [{"metrics": [{"name": "claude_code.token.usage", "sum": data}]}],
                }
            ]
        }
        assert 200 == (await serving.send("/v1/metrics", json.dumps(body).encode(), key=key)).status
    assert ["laptop-1"] * 2 == [record.device for record in await serving.records()]


async def test_labels_of_a_device_attribute_its_records(serving: Serving) -> None:
    """Labels that the device reports fill empty fields. An operator's label takes precedence."""
    key = await serving.make_key("fleet", scopes=ALL)
    await ask(serving, "enroll", {"device_id": "laptop-1", "labels": {"team": "search", "floor": "3"}}, key)
    await serving.send("/v1/traces", traces("laptop-1"), key=key)
    await serving.app.services.single.devices.change_labels("laptop-1", {"team": "ads"}, ACTOR)
    await serving.send("/v1/traces", traces("laptop-1"), key=key)
    shown = [(record.team, record.tags["floor"]) for record in await serving.records()]
    assert [("search", "3"), ("ads", "3")] == shown


def of_user(device: str, user: str | None = None) -> bytes:
    members = json_span()
    members["attributes"] += [{"key": "user.id", "value": {"stringValue": user}}] if user else []
    return traces(device, attributes=members["attributes"])


async def test_the_user_of_a_device_is_that_of_its_records(serving: Serving) -> None:
    """
    The user comes from the report, else the key's label, else the device's label, else the device. A
    heartbeat can change it for later records.
    """
    registry = serving.app.services.storage.registry
    assert registry is not None
    key = await serving.make_key("fleet", scopes=ALL)
    _, labelled = await registry.keys.create(
        name="labelled", scopes=ALL, labels={"user": "of the key"}, actor=ACTOR
    )
    await ask(serving, "enroll", {"device_id": "laptop-1", "user": "ada"}, key)
    await serving.send("/v1/traces", of_user("laptop-1"), key=key)
    await serving.send("/v1/traces", of_user("laptop-1", "of the report"), key=labelled)
    await serving.send("/v1/traces", of_user("laptop-1"), key=labelled)
    await ask(serving, "heartbeat", {"device_id": "laptop-1", "user": "ben"}, key)
    await serving.send("/v1/traces", of_user("laptop-1"), key=key)
    await serving.app.services.single.devices.change_labels("laptop-1", {"user": "of the label"}, ACTOR)
    await serving.send("/v1/traces", of_user("laptop-1"), key=key)
    await serving.send("/v1/traces", of_user("another"), key=key)
    users = [record.user for record in await serving.records()]
    assert ["ada", "of the report", "of the key", "ben", "of the label", None] == users


async def test_facts_of_a_heartbeat_are_stored(serving: Serving) -> None:
    """Facts, queue depth, sources and clock offset are stored. Unknown fields are ignored."""
    key = await serving.make_key("fleet", scopes=ALL)
    body = {
        "device_id": "laptop-1", "hostname": "mill", "platform": "linux", "agent_version": "9.9", "user": "ada",
        "labels": {"team": "search"}, "sent_at": "2001-01-01T00:00:00Z", "spool": {"records": 3, "oldest_age_s": 1.5},
        "sources": {"claude_code": {"last_seen": "2026-11-20T08:00:00Z", "records": 7}}, "unheard_of": {"x": 1},
    }  # fmt: skip
    assert 200 == (await ask(serving, "heartbeat", body, key)).status
    device = found(serving)
    assert device.hostname == "mill"
    assert device.platform == "linux"
    assert device.agent_version == "9.9"
    assert device.user == "ada"
    kept = json.loads(device.heartbeat)
    assert {name: body[name] for name in ("sent_at", "spool", "sources")} == kept
    assert device.clock_offset_s is not None and device.clock_offset_s < -86400 * 365


NOTHING_USEFUL: Sequence[bytes] = [
    b"", b"[]", b"{", b'{"device_id": 7}', b'{"device_id": "a b"}', b'{"device_id": ""}',
    b'{"device_id": "' + b"x" * 129 + b'"}', b'{"device_id": "d", "hostname": "' + b"h" * 300 + b'"}',
    b'{"device_id": "d", "labels": {"no good": "x"}}', b'{"device_id": "d", "labels": {"userPrompt": "x"}}',
    b'{"device_id": "d", "sent_at": "yesterday"}',
    b'{"device_id": "d", "spool": {"records": -1}}', b'\xff\xfe', b'{"device_id": "d", "user": [}',
    b'{"device_id": "d", "more": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
]  # fmt: skip


async def test_a_body_that_says_nothing_useful(serving: Serving) -> None:
    """A body without any useful data gets a 400, and nobody is enrolled."""
    key = await serving.make_key("fleet", scopes=ALL)
    for body in NOTHING_USEFUL:
        answer = await serving.send(PLANE + "heartbeat", body, key=key)
        assert (400, "bad_payload") == error(answer), body
        assert [] == serving.app.services.single.devices.table.all(), body


async def test_the_header_names_a_device_too(serving: Serving) -> None:
    """If the body has no device_id, `X-Device-Id` counts."""
    key = await serving.make_key("fleet", scopes=ALL)
    answer = await ask(serving, "heartbeat", {}, key, **{"X-Device-Id": "by-header"})
    assert answer.status == 200
    assert said(answer)["device"]["id"] == "by-header"


async def test_offline_is_a_link_and_no_state(serve: Serve) -> None:
    """After three missed intervals a device is offline. Its state stays that of its last report."""
    serving = await serve(config=config(heartbeat_interval=3600.0))
    devices = serving.app.services.single.devices
    devices.listening_since -= 6 * 3600
    key = await serving.make_key("fleet", scopes=ALL)
    for id in ("well", "asleep", "never-called"):
        await ask(serving, "heartbeat", {"device_id": id}, key)
    now, table = time.time(), devices.table
    calls = {"codex": now - 4 * 3600}
    table.change_and_write_soon(
        "asleep", lambda known: replace(known, last_seen=now - 3 * 3600 - 1, newest_calls=calls)
    )
    table.change_and_write_soon("well", lambda known: replace(known, newest_calls=calls))
    states = {device.id: devices.machine_state(device)[:2] for device in table.all()}
    assert {
        "well": ("reporting", "online"),
        "asleep": ("reporting", "offline"),
        "never-called": ("unknown", "online"),
    } == states
    assert {"reporting": 2, "unknown": 1} == {
        word: n for word, n in devices.device_counts_by_state().items() if n
    }


async def test_pings(serving: Serving) -> None:
    """A ping enrols nobody, but updates a known device."""
    key = await serving.make_key("fleet", scopes=ALL)
    assert (404, "unknown_device") == error(await ask(serving, "ping", {"device_id": "laptop-1"}, key))
    await ask(serving, "enroll", {"device_id": "laptop-1"}, key)
    assert {"ok": True} == said(await ask(serving, "ping", {"device_id": "laptop-1"}, key))


async def test_a_persons_address_is_a_pseudonym(serving: Serving) -> None:
    """
    `privacy.emails` also applies to what devices report. No address is stored, and equal addresses
    have equal hashes.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    for id, user in (("a", "Anna@Example.com"), ("b", "anna@example.com"), ("c", "anna")):
        await ask(serving, "enroll", {"device_id": id, "user": user, "labels": {"owner": user}}, key)
    users = [found(serving, id).user for id in "abc"]
    assert users[0].startswith("email:")
    assert users[0] == users[1]
    assert users[2] == "anna"
    assert users[0] == found(serving, "a").labels["owner"]


@pytest.mark.parametrize("extra", [0, 1])
async def test_a_body_over_its_limit_names_the_setting(serve: Serve, extra: int) -> None:
    """A body of exactly the limit is accepted. For a larger one, the error names the setting."""
    serving = await serve(config=config(max_body_bytes=2048))
    key = await serving.make_key("fleet", scopes=ALL)
    bare = len(json.dumps({"device_id": "d", "more": ""}))
    answer = await ask(serving, "enroll", {"device_id": "d", "more": "x" * (2048 - bare + extra)}, key)
    if not extra:
        assert 200 == answer.status
        return
    assert (413, "body_too_large") == error(answer)
    assert "2048 bytes after decompression (devices.max_body_bytes)" in said(answer)["error"]["message"]
