"""OpAMP over real sockets: which device an instance is, what is stored of it, and the answers."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.fleet.heartbeat_facts import decode_instances
from gateway.devices.opamp.instances import InstanceSender, OpampInstances
from gateway.devices.opamp.messages import (
    ACCEPTS_OPAMP_SETTINGS,
    ACCEPTS_STATUS,
    BAD_REQUEST,
    REPORT_FULL_STATE,
    UNAVAILABLE,
)
from gateway.http.listening.websocket import CHECK_S
from gateway.operations.devices import opamp as conversations
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import NotAllowed
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from tests.integration.certificates import Certificates
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.receivers.opamp import ALL, Agent, config, connect, find, post, read, tell
from tests.integration.receivers.test_enrolment_tokens import make
from tests.moved_clock import MovedClock
from tests.stored_files import contents_of
from tests.waiting import until


async def started(serve: Serve, **devices: Any) -> tuple[Serving, str]:
    server = await serve(config=config(**devices))
    return server, await server.make_key("fleet", scopes=ALL)


def devices_of(server: Serving) -> list[str]:
    return sorted(device.id for device in server.app.services.topics.devices.table.all())


async def test_off_by_default(serving: Serving) -> None:
    """Where OpAMP is off, its address answers like an unknown address, to every method and handshake."""
    key = await serving.make_key("fleet", scopes=ALL)
    for method in ("GET", "POST", "PUT"):
        unknown = await serving.send("/v1/unknown", b"", None, method=method, key=key)
        answer = await serving.send("/v1/opamp", b"", None, method=method, key=key)
        assert (answer.status, answer.body) == (unknown.status, unknown.body) == (404, unknown.body)
    with pytest.raises(WSServerHandshakeError) as refused:
        await connect(serving, key)
    assert refused.value.status == 404


async def test_a_first_message_enrols(serve: Serve) -> None:
    server, key = await started(serve)
    agent = Agent({"team": "search", "service.instance.id": "x", "gen_ai.prompt": "secret words"})
    answer = read(await post(server, agent.message(full=True, healthy=True), key))
    assert (answer.instance_uid, answer.capabilities, answer.flags) == (agent.uid.bytes, ACCEPTS_STATUS, 0)
    assert not answer.HasField("connection_settings")
    device = find(server, agent.id)
    assert (device.state, device.hostname, device.platform) == ("enrolled", "mill", "linux/amd64")
    assert (device.agent_version, device.enrolled_by) == ("otelcol 0.149.0", "fleet")
    assert device.labels == {"host.id": "h-1", "service.name": "otelcol", "team": "search"}
    assert device.last_heartbeat is not None
    part = {"healthy": True, "service": "otelcol", "version": "0.149.0", "connected": True}
    assert decode_instances(device.heartbeat) == {str(agent.uid): part}


async def test_rights(serve: Serve) -> None:
    """A heartbeat needs its scope, and a new instance also the scope to enrol. A key is needed at the upgrade."""
    server, _ = await started(serve)
    beat = await server.make_key("beat", scopes=(HEARTBEAT,))
    enrol = await server.make_key("enrol", scopes=(ENROLL,))
    agent = Agent()
    for key, status in ((beat, 403), (enrol, 403), ("nonsense", 401)):
        assert (await post(server, agent.message(full=True), key)).status == status
    for key, status in ((enrol, 403), ("nonsense", 401)):
        with pytest.raises(WSServerHandshakeError) as refused:
            await connect(server, key)
        assert refused.value.status == status
    assert devices_of(server) == []
    async with await connect(server, beat) as socket:
        answer = await tell(socket, agent.message(full=True))
        assert answer.error_response.type == BAD_REQUEST
        assert ENROLL in answer.error_response.error_message
    assert devices_of(server) == []


async def test_the_full_state_is_requested_after_a_gap(serve: Serve) -> None:
    """An unknown uid is asked for its description before anything is stored. A lost message is noticed."""
    server, key = await started(serve)
    agent = Agent()
    answer = read(await post(server, agent.message(), key))
    assert answer.flags == REPORT_FULL_STATE
    assert devices_of(server) == []
    assert read(await post(server, agent.message(full=True), key)).flags == 0
    assert read(await post(server, agent.message(), key)).flags == 0
    agent.message()  # this message of the agent is lost
    assert read(await post(server, agent.message(), key)).flags == REPORT_FULL_STATE
    assert read(await post(server, agent.message(full=True), key)).flags == 0
    assert read(await post(server, agent.message(healthy=False), key)).flags == 0
    part = decode_instances(find(server, agent.id).heartbeat)[str(agent.uid)]
    assert (part["healthy"], part["version"]) == (False, "0.149.0")


async def test_only_its_own_key_speaks_for_an_agent(serve: Serve, tmp_path: Path) -> None:
    """
    Another key is refused whatever it says, over each transport and each address, and changes nothing. An operator can
    let it report, and then the first key is refused.
    """
    server, key = await started(serve)
    other = await server.make_key("other", scopes=ALL)
    agent = Agent()
    read(await post(server, agent.message(full=True, healthy=True), key))
    before = find(server, agent.id)

    async def is_refused(by: str) -> None:
        forged = Agent({"team": "theirs"}, uid=agent.uid)
        for message in (
            forged.message(full=True), forged.message(), forged.message(healthy=False), forged.message(bye=True),
        ):  # fmt: skip
            answer = await post(server, message, by)
            assert (403, True) == (answer.status, b"devices approve ID --key NAME" in answer.body)
        async with await connect(server, by) as socket:
            answer = await tell(socket, forged.message(full=True, bye=True))
            assert "devices approve ID --key NAME" in answer.error_response.error_message
        for path in ("heartbeat", "enroll", "ping"):
            body = json.dumps({"device_id": agent.id}).encode()
            answer = await server.send(f"/v1/ai-control-plane/{path}", body, key=by)
            assert 403 == answer.status, answer.body

    await is_refused(other)
    assert before == find(server, agent.id)
    devices = server.app.services.topics.devices
    with pytest.raises(NotAllowed, match="only an OpAMP agent"):
        await devices.approve_device("laptop", ACTOR, key="other")
    await devices.approve_device(agent.id, ACTOR, key="other")
    assert 0 == read(await post(server, agent.message(full=True), other)).flags
    await is_refused(key)
    assert "theirs" != find(server, agent.id).labels.get("team")


async def test_an_admitted_agent_belongs_to_its_first_key(serve: Serve) -> None:
    server, key = await started(serve, policy="closed")
    other = await server.make_key("other", scopes=ALL)
    agent = Agent()
    await server.app.services.topics.devices.admit_device(agent.id, ACTOR)
    assert 0 == read(await post(server, agent.message(full=True), key)).flags
    assert 403 == (await post(server, agent.message(full=True), other)).status
    assert 0 == read(await post(server, agent.message(full=True), key)).flags


@pytest.mark.proves("An OpAMP client sends secrets in its configuration or errors")
async def test_health_of_components(serve: Serve) -> None:
    """Two levels and 64 names are stored. Error texts are not, because they may quote a request."""
    server, key = await started(serve)
    agent = Agent()
    message = agent.message(full=True, healthy=False)
    message.health.last_error = "cannot send 'a prompt' to https://user:pass@example.com"
    message.health.status = "a status of a person's own words: " + "x" * 80
    pipeline = message.health.component_health_map.add(key="pipeline:traces").value
    receiver = pipeline.component_health_map.add(key="receiver:otlp").value
    receiver.healthy, receiver.status = True, "StatusOK"
    receiver.component_health_map.add(key="too deep")
    for number in range(100):
        pipeline.component_health_map.add(key=f"exporter:{number}").value.last_error = "canary"
    pipeline.component_health_map.add(key="a key\nwith a line")
    read(await post(server, message, key))
    heartbeat = find(server, agent.id).heartbeat
    part = decode_instances(heartbeat)[str(agent.uid)]
    assert part["error"] is True
    assert "status" not in part
    assert len(part["components"]) == 64
    assert part["components"]["pipeline:traces/receiver:otlp"] == {"healthy": True, "status": "StatusOK"}
    assert part["components"]["pipeline:traces/exporter:7"] == {"healthy": False, "error": True}
    for canary in (b"canary", b"prompt", b"pass", b"too deep", b"with a"):
        assert canary not in heartbeat


@pytest.mark.proves("An OpAMP client sends huge, nested, endless or slow messages")
async def test_many_attributes(serve: Serve) -> None:
    """
    Of a collector's attributes, 128 are read and 32 become labels. Those that identify the collector are never left
    out for others.
    """
    server, key = await started(serve)
    agent = Agent({f"a{number:03}": "x" for number in range(1000)})
    read(await post(server, agent.message(full=True), key))
    device = find(server, agent.id)
    assert len(device.labels) == 32
    assert device.labels.keys() >= {"host.id", "service.name", "a000"}
    deep = agent.message(full=True)
    health = deep.health
    for _ in range(200):
        health = health.component_health_map.add(key="a").value
    assert (await post(server, deep, key)).status == 400


async def test_collectors_of_one_machine_keep_their_devices(serve: Serve) -> None:
    """After a restart of the gateway, each of two collectors is recognized by the uid that it had last."""
    server, key = await started(serve)
    first, second = Agent(), Agent()
    for agent in (first, second):
        read(await post(server, agent.message(full=True), key))
    read(await post(server, second.message(bye=True), key))
    again = Agent()
    read(await post(server, again.message(full=True), key))
    for agent in (again, first):
        read(await post(server, agent.message(bye=True), key))
    restarted = OpampInstances(server.app.services.topics.devices, server.app.services.receivers.clock)
    bearer = AuthenticatedKey("fleet", frozenset(ALL))
    sender = InstanceSender(bearer=bearer, address="127.0.0.1", url=server.url)
    await restarted.answer_message(again.message(full=True), sender)
    assert list(decode_instances(find(server, second.id).heartbeat)) == [str(again.uid)]
    assert list(decode_instances(find(server, first.id).heartbeat)) == [str(first.uid)]


@pytest.mark.proves("An OpAMP client sends secrets in its configuration or errors")
async def test_what_holds_secrets_is_not_read(serve: Serve) -> None:
    """
    The effective configuration of a collector, which may hold secrets, and other unknown fields are skipped.
    Nothing of them is stored.
    """
    server, key = await started(serve)
    agent = Agent()
    # an AgentConfigMap with one file, which has a secret word
    config_file = b"\x0a\x11\x0a\x00\x12\x0d\x0a\x0bsecret-word"
    body = agent.message(full=True).SerializeToString() + bytes((6 << 3 | 2, len(config_file))) + config_file
    assert read(await post(server, body, key)).flags == 0
    await server.app.services.topics.devices.table.flush()
    stored = b"".join(contents_of(server.app.config.data_dir).values())
    assert b"otelcol" in stored
    assert b"secret-word" not in stored


async def test_a_restart_with_a_new_uid_stays_the_device(serve: Serve) -> None:
    """
    A collector that restarts with a new uid stays the same device only after a disconnect, and only under the same
    key, host and service name.
    """
    server, key = await started(serve)
    first, other_host = Agent(), Agent({"host.id": "h-2"})
    read(await post(server, first.message(full=True), key))
    second = Agent()
    read(await post(server, second.message(full=True), key))
    assert devices_of(server) == sorted((first.id, second.id))  # two collectors of one machine
    read(await post(server, first.message(bye=True), key))
    read(await post(server, other_host.message(full=True), key))
    assert len(devices_of(server)) == 3
    other_key = await server.make_key("other", scopes=ALL)
    stranger = Agent()
    read(await post(server, stranger.message(full=True), other_key))
    assert stranger.id in devices_of(server)
    third = Agent()
    read(await post(server, third.message(full=True, healthy=True), key))
    assert len(devices_of(server)) == 4
    assert list(decode_instances(find(server, first.id).heartbeat)) == [str(third.uid)]
    assert read(await post(server, third.message(), key)).flags == 0


async def test_a_revoked_device_stays_revoked_under_a_new_uid(serve: Serve) -> None:
    server, key = await started(serve)
    agent = Agent()
    read(await post(server, agent.message(full=True), key))
    await server.app.services.topics.devices.revoke_device(agent.id, ACTOR)
    for message in (agent.message(), agent.message(full=True), Agent().message(full=True)):
        assert (await post(server, message, key)).status == 410
    with pytest.raises(WSServerHandshakeError) as refused:
        await connect(server, key, **{"OpAMP-Instance-UID": str(agent.uid)})
    assert refused.value.status == 410
    assert devices_of(server) == [agent.id]


async def test_a_revoked_client_that_connects_again_has_to_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real clients connect again at once after a close, so the next connection stays open for a while, without use."""
    server, key = await started(serve)
    agent = Agent()
    read(await post(server, agent.message(full=True), key))
    await server.app.services.topics.devices.revoke_device(agent.id, ACTOR)
    async with await connect(server, key) as socket:
        for full in (True, False):
            assert (await tell(socket, agent.message(full=full))).error_response.type == BAD_REQUEST
        with pytest.raises(TimeoutError):
            await socket.receive(timeout=3 * CHECK_S)
        monkeypatch.setattr(conversations, "FIRST_MESSAGE_S", 0.1)
        assert await ended(socket) == 1008


