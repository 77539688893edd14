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
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME
from tests.clients import managed
from tests.clients.assistants import Place
from tests.clients.provider import Provider
from tests.clients.test_managed_policy import RUN, Collector, variables_of_rival, write_rivals
from tests.gateway.devices.agent.probe.trees import PROGRAM_OF

pytestmark = pytest.mark.clients

OURS, OTHER, NOWHERE = "ours", "other", "nowhere"
TRACED = ("copilot_cli", "opencode")  # assistants that report their calls as spans


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
# Each case below has: whether the policy is there, the endpoint that settings of the user name (ours, the
# other one, or none), and a function that returns the environment variables of an assistant.
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
        if assistant == "opencode":  # opencode gets its endpoint always from a variable
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
        does = NOWHERE  # this assistant's settings turn telemetry off, so it exports only spans without calls
    write_environment(root / "etc/environment", variables)
    found = states(root, home, ours.url)[name]
    assert does == stated(found), found
    program = PROGRAMS_BY_NAME[PROGRAM_OF[name]]
    files = GuardedFolder(home).session_files(program.folder, program.shapes)
    assert max(file.changed_at for file in files.values()) >= begin - 2


Bypass = Callable[[Path, Mapping[str, str]], dict[str, str]]
POLICY, SETTINGS, SHELL = "policy", "settings of the user", "variables"


def variables(**values: str) -> Bypass:
    """Set variables. OTHER in a value is the other endpoint, OURS is ours, and HOME is the home of the user."""
    return lambda home, words: {name: _filled(value, words) for name, value in values.items()}


def settings(path: str, **more: Mapping[str, object]) -> Bypass:
    """Add settings to a file of the user."""

    def written(home: Path, words: Mapping[str, str]) -> dict[str, str]:
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        there = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**there, **json.loads(_filled(json.dumps(more), words))}))
        return {}

    return written


def file_of_variables(path: str, line: str) -> Bypass:
    def written(home: Path, words: Mapping[str, str]) -> dict[str, str]:
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(line, words) + "\n")
        return {}

    return written


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


GEMINI, QWEN = ".gemini/settings.json", ".qwen/settings.json"
CLAUDE = {
    "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "OURS",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
}
COPILOT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "OURS"}
TO_FILE = {"COPILOT_OTEL_EXPORTER_TYPE": "file", "COPILOT_OTEL_FILE_EXPORTER_PATH": "HOME/calls"}
TRACES_ELSEWHERE = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "OTHER/v1/traces"}
UNSAMPLED = {"OTEL_TRACES_SAMPLER": "always_off"}
USER = {"enabled": True, "otlpEndpoint": "OURS"}
# (assistant, what makes it report to us, what may lead its calls elsewhere)
BYPASSES: list[tuple[str, str, Bypass]] = [
    ("claude_code", POLICY, variables(OTEL_EXPORTER_OTLP_LOGS_PROTOCOL="grpc")),
    ("claude_code", POLICY, variables(CLAUDE_CODE_MANAGED_SETTINGS_PATH="HOME")),
    ("claude_code", POLICY, variables(DO_NOT_TRACK="1", DISABLE_TELEMETRY="1")),
    ("claude_code", POLICY, variables(OTEL_LOGS_EXPORTER="console")),
    ("claude_code", POLICY, settings(".claude/settings.json", env={"OTEL_LOGS_EXPORTER": "console"})),
    ("claude_code", POLICY, variables(OTEL_EXPORTER_OTLP_HEADERS="authorization=other")),
    ("claude_code", SHELL, variables(**CLAUDE, OTEL_LOGS_EXPORTER="otlp")),
    ("claude_code", SHELL, variables(**CLAUDE, OTEL_LOGS_EXPORTER="console")),
    ("claude_code", SHELL, variables(**CLAUDE, OTEL_LOGS_EXPORTER="console, otlp")),
    ("claude_code", SHELL, variables(**CLAUDE, OTEL_METRICS_EXPORTER="otlp")),
    ("codex", POLICY, variables(OTEL_EXPORTER_OTLP_HEADERS="authorization=other", **UNSAMPLED)),
    ("copilot_cli", POLICY, variables(**TO_FILE)),
    ("copilot_cli", POLICY, variables(**UNSAMPLED)),
    ("copilot_cli", POLICY, variables(**TRACES_ELSEWHERE)),
    ("copilot_cli", POLICY, variables(COPILOT_OTEL_ENABLED="false")),
    ("copilot_cli", SHELL, variables(**COPILOT)),
    ("copilot_cli", SHELL, variables(**COPILOT, **TO_FILE)),
    ("copilot_cli", SHELL, variables(**COPILOT, **TRACES_ELSEWHERE)),
    ("copilot_cli", SHELL, variables(**COPILOT, COPILOT_OTEL_ENABLED="false")),
    ("copilot_cli", SHELL, variables(**COPILOT, OTEL_SDK_DISABLED="true", OTEL_TRACES_EXPORTER="none")),
    ("copilot_cli", SHELL, variables(**COPILOT, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")),
    ("gemini_cli", POLICY, variables(GEMINI_TELEMETRY_OTLP_PROTOCOL="grpc")),
    ("gemini_cli", POLICY, variables(GEMINI_TELEMETRY_OUTFILE="HOME/calls")),
    ("gemini_cli", POLICY, variables(GEMINI_TELEMETRY_TARGET="gcp")),
    ("gemini_cli", POLICY, variables(GEMINI_CLI_SYSTEM_SETTINGS_PATH="HOME/none.json")),
    ("gemini_cli", POLICY, settings(GEMINI, telemetry={"outfile": "HOME/calls", "target": "gcp"})),
    ("gemini_cli", POLICY, file_of_variables(".gemini/.env", "GEMINI_TELEMETRY_OTLP_ENDPOINT=OTHER")),
    ("gemini_cli", POLICY, file_of_variables(".env", "export GEMINI_TELEMETRY_OTLP_ENDPOINT='OTHER'")),
    ("gemini_cli", SETTINGS, settings(GEMINI, telemetry={**USER, "target": "local"})),
    ("gemini_cli", SETTINGS, settings(GEMINI, telemetry={**USER, "otlpProtocol": "http"})),
    ("gemini_cli", SETTINGS, settings(GEMINI, telemetry={**USER, "otlpProtocol": "http", "outfile": "HOME/calls"})),
    ("qwen_code", POLICY, variables(QWEN_TELEMETRY_OTLP_PROTOCOL="grpc")),
    ("qwen_code", POLICY, variables(QWEN_TELEMETRY_OUTFILE="HOME/calls")),
    ("qwen_code", POLICY, variables(QWEN_TELEMETRY_TARGET="gcp")),
    ("qwen_code", POLICY, variables(QWEN_TELEMETRY_OTLP_LOGS_ENDPOINT="OTHER/v1/logs")),
    ("qwen_code", POLICY, variables(QWEN_CODE_SYSTEM_SETTINGS_PATH="HOME/none.json")),
    ("qwen_code", POLICY, settings(QWEN, telemetry={"outfile": "HOME/calls"})),
    ("qwen_code", POLICY, settings(QWEN, telemetry={"otlpLogsEndpoint": "OTHER/v1/logs"})),
    ("qwen_code", POLICY, file_of_variables(".qwen/.env", "QWEN_TELEMETRY_OTLP_ENDPOINT=OTHER")),
    ("qwen_code", POLICY, file_of_variables(".qwen/.env", "QWEN_TELEMETRY_OTLP_LOGS_ENDPOINT=OTHER/v1/logs")),
    ("qwen_code", SETTINGS, settings(QWEN, telemetry=USER)),
    ("qwen_code", SETTINGS, settings(QWEN, telemetry={**USER, "otlpProtocol": "http"})),
    ("opencode", POLICY, variables(**TRACES_ELSEWHERE)),
    ("opencode", POLICY, variables(OPENCODE_TEST_MANAGED_CONFIG_DIR="HOME")),
    ("opencode", POLICY, variables(OPENCODE_CONFIG_CONTENT='{"experimental":{"openTelemetry":false}}')),
    ("opencode", POLICY, variables(OTEL_SDK_DISABLED="true", **UNSAMPLED)),
    ("opencode", SETTINGS, settings(".config/opencode/opencode.jsonc", experimental={"openTelemetry": True})),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BYPASSES)))
