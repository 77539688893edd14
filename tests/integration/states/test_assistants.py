"""
A day of each assistant, through the real probe and heartbeats: not set up, set up, used, led past the policy, cut off
from the gateway, and back. Every face says the same word after each step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.fleet.uses import RememberedAssistantUses
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.record import utc_iso
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from spool.registry.tables.inventory import Machine
from tests.gateway.devices.agent.probe.test_look import PRESENT
from tests.gateway.devices.agent.probe.trees import SESSIONS, heard
from tests.integration.conftest import Serve
from tests.integration.states.conftest import Faces, faces_of
from tests.integration.states.test_laptops import compare
from tests.moved_clock import MovedClock

OURS, OTHER = "http://127.0.0.1:4318", "https://collector.example.net:4318"
LOOK_S = 300.0
SCOPES = (ENROLL, HEARTBEAT, INGEST)


class Laptop:
    """A laptop with one assistant."""

    def __init__(self, assistant: str, root: Path, clock: MovedClock) -> None:
        self.assistant, self._root, self._clock = assistant, root, clock
        self._memories: dict[str, RememberedAssistantUses] = {}
        self._calls: dict[str, HeardCalls] = {}
        self._uses = 0
        self.write(f"home/ada/{PRESENT[assistant]}", "")

    def write(self, path: str, text: str) -> None:
        file = self._root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (self._clock.now(),) * 2)

    def set_up(self, endpoint: str) -> None:
        """Write the managed files. opencode gets its endpoint from the environment of the machine."""
        policy = MANAGED[self.assistant]
        self.write(policy.files[LINUX], policy.settings_text(Destination(endpoint=endpoint)))
        if self.assistant == "opencode":
            line = f'OTEL_EXPORTER_OTLP_ENDPOINT="{endpoint}"\n'
            self.write("etc/environment.d/50-tollhouse.conf", line)

    def use(self) -> None:
        self._uses += 1
        self.write(f"home/ada/{SESSIONS[self.assistant]}", "a prompt" * 640 * self._uses)

    def hear(self) -> None:
        """Let the agent get a call."""
        self._calls = heard(self.assistant, self._clock.now())

    def report(self, forward: str) -> Mapping[str, Any]:
        """Look, and return the heartbeat. With `forward`, the newest calls wait for the gateway."""
        now = self._clock.now()
        home = UserHome(folder=GuardedFolder(self._root / "home/ada"))
        machine = ProbedMachine(
            system=LINUX, root=GuardedFolder(self._root), homes=[home], ours=[OURS], only_http=[OURS]
        )
        link = AgentLink(forward=forward, oldest_at=now - LOOK_S if forward else None, calls=self._calls)
        found = probe_and_remember_states(
            machine, link, ("user", "use"), now=now, remembered_uses=self._memories
        )
        spool = {"records": int(bool(forward)), "oldest_age_s": LOOK_S if forward else 0.0}
        return {"device_id": self.assistant, "sent_at": utc_iso(now), "spool": spool, **found}


class Site:
    """A gateway with a laptop for each assistant."""

    def __init__(self, faces: Faces, place: Path, clock: MovedClock, key: str) -> None:
        self.faces, self.clock, self._key = faces, clock, key
        self.laptops = [Laptop(name, place / name, clock) for name in MANAGED]

    async def look(self, *, used: bool = False, heard: bool = False, forward: str = "") -> None:
        """Let the laptops report after five minutes. Calls that the agents heard arrive, unless they wait."""
        self.clock.move(LOOK_S)
        lifecycle = self.faces.server.app.services.single.devices
        for laptop in self.laptops:
            if used:
                laptop.use()
            if heard:
                laptop.hear()
        self.clock.move(150)  # after two minutes, a use is judged
        for laptop in self.laptops:
            body = msgspec.json.encode(laptop.report(forward))
            answer = await self.faces.server.send("/v1/ai-control-plane/heartbeat", body, key=self._key)
            assert 200 == answer.status, answer.body
            device = lifecycle.table.find(laptop.assistant)
            assert device is not None
            if heard and not forward:
                bearer = AuthenticatedKey("fleet", frozenset(SCOPES))
                lifecycle.note_telemetry(device, {laptop.assistant: self.clock.now() - 150}, bearer)
        await lifecycle.store_changed_states()

    async def words(self) -> set[tuple[str, str, str]]:
        """Return the words and causes of all laptops, after comparing all faces."""
        await compare(self.faces, 0)
        rows = (await self.faces.api("/fleet/devices"))["devices"]
        assert len(MANAGED) == len(rows)
        causes = [[(cause["state"], cause["cause"]) for cause in row["causes"]] for row in rows]
        return {
            (row["state"], *(found[0] if found else ("", "")))
            for row, found in zip(rows, causes, strict=True)
        }


async def test_each_assistant_has_one_state_at_each_step(serve: Serve, tmp_path: Path) -> None:
    clock = MovedClock()
    config = Config(devices=DeviceSettings(heartbeat_interval=600.0))
    faces = await faces_of(await serve(config=config, clock=clock), tmp_path / "data-0")
    site = Site(faces, tmp_path / "laptops", clock, await faces.server.make_key("fleet", scopes=SCOPES))
    inventory = faces.server.app.services.operators.installation.require_registry().inventory
    machines = [Machine(serial=name, last_seen=clock.now()) for name in MANAGED]
    await inventory.replace_machines(machines, source="csv", confirmed=True, actor=Actor("test", ""))

    await site.look()
    assert {("at_risk", "not_configured", "no_policy")} == await site.words()
    for laptop in site.laptops:
        laptop.set_up(OURS)
    await site.look()
    assert {("unused", "", "")} == await site.words()
    await site.look(used=True, heard=True)
    assert {("reporting", "", "")} == await site.words()
    for laptop in site.laptops:
        laptop.set_up(OTHER)
    await site.look()
    assert {"at_risk"} == {word for word, *_ in await site.words()}
    await site.look(used=True)
    assert {("losing", "overridden")} == {(word, state) for word, state, _ in await site.words()}
    for laptop in site.laptops:
        laptop.set_up(OURS)
    await site.look(used=True, heard=True)
    assert {("reporting", "", "")} == await site.words()
    await site.look(used=True, heard=True, forward="dns")
    assert {("delayed", "unreachable", "dns")} == await site.words()
    await site.look(used=True, heard=True)
    assert {("reporting", "", "")} == await site.words()
