"""
Coding assistants behind the real LiteLLM proxy: a prompt, a provider that fails once, and a fallback to another model.
The assistant reports every call, and LiteLLM reports it with its generic and OTel callbacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.clients import assistants
from tests.clients.assistants import Place, Started
from tests.clients.between.litellm_proxy import MASTER, Proxy
from tests.clients.between.relay import Relay
from tests.clients.capture import Capture, SentRequest
from tests.clients.conftest import Stand, keep
from tests.clients.loopback import Loopback, body_of
from tests.clients.provider import Provider
from tests.integration.order.test_assistants_behind_litellm import (
    assert_are_the_journals,
    records_after,
    whole_requests,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1200)]

# per assistant, how it starts, and the models of a prompt, of a provider that fails once, and of a fallback
GPT_5 = ("gpt-5", "moody-gpt-5", "failing-gpt-5")
GPT_4O = ("fast", "moody", "unsteady")
CLAUDE = ("claude-sonnet-4-5", "moody-claude", "failing-claude")
GEMINI = ("gemini-2.5-pro", "moody-gemini", "failing-gemini")
RUNS = ("prompt", "failure", "fallback")
ASSISTANTS: dict[str, tuple[Callable[..., Started], tuple[str, str, str]]] = {
    "codex": (assistants.codex, GPT_5),
    "copilot_cli": (assistants.copilot_cli, GPT_5),
    "copilot_cli, messages": (partial(assistants.copilot_cli, wire="messages"), CLAUDE),
    "gemini_cli": (assistants.gemini_cli, GEMINI),
    "qwen_code": (assistants.qwen_code, GPT_4O),
    "opencode": (assistants.opencode, GPT_4O),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body_of(self)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing, because the relay records the requests."""


@dataclass(frozen=True)
class Between:
    """The proxy, and the relay that records its telemetry and that of the assistants."""

    relay: Relay
    proxy: Proxy

    def logged(self, before: int) -> int:
        """Return how many calls the generic callback has logged since."""
        sent = [each for each in self.relay.sent_hours()[before:] if each.path.endswith("/litellm")]
        return sum(len(json.loads(each.body)) for each in sent)


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Between]:
    with ExitStack() as ends:
        accepting = Loopback(_Handler)
        ends.callback(accepting.close)
        relay = Relay(accepting.url)
        ends.callback(relay.close)
        sends: dict[str, Any] = {
            "generic": relay.url,
            "batch": 1000,
            "flush_s": 3,
            "redacts": True,
            "caches": False,
        }
        sends["spans_after_ms"] = 200  # so that the spans of a run arrive before its log
        place = tmp_path_factory.mktemp("proxy")
        proxy = Proxy(place, provider=provider.url, tollhouse=relay.url, key="key", **sends)
        ends.callback(proxy.stop)
        proxy.start()
        yield Between(relay, proxy)


def without_texts(request: SentRequest) -> SentRequest:
    """Remove instructions and tools, which LiteLLM reports even if it reports no prompts."""
    if not request.path.endswith("/litellm"):
        return request
    events = json.loads(request.body)
    for event in events:
        event |= {"model_parameters": {}, "messages": None, "model_map_information": None}
        response = event["response"] if isinstance(event["response"], dict) else {}
        response |= {name: [] for name in ("instructions", "tools", "output", "choices") if name in response}
    return replace(request, body=json.dumps(events).encode())


def _cost_in_log(request: SentRequest) -> Decimal:
    """Return LiteLLM's cost of the calls in a request. It ignores our prices for Gemini's models."""
    if not request.path.endswith("/litellm"):
        return Decimal(0)
    costs = [Decimal(str(event["response_cost"])) for event in json.loads(request.body)]
    return sum(costs, Decimal(0))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("assistant", ASSISTANTS)
async def test_every_call_is_one_record(
    between: Between, provider: Provider, tmp_path: Path, assistant: str, run: str
) -> None:
    """Each attempt of the provider's journal is one record, with the model and the cost of LiteLLM."""
    start, models = ASSISTANTS[assistant]
    before, sent = len(provider.journal.calls()), len(between.relay.sent_hours())
    place = Place(home=tmp_path, provider=between.proxy.url, tollhouse=between.relay.url, key="key")
    started = start(place, model=models[RUNS.index(run)], key=MASTER)
    Stand.program(started.command, tmp_path, started.environment, fails=run == "failure")
    calls = provider.journal.calls()[before:]
    assert calls
    wait_until(lambda: between.logged(sent) >= len(calls), "the logs of all calls")
    requests = [without_texts(request) for request in between.relay.sent_hours()[sent:]]
    spent = sum((_cost_in_log(request) for request in requests), Decimal(0))
    family, _, kind = assistant.partition(", ")
    name = f"{run}_{kind}" if kind else run
    keep(f"{family}_litellm", name, calls, requests, tmp_path, cost=spent)
    capture = Capture(f"{family}_litellm", name, calls, spent, requests)
    assert_are_the_journals(await records_after(whole_requests(capture), pause=0.0, directory=None), capture)
