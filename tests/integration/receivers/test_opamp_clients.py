"""Real OpAMP clients: an agent made with opamp-go, and a collector with its OpAMP extension."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.devices.fleet.heartbeat_facts import decode_instances
from gateway.devices.machine_state import OFFLINE
from spool.devices.table import DeviceTable
from tests.clients import environments
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.receivers.opamp import ALL, config, find
from tests.stored_files import contents_of
from tests.waiting import awaited, limited, until

pytestmark = pytest.mark.clients

TRANSPORTS = ("http", "ws")
COLLECTOR = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  nop:
extensions:
  opamp:
    server: {{{transport}: {{endpoint: "{url}", headers: {{Authorization: "{key}"}}}}}}
    agent_description: {{non_identifying_attributes: {{team: search}}}}
service:
  extensions: [opamp]
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [nop]}}
"""
PIPELINES = """
receivers: {nop: {}}
exporters: {nop: {}}
service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [nop], exporters: [nop]}}}
"""
SUPERVISOR = """
server: {{endpoint: "{url}", headers: {{Authorization: ["{key}"]}}}}
capabilities: {{reports_heartbeat: true, accepts_opamp_connection_settings: {accepts}}}
storage: {{directory: "{directory}"}}
agent: {{executable: "{collector}", bootstrap_timeout: 20s, config_files: ["{pipelines}"]}}
telemetry: {{logs: {{level: error}}}}
"""


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[Process]:
    """Run a program in a group of its own. At the end, the group has no process left."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def event(process: Process, *names: str) -> dict[str, str]:
    """Return the next event with one of these names."""
    assert process.stdout is not None
    async with limited():
        while True:
            found: dict[str, str] = json.loads(await process.stdout.readline())
            if found["event"] in names:
                return found


async def write(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())
    await process.stdin.drain()


def part(server: Serving, id: str) -> dict[str, Any]:
    """Return what is stored of the only instance of a device. A device that just enrolled has none."""
    return next(iter(decode_instances(find(server, id).heartbeat).values()), {})


def reported(table: DeviceTable, *, before: set[str]) -> bool:
    """Return whether an instance that is not in `before` has reported the health of its receiver."""
    instances = [item for device in table.all() for item in decode_instances(device.heartbeat).items()]
    return any(
        uid not in before and "pipeline:traces/receiver:otlp" in fields.get("components", ())
        for uid, fields in instances
    )


def url_of(server: Serving, transport: str) -> str:
    return f"{server.url.replace('http', transport, 1)}/v1/opamp"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_opamp_go(serve: Serve, transport: str) -> None:
    """
    An agent made with opamp-go goes through enrolment, heartbeats, health, disconnect, a restart and a revocation.
    """
    program = str(await asyncio.to_thread(environments.go, "opamp_client", "."))
    server = await serve(config=config(heartbeat_interval=1))
    key = await server.make_key("fleet", scopes=ALL)
    table, uid = server.app.services.topics.devices.table, uuid4()
    id, url = f"opamp:{uid}", url_of(server, transport)
    async with running(program, url, key, str(uid)) as agent:
        await event(agent, "connected")
        await until(lambda: table.find(id) is not None and bool(part(server, id).get("healthy")))
        assert (find(server, id).agent_version, part(server, id)["status"]) == ("opamp-go 0.23.0", "StatusOK")
        seen = find(server, id).last_seen
        await until(lambda: find(server, id).last_seen > seen)
        await write(agent, "health StatusRecoverableError")
        await until(lambda: part(server, id)["status"] == "StatusRecoverableError")
        assert part(server, id)["error"] is True
        assert agent.stdin is not None
        agent.stdin.close()
        await event(agent, "stopped")
    if transport == "ws":
        await until(lambda: part(server, id)["connected"] is False)
    async with running(program, url, key, str(uid)) as agent:
        await until(lambda: part(server, id)["connected"] is True and part(server, id)["healthy"] is True)
        await server.app.services.topics.devices.revoke_device(id, ACTOR)
        if transport == "ws":
            assert "BadRequest" in (await event(agent, "error"))["detail"]
    assert [id] == [device.id for device in table.all()]
    await table.flush()
    stored = contents_of(server.app.config.data_dir).values()
    assert not [data for data in stored if b"canary of" in data or b"canary-of" in data]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_opamp_go_gets_a_key(serve: Serve, transport: str) -> None:
    """The agent connects again with the key that it was offered, and the fleet's key no longer counts."""
    program = str(await asyncio.to_thread(environments.go, "opamp_client", "."))
    server = await serve(config=config(opamp_keys=True))
    key = await server.make_key("fleet", scopes=ALL)
    uid = uuid4()
    async with running(program, url_of(server, transport), key, str(uid), "key") as agent:
        assert (await event(agent, "offer"))["detail"] == url_of(server, transport)
        await until(lambda: find(server, f"opamp:{uid}").key_used)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_collector(serve: Serve, tmp_path: Path, transport: str) -> None:
    """The extension makes a new uid at each start. The collector stays one device, with its components' health."""
    program = str(await asyncio.to_thread(environments.go, "opamp_collector", "."))
    server = await serve(config=config(heartbeat_interval=1))
    key = await server.make_key("fleet", scopes=ALL)
    lifecycle = server.app.services.topics.devices
    table = lifecycle.table
    settings = tmp_path / "collector.yaml"
    url = url_of(server, transport)
    uids: set[str] = set()
    for _ in range(2):
        text = COLLECTOR.format(port=free_port(), transport=transport, url=url, key=key)
        await asyncio.to_thread(settings.write_text, text)
        async with running(program, "--config", str(settings)) as collector:
            await until(partial(reported, table, before=uids))
            [device] = table.all()
            assert device.labels["team"] == "search"
            uids |= decode_instances(device.heartbeat).keys()
            collector.terminate()
            await awaited(collector.wait())
        # over plain HTTP, the extension stops without its last message, so only its silence shows the stop
        if transport == "http":
            await until(lambda: lifecycle.machine_state(table.all()[0]).link == OFFLINE)
        else:
            await until(lambda: part(server, table.all()[0].id)["connected"] is False)
    assert len(uids) == 2
    assert len(table.all()) == 1


