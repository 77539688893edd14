"""The look at a machine: the facts that the probe finds in files of assistants, on each system."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from plistlib import dumps
from typing import Any

import msgspec
import pytest

from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.policy.targets import LINUX, MACOS, MANAGED, RECORDS, WINDOWS, Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, UserHome
from gateway.devices.agent.probe.places import PLACES
from gateway.devices.agent.sessions import session_key, user_key
from gateway.devices.fleet.heartbeat_facts import valid_facts
from tests.gateway.devices.agent.probe.trees import (
    OTHER,
    OURS,
    PROGRAM_OF,
    SESSION,
    SESSIONS,
    Tree,
    heard,
    key_of,
)

NAMES = tuple(MANAGED)
# a file with which a user has the assistant, and nothing is configured
PRESENT = {
    "claude-code": ".claude.json",
    "codex": ".codex/config.toml",
    "copilot": ".copilot/config.json",
    "copilot_chat": ".vscode/extensions/github.copilot-chat-0.60.0/package.json",
    "gemini-cli": ".gemini/projects.json",
    "qwen-code": ".qwen/output-language.md",
    "opencode": ".config/opencode/.gitignore",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def present(tree: Tree, assistant: str) -> None:
    tree.write(f"home/ada/{PRESENT[assistant]}")


def with_settings(assistant: str) -> str:
    """Return the program of an assistant that reads settings of the user: of Copilot, only Copilot Chat does."""
    return "copilot_chat" if assistant == "copilot" else assistant


def user_settings(tree: Tree, assistant: str, endpoint: str) -> Path:
    """Write the settings that `agent setup` writes."""
    policy = ASSISTANTS[assistant]
    text = ""
    for key, value in policy.keys(endpoint).items():
        text = policy.editor.put_value(text, key, value)
    return tree.write(f"home/ada/{PLACES[with_settings(assistant)].settings[tree.system]}", text)


@pytest.mark.parametrize("assistant", NAMES)
def test_nothing_of_an_assistant(tree: Tree, assistant: str) -> None:
    """Without a program, a package or a folder, the assistant is not installed."""
    assert ("not_installed", "") == tree.state(assistant)
    assert {"state": "not_installed", "configured": False} == tree.look()["assistants"][assistant]


@pytest.mark.parametrize("assistant", NAMES)
def test_an_assistant_without_settings(tree: Tree, assistant: str) -> None:
    present(tree, assistant)
    assert ("not_configured", "no_policy") == tree.state(assistant)


@pytest.mark.parametrize("assistant", NAMES)
@pytest.mark.parametrize("where", ["usr/bin/{program}", "usr/lib/node_modules/{package}/package.json"])
def test_a_program_of_the_machine(tree: Tree, assistant: str, where: str) -> None:
    """An assistant that is installed for all users has a state before a user starts it."""
    places = PLACES[PROGRAM_OF[assistant]]
    tree.write(where.format(program=places.program, package=places.package), {"version": "999.1.0"})
    assert ("not_configured", "no_policy") == tree.state(assistant)
    tree.apply_policy(assistant)
    if assistant == "opencode":
        tree.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')
    found = tree.look()["assistants"][assistant]
    assert found.pop("version", "999.1.0") == "999.1.0"
    assert found.pop("state_since").endswith(":00:00.000Z")
    assert {"state": "unused", "configured": True, "use": "none"} == found


@pytest.mark.parametrize("assistant", NAMES)
@pytest.mark.parametrize(
    "where", [".bun/bin/{program}", ".npm-global/lib/node_modules/{package}/package.json"]
)
def test_a_program_of_a_user(tree: Tree, assistant: str, where: str) -> None:
    """An assistant that a user installed has a state before its first start."""
    places = PLACES[PROGRAM_OF[assistant]]
    tree.write(
        "home/ada/" + where.format(program=places.program, package=places.package), {"version": "999.1.0"}
    )
    assert ("not_configured", "no_policy") == tree.state(assistant)


@pytest.mark.parametrize("assistant", ASSISTANTS)
def test_settings_of_a_user(tree: Tree, assistant: str) -> None:
    """The settings of `agent setup` count as configured, and another endpoint as overridden."""
    present(tree, with_settings(assistant))
    user_settings(tree, assistant, OURS)
    assert ("unused", "") == tree.state(assistant)
    user_settings(tree, assistant, "http://localhost:4318")
    assert ("unused", "") == tree.state(assistant)
    user_settings(tree, assistant, OTHER)
    assert ("overridden", "other_endpoint") == tree.state(assistant)
    user_settings(tree, assistant, "http://127.0.0.1:9999")
    assert ("overridden", "other_endpoint") == tree.state(assistant)


TIMES = ("used_at", "use", "state_since", "unheard_since", "heard_at")
OFF = {
    "claude-code": (".claude/settings.json", {"env": {"CLAUDE_CODE_ENABLE_TELEMETRY": "0"}}),
    "codex": (".codex/config.toml", '[otel]\nexporter = "none"\n'),
    "copilot": (".config/Code/User/settings.json", {"github.copilot.chat.otel.enabled": False}),
    "gemini-cli": (".gemini/settings.json", {"telemetry": {"enabled": False}}),
    "qwen-code": (".qwen/settings.json", {"telemetry": {"enabled": False}}),
    "opencode": (".config/opencode/opencode.json", {"experimental": {"openTelemetry": False}}),
}


@pytest.mark.parametrize("assistant", NAMES)
def test_a_user_who_turns_telemetry_off(tree: Tree, assistant: str) -> None:
    present(tree, with_settings(assistant))
    path, settings = OFF[assistant]
    tree.write(f"home/ada/{path}", settings)
    assert ("telemetry_off", "settings") == tree.state(assistant)
    tree.apply_policy(assistant)  # the policy is stronger than the user's settings
    expected = ("not_configured", "no_policy") if assistant == "opencode" else ("unused", "")
    assert expected == tree.state(assistant)


VARIABLES_OFF = {
    "claude-code": "CLAUDE_CODE_ENABLE_TELEMETRY=0",
    "gemini-cli": "OTEL_SDK_DISABLED=true",
    "qwen-code": "QWEN_TELEMETRY_ENABLED=false",
}


@pytest.mark.parametrize("assistant", VARIABLES_OFF)
@pytest.mark.parametrize("file", [".bashrc", ".zshenv", ".config/environment.d/off.conf"])
def test_an_environment_that_turns_telemetry_off(tree: Tree, assistant: str, file: str) -> None:
    present(tree, assistant)
    tree.write(f"home/ada/{file}", f"alias ls='ls -l'\nexport {VARIABLES_OFF[assistant]}  # quiet\n")
    assert ("telemetry_off", "environment") == tree.state(assistant)
    tree.apply_policy(assistant)
    # only the variables of Claude Code are weaker than its policy
    expected = ("unused", "") if assistant == "claude-code" else ("telemetry_off", "environment")
    assert expected == tree.state(assistant)


VARIABLE_OF_ENDPOINT = {
    "claude-code": ("OTEL_EXPORTER_OTLP_ENDPOINT", ("unused", "")),
    "codex": ("OTEL_EXPORTER_OTLP_ENDPOINT", ("unused", "")),
    "copilot": ("OTEL_EXPORTER_OTLP_ENDPOINT", ("unused", "")),
    "gemini-cli": ("GEMINI_TELEMETRY_OTLP_ENDPOINT", ("overridden", "environment")),
    "qwen-code": ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", ("overridden", "environment")),
    "opencode": ("OTEL_EXPORTER_OTLP_ENDPOINT", ("overridden", "environment")),
}


@pytest.mark.parametrize("assistant", NAMES)
def test_an_environment_with_another_endpoint(tree: Tree, assistant: str) -> None:
    """
    For assistants whose real program lets a variable win over the policy, the probe says so; for others, the policy
    wins.
    """
    variable, expected = VARIABLE_OF_ENDPOINT[assistant]
    present(tree, assistant)
    tree.apply_policy(assistant)
    tree.write("etc/environment", f'{variable}="{OTHER}"\n')
    assert expected == tree.state(assistant)


SHELL, SETTINGS = "home/ada/.bashrc", "home/ada/.claude/settings.json"
OTHER_VARIABLES = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": OTHER, "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}


@pytest.mark.parametrize("name", OTHER_VARIABLES)
@pytest.mark.parametrize("place", [SHELL, SETTINGS])
def test_a_variable_of_one_signal(tree: Tree, name: str, place: str) -> None:
    """
    A variable for one signal wins over a general variable, even of a stronger source. The policy sets the variable
    of the signal as well, so another value has no effect under the policy.
    """
    present(tree, "claude-code")
    value = OTHER_VARIABLES[name]
    if place == SHELL:
        tree.write(place, f"export {name}={value}\n")
    else:
        tree.write(place, {"env": {name: value}})
    policy = tree.apply_policy("claude-code")
    assert ("unused", "") == tree.state("claude-code")
    managed = json.loads(policy.read_text())
    general = {key: text for key, text in managed["env"].items() if "_LOGS_" not in key}
    policy.write_text(json.dumps({"env": {**general, "OTEL_LOGS_EXPORTER": "otlp"}}))
    expected = "environment" if place == SHELL else "other_endpoint"
    assert ("overridden", expected) == tree.state("claude-code")


def test_opencode_ignores_the_variable_of_traces(tree: Tree) -> None:
    present(tree, "opencode")
    tree.apply_policy("opencode")
    tree.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={OTHER}\n")
    assert ("unused", "") == tree.state("opencode")
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OTHER}\n")
    assert ("overridden", "environment") == tree.state("opencode")


GEMINI_NAMES = {
    "folder": ".gemini", "vendor": "GEMINI", "program": "GEMINI_CLI", "endpoint": "GEMINI_TELEMETRY_OTLP_ENDPOINT",
}  # fmt: skip
QWEN_NAMES = {
    "folder": ".qwen", "vendor": "QWEN", "program": "QWEN_CODE", "endpoint": "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
}  # fmt: skip


@pytest.mark.parametrize(
    ("assistant", "names"), [("gemini-cli", GEMINI_NAMES), ("qwen-code", QWEN_NAMES)], ids=["gemini", "qwen"]
)
@pytest.mark.parametrize(
    ("file", "line"),
    [
        (".bashrc", "{vendor}_TELEMETRY_OTLP_PROTOCOL=grpc"),
        (".bashrc", "{vendor}_TELEMETRY_OUTFILE=/tmp/calls"),
        (".bashrc", "{program}_SYSTEM_SETTINGS_PATH=/tmp/none"),
        ("{folder}/.env", f"{{endpoint}}={OTHER}"),
        (".env", f"export {{endpoint}}='{OTHER}'"),
    ],
)
def test_variables_that_lead_calls_past_the_policy(
    tree: Tree, assistant: str, names: dict[str, str], file: str, line: str
) -> None:
    """The real programs are next to the probe in tests/clients/test_probe.py."""
    present(tree, assistant)
    tree.apply_policy(assistant)
    path = f"home/ada/{file.format_map(names)}"
    tree.write(path, line.format_map(names) + "\n")
    assert ("overridden", "environment") == tree.state(assistant)
    tree.write(path)
    assert ("unused", "") == tree.state(assistant)


@pytest.mark.parametrize("assistant", ["gemini-cli", "qwen-code"])
def test_settings_without_a_protocol(tree: Tree, assistant: str) -> None:
    """Both programs use gRPC then, which the agent's port for HTTP does not speak."""
    path = f"home/ada/{PLACES[with_settings(assistant)].settings[LINUX]}"
    telemetry = {"enabled": True, "otlpEndpoint": OURS}
    tree.write(path, {"telemetry": telemetry})
    assert ("overridden", "other_endpoint") == tree.state(assistant)
    tree.write(path, {"telemetry": {**telemetry, "otlpProtocol": "http"}})
    assert ("unused", "") == tree.state(assistant)


