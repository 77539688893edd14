"""
The probe next to the real assistants: it states of the same files what the program does. A run with managed settings,
settings of the user and variables sends to our endpoint, to another one, or nowhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gateway.devices.agent.policy.targets import MANAGED as POLICIES
from gateway.devices.agent.policy.targets import Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, assistant_and_policy_states
from gateway.devices.agent.probe.places import PLACES
from tests.clients import managed
from tests.clients.assistants import Place
from tests.clients.provider import Provider
from tests.clients.test_managed_policy import RUN, Collector, variables_of_rival, write_rivals

pytestmark = pytest.mark.clients

OURS, OTHER, NOWHERE = "ours", "other", "nowhere"
TRACED = ("copilot_cli", "opencode")  # assistants that report calls as spans


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    served = Provider()
    yield served
    served.close()


@pytest.fixture
def ours() -> Iterator[Collector]:
    served = Collector()
    yield served
    served.close()


@pytest.fixture
def other() -> Iterator[Collector]:
    served = Collector()
    yield served
    served.close()


@pytest.fixture(scope="module", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    managed.need_namespaces(tmp_path_factory.mktemp("namespaces"))


def policy_of(assistant: str) -> str:
    return "copilot" if assistant == "copilot_cli" else assistant.replace("_", "-")


def switch_off(assistant: str) -> dict[str, str]:
    prefix = {"claude_code": "CLAUDE_CODE_ENABLE_TELEMETRY", "copilot_cli": "COPILOT_OTEL_ENABLED"}
    name = prefix.get(assistant, f"{assistant.partition('_')[0].upper()}_TELEMETRY_ENABLED")
    return {name: "0" if assistant == "claude_code" else "false"}


NONE = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("LOGS", "METRICS", "TRACES")}
# (is the policy there, do the user's settings name ours or the other endpoint, variables by name of the assistant)
Variables = Callable[[str, str], dict[str, str]]
CASES: dict[str, tuple[bool, str, Variables]] = {
    "the policy": (True, "", lambda name, url: {}),
    "the policy, and other settings of the user": (True, OTHER, lambda name, url: {}),
    "the policy, and variables with the other endpoint": (True, "", variables_of_rival),
    "the policy, and the general variable": (
        True, "", lambda name, url: {"OTEL_EXPORTER_OTLP_ENDPOINT": url},
    ),
    "the policy, and the variable of logs": (
        True, "", lambda name, url: {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{url}/v1/logs"},
    ),
    "the policy, and no SDK": (True, "", lambda name, url: {"OTEL_SDK_DISABLED": "true"}),
    "the policy, and no exporter": (True, "", lambda name, url: NONE),
    "the policy, and the switch": (True, "", lambda name, url: switch_off(name)),
    "settings of the user": (False, OURS, lambda name, url: {}),
    "settings of the user, and variables": (False, OURS, variables_of_rival),
    "settings of the user, and the switch": (False, OURS, lambda name, url: switch_off(name)),
    "other settings of the user": (False, OTHER, lambda name, url: {}),
    "only variables": (False, "", variables_of_rival),
    "nothing": (False, "", lambda name, url: {}),
}  # fmt: skip


@pytest.mark.parametrize("assistant", RUN)
@pytest.mark.parametrize("case", CASES)
def test_the_probe_states_what_the_program_does(
    provider: Provider, ours: Collector, other: Collector, tmp_path: Path, case: str, assistant: str
) -> None:
    has_policy, user, variables_for = CASES[case]
    home, root, name = tmp_path / "home", tmp_path / "bundle/linux", policy_of(assistant)
    (root / "etc").mkdir(parents=True)
    variables: dict[str, str] = {}
    if has_policy:
        file = root / POLICIES[name].files["linux"].lstrip("/")
        file.parent.mkdir(parents=True)
        file.write_text(POLICIES[name].settings_text(Destination(endpoint=ours.url)))
        if assistant == "opencode":  # its endpoint is always a variable
            variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": ours.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    variables |= variables_for(assistant, other.url)
    home.mkdir()
    started = RUN[assistant](Place(home=home, provider=provider.url, tollhouse="", key="", is_managed=True))
    if user:
        write_rivals(assistant, home, home / "project", ours.url if user == OURS else other.url)
    environment = {**started.environment, **variables}
    begin = time.time()
    managed.run_managed(tmp_path / "bundle", started.command, home, home, environment)
    sent = {
        where: any(("traces" if assistant in TRACED else "logs") in path for path in requests)
        for where, requests in ((OURS, ours.requests), (OTHER, other.requests))
    }
    assert sent != {OURS: True, OTHER: True}
    does = next((where for where, is_sent in sent.items() if is_sent), NOWHERE)
    if assistant == "opencode" and user and not has_policy:
        does = NOWHERE  # its settings turn telemetry off, and then it exports spans of its own, without calls
    write_environment(root / "etc/environment", variables)
    found = states(root, home, ours.url)[name]
    assert does == stated(found), found
    places = PLACES[name]
    used = [GuardedFolder(home).newest_change_below(folder, depth) for folder, depth in places.used]
    assert max(at for at in used if at is not None) >= begin - 2


def write_environment(file: Path, variables: Mapping[str, str]) -> None:
    file.write_text("".join(f'{name}="{value}"\n' for name, value in variables.items()))


def states(root: Path, home: Path, endpoint: str) -> dict[str, dict[str, object]]:
    machine = ProbedMachine(
        system="linux",
        root=GuardedFolder(root),
        homes=[UserHome(folder=GuardedFolder(home))],
        ours=[endpoint],
    )
    looked = assistant_and_policy_states(machine, AgentLink(), (), now=time.time(), memories={})
    found: dict[str, dict[str, object]] = looked["assistants"]
    json.dumps(found)
    return found


def stated(row: Mapping[str, object]) -> str:
    """Return where the reports go according to the probe."""
    if row["state"] == "overridden":
        return OTHER
    return OURS if row["configured"] else NOWHERE