def test_the_probe_sees_what_leads_calls_past_our_settings(
    provider: Provider, ours: Collector, other: Collector, tmp_path: Path, number: int
) -> None:
    assistant, base, bypass = BYPASSES[number]
    home, root, name = tmp_path / "home", tmp_path / "bundle/linux", policy_of(assistant)
    (root / "etc").mkdir(parents=True)
    home.mkdir()
    started = RUN[assistant](Place(home=home, provider=provider.url, tollhouse="", key="", is_managed=True))
    if base == POLICY:
        file = root / POLICIES[name].files["linux"].lstrip("/")
        file.parent.mkdir(parents=True)
        file.write_text(POLICIES[name].settings_text(Destination(endpoint=ours.url)))
    environment: dict[str, str] = {}
    if assistant == "opencode":
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": ours.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    environment |= bypass(home, {"OTHER": other.url, "OURS": ours.url, "HOME": str(home)})
    managed.run_managed(
        tmp_path / "bundle", started.command, home, home, {**started.environment, **environment}, fails=True
    )
    arrives = any(("traces" if assistant in TRACED else "logs") in path for path in ours.requests)
    write_environment(root / "etc/environment", environment)
    found = states(root, home, ours.url)[name]
    assert arrives == (stated(found) == OURS), found


def write_environment(file: Path, variables: Mapping[str, str]) -> None:
    file.write_text("".join(f'{name}="{value}"\n' for name, value in variables.items()))


def states(root: Path, home: Path, endpoint: str) -> dict[str, dict[str, object]]:
    machine = ProbedMachine(
        system="linux",
        root=GuardedFolder(root),
        homes=[UserHome(folder=GuardedFolder(home))],
        ours=[endpoint],
        only_http=[endpoint],
    )
    looked = probe_and_remember_states(machine, AgentLink(), (), now=time.time(), remembered_uses={})
    found: dict[str, dict[str, object]] = looked["assistants"]
    json.dumps(found)
    return found


def stated(row: Mapping[str, object]) -> str:
    """Return where the reports go according to the probe."""
    if row["state"] == "overridden":
        return OTHER
    return OURS if row["configured"] else NOWHERE
