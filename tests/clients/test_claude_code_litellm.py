"""
Claude Code behind the real LiteLLM proxy, and both report every call: Claude Code with events, spans and counters,
LiteLLM with its generic and OTel callbacks.

For streams, LiteLLM's log lacks the provider's request id, which is the only id that Claude Code knows. So the
reports match by session, counts and end time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.clients.assistants import Place, claude_code
from tests.clients.between.litellm_proxy import MASTER, Proxy, cost
from tests.clients.between.relay import Relay
from tests.clients.capture import SentRequest
from tests.clients.conftest import PROGRAM_S, keep
from tests.clients.journal import Call
from tests.clients.provider import Provider
from tests.clients.test_agent_runs import CALLS, calls_by_level
from tests.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1200)]  # each run starts a proxy

DELEGATION = "delegation"
# Per run: the model that Claude Code requests, and the number of the provider's calls. Each of the two requests is
# served at once, fails, is repeated after a failure, falls back to another deployment, or is served by OpenAI.
# In the last run, an agent starts an agent that starts an agent.
RUNS = {
    "prompt": ("claude-sonnet-4-5", 2),
    "failure": ("broken-claude", 2),
    "retry": ("moody-claude", 4),
    "fallback": ("unsteady-claude", 4),
    "translated": ("fast", 2),
    DELEGATION: ("claude-sonnet-4-5", sum(CALLS)),
}
FAMILY = "claude_code_litellm"


@dataclass(frozen=True)
class Reported:
    """The provider's calls per run, and the resulting records."""

    calls: Mapping[str, list[Call]]
    records: list[dict[str, Any]]
    books: dict[str, int]

    @property
    def all_calls(self) -> list[Call]:
        return [call for calls in self.calls.values() for call in calls]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Reported]:
    """Run every prompt through one proxy, and return the archive when everything has arrived."""
    place = tmp_path_factory.mktemp(FAMILY)
    with ExitStack() as ends:
        tollhouse = Tollhouse(place / "installation", ARCHIVE.format(server="", hold="60s", more=""))
        ends.callback(tollhouse.stop, signal.SIGKILL, code=None)
        key = tollhouse.key("both")
        relay = Relay(tollhouse.start())
        ends.callback(relay.close)
        calls = {}
        for run, (model, served) in RUNS.items():
            before, sent = len(provider.journal.calls()), len(relay.sent_hours())
            # The generic callback sends one batch after the last call, so that it loses no report.
            sends: dict[str, Any] = {"generic": relay.url, "batch": served, "flush_s": 3600, "redacts": True}
            if run == DELEGATION:  # the spans of all calls are part of the capture
                sends["spans_after_ms"] = 200
            proxy = Proxy(place / run, provider=provider.url, tollhouse=relay.url, key=key, **sends)
            ends.callback(proxy.stop)
            proxy.start()
            home = place / run / "home"
            home.mkdir()
            provider.starts_agents = "Agent" if run == DELEGATION else ""
            _prompt(Place(home=home, provider=proxy.url, tollhouse=relay.url, key=key), model)
            provider.starts_agents = ""
            calls[run] = provider.journal.calls()[before:]
            assert served == len(calls[run])
            wait_until(lambda: _is_logged(relay, sent), "the batch of the generic callback")  # noqa: B023 - called here
            proxy.stop()  # the proxy sends its remaining spans when it stops
            spent = sum((cost(call) for call in calls[run] if call.status == "ok"), Decimal(0))
            requests = [without_tools(request) for request in relay.sent_hours()[sent:]]
            keep(FAMILY, run, calls[run], requests, home, place, cost=spent)
        tollhouse.stop()  # the server closes its open records when it stops
        tollhouse.start()
        tollhouse.wait_until_drained()
        records = [one for one in tollhouse.records() if one["kind"] == "inference"]
        books: dict[str, int] = tollhouse.json("spool", "verify")["topics"]["ai-telemetry"]
        yield Reported(calls, records, books)


def _prompt(place: Place, model: str) -> None:
    started = claude_code(place, traces=True, model=model, key=MASTER)
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), **started.environment}
    subprocess.run(
        started.command,
        cwd=place.home,
        capture_output=True,
        timeout=PROGRAM_S,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def without_tools(request: SentRequest) -> SentRequest:
    """Remove the texts of Claude Code's tools, which LiteLLM reports even if it reports no prompts."""
    if not request.path.endswith("/litellm"):
        return request
    events = json.loads(request.body)
    for event in events:
        event["model_parameters"].pop("tools", None)
    return replace(request, body=json.dumps(events).encode())


def _is_logged(relay: Relay, sent: int) -> bool:
    return any(request.path.endswith("/litellm") for request in relay.sent_hours()[sent:])


def _figures(status: str, *counts: int | None) -> tuple[Any, ...]:
    return (status, *(count or 0 for count in counts))


def test_every_call_is_one_record(reported: Reported) -> None:
    """Each failed attempt and its fallback are separate calls, as in the provider's journal."""
    assert all(reported.calls[run] for run in RUNS)
    served = Counter(
        _figures(call.status, call.input_tokens, call.output_tokens, call.cache_read_tokens)
        for call in reported.all_calls
    )
    recorded = Counter(
        _figures(one["status"], one["input_tokens"], one["output_tokens"], one["cache_read_tokens"])
        for one in reported.records
    )
    assert served == recorded


def test_the_costs_are_litellms(reported: Reported) -> None:
    """
    Claude Code computes its cost without the gateway's prices, so LiteLLM's cost is used, and the difference is no
    conflict.
    """
    expected = sum((cost(call) for call in reported.all_calls if call.status == "ok"), Decimal(0))
    spent = sum((Decimal(one["cost"] or 0) for one in reported.records), Decimal(0))
    assert expected == spent.quantize(Decimal("1e-9")).normalize()
    assert 0 == reported.books.get("conflict", 0)


def test_each_record_knows_what_either_side_knows(reported: Reported) -> None:
    """
    The record combines both reports: only Claude Code reports the kind of query, and only LiteLLM reports its key.
    """
    answered = [one for one in reported.records if one["status"] == "ok"]
    assert all(one["session"] and one["api_key"] and one["tags"].get("query_source") for one in answered)


def test_the_calls_of_agents_are_one_tree(reported: Reported) -> None:
    """Each call that an agent makes is counted once, in the run of this agent."""
    [session] = {one["session"] for one in reported.records if "run" in one}
    records = [one for one in reported.records if one["session"] == session]
    assert CALLS == calls_by_level(records, has_main_run=False)
