"""
The effective telemetry settings of an assistant, from the texts of its settings in all places.

The order of the places is that of the real programs on Linux, see tests/clients/test_probe.py. Places that only the
vendors' documentation names are marked in `places`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.devices.agent.edits import NotEditable, SettingsEditor
from gateway.devices.agent.probe.states import SettingsSource
from gateway.devices.agent.sessions import PROGRAMS

LOOPBACK: Final = "127.0.0.1"
GRPC: Final = "grpc"
ELSEWHERE: Final = "elsewhere"  # telemetry is exported to something that is no OTLP endpoint
_OTLP: Final = "otlp-"  # begins the exporters of Copilot that send to an endpoint
_OFF: Final = frozenset({"0", "false", "no", "off"})
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TelemetrySwitches:
    """
    The telemetry settings that one place contains. None means that the place does not contain the setting.

    `endpoint` and `protocol` are for all signals. `own_endpoint` and `own_protocol` are for the signal that
    has the calls. They take precedence, even if a weaker place sets them. `exports` says whether an OTLP
    exporter of this signal is chosen. `is_file` and `is_cloud` say whether calls go to a file or to the
    vendor's cloud, whatever the endpoint is. `is_enabled_by_endpoint` applies if no place has `is_enabled`.
    """

    is_enabled: bool | None = None
    endpoint: str | None = None
    own_endpoint: str | None = None
    protocol: str | None = None
    own_protocol: str | None = None
    exports: bool | None = None
    is_file: bool | None = None
    is_cloud: bool | None = None
    is_enabled_by_endpoint: bool | None = None


@dataclass(frozen=True, slots=True)
class TelemetryLayer:
    """The telemetry settings of an assistant in one place, with the time of their last change."""

    source: SettingsSource
    switches: TelemetrySwitches
    changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class EffectiveTelemetry:
    """
    The telemetry settings that apply. `enabled`, `endpoint` and `protocol_by` are the layers that state
    `is_enabled`, `address` and `protocol`.
    """

    enabled: TelemetryLayer | None
    endpoint: TelemetryLayer | None
    is_enabled: bool | None = None
    address: str | None = None
    protocol_by: TelemetryLayer | None = None
    protocol: str = ""


def combine_settings_layers(
    layers: Iterable[TelemetryLayer], *, needs_exporter: bool = False
) -> EffectiveTelemetry:
    """Combine layers, strongest first. Each setting comes from the strongest layer that has it."""
    ordered = list(layers)
    endpoint, address = _first_layer_with_value(ordered, "own_endpoint", "endpoint")
    protocol_by, protocol = _first_layer_with_value(ordered, "own_protocol", "protocol")
    enabled, is_enabled = _first_layer_with_value(ordered, "is_enabled", "is_enabled_by_endpoint")
    exporter, exports = _first_layer_with_value(ordered, "exports")
    if exports is False and is_enabled is not False:
        enabled, is_enabled = exporter, False
    elif needs_exporter and is_enabled and exports is None:
        enabled, is_enabled = None, None
    for name in ("is_file", "is_cloud"):
        layer, is_elsewhere = _first_layer_with_value(ordered, name)
        if is_elsewhere:
            endpoint, address = layer, ELSEWHERE
    return EffectiveTelemetry(enabled, endpoint, is_enabled, address, protocol_by, (protocol or "").lower())


def _first_layer_with_value(
    layers: Sequence[TelemetryLayer], *names: str
) -> tuple[TelemetryLayer | None, Any]:
    for name in names:
        for layer in layers:
            if (value := getattr(layer.switches, name)) not in (None, ""):
                return layer, value
    return None, None


class MalformedSettings(Exception):
    """Raised if a settings file does not have the form that its assistant reads."""


def parse_document(editor: SettingsEditor, content: bytes) -> Document:
    try:
        document = editor.parse_settings(content.decode())
    except (NotEditable, ValueError, RecursionError) as error:
        raise MalformedSettings from error
    if not isinstance(document, dict):
        raise MalformedSettings
    return document


def parse_preferences(editor: SettingsEditor, values: Mapping[str, object]) -> Document:
    """
    Return the settings of preferences or registry values. Both hold objects as JSON in texts, and Codex's hold a TOML
    file in base64.
    """
    document: dict[str, Any] = {}
    for name, value in values.items():
        if name == "config_toml_base64" and isinstance(value, str):
            try:
                document |= parse_document(editor, b64decode(value))
            except ValueError as error:
                raise MalformedSettings from error
        elif name == "Settings" and isinstance(value, str):
            document |= parse_document(editor, value.encode())
        else:
            document[name] = _parse_if_json_object(value)
    return document


def _parse_if_json_object(value: object) -> object:
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise MalformedSettings from error
    return value


def is_own_endpoint(endpoint: str, ours: Iterable[str]) -> bool:
    """
    Return whether an endpoint is one of `ours`, the agent's and the gateway's. All names of the loopback
    address are equal.
    """
    address = _parse_host_and_port(endpoint)
    return address is not None and address in {_parse_host_and_port(each) for each in ours}


def endpoint_host(endpoint: str) -> str:
    address = _parse_host_and_port(endpoint)
    return address[0] if address else ""


def _parse_host_and_port(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    if not host:
        return None
    if host in ("localhost", "::1", "0.0.0.0") or host.startswith("127."):
        host = LOOPBACK
    return host, port or (443 if parts.scheme == "https" else 80)


# -- one reader per format of settings ---------------------------------------------------------------------------


def _table_or_empty(document: Document, name: str) -> Document:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _first_text_value(document: Document, *names: str) -> str | None:
    values = (document.get(name) for name in names)
    return next((value.strip() for value in values if isinstance(value, str) and value.strip()), None)


def _parse_flag(value: object) -> bool | None:
    if isinstance(value, str):
        return value.strip().lower() not in _OFF if value.strip() else None
    return bool(value) if isinstance(value, bool | int) else None


def claude_code_variable_switches(environment: Document) -> TelemetrySwitches:
    """Read the variables of Claude Code, from its settings or from the environment."""
    is_enabled = _parse_flag(environment.get("CLAUDE_CODE_ENABLE_TELEMETRY"))
    exporters = _first_text_value(environment, "OTEL_LOGS_EXPORTER")
    exports = None if exporters is None else "otlp" in re.split(r"\s*,\s*", exporters.lower())
    return replace(_otlp_variable_switches(environment, "LOGS"), is_enabled=is_enabled, exports=exports)


def _otlp_variable_switches(environment: Document, signal: str) -> TelemetrySwitches:
    return TelemetrySwitches(
        endpoint=_first_text_value(environment, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        own_endpoint=_first_text_value(environment, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"),
        protocol=_first_text_value(environment, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        own_protocol=_first_text_value(environment, f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"),
    )


def claude_code_switches(document: Document) -> TelemetrySwitches:
    return claude_code_variable_switches(_table_or_empty(document, "env"))


def codex_switches(document: Document) -> TelemetrySwitches:
    exporter = _table_or_empty(document, "otel").get("exporter")
    if exporter == "none":
        return TelemetrySwitches(is_enabled=False)
    if isinstance(exporter, str):
        return TelemetrySwitches(is_enabled=True, endpoint=ELSEWHERE)
    if not isinstance(exporter, dict):
        return TelemetrySwitches()
    tables = (_table_or_empty(exporter, name) for name in ("otlp-http", "otlp-grpc"))
    endpoint = next((found for table in tables if (found := _first_text_value(table, "endpoint"))), None)
    return TelemetrySwitches(None if endpoint is None else True, endpoint)


def gemini_switches(document: Document) -> TelemetrySwitches:
    """Read the settings of Gemini CLI and Qwen Code."""
    telemetry = _table_or_empty(document, "telemetry")
    target, outfile = telemetry.get("target"), telemetry.get("outfile")
    return TelemetrySwitches(
        is_enabled=_parse_flag(telemetry.get("enabled")),
        endpoint=_first_text_value(telemetry, "otlpEndpoint"),
        protocol=_first_text_value(telemetry, "otlpProtocol"),
        is_file=bool(outfile) if isinstance(outfile, str) else None,
        is_cloud=target == "gcp" if isinstance(target, str) else None,
    )


def qwen_switches(document: Document) -> TelemetrySwitches:
    """
    Read the settings of Qwen Code: those of Gemini CLI, with an endpoint of its own for logs and without a
    vendor cloud.
    """
    endpoint = _first_text_value(_table_or_empty(document, "telemetry"), "otlpLogsEndpoint")
    return replace(gemini_switches(document), own_endpoint=endpoint, is_cloud=None)


def copilot_switches(document: Document) -> TelemetrySwitches:
    telemetry = _table_or_empty(document, "telemetry")
    endpoint = _first_text_value(telemetry, "endpoint")
    protocol = (_first_text_value(telemetry, "protocol") or "").removeprefix(_OTLP)
    is_file = None if endpoint is None else False
    return TelemetrySwitches(
        _parse_flag(telemetry.get("enabled")), endpoint, endpoint, protocol, is_file=is_file
    )


def vs_code_switches(document: Document) -> TelemetrySwitches:
    """Read the settings of Copilot Chat. Its file wins over its exporter."""
    prefix = "github.copilot.chat.otel"
    exporter = _first_text_value(document, f"{prefix}.outfile", f"{prefix}.exporterType")
    return TelemetrySwitches(
        is_enabled=_parse_flag(document.get(f"{prefix}.enabled")),
        endpoint=_first_text_value(document, f"{prefix}.otlpEndpoint"),
        protocol=None if exporter is None else exporter.removeprefix(_OTLP),
        is_file=None if exporter is None else not exporter.startswith(_OTLP),
    )


def opencode_switches(document: Document) -> TelemetrySwitches:
    return TelemetrySwitches(_parse_flag(_table_or_empty(document, "experimental").get("openTelemetry")))


def _gemini_variable_switches(environment: Document) -> TelemetrySwitches:
    """Read the variables of Gemini CLI. GEMINI_TELEMETRY_ENABLED=false does not overrule its settings."""
    found = _telemetry_variable_switches(environment, "GEMINI")
    target = _first_text_value(environment, "GEMINI_TELEMETRY_TARGET")
    return replace(
        found, is_enabled=found.is_enabled or None, is_cloud=None if target is None else target == "gcp"
    )


def _qwen_variable_switches(environment: Document) -> TelemetrySwitches:
    names = ("QWEN_TELEMETRY_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
    return replace(
        _telemetry_variable_switches(environment, "QWEN"), own_endpoint=_first_text_value(environment, *names)
    )


def _telemetry_variable_switches(environment: Document, vendor: str) -> TelemetrySwitches:
    prefix = f"{vendor}_TELEMETRY"
    is_off = _parse_flag(environment.get("OTEL_SDK_DISABLED"))
    return TelemetrySwitches(
        exports=False if is_off else None,
        is_enabled=_parse_flag(environment.get(f"{prefix}_ENABLED")),
        endpoint=_first_text_value(environment, f"{prefix}_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        protocol=_first_text_value(environment, f"{prefix}_OTLP_PROTOCOL"),
        is_file=_first_text_value(environment, f"{prefix}_OUTFILE") is not None or None,
    )


def _copilot_chat_variable_switches(environment: Document) -> TelemetrySwitches:
    """Read the variables of Copilot Chat. Those of one signal, and a sampler, are ignored."""
    return TelemetrySwitches(
        is_enabled=_parse_flag(environment.get("COPILOT_OTEL_ENABLED")),
        endpoint=_first_text_value(environment, "COPILOT_OTEL_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        protocol=_first_text_value(environment, "OTEL_EXPORTER_OTLP_PROTOCOL", "COPILOT_OTEL_PROTOCOL"),
        is_file=_first_text_value(environment, "COPILOT_OTEL_FILE_EXPORTER_PATH") is not None or None,
        is_enabled_by_endpoint=bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")) or None,
    )


def _copilot_variable_switches(environment: Document) -> TelemetrySwitches:
    endpoint = _first_text_value(environment, "OTEL_EXPORTER_OTLP_ENDPOINT")
    exporter = _first_text_value(environment, "COPILOT_OTEL_EXPORTER_TYPE")
    return TelemetrySwitches(
        None if endpoint is None else True,
        endpoint,
        own_endpoint=_first_text_value(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        exports=_exports_spans(environment),
        is_file=None if exporter is None else exporter == "file",
    )


def _exports_spans(environment: Document) -> bool | None:
    return (
        False
        if (_first_text_value(environment, "OTEL_TRACES_SAMPLER") or "").endswith("always_off")
        else None
    )


def _opencode_variable_switches(environment: Document) -> TelemetrySwitches:
    """Read the variable of all signals. opencode ignores those of one signal."""
    endpoint = _first_text_value(environment, "OTEL_EXPORTER_OTLP_ENDPOINT")
    return TelemetrySwitches(endpoint=endpoint, exports=_exports_spans(environment))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReader:
    """
    How a program reads its settings. `order` has the sources, strongest first. `managed` and `user` read the
    documents, and `environment` reads the variables, or is None if the assistant ignores them.

    With `has_one_policy`, only the strongest policy applies, and hides the others. With `needs_exporter`, nothing is
    sent unless an exporter is chosen.
    """

    managed: Callable[[Document], TelemetrySwitches]
    user: Callable[[Document], TelemetrySwitches]
    environment: Callable[[Document], TelemetrySwitches] | None
    order: tuple[SettingsSource, ...]
    has_one_policy: bool = False
    needs_exporter: bool = False
    default_protocol: str = ""


_FILES_FIRST: Final = (
    SettingsSource.SERVER,
    SettingsSource.MDM,
    SettingsSource.FILE,
    SettingsSource.USER,
    SettingsSource.ENVIRONMENT,
)
_VARIABLES_FIRST: Final = (
    SettingsSource.ENVIRONMENT,
    SettingsSource.MDM,
    SettingsSource.FILE,
    SettingsSource.USER,
)
_MANAGED_FIRST: Final = (
    SettingsSource.MDM,
    SettingsSource.FILE,
    SettingsSource.ENVIRONMENT,
    SettingsSource.USER,
)

READERS: Final[Mapping[str, SettingsReader]] = {
    "claude-code": SettingsReader(
        managed=claude_code_switches,
        user=claude_code_switches,
        environment=claude_code_variable_switches,
        order=_FILES_FIRST,
        has_one_policy=True,
        needs_exporter=True,
    ),
    "codex": SettingsReader(
        managed=codex_switches, user=codex_switches, environment=None, order=_FILES_FIRST
    ),
    "gemini-cli": SettingsReader(
        managed=gemini_switches,
        user=gemini_switches,
        environment=_gemini_variable_switches,
        order=_VARIABLES_FIRST,
        default_protocol=GRPC,
    ),
    "qwen-code": SettingsReader(
        managed=qwen_switches,
        user=qwen_switches,
        environment=_qwen_variable_switches,
        order=_VARIABLES_FIRST,
        default_protocol=GRPC,
    ),
    "copilot_chat": SettingsReader(
        managed=copilot_switches,
        user=vs_code_switches,
        environment=_copilot_chat_variable_switches,
        order=_MANAGED_FIRST,
    ),
    "copilot_cli": SettingsReader(
        managed=copilot_switches,
        user=copilot_switches,
        environment=_copilot_variable_switches,
        order=_MANAGED_FIRST,
    ),
    "opencode": SettingsReader(
        managed=opencode_switches,
        user=opencode_switches,
        environment=_opencode_variable_switches,
        order=_FILES_FIRST,
    ),
}
VARIABLES: Final = frozenset(
    {
        *(name for program in PROGRAMS for name in program.moved),
        "CLAUDE_CODE_ENABLE_TELEMETRY",
        "OTEL_LOGS_EXPORTER",
        "OTEL_SDK_DISABLED",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
        "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH",
        "COPILOT_OTEL_ENABLED",
        "COPILOT_OTEL_ENDPOINT",
        "COPILOT_OTEL_EXPORTER_TYPE",
        "COPILOT_OTEL_FILE_EXPORTER_PATH",
        "COPILOT_OTEL_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_TRACES_SAMPLER",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
        *(
            f"{prefix}_TELEMETRY_{name}"
            for prefix in ("GEMINI", "QWEN")
            for name in (
                "ENABLED",
                "OTLP_ENDPOINT",
                "OTLP_LOGS_ENDPOINT",
                "OTLP_PROTOCOL",
                "OUTFILE",
                "TARGET",
            )
        ),
    }
)
