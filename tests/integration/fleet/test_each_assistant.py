"""
A loop per assistant, with the requests that the real program sent: policy, call, other settings of a shell, a user or a
project, and their repair. The table "Who wins" of docs/fleet/index.md says which settings apply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.fleet.uses import RememberedAssistantUses
from spool.record import NS, Inference, utc_iso
from spool.registry.scopes import ENROLL, HEARTBEAT
from tests.clients import capture
from tests.clients.test_managed_policy import OTHER as OTHER_WINS
from tests.clients.test_managed_policy import variables_of_rival, who_wins, write_rivals
from tests.gateway.devices.agent.probe.test_look import PRESENT
from tests.gateway.devices.agent.probe.trees import SESSIONS, heard
from tests.integration.conftest import Serve, Serving
from tests.moved_clock import MovedClock
from tests.rounds import part

PLANE = "/v1/ai-control-plane/"
OURS, OTHER = "http://127.0.0.1:4318", "https://collector.example.net:4318"
LOOK_S = 300.0
FAMILIES = {name: name.replace("-", "_") for name in MANAGED} | {"copilot": "copilot_cli"}
ENVIRONMENT, USER, PROJECT = "environment", "user", "project"


class Desk:
    """A laptop of ada with one assistant, at a gateway."""

    def __init__(self, assistant: str, place: Path, server: Serving, clock: MovedClock) -> None:
        self.assistant, self.root, self.server, self.clock = assistant, place, server, clock
        self.home = place / "home/ada"
        self._memories: dict[str, RememberedAssistantUses] = {}
        self._heard: dict[str, HeardCalls] = {}
        self._uses = 0
        self.requests = captured(assistant)
        self.write(f"home/ada/{PRESENT[assistant]}", "")

    async def enrol(self) -> None:
        fleet = await self.server.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
        answer = await self._post("enroll", fleet, fingerprint="one", want_key=True)
        self.key: str = json.loads(answer)["key"]

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (self.clock.now(),) * 2)

    def apply_policy(self) -> None:
        """Write the managed file, and for opencode the variable of the machine that names the endpoint."""
        policy = MANAGED[self.assistant]
        destination = Destination(endpoint=OURS)
        self.write(policy.files[LINUX], policy.settings_text(destination))
        if policy.needs_environment(destination):
            self.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')

    async def call(self) -> list[Inference]:
        """Let the program be used, and its requests arrive with the device's key. Return the calls."""
        self.use()
        for one in self.requests:
            answer = await self.server.send(
                one.path, one.body, content_type=one.headers["content-type"], key=self.key
            )
            assert 200 == answer.status, answer.body
        calls = [record for record in await self.server.records() if isinstance(record, Inference)]
        self._heard = heard(self.assistant, newest_end(calls))
        return calls

    def use(self) -> None:
        self._uses += 1
        self.write(f"home/ada/{SESSIONS[self.assistant]}", "a prompt" * 640 * self._uses)

    async def states(self) -> tuple[str, str, str]:
        """Look after five minutes. Return the words of the machine and the assistant, and the cause."""
        self.clock.move(LOOK_S)
        machine = ProbedMachine(
            system=LINUX,
            root=GuardedFolder(self.root),
            homes=[UserHome(folder=GuardedFolder(self.home))],
            ours=[OURS],
            only_http=[OURS],
        )
        link = AgentLink(calls=self._heard)
        found = probe_and_remember_states(
            machine, link, ("user", "use"), now=self.clock.now(), remembered_uses=self._memories
        )
        sent = {"sent_at": utc_iso(self.clock.now()), "user": "ada", "spool": {"records": 0}}
        await self._post("heartbeat", self.key, **sent, **found)
        lifecycle = self.server.app.services.single.devices
        device = lifecycle.table.find("laptop")
        assert device is not None
        state = lifecycle.machine_state(device)
        [own] = [each for each in state.assistants.each if each.name == self.assistant]
        return state.word, own.state, own.cause

    async def _post(self, what: str, key: str, **body: Any) -> bytes:
        sent = json.dumps({"device_id": "laptop", **body}).encode()
        answer = await self.server.send(PLANE + what, sent, key=key)
        assert 200 == answer.status, answer.body
        return answer.body


