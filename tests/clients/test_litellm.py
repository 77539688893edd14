"""
The real LiteLLM proxy with its generic and OTel callbacks at once: every call is reported twice.

The tests compare the records with the journal of the provider behind the proxy, and the costs
with LiteLLM's prices.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.clients.between.litellm_proxy import Proxy, cost
from tests.clients.between.relay import Relay
from tests.clients.capture import SentRequest
from tests.clients.conftest import keep
from tests.clients.journal import Call, assert_same, without_names
from tests.clients.provider import Provider
from tests.waiting import wait_until

pytestmark = pytest.mark.clients

CHAT, MESSAGES, RESPONSES, EMBEDDINGS = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
)
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def _asks(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 1024}


# Per request: the proxy's path, the body, and the status that the client must get.
REQUESTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "chat": (CHAT, {"model": "fast", "user": "ada", **_asks("one")}, 200),
    "reasoning": (CHAT, {"model": "thinker", **_asks("two")}, 200),
    "stream": (CHAT, {"model": "fast", **WITH_USAGE, **_asks("three")}, 200),
    "stream without figures": (CHAT, {"model": "fast", "stream": True, **_asks("four")}, 200),
    "failure": (CHAT, {"model": "broken", **_asks("five")}, 500),
    "rate limit": (CHAT, {"model": "busy", **_asks("six")}, 429),
    "fallback": (CHAT, {"model": "unsteady", **_asks("seven")}, 200),
    "retry": (CHAT, {"model": "moody", "num_retries": 1, **_asks("a")}, 200),
    "retry in vain": (CHAT, {"model": "broken", "num_retries": 1, **_asks("b")}, 500),
    "cache miss": (CHAT, {"model": "fast", **_asks("eight")}, 200),
    "cache hit": (CHAT, {"model": "fast", **_asks("eight")}, 200),
    "embeddings": (EMBEDDINGS, {"model": "vectors", "input": ["toll", "installation"]}, 200),
    "embeddings again": (EMBEDDINGS, {"model": "vectors", "input": ["toll", "installation"]}, 200),
    "messages": (MESSAGES, {"model": "claude", **_asks("nine")}, 200),
    "messages stream": (MESSAGES, {"model": "claude", "stream": True, **_asks("ten")}, 200),
    "messages failure": (MESSAGES, {"model": "broken-claude", **_asks("eleven")}, 500),
    "chat with claude": (CHAT, {"model": "claude", **_asks("twelve")}, 200),
    "responses": (RESPONSES, {"model": "thinker", "input": "thirteen"}, 200),
    "responses stream": (RESPONSES, {"model": "thinker", "stream": True, "input": "fourteen"}, 200),
    "refused by the proxy": (CHAT, {"model": "nobody", **_asks("fifteen")}, 400),
}
# In each pair of equal requests, the provider serves only the first; the cache serves the second.
CACHED = (("cache miss", "cache hit"), ("embeddings", "embeddings again"))
REPORTS = 22  # number of reports per callback; `Reported.told` lists them


@dataclass(frozen=True)
class Reported:
    """The provider's calls per request, and the resulting records."""

    calls: Mapping[str, list[Call]]
    records: list[dict[str, Any]]
    books: dict[str, int]
    sent: Sequence[SentRequest] = ()
    place: Path = Path()

    def of(self, *names: str) -> list[Call]:
        return [call for name in names for call in self.calls[name]]

    def told(self) -> list[Call]:
        """
        Return LiteLLM's expected reports: one per call, one per cached response and one for its refusal.
        """
        cached = [replace(call, status="cached") for names in CACHED for call in self.of(*names)]
        refused = Call(operation="chat", status="error", request_model="nobody")
        served = self.of(*(name for name in REQUESTS if name != "retry in vain"))
        # if all retries of one deployment fail, LiteLLM reports one call
        one_failure = self.of("retry in vain")[:1]
        return [_as_litellm_tells(call) for call in (*served, *one_failure, *cached, refused)]

    def with_tokens_of(self, call: Call) -> list[dict[str, Any]]:
        """Return the records of a call, which its unique token count identifies."""
        return [one for one in self.records if one["input_tokens"] == call.input_tokens]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Reported]:
    """Send all requests through one proxy, stop it, and return the archive when everything has arrived."""
    place = tmp_path_factory.mktemp("litellm")
    with ExitStack() as ends:
        tollhouse, url, key = _installation(place, ends)
        # The generic callback sends one batch after the last call, so that it loses no report.
        relay = Relay(url)
        ends.callback(relay.close)
        generic: dict[str, Any] = {"generic": relay.url, "batch": REPORTS, "flush_s": 3600}
        proxy = Proxy(place / "proxy", provider=provider.url, tollhouse=relay.url, key=key, **generic)
        ends.callback(proxy.stop)
        proxy.start()
        made = Reported({name: _calls_of(name, proxy, provider) for name in REQUESTS}, [], {})
        assert REPORTS == len(made.told())
        wait_until(lambda: _books(tollhouse).get("duplicates", 0) >= REPORTS, "both reports of every call")
        proxy.stop()
        tollhouse.wait_until_drained()
        yield replace(
            made, records=tollhouse.records(), books=_books(tollhouse), sent=relay.sent_hours(), place=place
        )


