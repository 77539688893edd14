"""A gateway's log with the provider's request id, and other reports that state it, are one call in any order."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.gateway.normalise.formats.payloads import case
from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import Request, told_in_every_order, told_in_memory
from tests.integration.order.test_claude_code_behind_litellm import FAILED, of_claude, of_litellm, spent
from tests.rounds import as_proof

REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"
SDK = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "anthropic.request.id": REQUEST_ID,
}


def of_sdk(**more: Any) -> Request:
    spans = traces(span(1, SDK | more), scope="com.anthropic.sdk.python")
    return Request("otlp/traces", json.dumps(spans).encode())


def of_envoy(**more: Any) -> Request:
    line = case("envoy_ai_gateway", "access-log-line") | {"provider_request_id": REQUEST_ID} | more
    return Request("envoy_ai_gateway", json.dumps(line).encode())


def failed_litellm() -> Request:
    id = "7596bc95-42a8-4fd2-a00f-256df48f3c91"
    headers = {"additional_headers": {"request-id": REQUEST_ID}}
    return of_litellm(id=id, litellm_call_id=id, hidden_params=headers, session="", **FAILED)


ANSWERED = {"gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQr", "gen_ai.usage.input_tokens": 1000}


@pytest.mark.parametrize(
    "reports",
    [
        (of_sdk(**ANSWERED), of_envoy()),
        (of_claude(behind=None), of_envoy()),
        (of_sdk(**ANSWERED), of_claude(behind=None), of_envoy()),
        (of_sdk(**{"error.type": "500"}), failed_litellm()),
    ],
)
def test_equal_request_ids_are_one_call(reports: tuple[Request, ...]) -> None:
    for pauses in ((), (60.0,)):
        for rows, _ in told_in_every_order(reports, pauses):
            assert 1 == len([row for row in rows if row["kind"] == "inference" and not row["shadow"]])


@pytest.mark.parametrize("pauses", [pytest.param(()), as_proof(pytest.param((60.0,)))])
@pytest.mark.parametrize(
    "counts", [{}, {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 50}]
)
def test_three_reports_that_share_ids_only_in_pairs(
    counts: dict[str, int], pauses: tuple[float, ...]
) -> None:
    """
    Three reports become one call even if they share ids only in pairs: the SDK knows both ids, LiteLLM's log of a
    stream only the response id, and Claude Code only the request id.
    """
    sdk = of_sdk(**{"gen_ai.response.id": "msg_01AbCdEfGhIjKlMnOpQr1"}, **counts)
    for rows, conflicts in told_in_every_order((sdk, of_claude(), of_litellm()), pauses):
        assert 1 == len([row for row in rows if row["kind"] == "inference" and not row["shadow"]])
        assert Decimal("0.25") == spent(rows)
        assert conflicts == 0


def test_without_the_id_a_line_is_a_call_of_its_own() -> None:
    rows, _ = told_in_memory([of_sdk(**ANSWERED), of_envoy(provider_request_id="-")])
    assert 2 == len(rows)
