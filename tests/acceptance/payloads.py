"""OTLP/JSON trace requests with GenAI spans, each a different call."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import urllib3

KEEP_ALIVE = urllib3.PoolManager(maxsize=16, retries=False, timeout=120.0)


def attribute(key: str, value: str | int) -> dict[str, Any]:
    return {
        "key": key,
        "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
    }


def span(
    response_id: str, *, tokens: int = 100, start_ns: int | None = None, **more: str | int
) -> dict[str, Any]:
    """Make one chat call in current attribute names. `more` has further attributes with `__` for a dot."""
    begun = time.time_ns() if start_ns is None else start_ns
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.id": response_id,
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 20,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "chat gpt-4o",
        "kind": 3,
        "startTimeUnixNano": str(begun),
        "endTimeUnixNano": str(begun + 250_000_000),
        "attributes": [attribute(key, value) for key, value in attributes.items()],
    }


def request(spans: list[dict[str, Any]]) -> bytes:
    resource = {"attributes": [attribute("service.name", "shop")]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()


def post(
    url: str, body: bytes, key: str, path: str = "/v1/traces", **headers: str
) -> urllib3.BaseHTTPResponse:
    """Send a request. Raises urllib3.exceptions.HTTPError if there is no response."""
    return KEEP_ALIVE.request(
        "POST",
        url + path,
        body=body,
        headers={"Content-Type": "application/json", **({"Authorization": key} if key else {}), **headers},
    )
