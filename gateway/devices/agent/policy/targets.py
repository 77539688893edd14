"""
The managed settings of each assistant on each system: files, registry values, preference domains and keys.

The keys are those of `tollhouse agent setup`. No service name is set, because Tollhouse recognizes an
assistant by its own name.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.devices.agent import jsonc
from gateway.devices.agent.assistants import ASSISTANTS, SettingsByKey
from gateway.devices.agent.edits import SettingsEditor
from gateway.devices.agent.hook_settings import hook_entry

LINUX: Final = "linux"
MACOS: Final = "macos"
WINDOWS: Final = "windows"
SYSTEMS: Final = (LINUX, MACOS, WINDOWS)

# per system: the record of what `apply_bundle` wrote, and the folder of the MDM's preferences
RECORDS: Final = {
    LINUX: "/var/lib/tollhouse-policy/record.json",
    MACOS: "/Library/Application Support/Tollhouse/policy-record.json",
}
PREFERENCES: Final = "/Library/Managed Preferences"

# in lists of assistants, this name stands for the environment variables of the whole machine
ENVIRONMENT: Final = "environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """
    The OTLP/HTTP endpoint to which assistants report. `key` is empty if the endpoint is this machine's agent.
    `device` is a text that becomes the device id of the reports, usually a variable of the MDM. `hook` is the
    command of assistants' hooks, or "".
    """

    endpoint: str
    key: str = ""
    device: str = ""
    hook: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedAssistant:
    """
    An assistant with managed settings. `files` has one path per system. `domain` is its preference domain on
    macOS, and `registry` its key below HKEY_LOCAL_MACHINE. `preferences` and `registry_values` make their
    values from the file's text.

    If `has_endpoint` is False, the endpoint can only be an environment variable; `has_header` says the same
    of the key. If `is_enforced` is False, users can override the settings. `since` is the first version that
    reads the file, or else the version that was tested.
    """

    name: str
    title: str
    page: str
    files: Mapping[str, str]
    keys: Callable[[Destination], SettingsByKey]
    since: str
    domain: str = ""
    preferences: Callable[[str], Mapping[str, object]] = json.loads
    registry: str = ""
    registry_values: Callable[[str], Mapping[str, str]] = lambda _: {}
    editor: SettingsEditor = jsonc
    has_endpoint: bool = True
    has_header: bool = True
    is_enforced: bool = True

    def needs_environment(self, destination: Destination) -> bool:
        return not self.has_endpoint or bool(destination.key and not self.has_header)

    def settings_text(self, destination: Destination) -> str:
        text = ""
        for path, value in self.keys(destination).items():
            text = self.editor.put_value(text, path, value)
        return text if text.endswith("\n") else text + "\n"


def _compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _texts_by_setting(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else _compact_json(value) for name, value in settings.items()
    }


def telemetry_variables(destination: Destination) -> dict[str, str]:
    """Return the environment variables with which assistants on a machine send their telemetry."""
    # opencode exits without a last export, so a long delay between exports would lose calls
    found = {"OTEL_EXPORTER_OTLP_ENDPOINT": destination.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    return found | _header_and_device_variables(destination)


def _header_and_device_variables(destination: Destination) -> dict[str, str]:
    found = {}
    if destination.key:
        found["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization={destination.key}"
    if destination.device:
        found["OTEL_RESOURCE_ATTRIBUTES"] = f"device.id={destination.device}"
    return found


def _claude_code_settings(destination: Destination) -> SettingsByKey:
    more = {
        "OTEL_LOG_USER_PROMPTS": "0",
        # without the id, the calls of a session cannot be compared with its file
        "OTEL_METRICS_INCLUDE_SESSION_ID": "true",
        # a one-shot prompt ends before a regular export, and waits this long for the last one
        "CLAUDE_CODE_OTEL_SHUTDOWN_TIMEOUT_MS": "5000",
        **_header_and_device_variables(destination),
    }
    if headers := more.get("OTEL_EXPORTER_OTLP_HEADERS"):
        more |= {f"OTEL_EXPORTER_OTLP_{signal}_HEADERS": headers for signal in ("LOGS", "METRICS")}
    assistant = ASSISTANTS["claude-code"]
    keys: dict[tuple[str, ...], Any] = {**assistant.keys(destination.endpoint)}
    keys |= {("env", name): value for name, value in more.items()}
    if destination.hook:
        keys |= {event: [hook_entry(destination.hook)] for event in assistant.hook_paths}
    return keys


def _codex_settings(destination: Destination) -> SettingsByKey:
    keys = {("otel", "log_user_prompt"): False, **ASSISTANTS["codex"].keys(destination.endpoint)}
    if destination.key:
        [(protocol, exporter)] = keys["otel", "exporter"].items()
        keys["otel", "exporter"] = {protocol: {**exporter, "headers": {"authorization": destination.key}}}
    return keys


def _copilot_settings(destination: Destination) -> SettingsByKey:
    settings: dict[str, object] = {
        "enabled": True,
        "endpoint": destination.endpoint,
        "protocol": "otlp-http",
        "captureContent": False,
        "lockCaptureContent": True,
    }
    if destination.key:
        settings["headers"] = {"authorization": destination.key}
    if destination.device:
        settings["resourceAttributes"] = {"device.id": destination.device}
    return {("telemetry", name): value for name, value in settings.items()}


def _gemini_settings(destination: Destination) -> SettingsByKey:
    return ASSISTANTS["gemini-cli"].keys(destination.endpoint)


def _qwen_settings(destination: Destination) -> SettingsByKey:
    return ASSISTANTS["qwen-code"].keys(destination.endpoint)


def _opencode_settings(_: Destination) -> SettingsByKey:
    return {("experimental", "openTelemetry"): True}


_GEMINI_CLI = ManagedAssistant(
    name="gemini-cli",
    title="Gemini CLI",
    page="gemini-cli",
    files={
        LINUX: "/etc/gemini-cli/settings.json",
        MACOS: "/Library/Application Support/GeminiCli/settings.json",
        WINDOWS: r"C:\ProgramData\gemini-cli\settings.json",
    },
    keys=_gemini_settings,
    since="0.61.0",
    has_header=False,
    is_enforced=False,
)

MANAGED: Final = {
    assistant.name: assistant
    for assistant in (
        ManagedAssistant(
            name="claude-code",
            title="Claude Code",
            page="claude-code",
            files={
                LINUX: "/etc/claude-code/managed-settings.d/50-tollhouse.json",
                MACOS: "/Library/Application Support/ClaudeCode/managed-settings.d/50-tollhouse.json",
            },
            domain="com.anthropic.claudecode",
            registry=r"SOFTWARE\Policies\ClaudeCode",
            registry_values=lambda content: {"Settings": _compact_json(json.loads(content))},
            keys=_claude_code_settings,
            since="2.1.83",
        ),
        ManagedAssistant(
            name="codex",
            title="Codex",
            page="codex",
            # for Windows there is no machine-wide file, because requirements.toml may not contain [otel]
            files={LINUX: "/etc/codex/managed_config.toml", MACOS: "/private/etc/codex/managed_config.toml"},
            domain="com.openai.codex",
            preferences=lambda content: {"config_toml_base64": b64encode(content.encode()).decode()},
            keys=_codex_settings,
            editor=ASSISTANTS["codex"].editor,
            since="0.169.0",
            is_enforced=False,
        ),
        ManagedAssistant(
            name="copilot",
            title="GitHub Copilot",
            page="copilot",
            files={
                LINUX: "/etc/github-copilot/managed-settings.json",
                MACOS: "/Library/Application Support/GitHubCopilot/managed-settings.json",
            },
            # macOS preferences and the Windows registry hold only text here, so objects are written as JSON
            domain="com.github.copilot",
            preferences=lambda content: _texts_by_setting(json.loads(content)),
            registry=r"SOFTWARE\Policies\GitHubCopilot",
            registry_values=lambda content: _texts_by_setting(json.loads(content)),
            keys=_copilot_settings,
            since="1.0.102",
        ),
        _GEMINI_CLI,
        replace(
            _GEMINI_CLI,
            name="qwen-code",
            title="Qwen Code",
            page="qwen-code",
            files={
                LINUX: "/etc/qwen-code/settings.json",
                MACOS: "/Library/Application Support/QwenCode/settings.json",
                WINDOWS: r"C:\ProgramData\qwen-code\settings.json",
            },
            keys=_qwen_settings,
            since="0.15.10",
        ),
        ManagedAssistant(
            name="opencode",
            title="opencode",
            page="opencode",
            files={
                LINUX: "/etc/opencode/opencode.json",
                MACOS: "/Library/Application Support/opencode/opencode.json",
                WINDOWS: r"C:\ProgramData\opencode\opencode.json",
            },
            domain="ai.opencode.managed",
            keys=_opencode_settings,
            since="1.18.33",
            has_endpoint=False,
            has_header=False,
        ),
    )
}

# file of the machine's environment variables, for systems on which it is a file
ENVIRONMENT_FILES: Final = {
    LINUX: "/etc/environment.d/50-tollhouse.conf",
    MACOS: "/Library/LaunchAgents/com.tollhouse.environment.plist",
}


def paths_a_bundle_may_write(system: str) -> frozenset[str]:
    paths = {assistant.files[system] for assistant in MANAGED.values() if system in assistant.files}
    return frozenset(paths | {ENVIRONMENT_FILES[system]} if system in ENVIRONMENT_FILES else paths)
