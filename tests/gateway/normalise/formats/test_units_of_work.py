"""The units of work that callers and operators name in a gateway's metadata, tags or log, for every format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.normalise.formats.engine.declaration import ExampleCall
from gateway.normalise.formats.list import BY_NAME
from gateway.people.authentication.bearer import NO_LABELS
from tests.gateway.normalise.formats.payloads import one

STATED = {
    "repository": "https://github.com/acme/shop.git",
    "branch": "refs/heads/fix-totals",
    "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "pull_request": "42",
    "ticket": "SHOP-7",
    "run_id": "8f14e45f-ceea-467f-a0e6-3f2f3d7f0001",
    "parent_run_id": "8f14e45f-ceea-467f-a0e6-3f2f3d7f0002",
}
FOUND = STATED | {"repository": "acme/shop", "branch": "fix-totals", "pull_request": "acme/shop#42"}
Payload = dict[str, Any]


def as_tags(payload: Payload) -> None:
    payload["request_tags"] = [f"{name}:{value}" for name, value in STATED.items()]


def of_spend_logs(payload: Payload) -> None:
    payload["metadata"]["spend_logs_metadata"] = STATED


def of_trace(payload: Payload) -> None:
    payload["batch"][0]["body"]["metadata"] = STATED


def of_labels(payload: Payload) -> None:
    payload["full_request"]["labels"] = STATED


def in_ai_log(payload: Payload) -> None:
    payload["ai_log"] = json.dumps(json.loads(payload["ai_log"]) | STATED)


def under(name: str) -> Callable[[Payload], None]:
    return lambda payload: payload.update({name: STATED})


def in_line(payload: Payload) -> None:
    payload.update(STATED)


# Where each format has the units. The names are those of the table in docs/money/costs.md.
PLACES: Mapping[str, Mapping[str, Callable[[Payload], None]]] = {
    "litellm": {"`request_tags`": as_tags, "`spend_logs_metadata`": of_spend_logs},
    "langfuse": {"`metadata` of the trace": of_trace},
    "portkey": {"`metadata`": under("metadata")},
    "cloudflare": {"`metadata`": under("metadata")},
    "bedrock": {"`requestMetadata`": under("requestMetadata")},
    "vertex": {"`labels` of the request": of_labels},
    "databricks": {"`request_tags`": under("request_tags")},
    "snowflake": {"`METADATA`": under("METADATA")},
    "kong": {"fields of the log line": in_line},
    "envoy_ai_gateway": {"fields of the log line": in_line},
    "apisix": {"fields of the log line": in_line},
    "agentgateway": {"fields of the log line": in_line},
    "higress": {"fields of `ai_log`": in_ai_log},
}
# Usual places for words of the caller or the operator. A format without a line in PLACES reads no unit there.
USUAL = (
    in_line,
    *map(under, ("metadata", "METADATA", "requestMetadata", "request_tags", "tags", "labels", "properties")),
)
CASES = [(format, place) for format, places in PLACES.items() for place in places]


@pytest.mark.parametrize(("format", "place"), CASES)
def test_every_unit_arrives(format: str, place: str) -> None:
    """All forms of a name become one, and the run is a field of the call."""
    payload = BY_NAME[format].example(ExampleCall())
    [first] = payload if isinstance(payload, list) else [payload]
    PLACES[format][place](first)
    record = one(format, payload)
    RecordAttributor(Config()).attribute_record(record, NO_LABELS)
    assert {**FOUND} == {name: record.tags.get(name) for name in FOUND}
    assert (FOUND["run_id"], FOUND["parent_run_id"]) == (record.run, record.parent_run)


@pytest.mark.parametrize("place", USUAL)
@pytest.mark.parametrize("format", [name for name in BY_NAME if name not in PLACES])
def test_a_format_that_reads_units_has_a_line(format: str, place: Callable[[Payload], None]) -> None:
    payload = BY_NAME[format].example(ExampleCall())
    [first] = payload if isinstance(payload, list) else [payload]
    place(first)
    record = one(format, payload)
    RecordAttributor(Config()).attribute_record(record, NO_LABELS)
    assert not FOUND.keys() & record.tags.keys(), "add the format to PLACES of this module"


@pytest.mark.parametrize("name", ["branch", "commit", "pull_request", "ticket"])
def test_a_sentence_is_no_unit(name: str) -> None:
    """
    A text of several words under the name of a unit of work, such as `branch`, becomes no tag, because it may be
    content.
    """
    payload = BY_NAME["portkey"].example(ExampleCall())
    payload["metadata"] = {name: "My printer is on fire"}
    assert name not in one("portkey", payload).tags


@pytest.mark.parametrize("format", ["kong", "apisix"])
def test_a_gateway_logs_the_headers_of_claude_code(format: str) -> None:
    """The log of a call has its session, its agent, and the agent that started it."""
    payload = BY_NAME[format].example(ExampleCall())
    [first] = payload if isinstance(payload, list) else [payload]
    stated = {"session-id": "5c9d", "agent-id": "ac4", "parent-agent-id": "a01", "other": "x"}
    first["request"]["headers"] = {f"x-claude-code-{name}": value for name, value in stated.items()}
    record = one(format, payload)
    assert (record.session, record.run, record.parent_run) == ("5c9d", "ac4", "a01")
