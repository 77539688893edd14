"""
Coding assistants under managed settings: `tollhouse agent policy` makes them, and the assistants have no
telemetry settings of their own.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.agent.assistants import ASSISTANTS as SETTINGS
from gateway.devices.agent.policy.targets import MANAGED as POLICIES
from gateway.devices.agent.policy.targets import Destination
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.test_devices import AGENT, FLEET, Agent
from tests.clients import managed
from tests.clients.assistants import ASSISTANTS, Place, opencode
from tests.clients.conftest import CONTENT, Stand
from tests.clients.journal import Call, assert_same, of_record, without_names
from tests.clients.loopback import Loopback, body_of
from tests.clients.test_assistants import told
from tests.documents import ROOT

pytestmark = pytest.mark.clients

RUN = {
    **{name: ASSISTANTS[name] for name in ASSISTANTS if name != "claude_code_traced"},
    "opencode": opencode,
}
TITLES = {
    name: POLICIES[name.removesuffix("_cli") if name == "copilot_cli" else name.replace("_", "-")].title
    for name in RUN
}
# assistants that get the endpoint or the key only from environment variables of the machine, by mode of the
# bundle
WITH_VARIABLES = {"direct": ("gemini_cli", "qwen_code", "opencode"), "agent": ("opencode",)}
# who receives the reports if other settings name another endpoint; NOT_READ: the assistant ignores such settings
MANAGED, OTHER, NOT_READ = "managed", "other", "not read"


@pytest.fixture(scope="session")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    managed.need_namespaces(tmp_path_factory.mktemp("namespaces"))


@pytest.fixture(scope="session")
def laptop(installation: tuple[Tollhouse, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Run the agent of a device that forwards to the installation."""
    gateway, _ = installation
    agent = Agent(tmp_path_factory.mktemp("laptop"), AGENT.format(url=gateway.url))
    (agent.directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
    agent.start()
    yield agent
    agent.stop()


@pytest.fixture(scope="session")
def bundles(
    namespaces: None,
    installation: tuple[Tollhouse, str],
    laptop: Agent,
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Path]:
    gateway, key = installation
    directory = tmp_path_factory.mktemp("bundles")
    (directory / "send.key").write_text(key)
    direct = ("--mode", "direct", "--gateway", gateway.url, "--key-file", str(directory / "send.key"))
    local = ("--mode", "agent", "--gateway", laptop.url)
    return {
        "direct": managed.make_bundle(gateway, directory / "direct", *direct),
        "agent": managed.make_bundle(gateway, directory / "agent", *local),
    }


@pytest.mark.parametrize("assistant", RUN)
@pytest.mark.parametrize("mode", ["direct", "agent"])
def test_a_managed_assistant_reports_each_call_once(
    stand: Stand, bundles: Mapping[str, Path], laptop: Agent, tmp_path: Path, mode: str, assistant: str
) -> None:
    """An assistant without telemetry settings reports its calls. No prompt is stored on the way."""
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse="", key="", is_managed=True)
    started = RUN[assistant](place)
    environment = dict(started.environment)
    if assistant in WITH_VARIABLES[mode]:
        environment |= managed.machine_variables(bundles[mode])
    managed.run_managed(bundles[mode], started.command, tmp_path, tmp_path, environment)
    if mode == "agent":
        laptop.wait_until_drained("upstream/ai-telemetry")
    calls, records = stand.calls(), stand.records()
    assert calls
    if assistant == "opencode":
        assert_reported_in_time(calls, records)
    else:
        assert_same(told(assistant, "prompt", calls), without_names(records))
    if mode == "agent":
        assert {laptop.device} == {record["device"] for record in records}
    for directory in (stand.tollhouse.directory, laptop.directory):
        stored = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
        assert [] == [words for words in CONTENT if words.encode() in stored]


def assert_reported_in_time(calls: list[Call], records: list[dict[str, Any]]) -> None:
    """opencode ends without a last export, so it reports a part of its calls, each once."""
    nothing: dict[str, Any] = {
        "provider": "fake.chat",
        "request_id": None,
        "response_model": None,
        "cache_write_tokens": None,
    }
    expected = Counter(replace(call, **nothing) for call in calls)
    found = Counter(of_record(record) for record in without_names(records))
    assert found and found <= expected


class Collector(Loopback):
    """A second OTLP endpoint, which counts the requests that assistants send to it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        super().__init__(_handler(self))


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body_of(self)
            collector.requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing, because the list has the requests."""

    return Handler


@pytest.fixture
def other() -> Iterator[Collector]:
    served = Collector()
    yield served
    served.close()


def _merge(file: Path, more: Mapping[str, Any]) -> None:
    """Add settings to a JSON file, which may not exist."""
    settings = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**settings, **more}))


def write_rivals(assistant: str, folder: Path, project: Path, url: str) -> None:
    """
    Write the settings of a user or of a project into their folder, so that they name another endpoint. opencode's
    settings name no endpoint, so they turn telemetry off.
    """
    telemetry = {"enabled": True, "target": "local", "otlpEndpoint": url, "otlpProtocol": "http"}
    match assistant:
        case "claude_code":
            keys = SETTINGS["claude-code"].keys(url)
            _merge(folder / ".claude/settings.json", {"env": {key[-1]: value for key, value in keys.items()}})
        case "codex":
            file = folder / ".codex/config.toml"
            file.parent.mkdir(exist_ok=True)
            with file.open("a") as config:
                config.write(
                    f'\n[otel.exporter.otlp-http]\nendpoint = "{url}/v1/logs"\nprotocol = "binary"\n'
                )
        case "gemini_cli":
            _merge(folder / ".gemini/settings.json", {"telemetry": telemetry})
        case "qwen_code":
            _merge(folder / ".qwen/settings.json", {"telemetry": telemetry})
        case "copilot_cli":
            name = ".github/copilot/settings.json" if folder == project else ".copilot/settings.json"
            _merge(folder / name, {"telemetry": {"enabled": True, "endpoint": url, "protocol": "otlp-http"}})
        case "opencode":
            name = "opencode.json" if folder == project else ".config/opencode/opencode.json"
            _merge(folder / name, {"experimental": {"openTelemetry": False}})