def test_a_file_of_variables_is_weaker_than_the_environment(tree: Tree) -> None:
    """Only the first file applies."""
    present(tree, "gemini-cli")
    tree.apply_policy("gemini-cli")
    tree.write("home/ada/.env", f"GEMINI_TELEMETRY_OTLP_ENDPOINT={OTHER}\n")
    tree.write("home/ada/.gemini/.env", "GEMINI_API_KEY=secret\n")
    assert ("unused", "") == tree.state("gemini-cli")
    tree.write("home/ada/.gemini/.env", f"GEMINI_TELEMETRY_OTLP_ENDPOINT={OTHER}\n")
    tree.write(SHELL, f"export GEMINI_TELEMETRY_OTLP_ENDPOINT={OURS}\n")
    assert ("unused", "") == tree.state("gemini-cli")


def test_settings_of_opencode_with_comments(tree: Tree) -> None:
    """The file wins over the other one of the user."""
    present(tree, "opencode")
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OURS}\n")
    tree.write("home/ada/.config/opencode/opencode.json", {"experimental": {"openTelemetry": False}})
    assert ("telemetry_off", "settings") == tree.state("opencode")
    settings = '{"experimental": {"openTelemetry": true}}  // for the team\n'
    tree.write("home/ada/.config/opencode/opencode.jsonc", settings)
    assert ("unused", "") == tree.state("opencode")
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OURS}\nexport OTEL_TRACES_SAMPLER=always_off\n")
    assert ("telemetry_off", "environment") == tree.state("opencode")