async def test_a_silent_device_returns_under_a_new_uid(serve: Serve) -> None:
    """A collector that was killed sends no disconnect. After three intervals, its successor is that device."""
    clock = MovedClock()
    server = await serve(config=config(), clock=clock)
    key = await server.make_key("fleet", scopes=ALL)
    first, second = Agent(), Agent()
    read(await post(server, first.message(full=True), key))
    clock.move(200)
    read(await post(server, second.message(full=True), key))
    assert devices_of(server) == [first.id]


async def test_under_a_device_key_an_instance_is_part_of_the_device(serve: Serve) -> None:
    """
    An OpAMP instance under a device's key is a part of this device. Heartbeats of the device's own agent keep its
    instances.
    """
    server, key = await started(serve)
    body = json.dumps({"device_id": "laptop-1", "want_key": True, "hostname": "laptop"}).encode()
    enrolled = await server.send("/v1/ai-control-plane/enroll", body, key=key)
    own = json.loads(enrolled.body)["key"]
    agents = [Agent() for _ in range(6)]
    for agent in agents:
        read(await post(server, agent.message(full=True, healthy=True), own))
    assert devices_of(server) == ["laptop-1"]
    device = find(server, "laptop-1")
    assert (device.hostname, device.agent_version) == ("laptop", "")
    assert list(decode_instances(device.heartbeat)) == [str(agent.uid) for agent in agents[-4:]]
    beat = json.dumps({"device_id": "laptop-1", "sources": {"codex": {"records": 1}}}).encode()
    assert (await server.send("/v1/ai-control-plane/heartbeat", beat, key=own)).status == 200
    device = find(server, "laptop-1")
    assert len(decode_instances(device.heartbeat)) == 4
    assert json.loads(device.heartbeat)["sources"]["codex"]["records"] == 1


