from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.normalise.otlp.products import claude_code
from gateway.normalise.outcome import IMPLAUSIBLE, NOT_AI, UNRECOGNISED_AI
from spool.identity import dedup_key_of_parts
from spool.record import Inference, UsageMetric
from tests.documents import ROOT
from tests.gateway.normalise.otlp.items import log, picked, point, read_logs, read_points
from tests.gateway.normalise.otlp.payloads import only, span, traces
from tests.gateway.normalise.outcomes import inferences

SCOPE = "com.anthropic.claude_code.events"
WHO = {
    "user.id": "anon-1",
    "session.id": "session-1",
    "user.account_uuid": "uuid-1",
    "user.email": "a@b.example",
}
REQUEST = {
    **WHO,
    "event.name": "api_request",
    "model": "claude-sonnet-4-5-20250929",
    "input_tokens": 6,
    "output_tokens": 412,
    "cache_read_tokens": 18735,
    "cache_creation_tokens": 1761,
    "cost_usd": 0.0186105,
    "duration_ms": 3500,
    "request_id": "req_011CAbCdEfGhIjKlMnOpQr",
}


def request(**changes: Any) -> Inference:
    (record,) = read_logs(log(REQUEST | changes, scope=SCOPE, body="claude_code.api_request")).records
    assert isinstance(record, Inference)
    return record


def test_a_collector_may_lose_scope_and_body() -> None:
    """
    A collector may remove the scope and the body, so the event name has no prefix. The service name then
    identifies the product. Other event names stay unrecognized.
    """
    service = {"service.name": "claude-code"}
    details = {"event.name": "gen_ai.client.inference.operation.details", "gen_ai.operation.name": "chat"}
    outcome = read_logs(log(REQUEST, resource=service), log(details, resource=service), log(REQUEST))
    assert [6 + 18735 + 1761, None] == [r.input_tokens for r in outcome.records if isinstance(r, Inference)]
    assert {UNRECOGNISED_AI: 1} == outcome.ignored


def test_numbers_may_be_text() -> None:
    """Before version 2.1.122, every number of an event was text."""
    texts = {name: str(value) for name, value in REQUEST.items() if isinstance(value, int | float)}
    assert request() == request(**texts)


def test_a_span_may_state_its_input_with_and_without_the_cache() -> None:
    """Since version 2.1.332, the input under the conventions' name includes the cache, and the own name excludes it."""
    own = {"span.type": "llm_request", "model": "claude-sonnet-4-5", "request_id": REQUEST["request_id"]}
    own |= {
        "input_tokens": 6,
        "output_tokens": 412,
        "cache_read_tokens": 18735,
        "cache_creation_tokens": 1761,
    }
    usage = {
        "gen_ai.usage.input_tokens": 6 + 18735 + 1761,
        "gen_ai.usage.output_tokens": 412,
        "gen_ai.usage.cache_read.input_tokens": 18735,
        "gen_ai.usage.cache_write.input_tokens": 1761,
    }
    record = only(traces(span(1, own | usage), scope="com.anthropic.claude_code"))
    assert (6 + 18735 + 1761, 18735, 1761) == (
        record.input_tokens,
        record.cache_read_tokens,
        record.cache_write_tokens,
    )


def test_trace_ids_of_an_event_are_stored_but_identify_nothing() -> None:
    """
    If traces are on, events have the ids of the enclosing span. These ids are stored but identify nothing,
    because the request id is the dedup key.
    """
    traced = log(REQUEST, scope=SCOPE, trace_id="ab" * 16, span_id="cd" * 8)
    outcome = read_logs(traced, log(REQUEST | {"request_id": "req_011CZyXwVuTsRqPoNmLkJi"}, scope=SCOPE))
    assert [("ab" * 16, "cd" * 8), (None, None)] == [(r.trace_id, r.span_id) for r in inferences(outcome)]
    assert [
        dedup_key_of_parts(2, "req_011CAbCdEfGhIjKlMnOpQr"),
        dedup_key_of_parts(2, "req_011CZyXwVuTsRqPoNmLkJi"),
    ] == [identity.id for identity in outcome.identities]


def test_the_page_names_the_tags_by_which_costs_can_be_grouped() -> None:
    """The page shows the line of `[ledger] tags`, without which a report cannot use a tag."""
    page = (ROOT / "docs/connect/claude-code.md").read_text()
    [ledger] = re.findall(r"```toml\n(\[ledger\]\n.*?)```", page, re.DOTALL)
    tags = tomllib.loads(ledger)["ledger"]["tags"]
    assert [] == [name for name in tags if name not in {"service", *claude_code.PRODUCT.tags}]
    assert {"skill", "plugin", "mcp_server"} <= set(tags)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-opus-4-5", "anthropic"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "aws.bedrock"),
        ("global.anthropic.claude-haiku-4-5", "aws.bedrock"),
        ("claude-sonnet-4-5@20250929", "anthropic"),
    ],
)
def test_the_provider_is_in_the_model_id(model: str, provider: str) -> None:
    """On Bedrock, only the model id names the platform."""
    assert provider == request(model=model).provider


def test_a_cost_in_micros_is_money_too() -> None:
    """`cost_usd_micros` counts only if `cost_usd` is missing."""
    assert "0.018611" == request(cost_usd="", cost_usd_micros=18611).cost