def _installation(place: Path, ends: ExitStack) -> tuple[Tollhouse, str, str]:
    """Start an installation that serves until `ends`; return it with its address and a key."""
    tollhouse = Tollhouse(place / "installation", ARCHIVE.format(server="", hold="10s", more=""))
    ends.callback(tollhouse.stop, signal.SIGKILL, code=None)
    key = tollhouse.key("litellm")
    return tollhouse, tollhouse.start(), key


def _calls_of(name: str, proxy: Proxy, provider: Provider) -> list[Call]:
    before = len(provider.journal.calls())
    path, body, status = REQUESTS[name]
    answer = proxy.post(path, body)
    assert status == answer.status, (name, answer.data[:1000])
    return provider.journal.calls()[before:]


def _books(tollhouse: Tollhouse) -> dict[str, int]:
    verified = tollhouse.json("spool", "verify")
    assert verified["balanced"]
    books: dict[str, int] = verified["topics"].get("ai-telemetry", {})
    return books


def test_every_call_is_one_record(reported: Reported) -> None:
    """Every call is one record, whose models, tokens and status equal the journal's."""
    assert_same(reported.told(), without_names(reported.records))
    spent = sum((cost(call) for call in reported.of(*REQUESTS) if call.status == "ok"), Decimal(0))
    keep("litellm", "both_callbacks", reported.told(), reported.sent, reported.place, cost=spent)


def test_the_costs_are_litellms(reported: Reported) -> None:
    """
    Each answered call costs the journal's tokens at LiteLLM's prices. A response from its cache costs nothing.
    """
    answered = [call for call in reported.of(*REQUESTS) if call.status == "ok"]
    expected = Counter(cost(call) for call in answered)
    records = [one for one in reported.records if one["status"] == "ok"]
    assert expected == Counter(Decimal(one["cost"]).quantize(Decimal("1e-9")).normalize() for one in records)
    assert {"reported"} == {one["cost_source"] for one in records}
    cached = {one["operation"]: one for one in reported.records if one["status"] == "cached"}
    assert "0" == cached["chat"]["cost"]
    assert all(
        Decimal(one["estimated_cost"]) > 0 for one in cached.values()
    )  # this amount is the cost that the cache saved


def test_both_callbacks_were_heard(reported: Reported) -> None:
    """
    Each call was reported twice, and the second report counted as a duplicate. The two reports differ in
    only one cost.
    """
    assert len(reported.records) == reported.books["accepted"] == reported.books["duplicates"]
    assert 1 == reported.books.get(
        "conflict", 0
    )  # the span of the cached embedding has the cost of the first call
    assert {"litellm"} == {one["source"] for one in reported.records}
    assert {"litellm_proxy_master_key"} == {
        one["api_key"] for one in reported.records
    }  # only the generic callback reports this field
    spans = {one["span_id"] is not None for one in reported.records if one["status"] != "cached"}
    assert {True} == spans  # only the OTel callback reports span ids