async def test_a_key_of_its_own(serve: Serve) -> None:
    """
    A key of its own is offered to an OpAMP agent once, only if `devices.opamp_keys` is on and only if the agent
    accepts connection settings.
    """
    server, key = await started(serve, opamp_keys=True)
    unwilling, agent = Agent(), Agent({"host.id": "h-2"}, capabilities=ACCEPTS_OPAMP_SETTINGS)
    answer = read(await post(server, unwilling.message(full=True), key))
    assert not answer.HasField("connection_settings")
    answer = read(await post(server, agent.message(full=True), key))
    settings = answer.connection_settings.opamp
    assert settings.destination_endpoint == f"{server.url}/v1/opamp"
    assert settings.heartbeat_interval_seconds == 60
    [header] = settings.headers.headers
    assert header.key == "Authorization"
    assert len(answer.connection_settings.hash) == 32
    answer = read(await post(server, agent.message(full=True), key))
    assert not answer.HasField("connection_settings")
    assert read(await post(server, agent.message(), header.value)).flags == 0
    assert find(server, agent.id).key_used
    # from now on, the fleet's key may not speak for the device
    assert (await post(server, agent.message(), key)).status == 403
    restarted = Agent({"host.id": "h-2"})
    read(await post(server, restarted.message(full=True), header.value))
    assert devices_of(server) == sorted((unwilling.id, agent.id))


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_an_enrolment_token_is_exchanged_for_a_key(serve: Serve, transport: str) -> None:
    """
    An enrolment token enrols an OpAMP agent that accepts a key of its own, and opens nothing else. If keys of
    devices are off, the token is refused.
    """
    server = await serve(config=config(opamp_keys=True, require_token=True))
    secret = await make(server)
    agent = Agent(capabilities=ACCEPTS_OPAMP_SETTINGS)
    assert (await post(server, Agent().message(full=True), secret)).status == 403
    if transport == "http":
        offer = read(await post(server, agent.message(full=True), secret)).connection_settings
        assert (await post(server, agent.message(), secret)).status == 403
    else:
        async with await connect(server, secret) as socket:
            offer = (await tell(socket, agent.message(full=True))).connection_settings
            assert (await tell(socket, agent.message())).error_response.type == BAD_REQUEST
    device = find(server, agent.id)
    assert (device.state, device.last_heartbeat) == ("enrolled", None)
    own = offer.opamp.headers.headers[0].value
    assert not read(await post(server, agent.message(full=True), own)).HasField("connection_settings")
    assert find(server, agent.id).last_heartbeat is not None
    second = Agent({"host.id": "h-2"}, capabilities=ACCEPTS_OPAMP_SETTINGS)
    assert (await post(server, second.message(full=True), secret)).status == 403
    plain = await serve(config=config())
    assert (await post(plain, second.message(full=True), await make(plain))).status == 403
    assert devices_of(plain) == []


