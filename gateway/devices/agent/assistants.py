"""
The settings that each coding assistant needs to report to this machine's agent: file, keys and values.

Only telemetry keys are set, and no key that adds prompts. Gemini CLI and Qwen Code log prompts by default, so
this is switched off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.devices.agent import jsonc, toml_text
from gateway.devices.agent.edits import SettingsEditor

SettingsByKey = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True, kw_only=True)
class Assistant:
    """
    A coding assistant. `sources` are the sources of its records. `keys` returns the settings with which it
    reports to http://HOST:PORT. `hooks` are the events whose hooks can stop a session.
    """

    name: str
    sources: tuple[str, ...]
    file: Callable[[], Path]
    editor: SettingsEditor
    keys: Callable[[str], SettingsByKey]
    hooks: tuple[str, ...] = ()

    @property
    def hook_paths(self) -> Sequence[tuple[str, str]]:
        return [("hooks", event) for event in self.hooks]


def _file_finder(variable: str, folder: str, name: str) -> Callable[[], Path]:
    return lambda: Path(os.environ.get(variable) or Path.home() / folder) / name


def _vs_code_settings_file() -> Path:
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "Code" / "User" / "settings.json"


def _claude_code_keys(endpoint: str) -> SettingsByKey:
    return {
        ("env", "CLAUDE_CODE_ENABLE_TELEMETRY"): "1",
        ("env", "OTEL_LOGS_EXPORTER"): "otlp",
        ("env", "OTEL_METRICS_EXPORTER"): "otlp",
        ("env", "OTEL_EXPORTER_OTLP_PROTOCOL"): "http/protobuf",
        ("env", "OTEL_EXPORTER_OTLP_ENDPOINT"): endpoint,
        # a variable of one signal wins over the general one, whoever sets it
        ("env", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL"): "http/protobuf",
        ("env", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"): f"{endpoint}/v1/logs",
        ("env", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"): "http/protobuf",
        ("env", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"): f"{endpoint}/v1/metrics",
    }


def _codex_keys(endpoint: str) -> SettingsByKey:
    """
    Return Codex's settings. Only logs are exported: they have every call, which metrics and spans would
    repeat.
    """
    return {("otel", "exporter"): {"otlp-http": {"endpoint": f"{endpoint}/v1/logs", "protocol": "binary"}}}


def _gemini_keys(endpoint: str) -> SettingsByKey:
    return {
        ("telemetry", "enabled"): True,
        ("telemetry", "target"): "local",
        ("telemetry", "otlpEndpoint"): endpoint,
        ("telemetry", "otlpProtocol"): "http",
        # a file wins over the endpoint, whoever sets it
        ("telemetry", "outfile"): "",
        ("telemetry", "logPrompts"): False,
    }


def _qwen_keys(endpoint: str) -> SettingsByKey:
    # the endpoint of one signal wins over the general one, whoever sets it
    signals = ("traces", "logs", "metrics")
    keys = {**_gemini_keys(endpoint)}
    for each in signals:
        keys["telemetry", f"otlp{each.title()}Endpoint"] = f"{endpoint}/v1/{each}"
    return keys


def _copilot_keys(endpoint: str) -> SettingsByKey:
    return {
        ("github.copilot.chat.otel.enabled",): True,
        ("github.copilot.chat.otel.exporterType",): "otlp-http",
        ("github.copilot.chat.otel.otlpEndpoint",): endpoint,
    }


ASSISTANTS = {
    assistant.name: assistant
    for assistant in (
        Assistant(
            name="claude-code",
            sources=("claude_code",),
            file=_file_finder("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            editor=jsonc,
            keys=_claude_code_keys,
            hooks=("UserPromptSubmit", "PreToolUse"),
        ),
        Assistant(
            name="codex",
            sources=("codex",),
            file=_file_finder("CODEX_HOME", ".codex", "config.toml"),
            editor=toml_text,
            keys=_codex_keys,
        ),
        Assistant(
            name="gemini-cli",
            sources=("gemini_cli",),
            file=lambda: Path.home() / ".gemini" / "settings.json",
            editor=jsonc,
            keys=_gemini_keys,
        ),
        Assistant(
            name="qwen-code",
            sources=("qwen_code",),
            file=lambda: Path.home() / ".qwen" / "settings.json",
            editor=jsonc,
            keys=_qwen_keys,
        ),
        Assistant(
            name="copilot",
            sources=("copilot_chat", "copilot_cli"),
            file=_vs_code_settings_file,
            editor=jsonc,
            keys=_copilot_keys,
        ),
    )
}