def test_the_user_is_the_account_and_the_installation_a_device() -> None:
    """`user.id` is random per installation, so it is the user only if there is neither an account nor an address."""
    record = request()
    assert record.user == "uuid-1"
    assert record.tags == {"device": "anon-1", "user_email": "a@b.example"}
    addressed = request(**{"user.account_uuid": ""})
    assert ("a@b.example", {"device": "anon-1"}) == (addressed.user, addressed.tags)
    anonymous = request(**{"user.account_uuid": "", "user.email": ""})
    assert anonymous.user == "anon-1"
    assert anonymous.tags.get("device") is None


def test_named_device_has_priority_over_the_installation() -> None:
    """
    The attributes device.id, host.id and installation.id have priority over the random installation id,
    because the sender sets them to name the machine.
    """
    assert "laptop-7" == request(**{"device.id": "laptop-7"}).tags["device"]


def test_an_error_has_no_tokens_and_the_status_as_type() -> None:
    """`api_error` is sent once, after all attempts. Its text is dropped."""
    attributes = WHO | {
        "event.name": "api_error",
        "model": "claude-haiku-4-5",
        "error": "Overloaded",
        "status_code": "529",
        "duration_ms": "900",
        "attempt": 3,
        "client_request_id": "crid-2",
    }
    outcome = read_logs(log(attributes, scope=SCOPE))
    assert {
        "status": "error", "error_type": "529", "input_tokens": None, "cost": None, "request_id": "crid-2",
    } == picked(outcome.records[0], "status", "error_type", "input_tokens", "cost", "request_id")  # fmt: skip
    # a client-chosen id is also looked up in neighbouring time steps
    assert 2 == len(outcome.identities[0].lookups)


def test_an_event_without_ids_is_known_by_session_time_and_sequence() -> None:
    """
    An event without ids is identified by session, time and sequence. So two requests of a session at the same
    time stay two calls.
    """
    twice = [log(REQUEST | {"request_id": "", "event.sequence": n}, scope=SCOPE) for n in (1, 2, 2)]
    first, second, again = (identity.id for identity in read_logs(*twice).identities)
    assert first != second
    assert second == again


@pytest.mark.parametrize(
    "name",
    [
        "user_prompt",
        "tool_result",
        "subagent_completed",
        "compaction",
        "assistant_response",
        "api_request_body",
    ],
)
def test_other_events_are_no_calls(name: str) -> None:
    """
    Other events of Claude Code are no calls. Events of sub-agents and compactions contain tokens that other
    events already reported.
    """
    attributes = WHO | {"event.name": name, "model": "claude-opus-4-5", "total_tokens": 900, "pre_tokens": 1}
    assert {NOT_AI: 1} == read_logs(log(attributes, scope=SCOPE)).ignored


def test_the_body_is_enough_to_know_an_event() -> None:
    """The body of an event has its full name, which is enough if a collector has renamed the scope."""
    assert 1 == len(read_logs(log(REQUEST, scope="logs", body="claude_code.api_request")).records)
    nameless = {name: value for name, value in REQUEST.items() if name != "event.name"}
    assert 1 == len(read_logs(log(nameless, body="claude_code.api_request")).records)


@pytest.mark.parametrize("count", [-1, 1.5, "1.5", 10**12])
def test_an_implausible_count_is_never_billed(count: Any) -> None:
    """A negative, fractional or huge count rejects only its event."""
    outcome = read_logs(log(REQUEST | {"output_tokens": count}, scope=SCOPE), log(REQUEST, scope=SCOPE))
    assert [(0, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert 1 == len(outcome.records)


def token_point(kind: str, value: float) -> Any:
    attributes = WHO | {"model": "claude-opus-4-5", "type": kind}
    return point(
        "claude_code.token.usage", value, attributes, unit="tokens", scope="com.anthropic.claude_code"
    )


def test_counters_are_doubles_and_count_tokens() -> None:
    """
    Counters are doubles: version 2.1.197 sends `107.0` for 107 tokens. Its input excludes cached tokens.
    """
    kinds = ("input", "output", "cacheRead", "cacheCreation")
    outcome = read_points(*(token_point(kind, 107.0) for kind in kinds))
    assert [
        (kind, 107, "{token}", "uuid-1") for kind in ("input_uncached", "output", "cache_read", "cache_write")
    ] == [(r.token_type, r.value, r.unit, r.user) for r in outcome.records if isinstance(r, UsageMetric)]


def test_a_counter_without_session_still_counts() -> None:
    """A counter without session and account still counts, because both can be switched off for metrics."""
    (record,) = read_points(
        point("claude_code.cost.usage", 0.1, {"model": "claude-opus-4-5"}, unit="USD")
    ).records
    assert {
        "value": "0.1",
        "unit": "USD",
        "token_type": None,
        "session": None,
        "source": "claude_code",
    } == picked(record, "value", "unit", "token_type", "session", "source")


def test_resource_attributes_name_the_team() -> None:
    """
    The team is read from OTEL_RESOURCE_ATTRIBUTES, which are on the resource. Newer releases repeat them
    on every item.
    """
    resource = {"service.name": "claude-code", "team.id": "platform", "cost_center": "eng-1"}
    (on_resource,) = read_logs(log(REQUEST, scope=SCOPE, resource=resource)).records
    (on_both,) = read_logs(log(REQUEST | resource, scope=SCOPE, resource=resource)).records
    assert on_resource.team == "platform"
    expected = {
        "service": "claude-code",
        "cost_center": "eng-1",
        "device": "anon-1",
        "user_email": "a@b.example",
    }
    assert expected == on_resource.tags
    assert on_resource == on_both