async def test_malformed_requests(serve: Serve) -> None:
    server, key = await started(serve, max_body_bytes=2000)
    agent = Agent()
    good = agent.message(full=True).SerializeToString()
    no_uid = Agent().message()
    no_uid.instance_uid = b"short"
    assert [400] * 3 == [(await post(server, body, key)).status for body in (b"\xff", good[:30], no_uid)]
    assert (await post(server, b"", key)).status == 400
    assert (await post(server, good, key, **{"OpAMP-Instance-UID": str(uuid4())})).status == 400
    assert (await post(server, good, key, **{"OpAMP-Instance-UID": "none"})).status == 400
    assert (await post(server, b"\0" * 3000, key)).status == 413
    bomb = gzip.compress(b"\0" * 3_000_000)
    assert (await post(server, bomb, key, **{"Content-Encoding": "gzip"})).status == 413
    assert (await server.send("/v1/opamp", good, "text/plain", key=key)).status == 415
    assert (await server.send("/v1/opamp", b"", None, method="PUT", key=key)).status == 405
    assert (await server.send("/v1/opamp", b"", None, method="GET", key=key)).status == 400
    assert devices_of(server) == []
    named = {"OpAMP-Instance-UID": str(agent.uid), "Content-Encoding": "gzip"}
    assert (await post(server, gzip.compress(good), key, **named)).status == 200


