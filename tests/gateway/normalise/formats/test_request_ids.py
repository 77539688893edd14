"""The provider's request id in gateway logs is a further name of the call. Ids of callers and proxies are not."""

from __future__ import annotations

from typing import Any

import pytest

from spool.identity import dedup_key_of_parts
from tests.gateway.normalise.formats.payloads import case, read

REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"
UUID = "31aec259-5224-4903-ad2a-91ade65c0987"


def kong(headers: Any) -> Any:
    entry = case("kong", "http-log-two-llm-blocks")
    entry["response"]["headers"] = headers
    return entry


def apisix(headers: Any) -> Any:
    entries = case("apisix", "http-logger-summary")
    entry = entries[0] if isinstance(entries, list) else entries
    entry["response"]["headers"] = headers
    return entry


def portkey(headers: Any) -> Any:
    entry = case("portkey", "log-file")
    entry["response"]["headers"] = headers
    return entry


def names(format: str, payload: Any) -> list[tuple[bytes, ...]]:
    outcome = read(format, payload)
    assert not outcome.rejects
    return [identity.also for identity in outcome.identities]


@pytest.mark.parametrize("log", [kong, apisix, portkey])
@pytest.mark.parametrize("header", ["request-id", "x-request-id", "x-amzn-requestid", "x-ms-request-id"])
def test_headers_of_the_providers_response(log: Any, header: str) -> None:
    """Of several plugins of Kong, only the one that answers the request has the provider's response."""
    first, *others = names(log.__name__, log({header: REQUEST_ID}))
    assert (dedup_key_of_parts(2, REQUEST_ID),) == first
    assert all(other == () for other in others)


@pytest.mark.parametrize("log", [kong, apisix, portkey])
@pytest.mark.parametrize(
    "headers",
    [{"x-request-id": UUID}, {"request-id": "req_7"}, {"request-id": ["a", 1]}, {}, None, "text", 7],
)
def test_other_headers_are_no_names(log: Any, headers: Any) -> None:
    assert not any(names(log.__name__, log(headers)))


@pytest.mark.parametrize(
    ("id", "model", "expected"),
    [
        (REQUEST_ID, "claude-sonnet-4-5", REQUEST_ID),
        (UUID, "anthropic.claude-sonnet-4-5-20250929-v1:0", UUID),
        (UUID, "claude-sonnet-4-5", None),
        ("-", "claude-sonnet-4-5", None),
        (None, "claude-sonnet-4-5", None),
        (7, "claude-sonnet-4-5", None),
    ],
)
def test_envoys_field_for_the_providers_id(id: Any, model: str, expected: str | None) -> None:
    """Envoy writes a dash for a header that is missing. Only Amazon's ids are UUIDs."""
    line = case("envoy_ai_gateway", "access-log-line")
    line |= {"provider_request_id": id, "gen_ai.provider.name": None, "gen_ai.request.model": model}
    line["gen_ai.request.model_override"] = None
    assert [() if expected is None else (dedup_key_of_parts(2, expected),)] == names("envoy_ai_gateway", line)