@pytest.mark.parametrize("takes_key", [False, True])
async def test_a_supervisor(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_key: bool
) -> None:
    """
    The supervisor keeps its uid, and reports its collector. It forgets an offered key at a restart, as
    docs/operations/collectors.md says.
    """
    module = "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/opampsupervisor"
    program = str(await asyncio.to_thread(environments.go, "opamp_supervisor", module))
    collector = await asyncio.to_thread(environments.go, "opamp_collector", ".")
    server = await serve(config=config(heartbeat_interval=1, opamp_keys=takes_key))
    key = await server.make_key("fleet", scopes=ALL)
    table = server.app.services.topics.devices.table
    refused: list[str] = []
    monkeypatch.setattr(server.app.services.receivers.metrics, "count_refusal", refused.append)
    pipelines = tmp_path / "pipelines.yaml"
    await asyncio.to_thread(pipelines.write_text, PIPELINES)
    text = SUPERVISOR.format(
        url=url_of(server, "ws"),
        key=key,
        accepts=str(takes_key).lower(),
        directory=tmp_path / "state",
        collector=collector,
        pipelines=pipelines,
    )
    settings = tmp_path / "supervisor.yaml"
    await asyncio.to_thread(settings.write_text, text)
    states = ("connected", "healthy")

    def ids() -> list[str]:
        return [device.id for device in table.all()]

    for start in range(2):
        async with running(program, "--config", str(settings)) as supervisor:
            if start and takes_key:
                await until(lambda: "device_key_needed" in refused)
            else:
                await until(
                    lambda: [True, True] == [part(server, id).get(name) for id in ids() for name in states]
                )
            if takes_key:
                await until(lambda: table.all()[0].key_used)
            supervisor.send_signal(signal.SIGINT)  # SIGTERM would leave its collector running
            await awaited(supervisor.wait())
        await until(lambda: part(server, table.all()[0].id)["connected"] is False)
    assert len(table.all()) == 1