@pytest.mark.parametrize(
    ("line", "expected", "with_policy"),
    [
        ("COPILOT_OTEL_EXPORTER_TYPE=file", ("overridden", "environment"), ("unused", "")),
        (f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={OTHER}", ("overridden", "environment"), ("unused", "")),
        (
            "OTEL_TRACES_SAMPLER=always_off",
            ("telemetry_off", "environment"),
            ("telemetry_off", "environment"),
        ),
    ],
)
def test_variables_of_copilot(
    tree: Tree, line: str, expected: tuple[str, str], with_policy: tuple[str, str]
) -> None:
    present(tree, "copilot")
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OURS}\nexport {line}\n")
    assert expected == tree.state("copilot")
    tree.apply_policy("copilot")
    assert with_policy == tree.state("copilot")


@pytest.mark.parametrize(
    ("exporters", "expected"),
    [
        ("otlp", ("unused", "")),
        ("console, OTLP", ("unused", "")),
        ("console", ("telemetry_off", "environment")),
        ("none", ("telemetry_off", "environment")),
        ("", ("not_configured", "no_policy")),
    ],
)
def test_the_exporter_of_claude_code(tree: Tree, exporters: str, expected: tuple[str, str]) -> None:
    present(tree, "claude-code")
    lines = (
        "CLAUDE_CODE_ENABLE_TELEMETRY=1",
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        f"OTEL_EXPORTER_OTLP_ENDPOINT={OURS}",
        f'OTEL_LOGS_EXPORTER="{exporters}"',
    )
    tree.write(SHELL, "".join(f"export {line}\n" for line in lines))
    assert expected == tree.state("claude-code")


@pytest.mark.parametrize("assistant", NAMES)
def test_a_policy_of_somebody_else(tree: Tree, assistant: str) -> None:
    present(tree, assistant)
    if assistant == "opencode":
        tree.apply_policy(assistant).write_text('{"experimental": {"openTelemetry": false}}')
        assert ("telemetry_off", "vendor_policy") == tree.state(assistant)
        return
    tree.apply_policy(assistant, OTHER)
    assert ("overridden", "file_policy") == tree.state(assistant)


