"""The Claude API, its SDK and a framework report one call in requests of their own, in any order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import Request, told_in_every_order

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-haiku-4-5",
}
MESSAGE = {"gen_ai.response.id": "msg_0a0b0c0d0e0f0a0b0c0d"}
OWN = {"anthropic.organization.id": "org-1", "anthropic.workspace.id": "wrkspc_1"}
USER = {"enduser.id": "ben"}


def usage(read: int, written: int) -> dict[str, int]:
    return {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}


def exported(*spans: dict[str, Any], scope: str, service: str) -> Request:
    payload = traces(*spans, scope=scope, resource={"service.name": service})
    return Request("otlp/traces", json.dumps(payload).encode())


def platform(*, own: dict[str, Any], runs: Sequence[dict[str, Any]] = (), parent: int | None = 2) -> Request:
    request = span(
        3, {**CALL, **MESSAGE, **OWN, **own}, name="anthropic.messages.create", kind=2, parent=parent
    )
    inner = [
        span(n, {**CALL, **one}, name="anthropic.run", kind=1, parent=3) for n, one in enumerate(runs, 4)
    ]
    return exported(request, *inner, scope="com.anthropic.claude-platform", service="claude-platform")


SDK = exported(
    span(2, {**CALL, **MESSAGE, **OWN, **usage(610, 33)}, name="anthropic.messages.create", kind=3, parent=1),
    scope="com.anthropic.sdk.python",
    service="desk",
)
FRAMEWORK = exported(
    span(1, {**CALL, **MESSAGE, **USER, **usage(610, 33)}, name="chat"), scope="desk.agents", service="desk"
)


@pytest.mark.parametrize(
    "reports",
    [
        [platform(own=usage(610, 33)), SDK],
        [platform(own=usage(610, 33), parent=None), SDK],
        [platform(own=usage(610, 33), runs=[usage(600, 30), usage(10, 3)]), SDK],
        [platform(own={}, runs=[usage(600, 30), usage(10, 3)]), SDK],
        [platform(own={}, runs=[usage(610, 33)], parent=None), SDK],
        [platform(own=usage(610, 33), runs=[usage(600, 30), usage(10, 3)]), SDK, FRAMEWORK],
    ],
)
def test_reports_of_one_call_are_one_record(reports: list[Request]) -> None:
    """Usage is on the request, on its model runs or on both. Every order gives one call, also with a stop."""
    for rows, _ in told_in_every_order(reports, times=1):
        [row] = rows
        assert (610, 33) == (row["input_tokens"], row["output_tokens"])
        assert "msg_0a0b0c0d0e0f0a0b0c0d" == row["request_id"]
        assert ("org-1", "wrkspc_1") == (row["tags"]["organization"], row["tags"]["workspace"])
        assert (FRAMEWORK in reports) == (row["user"] == "ben")
