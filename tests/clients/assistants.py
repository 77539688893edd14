"""
Commands that run each coding assistant without a terminal against the fake provider, with telemetry set as
its docs page says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.clients import environments
from tests.documents import connect_page


@dataclass(frozen=True, kw_only=True)
class Place:
    """
    Addresses and folders for the run of an assistant. `home` is private to the assistant. `provider` is a URL
    without version, whose path decides whether calls fail. If `is_managed`, no telemetry is set, because the
    machine has managed settings.
    """

    home: Path
    provider: str
    tollhouse: str
    key: str
    is_managed: bool = False

    def write(self, path: str, text: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def environment(self, page: str) -> dict[str, str]:
        """Return the variables that a page of docs/connect sets."""
        if self.is_managed:
            return {}
        return connect_page(page).environment(url=self.tollhouse, key=self.key)

    def settings(self, page: str, language: str) -> str:
        """Return the settings file that a page of docs/connect shows."""
        return "" if self.is_managed else connect_page(page).block(language, url=self.tollhouse, key=self.key)


@dataclass(frozen=True)
class Started:
    command: list[str]
    environment: Mapping[str, str]


PROMPT = "What is the toll?"


def claude_code(
    place: Place, *, traces: bool = False, model: str = "claude-sonnet-4-5", key: str = "sk-ant-fake"
) -> Started:
    """
    Prepare a run that sends log records and counters, as Claude Code's documentation enables them. `traces`
    adds its beta of spans. `key` is that of the provider, or of the gateway in front of it.
    """
    installed = environments.node("claude_code")
    (program,) = installed.glob("node_modules/@anthropic-ai/claude-code-*/claude")
    environment = place.environment("claude-code") | {
        "ANTHROPIC_BASE_URL": place.provider,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if traces:
        environment |= {"OTEL_TRACES_EXPORTER": "otlp", "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1"}
    return Started([str(program), "-p", PROMPT, "--model", model], environment)


def codex(place: Place, *, model: str = "gpt-5", key: str = "sk-fake") -> Started:
    """Prepare a run that sends log records, spans and counters."""
    installed = environments.node("codex")
    telemetry = place.settings("codex", "toml")
    place.write(".codex/config.toml", CODEX.format(provider=place.provider, model=model) + telemetry)
    program = installed / "node_modules/.bin/codex"
    return Started([str(program), "exec", "--skip-git-repo-check", PROMPT], {"OPENAI_API_KEY": key})


CODEX = """
model = "{model}"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{provider}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 0
"""


def gemini_cli(place: Place, *, model: str = "gemini-2.5-flash", key: str = "fake") -> Started:
    """
    Prepare a run that sends log records (each call twice), spans and counters. Gemini CLI retries a failed
    call for a minute.
    """
    installed = environments.node("gemini_cli")
    place.write(".gemini/settings.json", _gemini_settings(place, "gemini-cli", "gemini-api-key"))
    environment = place.environment("gemini-cli") | {
        "GOOGLE_GEMINI_BASE_URL": place.provider,
        "GEMINI_API_KEY": key,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    program = installed / "node_modules/.bin/gemini"
    return Started([str(program), "-p", PROMPT, "-m", model], environment)


def qwen_code(place: Place, *, model: str = "gpt-4o", key: str = "sk-fake") -> Started:
    """Prepare a run that sends log records and counters."""
    installed = environments.node("qwen_code")
    place.write(".qwen/settings.json", _gemini_settings(place, "qwen-code", "openai"))
    environment = place.environment("qwen-code") | {
        "OPENAI_BASE_URL": f"{place.provider}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": model,
    }
    program = installed / "node_modules/.bin/qwen"
    return Started([str(program), "-p", PROMPT], environment)


def _gemini_settings(place: Place, page: str, authentication: str) -> str:
    """Qwen Code is a fork of Gemini CLI, so both read the same settings."""
    return json.dumps(
        json.loads(place.settings(page, "json") or "{}")
        | {
            "security": {"auth": {"selectedType": authentication}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True, "maxAttempts": 2},
            # settings of the library with which Qwen Code calls the model
            "model": {"generationConfig": {"maxRetries": 0}},
        }
    )


def copilot_cli(
    place: Place, *, model: str = "gpt-5", key: str = "sk-fake", wire: str = "responses"
) -> Started:
    """
    Prepare a run that sends spans and counters, with a custom provider instead of GitHub's. `wire` is "responses" or
    "messages", the API of the provider.
    """
    installed = environments.node("copilot_cli")
    environment = place.environment("copilot") | {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_API_KEY": key,
        "COPILOT_MODEL": model,
    }
    if wire == "messages":
        environment |= {"COPILOT_PROVIDER_TYPE": "anthropic", "COPILOT_PROVIDER_BASE_URL": place.provider}
    else:
        environment |= {
            "COPILOT_PROVIDER_WIRE_API": wire,
            "COPILOT_PROVIDER_BASE_URL": f"{place.provider}/v1",
        }
    program = installed / "node_modules/.bin/copilot"
    return Started([str(program), "-p", PROMPT, "--allow-all-tools"], environment)


def opencode(place: Place, *, model: str = "gpt-4o", key: str = "sk-fake") -> Started:
    """Prepare a run that sends spans of the AI SDK. One additional call names the session."""
    installed = environments.node("opencode")
    settings = json.loads(place.settings("opencode", "json") or "{}")
    place.write(
        ".config/opencode/opencode.json", json.dumps(settings | opencode_models(place.provider, model, key))
    )
    (program,) = installed.glob("node_modules/opencode-linux-x64/bin/opencode")
    return Started([str(program), "run", PROMPT], place.environment("opencode"))


def opencode_models(provider: str, model: str = "gpt-4o", key: str = "sk-fake") -> dict[str, object]:
    """Return OpenCode's settings for a custom provider."""
    models = {model: {"name": model, "tool_call": True}}
    fake = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{provider}/v1", "apiKey": key}}
    return {
        "provider": {"fake": {**fake, "models": models}},
        "model": f"fake/{model}",
        "small_model": f"fake/{model}",
        "autoupdate": False,
        "share": "disabled",
    }


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
