"""How each coding assistant is started: without a terminal, at the fake provider, its telemetry to Tollhouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.clients import environments


@dataclass(frozen=True, kw_only=True)
class Place:
    """`home` is the assistant's own; `provider` has no version, and fails where a run is to fail."""

    home: Path
    provider: str
    tollhouse: str
    key: str

    def write(self, path: str, text: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@dataclass(frozen=True)
class Started:
    command: list[str]
    environment: Mapping[str, str]


PROMPT = "What is the toll?"


def claude_code(place: Place, *, traces: bool = False) -> Started:
    """Log records and counters, as its documentation switches them on; `traces` adds its beta of spans."""
    installed = environments.node("claude_code")
    (program,) = installed.glob("node_modules/@anthropic-ai/claude-code-*/claude")
    environment = {
        "ANTHROPIC_BASE_URL": place.provider,
        "ANTHROPIC_API_KEY": "sk-ant-fake",
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": place.tollhouse,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={place.key}",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if traces:
        environment |= {"OTEL_TRACES_EXPORTER": "otlp", "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1"}
    return Started([str(program), "-p", PROMPT, "--model", "claude-sonnet-4-5"], environment)


def codex(place: Place) -> Started:
    """Log records, spans and counters."""
    installed = environments.node("codex")
    place.write(".codex/config.toml", _CODEX.format(provider=place.provider, tollhouse=place.tollhouse, key=place.key))
    program = installed / "node_modules/.bin/codex"
    return Started([str(program), "exec", "--skip-git-repo-check", PROMPT], {"OPENAI_API_KEY": "sk-fake"})


_CODEX = """
model = "gpt-5"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{provider}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 0
[otel]
log_user_prompt = false
[otel.exporter.otlp-http]
endpoint = "{tollhouse}/v1/logs"
protocol = "binary"
headers = {{ authorization = "{key}" }}
[otel.trace_exporter.otlp-http]
endpoint = "{tollhouse}/v1/traces"
protocol = "binary"
headers = {{ authorization = "{key}" }}
[otel.metrics_exporter.otlp-http]
endpoint = "{tollhouse}/v1/metrics"
protocol = "binary"
headers = {{ authorization = "{key}" }}
"""


def gemini_cli(place: Place) -> Started:
    """Log records, each call twice, spans and counters; it tries a failed call again for a minute."""
    installed = environments.node("gemini_cli")
    place.write(".gemini/settings.json", _gemini_settings(place, "gemini-api-key"))
    environment = {
        "GOOGLE_GEMINI_BASE_URL": place.provider,
        "GEMINI_API_KEY": "fake",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={place.key}",
    }
    program = installed / "node_modules/.bin/gemini"
    return Started([str(program), "-p", PROMPT, "-m", "gemini-2.5-flash"], environment)


def qwen_code(place: Place) -> Started:
    """Log records and counters."""
    installed = environments.node("qwen_code")
    place.write(".qwen/settings.json", _gemini_settings(place, "openai"))
    environment = {
        "OPENAI_BASE_URL": f"{place.provider}/v1",
        "OPENAI_API_KEY": "sk-fake",
        "OPENAI_MODEL": "gpt-4o",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={place.key}",
    }
    program = installed / "node_modules/.bin/qwen"
    return Started([str(program), "-p", PROMPT], environment)


def _gemini_settings(place: Place, authentication: str) -> str:
    """Qwen Code began as a copy of Gemini CLI."""
    telemetry = {
        "enabled": True,
        "target": "local",
        "otlpEndpoint": place.tollhouse,
        "otlpProtocol": "http",
        "logPrompts": False,
    }
    return json.dumps(
        {
            "telemetry": telemetry,
            "security": {"auth": {"selectedType": authentication}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "maxAttempts": 2},
            "model": {"generationConfig": {"maxRetries": 0}},  # of the library below; Qwen Code's
        }
    )


def copilot_cli(place: Place) -> Started:
    """Spans and counters, with a provider of one's own in place of GitHub's."""
    installed = environments.node("copilot_cli")
    environment = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_BASE_URL": f"{place.provider}/v1",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_PROVIDER_API_KEY": "sk-fake",
        "COPILOT_MODEL": "gpt-5",
        "OTEL_EXPORTER_OTLP_ENDPOINT": place.tollhouse,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={place.key}",
    }
    program = installed / "node_modules/.bin/copilot"
    return Started([str(program), "-p", PROMPT, "--allow-all-tools"], environment)


def claude_code_with_traces(place: Place) -> Started:
    return claude_code(place, traces=True)


ASSISTANTS: dict[str, Callable[[Place], Started]] = {
    "claude_code": claude_code,
    "claude_code_traced": claude_code_with_traces,
    "codex": codex,
    "gemini_cli": gemini_cli,
    "qwen_code": qwen_code,
    "copilot_cli": copilot_cli,
}
