"""
The real LiteLLM proxy in front of the provider, with custom prices. It reports every call to Tollhouse twice.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import urllib3

from tests.clients import environments
from tests.clients.journal import Call
from tests.documents import connect_page, parsed_yaml
from tests.waiting import wait_until

PAGE = connect_page("litellm")
MASTER = "sk-master"
# Dollars per token, from which LiteLLM and `cost` compute costs.
PRICES = {
    "input_cost_per_token": "0.000002",
    "cache_read_input_token_cost": "0.0000005",
    "cache_creation_input_token_cost": "0.0000025",
    "output_cost_per_token": "0.000008",
}
_DEPLOYMENTS = (
    # per model: alias, LiteLLM's model name, path before /v1
    ("fast", "openai/gpt-4o", ""),
    ("thinker", "openai/gpt-5", ""),
    ("broken", "openai/gpt-4o-mini", "/fail-500"),
    ("busy", "openai/gpt-4o-mini", "/fail-429"),
    ("unsteady", "openai/gpt-4o-mini", "/fail-500"),
    ("moody", "openai/gpt-4o-mini", "/flaky-500"),
    ("vectors", "openai/text-embedding-3-small", ""),
    ("claude", "anthropic/claude-sonnet-4-5", ""),
    ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", ""),
    ("broken-claude", "anthropic/claude-sonnet-4-5", "/fail-500"),
    ("unsteady-claude", "anthropic/claude-sonnet-4-5", "/fail-500"),
    ("moody-claude", "anthropic/claude-sonnet-4-5", "/flaky-500"),
    ("claude-haiku-4-5", "anthropic/claude-haiku-4-5", ""),
    ("failing-claude", "anthropic/claude-sonnet-4-5", "/fail-500"),
    ("gpt-5", "openai/gpt-5", ""),
    ("moody-gpt-5", "openai/gpt-5", "/flaky-500"),
    ("failing-gpt-5", "openai/gpt-5", "/fail-500"),
    ("gemini-2.5-pro", "gemini/gemini-2.5-pro", ""),
    ("gemini-2.5-flash", "gemini/gemini-2.5-flash", ""),
    ("moody-gemini", "gemini/gemini-2.5-pro", "/flaky-500"),
    ("failing-gemini", "gemini/gemini-2.5-pro", "/fail-500"),
)
# per model that fails, the model that serves in its place
_FALLBACKS = {
    "unsteady": "fast",
    "unsteady-claude": "claude",
    "failing-claude": "claude-haiku-4-5",
    "failing-gpt-5": "fast",
    "failing-gemini": "gemini-2.5-flash",
}


def cost(call: Call) -> Decimal:
    price = {name: Decimal(amount) for name, amount in PRICES.items()}
    read, written = call.cache_read_tokens or 0, call.cache_write_tokens or 0
    return (
        ((call.input_tokens or 0) - read - written) * price["input_cost_per_token"]
        + read * price["cache_read_input_token_cost"]
        + written * price["cache_creation_input_token_cost"]
        + (call.output_tokens or 0) * price["output_cost_per_token"]
    )


class Proxy:
    """
    One proxy process. Its OTel callback sends to `tollhouse`, its generic callback to `generic`, both under `key`.

    The OTel callback sends after `spans_after_ms`, the generic one after `batch` events or `flush_s`. The latter loses
    events that are logged while it sends a batch. With `redacts`, LiteLLM reports no prompts.
    """

    def __init__(
        self,
        directory: Path,
        *,
        provider: str,
        tollhouse: str,
        generic: str,
        key: str,
        batch: int,
        flush_s: int,
        redacts: bool = False,
        caches: bool = True,
        spans_after_ms: int = 5000,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._log = directory / "litellm.log"
        self._config = directory / "litellm.json"  # JSON is valid YAML
        self._config.write_text(json.dumps(_config(provider, redacts=redacts, caches=caches)))
        self._tollhouse, self._generic, self._key = tollhouse, generic, key
        self._batch, self._flush_s, self._spans_after_ms = batch, flush_s, spans_after_ms
        self._http = urllib3.PoolManager(retries=False, timeout=30.0)
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"

    def start(self) -> None:
        python = environments.python("litellm")
        command = [str(python.with_name("litellm")), "--config", str(self._config), "--host", "127.0.0.1"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", self.url.rpartition(":")[2]],
                cwd=self._directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
            )
        wait_until(self._is_up, "the proxy to answer")

    def stop(self) -> None:
        """Stop like an operator, so that the callbacks can send their remaining events."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def post(self, path: str, body: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        headers = {"Authorization": f"Bearer {MASTER}", "Content-Type": "application/json"}
        return self._http.request("POST", self.url + path, body=json.dumps(body).encode(), headers=headers)

    def request(self, method: str, path: str) -> urllib3.BaseHTTPResponse:
        return self._http.request(method, self.url + path, headers={"Authorization": f"Bearer {MASTER}"})

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        try:
            return self._http.request("GET", self.url + "/health/liveliness").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _environment(self) -> dict[str, str]:
        settings = PAGE.environment(url=self._tollhouse, key=self._key)
        to_generic = PAGE.environment(url=self._generic, key=self._key)["GENERIC_LOGGER_ENDPOINT"]
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "DEFAULT_BATCH_SIZE": str(self._batch),
            "DEFAULT_FLUSH_INTERVAL_SECONDS": str(self._flush_s),
            "OTEL_BSP_SCHEDULE_DELAY": str(self._spans_after_ms),
            **settings,
            "GENERIC_LOGGER_ENDPOINT": to_generic,
        }


def _config(provider: str, *, redacts: bool, caches: bool) -> dict[str, Any]:
    prices = {name: float(amount) for name, amount in PRICES.items()}
    return {
        "model_list": [
            {
                "model_name": alias,
                "litellm_params": {
                    "model": model,
                    "api_base": _base(provider, model, path),
                    "api_key": "sk-fake",
                },
                "model_info": prices,
            }
            for alias, model, path in _DEPLOYMENTS
        ],
        "litellm_settings": {
            **parsed_yaml(PAGE.blocks("yaml")[0].text)["litellm_settings"],
            "cache": caches,
            "cache_params": {"type": "local"},
            "num_retries": 0,
            "telemetry": False,
            "turn_off_message_logging": redacts,
        },
        "router_settings": {
            "num_retries": 0,
            "fallbacks": [{model: [other]} for model, other in _FALLBACKS.items()],
            "disable_cooldowns": True,
        },
        "general_settings": {"master_key": MASTER},
    }


def _base(provider: str, model: str, path: str) -> str:
    versions = {"anthropic": "", "gemini": "/v1beta"}
    return provider + path + versions.get(model.partition("/")[0], "/v1")