def variables_of_rival(assistant: str, url: str) -> dict[str, str]:
    """Return the variables that a user would set for another endpoint."""
    match assistant:
        case "claude_code":
            return {key[-1]: value for key, value in SETTINGS["claude-code"].keys(url).items()}
        case "gemini_cli" | "qwen_code":
            name = assistant.partition("_")[0].upper() + "_TELEMETRY"
            values = {"ENABLED": "true", "TARGET": "local", "OTLP_ENDPOINT": url, "OTLP_PROTOCOL": "http"}
            return {f"{name}_{key}": value for key, value in values.items()}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url}


@pytest.mark.parametrize("assistant", RUN)
@pytest.mark.parametrize("rival", ["user", "project", "environment"])
def test_who_wins(
    stand: Stand, bundles: Mapping[str, Path], other: Collector, tmp_path: Path, rival: str, assistant: str
) -> None:
    """The table of docs/fleet/index.md says who receives the reports if other settings name another endpoint."""
    (tmp_path / "unmanaged/linux/etc").mkdir(parents=True)
    _, is_read = reports(stand, tmp_path / "unmanaged", other, tmp_path / "first", rival, assistant)
    records, others = reports(stand, bundles["direct"], other, tmp_path / "second", rival, assistant)
    assert bool(records) != bool(others)
    names_an_endpoint = assistant != "opencode" or rival == "environment"
    won = OTHER if others else MANAGED if is_read or not names_an_endpoint else NOT_READ
    assert who_wins()[TITLES[assistant]][rival] == won


def reports(
    stand: Stand, bundle: Path, other: Collector, directory: Path, rival: str, assistant: str
) -> tuple[int, int]:
    """Run an assistant; return the number of records in Tollhouse and of requests to the other endpoint."""
    before = len(stand.records())
    home, project = directory / "home", directory / "project"
    project.mkdir(parents=True)
    place = Place(home=home, provider=stand.provider.url, tollhouse="", key="", is_managed=True)
    started = RUN[assistant](place)
    environment = dict(started.environment)
    if assistant in WITH_VARIABLES["direct"] and directory.name == "second":
        environment |= managed.machine_variables(bundle)
    if rival == "environment":
        environment |= variables_of_rival(assistant, other.url)
    else:
        write_rivals(assistant, home if rival == "user" else project, project, other.url)
    if assistant == "codex":
        with (home / ".codex/config.toml").open("a") as config:
            config.write(f'\n[projects."{project}"]\ntrust_level = "trusted"\n')
    other.requests.clear()
    managed.run_managed(bundle, started.command, home, project, environment)
    return len(stand.records()) - before, len(other.requests)


def who_wins() -> dict[str, dict[str, str]]:
    """Return the table "Who wins" of docs/fleet/index.md: by title of an assistant, the words by place of settings."""
    section = (ROOT / "docs/fleet/index.md").read_text().partition("\n## Who wins\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line
    ]
    head, _, *rest = rows
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rest}


@pytest.mark.parametrize("assistant", ["claude_code", "copilot_cli"])
def test_the_device_of_a_profile_is_the_device_of_the_calls(
    namespaces: None, stand: Stand, tmp_path: Path, assistant: str
) -> None:
    """Managed settings that name a device assign calls to this device, if it was admitted before."""
    device = f"SERIAL-{assistant}"
    stand.tollhouse.run("devices", "admit", device)
    policy = next(policy for policy in POLICIES.values() if policy.title == TITLES[assistant])
    file = tmp_path / f"bundle/linux{policy.files['linux']}"
    file.parent.mkdir(parents=True)
    file.write_text(policy.settings_text(Destination(endpoint=stand.url, key=stand.key, device=device)))
    home = tmp_path / "home"
    place = Place(home=home, provider=stand.provider.url, tollhouse="", key="", is_managed=True)
    started = RUN[assistant](place)
    home.mkdir(exist_ok=True)
    managed.run_managed(tmp_path / "bundle", started.command, home, home, started.environment)
    records = stand.records()
    assert records
    assert {device} == {record["device"] for record in records}


def test_claude_code_reads_the_file_next_to_another(
    stand: Stand, bundles: Mapping[str, Path], tmp_path: Path
) -> None:
    """An organization's own managed-settings.json does not hide the file of the policy."""
    bundle = tmp_path / "bundle"
    shutil.copytree(bundles["direct"] / "linux", bundle / "linux")
    file = bundle / "linux/etc/claude-code/managed-settings.json"
    file.write_text(json.dumps({"env": {"EXAMPLE": "1"}, "permissions": {"deny": ["WebSearch"]}}))
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse="", key="", is_managed=True)
    started = RUN["claude_code"](place)
    managed.run_managed(bundle, started.command, tmp_path, tmp_path, started.environment)
    assert_same(told("claude_code", "prompt", stand.calls()), without_names(stand.records()))
