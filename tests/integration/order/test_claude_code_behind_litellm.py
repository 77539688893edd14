"""
Claude Code and the LiteLLM proxy that it calls report the same calls. They share no id if the response was streamed,
so session, counts and end time match. In any order, each call is one record with LiteLLM's cost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.people.authentication.bearer import AuthenticatedKey
from tests.gateway.normalise.formats.payloads import case
from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute, span, traces
from tests.integration.order.running import Request, Row, told_in_every_order, told_in_memory

SESSION = "5cca5b3c-5a0b-4d52-b6d1-1f9ad4c2e6f7"
REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"
ENDED = NOW // SECOND + 3


def of_claude(*, name: str = "api_request", behind: bool | None = True, **said: Any) -> Request:
    """Return an event of Claude Code, which ends three seconds after NOW."""
    said = {
        "event.name": name,
        "session.id": SESSION,
        "anthropic.custom_base_url": behind,
        "model": "fast",
        "input_tokens": 700,
        "cache_read_tokens": 300,
        "output_tokens": 50,
        "cost_usd": 0.9,
        "request_id": REQUEST_ID,
    } | said
    record = {
        "timeUnixNano": str(ENDED * SECOND),
        "body": {"stringValue": f"claude_code.{name}"},
        "attributes": [attribute(key, value) for key, value in said.items() if value is not None],
    }
    resource = {"attributes": [attribute("service.name", "claude-code")]}
    scopes = [{"scope": {"name": "com.anthropic.claude_code.events"}, "logRecords": [record]}]
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}
    return Request("otlp/logs", json.dumps(body).encode())


def of_litellm(number: int = 1, *, session: str = SESSION, **said: Any) -> Request:
    """Return an event of LiteLLM's log, which ends half a second before Claude Code's."""
    payload = case("litellm", "slp-batch-array")[0]
    metadata = payload["metadata"] | {
        "usage_object": None,
        "requester_custom_headers": {"x-claude-code-session-id": session},
    }
    payload |= {
        "id": f"msg_01AbCdEfGhIjKlMnOpQr{number}",
        "litellm_call_id": f"7596bc95-42a8-4fd2-a00f-256df48f3c9{number}",
        "call_type": "anthropic_messages",
        "session_id": "",
        "hidden_params": {"additional_headers": None},
        "response": {},
        "metadata": metadata,
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "response_cost": 0.25,
        "startTime": ENDED - 2.5,
        "endTime": ENDED - 0.5,
    }
    return Request("litellm", json.dumps([payload | said]).encode())


FAILED: dict[str, Any] = {
    "status": "failure",
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "response_cost": 0.0,
}


def failure(number: int) -> Request:
    call_id = f"7596bc95-42a8-4fd2-a00f-256df48f3c9{number}"
    times: dict[str, Any] = {"startTime": ENDED - number, "endTime": ENDED - number + 0.5}
    return of_litellm(number, id=call_id, litellm_call_id=call_id, **FAILED, **times)


def calls(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] == "inference" and not row["shadow"]]


def spent(rows: Sequence[Row]) -> Decimal:
    """Return the cost that counts, with corrections of closed records."""
    return sum((Decimal(_counted(row) or 0) for row in rows if not row["shadow"]), Decimal(0))


def _counted(row: Row) -> str | None:
    cost: str | None = row["cost"]
    return cost if cost is not None or row["kind"] != "inference" else row["estimated_cost"]


def every_order(*requests: Request, pauses: Sequence[float] = ()) -> list[list[Row]]:
    found = []
    for rows, conflicts in told_in_every_order(requests, pauses):
        assert conflicts == 0
        found.append(rows)
    return found


@pytest.mark.parametrize("pauses", [(), (60.0,)])
@pytest.mark.parametrize("request_id", [REQUEST_ID, None])
def test_a_streamed_call_is_one_record(pauses: Sequence[float], request_id: str | None) -> None:
    """
    A streamed call that both report is one record. LiteLLM's cost counts, because Claude Code does not know the
    gateway's prices.
    """
    for rows in every_order(of_claude(request_id=request_id), of_litellm(), pauses=pauses):
        (call,) = calls(rows)
        assert (1000, 50) == (call["input_tokens"], call["output_tokens"])
        assert Decimal("0.25") == spent(rows)


def test_a_failure_is_one_record() -> None:
    """
    A failure that both report is one record, although LiteLLM does not pass the provider's request id on in a
    failure.
    """
    error = of_claude(
        name="api_error",
        request_id=None,
        input_tokens=None,
        output_tokens=None,
        cost_usd=None,
        status_code=500,
    )
    for rows in every_order(error, failure(1)):
        assert ["error"] == [row["status"] for row in calls(rows)]
    for rows in every_order(error, failure(1), failure(2)):
        assert ["error"] * 2 == [row["status"] for row in calls(rows)]


def test_a_failure_and_its_fallback_are_two_calls() -> None:
    """
    A failure and the fallback's answer are two calls, although Claude Code reports only the answer of the fallback.
    """
    for rows in every_order(of_claude(), failure(1), of_litellm(2)):
        assert ["error", "ok"] == sorted(row["status"] for row in calls(rows))
        assert Decimal("0.25") == spent(rows)


@pytest.mark.parametrize(
    "other",
    [
        {"session": "4aa1c0de-0000-4d52-b6d1-1f9ad4c2e6f7"},
        {"completion_tokens": 51},
        {"endTime": ENDED - 60},
        {"startTime": ENDED + 58, "endTime": ENDED + 60},
    ],
)
def test_other_calls_stay_apart(other: dict[str, Any]) -> None:
    """A call of another session, of another size or of another minute is another call."""
    for rows in every_order(of_claude(), of_litellm(**other)):
        assert 2 == len(calls(rows))


def test_the_log_of_the_gateway_proves_the_relay() -> None:
    """
    Claude Code for older versions of Node does not state that it calls a gateway. The gateway's log then proves it.
    """
    for stated in (False, None):
        for rows in every_order(of_claude(behind=stated), of_litellm()):
            assert 1 == len(calls(rows))
            assert Decimal("0.25") == spent(rows)


def test_an_id_that_is_unique_only_in_its_process_joins_nothing() -> None:
    said: dict[str, Any] = {"session.id": "1"}
    for rows in every_order(of_claude(**said), of_litellm(session="1")):
        assert 2 == len(calls(rows))


def test_a_response_from_litellms_cache_is_a_call_of_its_own() -> None:
    """A response from LiteLLM's cache is a call of its own. The provider did not serve it, so it costs nothing."""
    hit = of_litellm(
        2, id="msg_01AbCdEfGhIjKlMnOpQr1_cache_hit1795158584.59", cache_hit=True, response_cost=0.0
    )
    for rows in every_order(of_claude(), of_litellm(), hit):
        assert ["cached", "ok"] == sorted(row["status"] for row in calls(rows))
        assert Decimal("0.25") == spent(rows)