def test_a_later_file_of_the_same_policy(tree: Tree) -> None:
    """A file of Claude Code's policy that sorts after ours wins, and the older file next to the folder does not."""
    present(tree, "claude-code")
    tree.apply_policy("claude-code")
    other = {"env": {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": OTHER}}
    tree.write("etc/claude-code/managed-settings.json", other)
    assert ("unused", "") == tree.state("claude-code")
    tree.write("etc/claude-code/managed-settings.d/90-other.json", other)
    assert ("overridden", "file_policy") == tree.state("claude-code")


def test_a_policy_of_the_server_hides_the_file(tree: Tree) -> None:
    """If Claude Code's server sends a policy, Claude Code ignores the policy file."""
    present(tree, "claude-code")
    tree.apply_policy("claude-code")
    policy = "home/ada/.claude/remote-settings.json"
    tree.write(policy, {"permissions": {"deny": ["WebSearch"]}})
    assert ("overridden", "server_policy") == tree.state("claude-code")
    user_settings(tree, "claude-code", OURS)
    assert ("unused", "") == tree.state("claude-code")
    tree.write(policy, {"env": {"CLAUDE_CODE_ENABLE_TELEMETRY": "0"}})
    assert ("telemetry_off", "vendor_policy") == tree.state("claude-code")
    tree.write(policy, {"env": {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": OTHER}})
    assert ("overridden", "server_policy") == tree.state("claude-code")


@pytest.mark.parametrize("assistant", NAMES)
@pytest.mark.parametrize("text", ["{", "[[[", '"text"', "{" * 5000, '{"a":' * 5000, "\x00", "a = [" * 5000])
def test_malformed_settings(tree: Tree, assistant: str, text: str) -> None:
    present(tree, with_settings(assistant))
    tree.write(f"home/ada/{PLACES[with_settings(assistant)].settings[LINUX]}", text)
    assert ("unknown", "malformed") == tree.state(assistant)


@pytest.mark.parametrize("assistant", NAMES)
@pytest.mark.parametrize(
    "value", [None, 1, "x", [], [{}], {"enabled": []}, {"exporter": [1]}, {"enabled": {}}]
)
def test_settings_of_strange_types(tree: Tree, assistant: str, value: object) -> None:
    """Settings of another type than the assistant expects have no effect, and the look does not fail."""
    present(tree, with_settings(assistant))
    document = dict.fromkeys(("env", "otel", "telemetry", "experimental"), value)
    if assistant == "codex":
        document = {name: each for name, each in document.items() if each is not None}
    path = f"home/ada/{PLACES[with_settings(assistant)].settings[LINUX]}"
    tree.write(path, json.dumps(document) if assistant != "codex" else "[otel]\nexporter = [[1], {a = 2}]\n")
    assert ("not_configured", "no_policy") == tree.state(assistant)


def test_an_old_version(tree: Tree) -> None:
    """If the installed version of an assistant does not read the policy file, its state is unknown."""
    present(tree, "claude-code")
    tree.apply_policy("claude-code")
    package = "home/ada/.nvm/versions/node/v22.1.0/lib/node_modules/@anthropic-ai/claude-code/package.json"
    tree.write(package, {"version": "2.1.82"})
    assert ("unknown", "version") == tree.state("claude-code")
    tree.write("home/ada/.local/share/claude/versions/2.1.332")
    assert ("unused", "") == tree.state("claude-code")
    assert "2.1.332" == tree.look()["assistants"]["claude-code"]["version"]


def test_each_program_of_copilot_reads_its_own_settings(tree: Tree) -> None:
    """Copilot CLI ignores VS Code's settings, and Copilot Chat ignores the sampler. The state is that of the worse."""
    settings = tree.root / user_settings(tree, "copilot", OTHER)
    present(tree, "copilot")
    assert ("not_configured", "no_policy") == tree.state("copilot")
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OURS}\n")
    assert ("unused", "") == tree.state("copilot")
    present(tree, "copilot_chat")
    assert ("unused", "") == tree.state("copilot")  # a variable is stronger than VS Code's settings
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_ENDPOINT={OURS}\nexport COPILOT_OTEL_ENDPOINT={OTHER}\n")
    assert ("overridden", "environment") == tree.state("copilot")
    tree.apply_policy("copilot")
    assert ("unused", "") == tree.state("copilot")
    settings.unlink()
    tree.write(SHELL, "export OTEL_TRACES_SAMPLER=always_off\n")
    assert ("telemetry_off", "environment") == tree.state("copilot")
    for path in (tree.root / "home/ada/.copilot").iterdir():
        path.unlink()
    (tree.root / "home/ada/.copilot").rmdir()
    assert ("unused", "") == tree.state("copilot")


CHAT = "github.copilot.chat.otel"
TO_US = {f"{CHAT}.enabled": True, f"{CHAT}.exporterType": "otlp-http", f"{CHAT}.otlpEndpoint": OURS}


@pytest.mark.parametrize(
    ("settings", "variables", "expected"),
    [
        (TO_US, "", ("unused", "")),
        ({**TO_US, f"{CHAT}.outfile": "/tmp/calls"}, "", ("overridden", "other_endpoint")),
        ({**TO_US, f"{CHAT}.exporterType": "file"}, "", ("overridden", "other_endpoint")),
        ({**TO_US, f"{CHAT}.exporterType": "otlp-grpc"}, "", ("overridden", "other_endpoint")),
        (TO_US, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", ("overridden", "environment")),
        (TO_US, "COPILOT_OTEL_FILE_EXPORTER_PATH=/tmp/calls", ("overridden", "environment")),
        (TO_US, "COPILOT_OTEL_ENABLED=false", ("telemetry_off", "environment")),
        (TO_US, f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={OTHER}", ("unused", "")),
        ({}, f"OTEL_EXPORTER_OTLP_ENDPOINT={OURS}", ("unused", "")),
        ({f"{CHAT}.enabled": False}, f"OTEL_EXPORTER_OTLP_ENDPOINT={OURS}", ("telemetry_off", "settings")),
    ],
)
def test_settings_and_variables_of_copilot_chat(
    tree: Tree, settings: Mapping[str, object], variables: str, expected: tuple[str, str]
) -> None:
    """The policy is stronger than all of them, from the version on that reads it."""
    present(tree, "copilot_chat")
    text = json.dumps(settings, indent=4).replace("{", "{\r\n    // VS Code allows comments\r\n", 1)
    tree.write(f"home/ada/{PLACES['copilot_chat'].settings[LINUX]}", text)
    tree.write(SHELL, f"export {variables}\n")
    assert expected == tree.state("copilot")
    tree.apply_policy("copilot")
    assert ("unused", "") == tree.state("copilot")
    found = tree.root / "home/ada/.vscode/extensions"
    (found / "github.copilot-chat-0.60.0").rename(found / "github.copilot-chat-0.41.2")
    assert ("unknown", "version") == tree.state("copilot")


def test_calls_of_copilot_chat_hide_no_loss_of_copilot_cli(tree: Tree) -> None:
    """A call of one program says nothing about the other. A wrong setting of the one that is used is the state."""
    tree.apply_policy("copilot")
    tree.use(f"home/ada/{SESSIONS['copilot']}")
    present(tree, "copilot_chat")
    chat = AgentLink(calls={user_key("copilot_chat", None): HeardCalls(time.time() - 60)})
    tree.look(chat)
    tree.remember_uses("copilot")
    found = tree.look(chat)["assistants"]["copilot"]
    assert ("unreachable", "losing") == (found["state"], found["use"])
    user_settings(tree, "copilot", OTHER)
    (tree.root / "etc/github-copilot/managed-settings.json").unlink()
    tree.write(SHELL, f"export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={OURS}\n")
    tree.write(f"home/ada/{SESSIONS['copilot']}", "a prompt" * 640, age_s=20 * 86_400)
    tree.memories.clear()
    assert ("overridden", "other_endpoint") == tree.state("copilot", chat)


def test_copilot_in_an_editor(tree: Tree) -> None:
    """The extension of VS Code shows that Copilot is installed."""
    tree.write("home/ada/.vscode/extensions/github.copilot-chat-0.41.2/package.json", "{}")
    found = tree.look()["assistants"]["copilot"]
    assert ("not_configured", "0.41.2") == (found["state"], found["version"])


@pytest.mark.parametrize("assistant", NAMES)
def test_the_use_of_an_assistant(tree: Tree, assistant: str) -> None:
    """Uses without a call are unreachable, with the cause that the agent knows. The use is given as its hour."""
    tree.apply_policy(assistant)
    tree.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')
    session = tree.use(f"home/ada/{SESSIONS[assistant]}", age_s=7200)
    session.chmod(0)  # the probe reads the time of the use without opening the file
    for cause in ("agent_down", "port_taken"):
        tree.remember_uses(assistant)
        assert ("unreachable", cause) == tree.state(assistant, AgentLink(path=cause))
    tree.remember_uses(assistant)
    found = tree.look()["assistants"][assistant]
    hour = session.stat().st_mtime // 3600 * 3600
    assert time.strftime("%Y-%m-%dT%H:00:00", time.gmtime(hour)) == found["used_at"][:19]
    calls = heard(assistant, session.stat().st_mtime)
    assert ("reporting", "") == tree.state(assistant, AgentLink(calls=calls))
    for cause in ("tls", "dns", "refused", "backlog"):
        held_back = AgentLink(calls=calls, forward=cause, oldest_at=time.time() - 86_400)
        tree.remember_uses(assistant)
        assert ("unreachable", cause) == tree.state(assistant, held_back)


@pytest.mark.parametrize(
    ("assistant", "path", "bytes"),
    [
        ("gemini-cli", ".gemini/tmp/work/logs.json", 5000),
        ("gemini-cli", ".gemini/tmp/work/.project_root", 30),
        ("gemini-cli", SESSIONS["gemini-cli"], 926),
        ("copilot", f".copilot/session-state/{SESSION}/workspace.yaml", 5000),
        ("copilot", SESSIONS["copilot"], 724),
        ("claude-code", SESSIONS["claude-code"], 2216),
        ("qwen-code", SESSIONS["qwen-code"], 706),
        ("codex", SESSIONS["codex"], 2305),
    ],
)
def test_a_program_that_was_used_without_a_prompt(tree: Tree, assistant: str, path: str, bytes: int) -> None:
    """The real programs write this if they are opened or closed, or for a local command. A prompt needs more bytes."""
    tree.apply_policy(assistant)
    tree.write(f"home/ada/{path}", "x" * bytes)
    assert "used_at" not in tree.look()["assistants"][assistant]
    tree.use(f"home/ada/{SESSIONS[assistant]}")
    assert "used_at" in tree.look()["assistants"][assistant]


def test_a_session_of_the_future_is_not_used_at_each_look(tree: Tree) -> None:
    """
    A time of use after the present was written before the clock was set back, so it is limited to the present.
    """
    tree.apply_policy("codex")
    tree.use(f"home/ada/{SESSIONS['codex']}", age_s=-7200)
    found = tree.look()["assistants"]["codex"]
    assert datetime.fromisoformat(found["used_at"]).timestamp() <= time.time()
    assert {None} == {memory.used for memory in tree.memories.values()}


def test_use_that_is_left_out(tree: Tree) -> None:
    """Without `use` in agent.report, no session folder is looked at."""
    tree.apply_policy("codex")
    tree.use(f"home/ada/{SESSIONS['codex']}", age_s=7200)
    found = tree.look(report=("user",))["assistants"]["codex"]
    assert {"state": "unused", "configured": True} == found


def test_a_proxy(tree: Tree) -> None:
    """
    A proxy for all addresses is the cause if records do not arrive, unless loopback is an exception. The cause of a
    loss stays until a call ends the loss.
    """
    tree.apply_policy("codex")
    tree.use(f"home/ada/{SESSIONS['codex']}", age_s=7200)
    tree.write(
        "home/ada/.bashrc",
        "export https_proxy=http://proxy:3128 HTTP_PROXY=x\nHTTP_PROXY=http://proxy:3128\n",
    )
    tree.remember_uses("codex")
    assert ("unreachable", "proxy") == tree.state("codex")
    tree.write("home/ada/.profile", 'export NO_PROXY="intern.example.com, 127.0.0.1"\n')
    assert ("unreachable", "proxy") == tree.state("codex")
    tree.memories.clear()
    tree.remember_uses("codex")
    assert ("unreachable", "") == tree.state("codex")


def test_the_host_of_a_foreign_endpoint(tree: Tree) -> None:
    """The host is stated only with `endpoint` in agent.report. No other text of the file is stated."""
    user_settings(tree, "codex", "https://secret:password@collector.example.net/secret?key=secret")
    assert "endpoint" not in tree.look()["assistants"]["codex"]
    found = tree.look(report=("endpoint",))
    assert "collector.example.net" == found["assistants"]["codex"]["endpoint"]
    assert "secret" not in json.dumps(found)


def test_a_policy_that_is_missing(tree: Tree) -> None:
    """
    The probe states that the policy is incomplete if a file that `apply_bundle` recorded was deleted or changed.
    """
    present(tree, "codex")
    file = tree.apply_policy("codex")
    target = MANAGED["codex"].files[LINUX]
    record = {
        "files": {target: [sha256(file.read_bytes()).hexdigest()]},
        "manifest": "ab" * 32,
        "folders": [],
    }
    tree.write(RECORDS[LINUX], record)
    assert ("unused", "") == tree.state("codex")
    policy = tree.look()["policy"]
    assert {"sha256", "applied_at"} == set(policy)
    file.unlink()
    assert ("not_configured", "policy_not_applied") == tree.state("codex")
    assert "file_changed" == tree.look()["policy"]["error"]
    tree.write(RECORDS[LINUX], {"files": {}, "manifest": "../../etc", "error": "foreign_file"})
    assert {"applied_at", "error"} == set(tree.look()["policy"])
    tree.write(RECORDS[LINUX], "{")
    assert "record_unreadable" == tree.look()["policy"]["error"]


def test_a_process_that_was_not_restarted(tree: Tree) -> None:
    """A process that started before the policy was applied has not read the policy."""
    present(tree, "codex")
    tree.apply_policy("codex")
    changed_at = time.time() - 3600

    def started_at(seconds: float) -> Callable[[str, int | None], float | None]:
        return lambda program, user: changed_at + seconds if program == "codex" else None

    assert ("not_configured", "not_restarted") == tree.state("codex", started_at=started_at(-60))
    assert ("unused", "") == tree.state("codex", started_at=started_at(60))


def test_two_users_of_a_machine(tree: Tree) -> None:
    """
    If two users have different states, the first one in the table of states is stated, with the newest use of both.
    """
    tree.homes["bob"] = UserHome(folder=GuardedFolder(tree.root / "home/bob"))
    user_settings(tree, "codex", OURS)
    assert ("unused", "") == tree.state("codex")  # the user bob has no Codex
    tree.write("home/bob/.codex/config.toml", '[otel]\nexporter = "none"\n')
    assert ("telemetry_off", "settings") == tree.state("codex")
    tree.use(f"home/ada/{SESSIONS['codex']}", age_s=90_000)
    bobs = tree.use(f"home/bob/{SESSIONS['codex']}", age_s=7200)
    found = tree.look()["assistants"]["codex"]
    hour = bobs.stat().st_mtime // 3600 * 3600
    assert time.strftime("%Y-%m-%dT%H", time.gmtime(hour)) == found["used_at"][:13]
    assert found["configured"] is True
    (tree.root / "home/bob/.codex/config.toml").unlink()
    assert ("not_configured", "no_policy") == tree.state("codex")


# -- other systems: their paths are tested with made-up trees, and not with the real programs ------------------------


@pytest.mark.parametrize("system", [MACOS, WINDOWS])
@pytest.mark.parametrize("assistant", NAMES)
def test_policy_files_of_other_systems(tmp_path: Path, system: str, assistant: str) -> None:
    if system not in MANAGED[assistant].files:
        pytest.skip("this policy is no file on this system")
    tree = Tree(tmp_path, system)
    tree.write(f"home/ada/{PLACES[PROGRAM_OF[assistant]].folders[0]}/x")
    tree.apply_policy(assistant)
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": OURS}
    tree.homes["ada"] = UserHome(folder=GuardedFolder(tmp_path / "home/ada"), environment=variables)
    assert ("unused", "") == tree.state(assistant)


@pytest.mark.parametrize("assistant", ["claude-code", "codex", "copilot"])
def test_preferences_of_macos(tmp_path: Path, assistant: str) -> None:
    """Settings of an MDM are read in the form that the bundle gives them."""
    tree = Tree(tmp_path, MACOS)
    tree.write(f"home/ada/{PLACES[PROGRAM_OF[assistant]].folders[0]}/x")
    policy = MANAGED[assistant]
    file = tree.write(f"Library/Managed Preferences/{policy.domain}.plist")
    file.write_bytes(dumps(policy.preferences(policy.settings_text(Destination(endpoint=OURS)))))
    assert ("unused", "") == tree.state(assistant)
    file.write_bytes(dumps(policy.preferences(policy.settings_text(Destination(endpoint=OTHER)))))
    assert ("overridden", "mdm_policy") == tree.state(assistant)
    for content in (b"bplist00garbage", b"<plist", b"", dumps({"config_toml_base64": "=", "telemetry": "{"})):
        file.write_bytes(content)
        assert tree.state(assistant) in [("unknown", "malformed"), ("not_configured", "no_policy")]


def test_settings_of_an_mdm_hide_the_file(tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACOS)
    tree.write("home/ada/.claude.json")
    tree.apply_policy("claude-code")
    file = tree.write("Library/Managed Preferences/com.anthropic.claudecode.plist")
    file.write_bytes(dumps({"permissions": {"deny": ["WebSearch"]}}))
    assert ("overridden", "mdm_policy") == tree.state("claude-code")


@pytest.mark.parametrize("assistant", ["claude-code", "copilot"])
def test_registry_values_of_windows(tmp_path: Path, assistant: str) -> None:
    tree = Tree(tmp_path, WINDOWS)
    tree.write(f"home/ada/{PLACES[PROGRAM_OF[assistant]].folders[0]}/x")
    policy = MANAGED[assistant]

    def registry(endpoint: str) -> Callable[[str], Any]:
        values = policy.registry_values(policy.settings_text(Destination(endpoint=endpoint)))
        return lambda key: values if key == policy.registry else {}

    assert ("unused", "") == tree.state(assistant, registry=registry(OURS))
    assert ("overridden", "mdm_policy") == tree.state(assistant, registry=registry(OTHER))


def test_a_base64_text_of_codex_is_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path, MACOS)
    tree.write("home/ada/.codex/x")
    file = tree.write("Library/Managed Preferences/com.openai.codex.plist")
    file.write_bytes(dumps({"config_toml_base64": b64encode(b'[otel]\nexporter = "none"\n').decode()}))
    assert ("telemetry_off", "vendor_policy") == tree.state("codex")


@pytest.mark.parametrize("assistant", NAMES)
def test_the_gateway_reads_all_of_a_look(tree: Tree, assistant: str) -> None:
    """The gateway leaves out no field and no word of the agent's heartbeat."""
    tree.apply_policy(assistant, OTHER)
    tree.use(f"home/ada/{SESSIONS[assistant]}")
    tree.write(RECORDS[LINUX], {"files": {"/etc/x": [""]}, "manifest": "ab" * 32})
    tree.write(
        f"home/ada/.npm-global/lib/node_modules/{PLACES[PROGRAM_OF[assistant]].package}/package.json",
        {"version": "9.1"},
    )
    tree.look()
    tree.remember_uses(assistant)
    found = tree.look(AgentLink(calls=heard(assistant, time.time() - 86_400)))
    assert {"state", "cause", "version", "configured", "slots", *TIMES} == set(found["assistants"][assistant])
    assert "losing" == found["assistants"][assistant]["use"]
    assert found == valid_facts(found)


def test_a_look_changes_nothing(tree: Tree) -> None:
    user_settings(tree, "codex", OURS)
    before = {path: path.stat() for path in tree.root.rglob("*")}
    tree.look(report=("user", "use", "serial", "endpoint"))
    after = {path: path.stat() for path in tree.root.rglob("*")}
    assert {path: (one.st_mtime_ns, one.st_ino) for path, one in before.items()} == {
        path: (one.st_mtime_ns, one.st_ino) for path, one in after.items()
    }


def two_homes(tree: Tree, assistant: str) -> None:
    for user, number in (("ada", 1000), ("bob", 1001)):
        folder = tree.root / "home" / user
        folder.mkdir(exist_ok=True)
        tree.homes[user] = UserHome(folder=GuardedFolder(folder), user=number)
    tree.apply_policy(assistant)


def test_calls_of_one_home_are_no_calls_of_another(tree: Tree) -> None:
    """Uses of bob without a call are no better for the calls of ada, who works at the same time on this machine."""
    two_homes(tree, "codex")
    tree.remember_uses("codex")
    tree.memories["codex 1001"] = tree.memories.pop("codex ")
    other = SESSIONS["codex"].replace(SESSION, SESSION[::-1].replace("-", "0", 4))
    tree.use(f"home/bob/{SESSIONS['codex']}", age_s=60)
    tree.use(f"home/ada/{other}", age_s=60)
    calls = heard("codex", time.time() - 50)
    theirs = {session_key("codex", "another"): calls[key_of("codex")], "codex": calls["codex"]}
    assert ("unreachable", "") == tree.state("codex", AgentLink(calls=theirs))
    assert "losing" == tree.look(AgentLink(calls=theirs))["assistants"]["codex"]["use"]
    tree.memories["codex 1001"] = msgspec.structs.replace(tree.memories["codex 1001"], sessions={})
    tree.use(f"home/bob/{SESSIONS['codex']}", age_s=0)
    later = tree.look(AgentLink(calls=heard("codex", time.time())), now=time.time() + 300)
    assert "losing" != later["assistants"]["codex"]["use"]


def test_two_homes_of_a_program_without_sessions_are_unseen(tree: Tree) -> None:
    """Where the user of a call is unknown, nobody knows whose calls arrived. A single home is compared."""
    two_homes(tree, "opencode")
    tree.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')
    tree.use(f"home/bob/{SESSIONS['opencode']}", age_s=60)
    found = tree.look(AgentLink(calls=heard("opencode", time.time() - 50)))["assistants"]["opencode"]
    assert ("reporting", "heard") == (found["state"], found["use"])
    tree.use(f"home/ada/{SESSIONS['opencode']}", age_s=60)
    found = tree.look(AgentLink(calls=heard("opencode", time.time() - 50)))["assistants"]["opencode"]
    assert ("unused", "several_users", "unseen") == (found["state"], found["cause"], found["use"])
    assert "used_at" not in found
    assert valid_facts({"assistants": {"opencode": found}}) == {"assistants": {"opencode": found}}


def test_where_users_are_known_each_home_has_the_calls_of_its_user(tree: Tree) -> None:
    """This holds for programs whose calls name no session. Calls of a user without sessions show a moved folder."""
    two_homes(tree, "opencode")
    tree.write("etc/environment.d/50-tollhouse.conf", f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')
    calls = heard("opencode", time.time() - 50)
    known = calls | {"opencode 1000": calls["opencode"]}
    tree.look(AgentLink(calls=known))
    for user in ("ada", "bob"):
        tree.use(f"home/{user}/{SESSIONS['opencode']}", age_s=60)
    assert ("reporting", "") == tree.state("opencode", AgentLink(calls=known))
    heard_by = {name: memory.heard for name, memory in tree.memories.items() if name.startswith("opencode ")}
    assert heard_by["opencode 1000"] is not None and heard_by["opencode 1001"] is None
    present(tree, "codex")
    tree.apply_policy("codex")
    calls = heard("codex", time.time() - 50)
    for key, state in (("codex 1000", ("unused", "sessions_elsewhere")), ("codex 1001", ("unused", ""))):
        tree.memories.clear()
        assert state == tree.state("codex", AgentLink(calls=calls | {key: calls["codex"]}))


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("CLAUDE_CONFIG_DIR=~/moved", "home/ada/moved"),
        ('CLAUDE_CONFIG_DIR="$HOME/moved"', "home/ada/moved"),
        ("CLAUDE_CONFIG_DIR=${HOME}/moved", "home/ada/moved"),
        ("CLAUDE_CONFIG_DIR={root}/moved", "moved"),
    ],
)
def test_a_moved_folder(tree: Tree, line: str, place: str) -> None:
    """The sessions and the user's settings are read where a variable moves them."""
    present(tree, "claude-code")
    tree.write(SHELL, f"export {line.replace('{root}', str(tree.root))}\n")
    tree.look()
    tree.write(f"{place}/settings.json", {"env": {"CLAUDE_CODE_ENABLE_TELEMETRY": "0"}})
    assert ("telemetry_off", "settings") == tree.state("claude-code")
    tree.use(f"{place}/projects/-work/{SESSION}.jsonl")
    assert "used_at" in tree.look()["assistants"]["claude-code"]


@pytest.mark.parametrize("value", ["$WORK/claude", "relative", "~bob/claude", "$HOME/$WORK"])
def test_a_folder_that_moved_to_an_unknown_place(tree: Tree, value: str) -> None:
    present(tree, "claude-code")
    tree.apply_policy("claude-code")
    tree.write(SHELL, f"export CLAUDE_CONFIG_DIR={value}\n")
    found = tree.look()["assistants"]["claude-code"]
    assert ("sessions_unreadable", "unseen") == (found["cause"], found["use"])


@pytest.mark.parametrize(
    ("looked_s", "use"), [(0, "heard"), (300, "losing"), (60, "heard"), (-3600, "heard")]
)
@pytest.mark.parametrize("user", [1001, None])
def test_the_first_use_of_a_home_that_appeared(
    tree: Tree, looked_s: float, use: str, user: int | None
) -> None:
    """
    A use since the last look counts, and one from before does not. The first look at a machine, and one after the clock
    was set back, only learn what is there.
    """
    tree.homes["ada"] = UserHome(folder=GuardedFolder(tree.root / "home/ada"), user=user)
    if looked_s:
        tree.look()
        before = tree.memories["codex "]
        tree.memories["codex "] = msgspec.structs.replace(before, looked=time.time() - looked_s)
    tree.use(f"home/ada/{SESSIONS['codex']}", age_s=180)
    found = tree.look()["assistants"]["codex"]
    assert ("not_configured", use) == (found["state"], found["use"])


def test_calls_that_go_to_the_gateway_are_compared_there(tree: Tree) -> None:
    """
    The agent does not receive the calls of an assistant that sends directly, so it states the use without judging
    it.
    """
    tree.apply_policy("codex", "https://tollhouse.example.com/v1/logs")
    tree.use(f"home/ada/{SESSIONS['codex']}")
    tree.remember_uses("codex")
    found = tree.look()["assistants"]["codex"]
    assert ("unused", True) == (found["state"], "used_at" in found)
    assert not {"use", "unheard_since"} & found.keys()
    assert found["direct"] is True
    assert valid_facts({"assistants": {"codex": found}}) == {"assistants": {"codex": found}}
