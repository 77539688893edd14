"""
A Linux machine with an agent, a policy, and several people who run real assistants: who loses calls is named, and
nobody else is. Calls that state no person have the login of their sender, also over SSH.

The machine is this one in a mount namespace, whose /etc has the policy and two more users. Losses are judged by the
clock, so the first test takes over an hour.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.agent.heard_calls import read_heard_calls
from gateway.devices.agent.link import USE
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME
from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.acceptance.test_devices import AGENT, FLEET, Agent
from tests.clients import managed
from tests.clients.assistants import ASSISTANTS, Place
from tests.clients.conftest import Stand
from tests.clients.provider import Provider
from tests.clients.test_managed_policy import Collector
from tests.free_ports import free_port
from tests.gateway.devices.agent.probe.trees import PROGRAM_OF
from tests.waiting import wait_until

pytestmark = pytest.mark.clients

USERS = {"ada": 20001, "bob": 20002}
SLOT_S = 300.0
# A loss is named within this time after the first lost use: three lost slots, or five where the program also writes
# without a prompt, and then ten minutes, with looks in between.
FOUND_S = {3: 1200.0, 5: 2100.0}
# the name of the policy, and a variable that leads the calls of one terminal past it; OTHER is another endpoint
TERMINALS = {
    "gemini_cli": ("gemini-cli", "GEMINI_TELEMETRY_OTLP_ENDPOINT", "OTHER"),
    "qwen_code": ("qwen-code", "QWEN_TELEMETRY_OTLP_LOGS_ENDPOINT", "OTHER/v1/logs"),
    "copilot_cli": ("copilot", "OTEL_TRACES_SAMPLER", "always_off"),
}
HOME, CONTAINER = "home", "container"
NOT_LOSING = {"none", "heard", "waiting"}


@dataclass
class Machine:
    """The machine with the homes of its users. Programs run as a user, with the policy in /etc."""

    directory: Path
    agent: Agent
    provider: Provider

    @property
    def bundle(self) -> Path:
        return self.directory / "bundle"

    def home(self, user: str) -> Path:
        return self.directory / user

    def inside(self, command: Sequence[str], user: str = "") -> list[str]:
        """Return the command that runs another one in the namespace, as a user if one is named."""
        who = (
            ["setpriv", f"--reuid={USERS[user]}", f"--regid={USERS[user]}", "--clear-groups"] if user else []
        )
        return ["unshare", "--mount", "sh", "-c", managed.MOUNT, str(self.bundle), *who, *command]

    def started(self, user: str, assistant: str) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables of a prompt, with the user's settings in place."""
        home = self.home(user)
        place = Place(home=home, provider=self.provider.url, tollhouse="", key="", is_managed=True)
        started = ASSISTANTS[assistant](place)
        for path in (home, *home.rglob("*")):
            os.lchown(path, USERS[user], USERS[user])
        return started.command, {"PATH": os.environ["PATH"], "HOME": str(home), **started.environment}

    def prompt(
        self, user: str, assistant: str, variables: Mapping[str, str], place: str = HOME
    ) -> subprocess.Popen[bytes]:
        """Begin a prompt. In a container, the home is another one, which nobody sees from outside."""
        command, environment = self.started(user, assistant)
        if place == CONTAINER:
            home = self.home(user)
            fill = f"cp -a {home} $0/kept && mount -t tmpfs tmpfs {home} && cp -a $0/kept/. {home} && "
            with_home = ["sh", "-c", f'set -e; {fill} exec "$@"', tempfile.mkdtemp(dir=self.directory)]
            whole = ["unshare", "--mount", *with_home, *self.inside(command, user)]
        else:
            whole = self.inside(command, user)
        return subprocess.Popen(
            whole,
            cwd=self.home(user),
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def machine(installation: tuple[Tollhouse, str], provider: Provider) -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("other users and their homes need root and setpriv")
    gateway, _ = installation
    with tempfile.TemporaryDirectory(prefix="tollhouse-machine-") as place:
        directory = Path(place)
        directory.chmod(0o755)
        port = free_port()
        settings = AGENT.format(url=gateway.url).replace(
            'listen = "127.0.0.1:0"', f'listen = "127.0.0.1:{port}"', 1
        )
        agent = Agent(directory / "agent", settings)
        (agent.directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
        made = Machine(directory, agent, provider)
        managed.make_bundle(gateway, made.bundle, "--mode", "agent", "--gateway", f"http://127.0.0.1:{port}")
        lines = Path("/etc/passwd").read_text()
        for name, number in USERS.items():
            made.home(name).mkdir()
            lines += f"{name}:x:{number}:{number}::{made.home(name)}:/bin/sh\n"
        (made.bundle / "linux/etc/passwd").write_text(lines)
        subprocess.run(made.inside(["true"]), check=True)
        agent.start(command=made.inside([str(COMMAND)]))
        wait_until((agent.data / "device.key").exists, "the device's own key")
        yield made
        agent.stop()


@dataclass
class Looks:
    """The probe on a list of homes, each minute, with the memory of its own looks."""

    machine: Machine
    users: Sequence[str]
    memories: dict[str, Any] = field(default_factory=dict)

    def uses(self) -> dict[str, tuple[str, str]]:
        """Look once. Return state and use of each assistant."""
        machine = self.machine
        probed = ProbedMachine(
            system="linux",
            root=GuardedFolder(machine.bundle / "linux"),
            homes=[
                UserHome(folder=GuardedFolder(machine.home(each)), user=USERS[each]) for each in self.users
            ],
            ours=[machine.agent.url],
            only_http=[machine.agent.url],
        )
        link = AgentLink(calls=read_heard_calls(machine.agent.data))
        found = probe_and_remember_states(probed, link, [USE], now=time.time(), remembered_uses=self.memories)
        return {name: (row["state"], row.get("use", "")) for name, row in found["assistants"].items()}


def test_the_home_that_loses_is_named_and_no_other(machine: Machine) -> None:
    """
    Two people use each assistant once in five minutes. First the terminal of one sends elsewhere, then it is repaired
    and that of the other does. Meanwhile the same user's container with a home of its own reports.
    """
    other = Collector()
    looks = {who: Looks(machine, who.split()) for who in ("ada", "bob", "ada bob")}
    try:
        for loser, healthy in (("bob", "ada"), ("ada", "bob")):
            began, waiting, next_prompts = time.time(), set(TERMINALS), 0.0
            running: list[subprocess.Popen[bytes]] = []
            took: dict[str, float] = {}
            while waiting or time.time() < began + 4 * SLOT_S:
                now = time.time()
                if now >= next_prompts:
                    assert {0} >= {each.wait() for each in running}, "a prompt failed"
                    next_prompts = now + SLOT_S
                    running = [
                        machine.prompt(
                            user,
                            name,
                            {variable: value.replace("OTHER", other.url)} if is_lost else {},
                            place,
                        )
                        for name, (_, variable, value) in TERMINALS.items()
                        for user, is_lost, place in (
                            (loser, True, HOME),
                            (healthy, False, HOME),
                            (loser, False, CONTAINER),
                        )
                    ]
                found = {who: each.uses() for who, each in looks.items()}
                for name, (policy, *_) in TERMINALS.items():
                    print(f"{now - began:6.0f}", name, {who: each[policy] for who, each in found.items()})
                    if name in waiting:
                        slots = 3 if PROGRAMS_BY_NAME[PROGRAM_OF[policy]].has_sure_uses else 5
                        assert now - began < FOUND_S[slots], f"{name} of {loser} is not named"
                    if found[loser][policy][1] == "losing" and name in waiting:
                        waiting.remove(name)
                        took[name] = now - began
                        assert found["ada bob"][policy][1] == "losing", name
                    # after a repair, a home is healthy again when its next two uses were judged
                    if now > began + 3 * SLOT_S:
                        assert found[healthy][policy][1] in NOT_LOSING, name
                time.sleep(60)
            assert {0} >= {each.wait() for each in running}, "a prompt failed"
            print(f"{loser} loses: named after", {name: f"{each:.0f} s" for name, each in took.items()})
    finally:
        other.close()


@pytest.mark.parametrize("assistant", ["codex", "gemini_cli", "qwen_code", "copilot_cli"])
def test_calls_over_ssh_have_the_login(
    machine: Machine, stand: Stand, tmp_path: Path, assistant: str
) -> None:
    program = shutil.which("sshd")
    if program is None:
        pytest.skip("sshd is not installed")
    key, host, port = tmp_path / "key", tmp_path / "host", free_port()
    for file in (key, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    permitted = machine.directory / "permitted"  # ada reads it
    permitted.write_text(key.with_suffix(".pub").read_text())
    options = [f"HostKey={host}", f"AuthorizedKeysFile={permitted}", "UsePAM=no", "StrictModes=no",
               "ListenAddress=127.0.0.1", f"Port={port}", "PidFile=none"]  # fmt: skip
    words = [word for option in options for word in ("-o", option)]
    command, environment = machine.started("ada", assistant)
    (machine.bundle / "linux/etc/shadow").write_text("ada:*:20000:0:99999:7:::\n")
    server = subprocess.Popen(machine.inside([program, "-D", "-e", "-f", "/dev/null", *words]))
    try:
        login = ["ssh", "-i", str(key), "-p", str(port), "-o", "StrictHostKeyChecking=no", "-o",
                 "UserKnownHostsFile=/dev/null", "-o", "ConnectionAttempts=30", "ada@127.0.0.1"]  # fmt: skip
        asked = ["env", *(f"{name}={value}" for name, value in environment.items()), *command]
        line = f"cd {machine.home('ada')} && " + " ".join(f"'{word}'" for word in asked)
        subprocess.run([*login, line + " </dev/null"], check=True, timeout=managed.RUN_S)
    finally:
        server.terminate()
        server.wait()
    machine.agent.wait_until_drained("upstream/ai-telemetry")
    users = {record["user"] for record in stand.records()}
    assert users == {"ada"}