async def test_a_connection(serve: Serve) -> None:
    """On each OpAMP connection, the heartbeat interval is offered once, and the end of the connection is noted."""
    server, key = await started(serve, heartbeat_interval=45.0)
    agent = Agent()
    async with await connect(server, key) as socket:
        answer = await tell(socket, agent.message(full=True))
        assert answer.connection_settings.opamp.heartbeat_interval_seconds == 45
        assert not answer.connection_settings.opamp.HasField("headers")
        assert not (await tell(socket, agent.message(healthy=True))).HasField("connection_settings")
        assert decode_instances(find(server, agent.id).heartbeat)[str(agent.uid)]["connected"] is True
        assert len(server.app.services.receivers.websockets) == 1
    await until(lambda: not len(server.app.services.receivers.websockets))
    part = decode_instances(find(server, agent.id).heartbeat)[str(agent.uid)]
    assert part["connected"] is False
    assert find(server, agent.id).state == "enrolled"
    async with await connect(server, key) as socket:
        answer = await tell(socket, agent.message(full=True))
        assert answer.connection_settings.opamp.heartbeat_interval_seconds == 45


async def test_several_instances_of_a_connection(serve: Serve) -> None:
    """
    On one OpAMP connection, a 65th instance is refused and the others go on. A refused instance costs only its own
    message.
    """
    server, key = await started(serve)
    agents = [Agent({"host.id": f"h-{number}"}) for number in range(65)]
    async with await connect(server, key) as socket:
        for agent in agents[:64]:
            assert not (await tell(socket, agent.message(full=True))).HasField("error_response")
        answer = await tell(socket, agents[64].message(full=True))
        assert answer.error_response.type == BAD_REQUEST
        assert answer.instance_uid == agents[64].uid.bytes
        await server.app.services.topics.devices.revoke_device(agents[0].id, ACTOR)
        answer = await tell(socket, agents[0].message())
        assert answer.error_response.type == BAD_REQUEST
        await tell(socket, agents[1].message(bye=True))
        assert not (await tell(socket, agents[64].message(full=True))).HasField("error_response")
    assert len(devices_of(server)) == 65