def captured(assistant: str) -> list[capture.SentRequest]:
    """Return the requests of one run of the real program."""
    folder = capture.PLACE / FAMILIES[assistant]
    runs = {file.name.partition(".")[0]: file for file in folder.iterdir()}
    return list(capture.read(runs.get("prompt", runs["units"])).requests)


def newest_end(calls: list[Inference]) -> float:
    return max(call.end_time or call.start_time or 0 for call in calls) / NS


async def desk_of(assistant: str, serve: Serve, place: Path) -> Desk:
    """Return a laptop on the day of the captured calls."""
    clock = MovedClock()
    first = Desk(assistant, place / "first", await serve(), clock)
    await first.enrol()
    ended = newest_end(await first.call())
    clock = MovedClock(ended - LOOK_S + 120)
    desk = Desk(assistant, place / "laptop", await serve(clock=clock), clock)
    await desk.enrol()
    return desk


@pytest.mark.parametrize("assistant", part(list(FAMILIES), every=3))
async def test_the_calls_of_an_assistant_have_its_device_and_user(
    serve: Serve, tmp_path: Path, assistant: str
) -> None:
    desk = await desk_of(assistant, serve, tmp_path)
    desk.apply_policy()
    assert ("unused", "unused", "") == await desk.states()
    calls = await desk.call()
    assert {"laptop"} == {call.device for call in calls}
    # without an account, Claude Code states an id of its installation
    users = {call.user for call in calls}
    assert (
        len(users) == 1 and len(users.pop() or "") == 64 if assistant == "claude-code" else {"ada"} == users
    )
    assert ("reporting", "reporting", "") == await desk.states()


@pytest.mark.parametrize("place", part([ENVIRONMENT, USER, PROJECT], every=3))
@pytest.mark.parametrize("assistant", part(list(FAMILIES), every=2))
async def test_other_settings(serve: Serve, tmp_path: Path, assistant: str, place: str) -> None:
    """
    Settings of a shell, user or project that do not win change nothing. Settings that win are a risk, then a loss
    with the next use, until they are repaired.
    """
    desk = await desk_of(assistant, serve, tmp_path)
    desk.apply_policy()
    await desk.states()
    await desk.call()
    assert ("reporting", "reporting", "") == await desk.states()
    before = files_of(desk.home)
    put_rival(desk, place)
    if who_wins()[MANAGED[assistant].title][place] != OTHER_WINS:
        assert ("reporting", "reporting", "") == await desk.states()
        return
    word, state, cause = await desk.states()
    assert ("at_risk", "overridden") == (word, state)
    desk.clock.move(150)
    desk.use()
    desk.clock.move(150)  # a use of an assistant is judged after two minutes
    assert ("losing", "overridden", cause) == await desk.states()
    for file, content in files_of(desk.home).items():
        if file not in before:
            file.unlink()
        elif content != before[file]:
            desk.write(str(file.relative_to(desk.root)), before[file])
    assert ("reporting", "reporting", "") == await desk.states()


def put_rival(desk: Desk, place: str) -> None:
    family = FAMILIES[desk.assistant]
    if place == ENVIRONMENT:
        variables = variables_of_rival(family, OTHER)
        desk.write(
            "home/ada/.bashrc", "".join(f"export {name}={value}\n" for name, value in variables.items())
        )
        return
    project = desk.home / "project"
    project.mkdir()
    write_rivals(family, desk.home if place == USER else project, project, OTHER)


def files_of(home: Path) -> Mapping[Path, str]:
    return {file: file.read_text() for file in home.rglob("*") if file.is_file()}