def test_provider_response_ids_are_stored(reported: Reported) -> None:
    """
    If LiteLLM forwards the provider's response id, the record has it. Other ids are LiteLLM's own or encrypted.
    """
    handed_on = reported.of("chat", "reasoning", "stream", "stream without figures", "cache miss", "messages")
    handed_on += [call for call in reported.of("fallback", "messages stream") if call.status == "ok"]
    assert {call.request_id for call in handed_on} <= {one["request_id"] for one in reported.records}


def test_a_fallback_is_a_failure_and_an_answer(reported: Reported) -> None:
    """
    A failure and its fallback's answer have the same LiteLLM call id, so that id identifies neither call.
    """
    failed, answered = reported.of("fallback")
    assert failed.status == "error"
    assert answered.status == "ok"
    (record,) = reported.with_tokens_of(answered)
    assert record["status"] == "ok"
    assert record["request_model"] == "gpt-4o"


def test_a_retry_is_a_failure_and_an_answer(reported: Reported) -> None:
    """A retry that fails as well is two calls, which LiteLLM reports as one failure."""
    assert ["error", "ok"] == [call.status for call in reported.of("retry")]
    assert ["error", "error"] == [call.status for call in reported.of("retry in vain")]
    failed = Counter(one["error_type"] for one in reported.records if one["request_model"] == "gpt-4o-mini")
    # The errors are "failure", "fallback", "retry" and "retry in vain", then "rate limit". None is the
    # success of "retry".
    assert {"InternalServerError": 4, "RateLimitError": 1, None: 1} == failed


def test_an_answer_from_the_cache_is_no_second_call(reported: Reported) -> None:
    """
    For a cached response, the provider served only the first call. The second record is `cached` and repeats the
    tokens.
    """
    for names in CACHED:
        (call,) = reported.of(*names)
        assert ["cached", "ok"] == sorted(one["status"] for one in reported.with_tokens_of(call))


def test_otel_callback_reports_events_that_the_generic_callback_loses(
    tmp_path: Path, provider: Provider
) -> None:
    """
    The generic callback loses events that are logged while a batch is sent. The OTel callback still
    reports these calls.
    """
    before = len(provider.journal.calls())
    with ExitStack() as ends:
        tollhouse, url, key = _installation(tmp_path, ends)
        relay = Relay(url, delay_s=1.0)
        ends.callback(relay.close)
        generic: dict[str, Any] = {"generic": relay.url, "batch": 512, "flush_s": 1}
        proxy = Proxy(tmp_path / "proxy", provider=provider.url, tollhouse=url, key=key, **generic)
        ends.callback(proxy.stop)
        proxy.start()
        for number in range(40):
            assert 200 == proxy.post(CHAT, {"model": "fast", **_asks(f"of many {number}")}).status
            time.sleep(0.1)  # wait, so that several batches are sent meanwhile
        calls = provider.journal.calls()[before:]
        wait_until(lambda: _books(tollhouse).get("accepted", 0) >= len(calls), "every call")
        proxy.stop()
        tollhouse.wait_until_drained()
        heard_twice = _books(tollhouse)["duplicates"]
        assert 0 < heard_twice < len(calls)
        expected = [_as_litellm_tells(call) for call in calls]
        assert_same(expected, without_names(tollhouse.records()))


def test_prompts_and_completions_are_not_stored(reported: Reported) -> None:
    """Both callbacks send prompts and completions, but the records contain neither."""
    assert "penny" not in json.dumps(reported.records)


def _as_litellm_tells(call: Call) -> Call:
    """LiteLLM reports other ids and response models, and 0 where the provider reported nothing."""
    reported = replace(call, request_id=None, response_model=None)
    if call.status == "error":
        return replace(reported, input_tokens=0, output_tokens=0)
    if call.operation == "embeddings":
        return replace(reported, output_tokens=0)
    if call.provider == "anthropic":
        return replace(reported, reasoning_tokens=0)
    return reported