async def ended(socket: ClientWebSocketResponse) -> int:
    """Return the close code of a connection."""
    received = await socket.receive(timeout=30)
    assert received.type == WSMsgType.CLOSE, received
    return int(received.data)


@pytest.mark.parametrize("what", ["device", "key", "device key", "setting"])
async def test_an_open_connection_ends_with_its_right(serve: Serve, what: str) -> None:
    """
    An open OpAMP connection ends within a second if its device is revoked, its key is disabled, its device key is
    reset, or OpAMP is switched off.
    """
    server = await serve(config=config(opamp_keys=True), reread=lambda _: Config(devices=DeviceSettings()))
    key = await server.make_key("fleet", scopes=ALL)
    services = server.app.services
    agent = Agent(capabilities=ACCEPTS_OPAMP_SETTINGS)
    own = (
        read(await post(server, agent.message(full=True), key))
        .connection_settings.opamp.headers.headers[0]
        .value
    )
    async with await connect(server, own if what == "device key" else key) as socket:
        other = agent if what in ("device key", "device") else Agent({"host.id": "h-2"})
        await tell(socket, other.message(full=True))
        if what == "device":
            await services.topics.devices.revoke_device(agent.id, ACTOR)
        elif what == "device key":
            await services.topics.devices.reset_device(agent.id, ACTOR)
        elif what == "key":
            registry = services.storage.registry
            assert registry is not None
            await registry.keys.disable("fleet", actor=ACTOR)
        else:
            services.topics.devices.configure(DeviceSettings(), services.operators.installation.people)
        assert await ended(socket) == (1001 if what == "setting" else 1008)
    assert CHECK_S < 1


async def test_messages_that_are_no_opamp(serve: Serve) -> None:
    """A peer that sends other bytes gets an error response and is closed. Text is closed at once."""
    server, key = await started(serve, max_body_bytes=2000)
    good = Agent().message(full=True).SerializeToString()
    for bytes_sent in (b"", good, b"\x01" + good, b"\0\xff\xff", b"\x80" * 10, b"\0" + good[:30]):
        async with await connect(server, key) as socket:
            await socket.send_bytes(bytes_sent)
            received = await socket.receive(timeout=30)
            assert received.type == WSMsgType.BINARY, bytes_sent
            assert await ended(socket) == 1008
    async with await connect(server, key) as socket:
        await socket.send_str("text")
        assert await ended(socket) == 1003
    async with await connect(server, key) as socket:
        await socket.send_bytes(b"\0" * 2001)
        assert await ended(socket) == 1009
    assert devices_of(server) == []


@pytest.mark.proves("An OpAMP client sends huge, nested, endless or slow messages")
async def test_limits_of_connections(serve: Serve) -> None:
    """A key may hold half of the free OpAMP connections, so that another key can still connect."""
    server, key = await started(serve, max_opamp_connections=4)
    other = await server.make_key("other", scopes=ALL)
    sockets = [await connect(server, key) for _ in range(2)]
    with pytest.raises(WSServerHandshakeError) as refused:
        await connect(server, key)
    assert refused.value.status == 503
    assert refused.value.headers is not None
    assert refused.value.headers["Retry-After"] == "30"
    sockets.append(await connect(server, other))
    for socket in sockets:
        await socket.close()


async def test_idle_connections_make_room_for_telemetry(serve: Serve) -> None:
    """At server.max_connections, a request of another sender cuts the longest idle OpAMP connection."""
    server = await serve(config=config(), max_connections=8)
    key = await server.make_key("fleet", scopes=ALL)
    sockets = [await connect(server, key) for _ in range(8)]
    websockets = server.app.services.receivers.websockets
    assert len(websockets) == 8
    assert (await server.send("/v1/traces", b"{}")).status == 200
    await until(lambda: len(websockets) == 7)
    assert server.app.services.receivers.connections.count == 8
    for socket in sockets:
        await socket.close()
    await until(lambda: server.app.services.receivers.connections.count <= 1)


async def test_a_rate_is_unavailable(serve: Serve) -> None:
    """A key over its rate gets an error response with the time until a retry."""
    server = await serve(config=config(), max_key_requests_per_s=1)
    key = await server.make_key("fleet", scopes=ALL)
    agent = Agent()
    async with await connect(server, key) as socket:
        answers = [await tell(socket, agent.message(full=True)) for _ in range(4)]
    errors = [answer.error_response for answer in answers if answer.HasField("error_response")]
    assert errors
    assert {(error.type, error.retry_info.retry_after_nanoseconds) for error in errors} == {
        (UNAVAILABLE, 1_000_000_000)
    }


