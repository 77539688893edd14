"""Laptops that leave: by a command, with their package, and together with copies, losses and new installations."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from exporters.settings import UpstreamSettings
from gateway.cli.agent_leaving import deliver_waiting_records, report_leaving
from gateway.cli.agent_run import config_with_gateway_as_upstream
from gateway.configuration.sections import AgentSettings, Config
from gateway.configuration.server import ServerSettings
from gateway.devices.agent.identity import KEY_FILE
from gateway.devices.agent.link import HEARTBEATS_FILE
from gateway.devices.states import KEY_AFTER_LEAVING_S
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.app import TollhouseApp
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from tests.free_ports import free_port
from tests.integration.conftest import ACTOR, Serving
from tests.integration.fleet.gateway import Gateway
from tests.integration.fleet.history import HOUR, History, Key
from tests.integration.fleet.laptop import Laptop
from tests.integration.payloads import json_span, json_traces
from tests.moved_clock import MovedClock
from tests.processes.copied import COMMAND, run_process


@pytest_asyncio.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    opened = Gateway(tmp_path, MovedClock())
    await opened.start()
    yield opened
    await opened.stop()


def laptop_of(gateway: Gateway, place: Path, name: str = "laptop", *, data: Path | None = None) -> Laptop:
    """Return a laptop on which nothing happens. `data` is a data directory that it copies."""
    now = gateway.clock.now()
    keys = [Key(assistant, user) for assistant in ("gemini-cli", "copilot") for user in ("ada", "bob")]
    past = History(now + HOUR, [(0.0, 0.0)], {key: [] for key in keys}, {key: [] for key in keys})
    made = Laptop(place, name, past, gateway.clock)
    if data is not None:
        shutil.copytree(data, made.data, dirs_exist_ok=True)
    made.connect(gateway.app.url, gateway.key_file)
    return made


async def beat(laptop: Laptop) -> None:
    laptop.connect(laptop.url, laptop.enrolment_key)  # a new process begins with a heartbeat
    await laptop.report()
    await laptop.reporter.close()


def settings(laptop: Laptop) -> Config:
    return Config(
        data_dir=laptop.data,
        agent=AgentSettings(gateway=laptop.url),
        upstream=UpstreamSettings(base_url=laptop.url),
        spool=SpoolSettings(hold=0, counter_wait=0),
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
    )


async def test_a_removed_agent_may_come_back_for_a_week(gateway: Gateway, tmp_path: Path) -> None:
    """
    If no inventory lists a removed machine, it no longer counts in the fleet. A heartbeat within a week ends the
    removed state.
    """
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    assert "" == await report_leaving(settings(laptop), keep_key=True)
    assert ("left", False) == (gateway.state(laptop).word, gateway.state(laptop).covered)
    fleet = gateway.app.services.operators.senders.require_fleet()
    assert 0 == fleet.measure_coverage(await fleet.machine_rows()).machines
    gateway.clock.move(KEY_AFTER_LEAVING_S)
    await gateway.lifecycle.end_keys_of_left_devices()
    await beat(laptop)
    assert laptop.is_online
    assert "unknown" == gateway.state(laptop).word  # no probe has looked yet


async def test_a_key_ends_a_week_after_its_device_left(gateway: Gateway, tmp_path: Path) -> None:
    """
    The key of a removed device ends after a week. The same machine can then enrol again, and gets another key.
    """
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    key = laptop.key
    await report_leaving(settings(laptop), keep_key=True)
    gateway.clock.move(KEY_AFTER_LEAVING_S + 1)
    await gateway.lifecycle.end_keys_of_left_devices()
    await beat(laptop)
    assert laptop.key != key
    await beat(laptop)
    assert (True, "unknown") == (laptop.is_online, gateway.state(laptop).word)


async def test_an_unenrolled_device_has_no_key(gateway: Gateway, tmp_path: Path) -> None:
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    assert "" == await report_leaving(settings(laptop), keep_key=False)
    assert "left" == gateway.state(laptop).word
    device = gateway.lifecycle.table.find("laptop")
    assert device is not None
    assert not device.has_key
    assert "" == await report_leaving(
        settings(laptop), keep_key=False
    )  # the key has ended already, so nothing is left to end


async def test_a_copied_device_does_not_leave(gateway: Gateway, tmp_path: Path) -> None:
    """Nobody knows which of two machines leaves, so neither loses its key."""
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    await beat(laptop)
    copy = laptop_of(gateway, tmp_path / "two", data=laptop.data)
    await beat(laptop)
    await beat(laptop)
    await beat(copy)
    assert "copied" == gateway.state(laptop).word
    await report_leaving(settings(copy), keep_key=False)
    assert "copied" == gateway.state(laptop).word
    await beat(laptop)
    assert laptop.is_online
    await gateway.lifecycle.approve_device("laptop", ACTOR)
    (laptop.data / HEARTBEATS_FILE).unlink()
    await report_leaving(settings(laptop), keep_key=True)
    assert "left" == gateway.state(laptop).word


async def test_a_machine_that_left_may_be_installed_again(gateway: Gateway, tmp_path: Path) -> None:
    """
    A machine that left may be installed again. Its hardware id is no reason to wait for an operator, unless the
    earlier device still reports.
    """
    hardware = {"hardware_id": "ab" * 32}
    names = ("first", "second", "third")
    one, two, three = (laptop_of(gateway, tmp_path / name, name) for name in names)
    for laptop in (one, two, three):
        laptop.more = hardware
    await beat(one)
    await report_leaving(settings(one), keep_key=True)
    await beat(two)
    assert "unknown" == gateway.state(two).word
    await beat(three)
    assert "pending" == gateway.state(three).word


async def test_loss_continues_after_a_machine_is_installed_again(gateway: Gateway, tmp_path: Path) -> None:
    laptop = laptop_of(gateway, tmp_path / "one")
    laptop.more = {"assistants": {"codex": {"state": "overridden", "use": "losing"}}}
    await beat(laptop)
    assert "losing" == gateway.state(laptop).word
    await report_leaving(settings(laptop), keep_key=True)
    assert "left" == gateway.state(laptop).word
    await beat(laptop)
    assert "losing" == gateway.state(laptop).word


async def test_a_revoked_device_stays_revoked(gateway: Gateway, tmp_path: Path) -> None:
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    await report_leaving(settings(laptop), keep_key=True)
    await gateway.lifecycle.revoke_device("laptop", ACTOR)
    assert "" == await report_leaving(settings(laptop), keep_key=False)
    assert "revoked" == gateway.state(laptop).word
    await gateway.lifecycle.approve_device("laptop", ACTOR)
    assert "unknown" == gateway.state(laptop).word


async def test_another_key_lets_no_device_leave(gateway: Gateway, tmp_path: Path) -> None:
    """
    Only the device's own key lets it leave the fleet, because a fleet's key is on every laptop. Unknown words in
    the request are left out.
    """
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    fleet = gateway.key_file.read_text()
    for key, leaving in ((fleet, "removed"), (laptop.key, "now"), (laptop.key, True), (laptop.key, [])):
        await gateway.post_json(
            "/v1/ai-control-plane/heartbeat", {"device_id": "laptop", "leaving": leaving}, key
        )
        assert "unknown" == gateway.state(laptop).word


async def test_waiting_records_are_delivered_before_the_end(gateway: Gateway, tmp_path: Path) -> None:
    """
    Before the agent leaves, it delivers its waiting records. Records that cannot be delivered are counted, so that
    the command does not end the key.
    """
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    there = settings(laptop)
    unreachable = replace(there, agent=AgentSettings(gateway=f"http://127.0.0.1:{free_port()}"))
    local = AuthenticatedKey("this machine", frozenset({INGEST}), device="laptop", is_local=True)
    app = TollhouseApp(config_with_gateway_as_upstream(unreachable), version="0", local=local)
    await app.start()
    async with gateway.client.post(
        f"{app.url}/v1/traces", data=json_traces(json_span()), headers={"Content-Type": "application/json"}
    ) as answer:
        assert 200 == answer.status
    await app.stop()
    assert 1 == await deliver_waiting_records(unreachable, 0.4)
    assert 0 == await deliver_waiting_records(there, 60)
    records = await Serving(app=gateway.app, key="", client=gateway.client).records()
    assert ["laptop"] == [record.device for record in records]
    assert (laptop.data / KEY_FILE).exists()


async def unenrol(laptop: Laptop, gateway: str, *words: str) -> tuple[int, str]:
    """Run `tollhouse agent unenrol` with a configuration file. Return its exit code and what it printed."""
    file = laptop.root / "agent.toml"
    file.write_text(f'data_dir = "{laptop.data}"\n[agent]\ngateway = "{gateway}"\n')
    command = [str(COMMAND), "agent", "unenrol", "--config", str(file), *words]
    done = await asyncio.to_thread(run_process, command, cwd=laptop.root)
    return done.returncode, done.stdout + done.stderr


async def test_the_command_deletes_the_key_only_if_the_gateway_knows(
    gateway: Gateway, tmp_path: Path
) -> None:
    laptop = laptop_of(gateway, tmp_path / "one")
    await beat(laptop)
    code, printed = await unenrol(laptop, f"http://127.0.0.1:{free_port()}", "--wait", "0")
    assert (1, True) == (code, "does not know that this device leaves" in printed)
    assert (laptop.data / KEY_FILE).exists()
    assert 0 == (await unenrol(laptop, laptop.url, "--wait", "0", "--keep-key"))[0]
    assert (True, "left") == ((laptop.data / KEY_FILE).exists(), gateway.state(laptop).word)
    await beat(laptop)
    code, printed = await unenrol(laptop, laptop.url)
    assert (0, True) == (code, "its key was deleted" in printed)
    assert (False, "left") == ((laptop.data / KEY_FILE).exists(), gateway.state(laptop).word)
    assert (0, True) == ((again := await unenrol(laptop, laptop.url))[0], "no key" in again[1])
