"""Each gateway's log that can have the session of an assistant states it for the report of the assistant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise import any_format
from gateway.normalise.formats.engine.declaration import ExampleCall
from gateway.normalise.formats.list import BY_NAME
from gateway.normalise.outcome import ReadOptions
from gateway.normalise.reading.assistants import CODEX_TURN, OPENCODE_SESSION
from spool.identity import AS_GATEWAY
from tests.gateway.normalise.formats.payloads import run
from tests.gateway.normalise.otlp.items import NOW

SESSION = "5cca5b3c-5a0b-4d52-b6d1-1f9ad4c2e6f7"
TURN = {CODEX_TURN: json.dumps({"session_id": SESSION, "thread_id": SESSION, "turn_id": "t"})}
# per format, the path of members to the session or to the headers, and the value there
PLACES: list[tuple[str, tuple[str, ...], Any]] = [
    ("litellm", ("session_id",), SESSION),
    ("litellm", ("trace_id",), SESSION),
    ("litellm", ("metadata", "requester_custom_headers"), TURN),
    ("kong", ("request", "headers"), TURN),
    ("kong", ("request", "headers"), {OPENCODE_SESSION: SESSION}),
    ("apisix", ("request", "headers"), TURN),
    ("portkey", ("metadata", "session_id"), SESSION),
    ("cloudflare", ("metadata", "session_id"), SESSION),
    ("envoy_ai_gateway", ("session.id",), SESSION),
    ("higress", ("ai_log", "session_id"), SESSION),
    ("openrouter", ("data", "session_id"), SESSION),
    ("databricks", ("request_tags", "session"), SESSION),
]


def example(name: str) -> Any:
    call = ExampleCall(
        end_ns=NOW, duration_ms=1000, input_tokens=1320, output_tokens=212, cached_tokens=0, cost=0.25,
        model="gpt-4o-mini",
    )  # fmt: skip
    item = BY_NAME[name].example(call)
    return item[0] if isinstance(item, list) else item


def with_value(item: Any, place: tuple[str, ...], value: Any) -> Any:
    """Return the item with a value at a place. A text of JSON may be on the way."""
    if not place:
        return value
    if isinstance(item, str):
        return json.dumps(with_value(json.loads(item), place, value))
    stated = item or {}
    return stated | {place[0]: with_value(stated.get(place[0]), place[1:], value)}


@pytest.mark.parametrize(("name", "place", "value"), PLACES)
def test_the_session_joins_the_call_of_the_assistant(name: str, place: tuple[str, ...], value: Any) -> None:
    body = json.dumps(with_value(example(name), place, value)).encode()
    (outcome, _), _ = run(any_format.normalise_body(name, body, options=ReadOptions()))
    [identity] = outcome.identities
    assert identity.relay is not None
    assert AS_GATEWAY == identity.relay.side
    assert f"{SESSION}\0" + "1320\0" + "212" in identity.relay.keys