async def test_a_connection_without_an_instance_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "FIRST_MESSAGE_S", 0.1)
    server, key = await started(serve)
    async with await connect(server, key) as socket:
        assert await ended(socket) == 1008


async def test_a_stop_ends_connections(serve: Serve) -> None:
    """A stop of the server ends open OpAMP connections and does not wait for them."""
    server, key = await started(serve)
    socket = await connect(server, key)
    await tell(socket, Agent().message(full=True))
    began = asyncio.get_running_loop().time()
    await server.app.stop()
    assert asyncio.get_running_loop().time() - began < 10
    assert await ended(socket) == 1001
    await server.app.start()


async def test_no_connection_opens_during_a_stop(serve: Serve) -> None:
    server, key = await started(serve)
    await server.app.services.receivers.websockets.close()
    with pytest.raises(WSServerHandshakeError) as refused:
        await connect(server, key)
    assert refused.value.status == 503


async def test_policy(serve: Serve) -> None:
    server, key = await started(serve, policy="approve")
    agent = Agent()
    read(await post(server, agent.message(full=True), key))
    assert find(server, agent.id).state == "pending"
    closed, key = await started(serve, policy="closed")
    assert (await post(closed, agent.message(full=True), key)).status == 403


async def test_over_tls(serve: Serve, certificates: Certificates) -> None:
    """
    OpAMP also works over TLS: the connection changes its protocol like any other. The offered address has the
    client's scheme.
    """
    tls = {name: path for name, path in certificates.server.items() if name != "tls_client_ca_file"}
    server = await serve(config=config(opamp_keys=True), **tls)
    key = await server.make_key("fleet", scopes=ALL)
    agent = Agent(capabilities=ACCEPTS_OPAMP_SETTINGS)
    context = certificates.anonymous()
    headers = {"Authorization": key}
    async with server.client.ws_connect(f"{server.url}/v1/opamp", headers=headers, ssl=context) as socket:
        offer = (await tell(socket, agent.message(full=True))).connection_settings.opamp
        assert offer.destination_endpoint == f"{server.url.replace('https', 'wss')}/v1/opamp"
        message = agent.message(full=True, healthy=True)
        message.agent_description.non_identifying_attributes.add(key="a").value.string_value = "x" * 50_000
        assert not (await tell(socket, message)).HasField("error_response")
    await until(lambda: not len(server.app.services.receivers.websockets))


async def test_an_upstream_sees_the_instances(serve: Serve, tmp_path: Path) -> None:
    """The health of a collector is sent to the next Tollhouse as part of the device's heartbeat."""
    scopes = (ENROLL, HEARTBEAT, INGEST)
    far = await serve(chain_keys=("near",))
    secret = tmp_path / "near.key"
    secret.write_text(await far.make_key("near", scopes=scopes))
    upstream_key = UpstreamKey(name="near", secret_file=secret, scopes=scopes)
    upstream = UpstreamSettings(base_url=far.url, kind="tollhouse", keys=(upstream_key,))
    near = await serve(config=replace(config(), upstream=upstream))
    agent = Agent()
    message = agent.message(full=True, healthy=False)
    message.health.component_health_map.add(key="pipeline:traces").value.status = "StatusPermanentError"
    read(await post(near, message, await near.make_key("fleet", scopes=ALL)))
    table = far.app.services.topics.devices.table
    await until(lambda: table.find(agent.id) is not None and bool(find(far, agent.id).heartbeat))
    assert decode_instances(find(far, agent.id).heartbeat) == decode_instances(find(near, agent.id).heartbeat)


async def test_collectors_are_no_machines_of_the_fleet(serve: Serve) -> None:
    server, key = await started(serve)
    read(await post(server, Agent().message(full=True), key))
    body = json.dumps({"device_id": "laptop-1", "hostname": "mill"}).encode()
    assert (await server.send("/v1/ai-control-plane/heartbeat", body, key=key)).status == 200
    fleet = server.app.services.operators.senders.require_fleet()
    assert [row.id for row in await fleet.machine_rows()] == ["laptop-1"]