def test_events_and_spans_of_one_call_without_a_request_id() -> None:
    """If the gateway translates the call to another provider's API, Claude Code knows no id of the call."""
    said = {
        "span.type": "llm_request",
        "session.id": SESSION,
        "anthropic.custom_base_url": True,
        "model": "fast",
        "input_tokens": 700,
        "cache_read_tokens": 300,
        "output_tokens": 50,
    }
    traced = traces(
        span(1, said, endTimeUnixNano=str(ENDED * SECOND)),
        scope="com.anthropic.claude_code",
        resource={"service.name": "claude-code"},
    )
    as_span = Request("otlp/traces", json.dumps(traced).encode())
    for rows in every_order(of_claude(request_id=None), as_span, of_litellm()):
        assert 1 == len(calls(rows))
        assert Decimal("0.25") == spent(rows)


LAPTOP = AuthenticatedKey("device laptop-1", frozenset(), device="laptop-1")


@pytest.mark.parametrize("request_id", [REQUEST_ID, None])
def test_a_laptop_says_who_made_the_call(request_id: str | None) -> None:
    """Under a laptop's own key, Claude Code adds user and device to LiteLLM's call, and nothing else."""
    said: dict[str, Any] = {"request_id": request_id, "user.id": "ada", "speed": "fast"}
    event = replace(of_claude(**said), bearer=LAPTOP)
    payloads = json.loads(of_litellm(end_user="").body)
    payloads[0]["metadata"] |= {"user_api_key_user_id": None, "user_api_key_end_user_id": None}
    litellm = Request("litellm", json.dumps(payloads).encode())
    (alone,) = calls(told_in_memory([litellm])[0])
    for rows in every_order(event, litellm):
        (call,) = calls(rows)
        assert ("ada", "laptop-1") == (call["user"], call["device"])
        decided = {name: call[name] for name in DECIDED}
        assert decided == {name: alone[name] for name in DECIDED}


DECIDED = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost", "estimated_cost", "cost_source",
    "status", "request_model", "response_model", "start_time", "end_time",
)  # fmt: skip


@pytest.mark.parametrize("pauses", [(), (60.0,)])
def test_a_laptop_changes_no_call_of_a_gateway(pauses: Sequence[float]) -> None:
    """An ordinary span under a laptop's key names the response of LiteLLM's call. It changes no cost in any order."""
    said: dict[str, Any] = {
        "gen_ai.operation.name": "chat", "gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQr1",
        "gen_ai.request.model": "claude-opus-4-8", "gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 999, "gen_ai.usage.cost": 777.0, "service_tier": "flex",
        "error.type": "500",
    }  # fmt: skip
    forged = span(7, said, endTimeUnixNano=str(ENDED * SECOND), status={"code": 2})
    claim = Request("otlp/traces", json.dumps(traces(forged)).encode(), LAPTOP)
    (alone,) = calls(told_in_memory([of_litellm()])[0])
    for rows in every_order(claim, of_litellm(), pauses=pauses):
        (call,) = calls(rows)
        last = [row for row in rows if row["kind"] == "correction"][-1:] or [call]
        assert (alone["status"], Decimal("0.25")) == (last[0]["status"], spent(rows))
        counts = ("input_tokens", "output_tokens", "cache_read_tokens")
        assert [alone[name] or 0 for name in counts] == [
            sum(row[name] or 0 for row in rows) for name in counts
        ]
