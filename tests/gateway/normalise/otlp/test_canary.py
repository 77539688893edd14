"""
Prompts never leave the decoder.

Every OTLP case is read with planted texts (canaries) wherever content may occur. These places are attributes
with content names or similar names, metadata, span events, log bodies, status messages, links and exemplars.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise import otlp
from gateway.normalise.otlp.model import READ_EVENTS
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.record import record_to_json
from tests.gateway.normalise.otlp.items import assert_balanced, finished
from tests.gateway.normalise.reading import test_content as content_names
from tests.rounds import part

CASES = Path(__file__).parents[3] / "cases/otlp"
SIGNALS = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
CANARY = "canary-5d1e"

CONTENT = (
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.prompt", "gen_ai.prompt.0.content",
    "gen_ai.prompt_json", "gen_ai.completion", "gen_ai.completion.0.content", "ai.prompt", "ai.prompt.messages",
    "ai.prompt.tools", "ai.response.text", "ai.response.object", "ai.response.toolCalls", "ai.response.reasoning",
    "ai.toolCall.args", "ai.toolCall.result", "ai.value", "ai.values", "input.value", "output.value",
    "llm.input_messages.0.message.content", "llm.output_messages.0.message.content", "llm.prompts.0",
    "llm.prompt_template.variables", "llm.openai.messages", "embedding.text", "embedding.embeddings.0.embedding.text",
    "retrieval.documents.0.document.content", "traceloop.entity.input", "traceloop.entity.output",
    "langfuse.trace.input", "langfuse.trace.output", "langfuse.observation.input", "langfuse.observation.output",
    "gcp.vertex.agent.llm_request", "gcp.vertex.agent.tool_response", "mlflow.spanInputs", "mlflow.spanOutputs",
    "user_prompt", "prompt", "request_text", "response_text", "error", "error.message", "error_message",
    "exception.message", "exception.stacktrace", "message", "content", "body", "tool_input", "tool_parameters",
    "arguments", "output", "function_args",
)  # fmt: skip
CONTENT_METADATA = (
    "traceloop.association.properties.prompt", "ai.telemetry.metadata.messages", "langfuse.trace.metadata.input",
    "langfuse.observation.metadata.output", "langsmith.metadata.content", "trace.metadata.last.message",
)  # fmt: skip
FREE_PREFIXES = (
    "traceloop.association.properties.", "ai.telemetry.metadata.", "langfuse.trace.metadata.",
    "langfuse.observation.metadata.", "langsmith.metadata.", "metadata.",
)  # fmt: skip
FREE_NAMES = tuple(prefix + name for prefix in FREE_PREFIXES for name in content_names.CONTENT)
# Addresses that are not stated as the user's. Those that are have a test of their own: test_second_names.py.
EMAILS = ("enduser.email", "contact.email", "metadata.email", "ai.telemetry.metadata.email")
READ_FOR_NUMBERS = ("gcp.vertex.agent.llm_response", "ai.response.providerMetadata")
# The decoder reads ids and counts from these kinds of content.
ANSWERS = (
    "output.value",
    "gen_ai.completion",
    "gen_ai.output.messages",
    "mlflow.spanOutputs",
    "response_data",
    "genkit:output",
    "genkit:input",
)
USAGE_OBJECTS = (
    "usage",
    "gen_ai.usage",
    "llm.usage",
    "gen_ai.usage.raw",
    "langsmith.metadata.usage_metadata",
)
NEW_NAMES = (*CONTENT, *CONTENT_METADATA, *EMAILS)


def cases() -> list[tuple[str, Path]]:
    payloads = (path for path in sorted(CASES.rglob("*.json")) if not path.name.endswith(".expected.json"))
    return [(key, path) for path in payloads for key in SIGNALS if key in json.loads(path.read_text())]


def named(value: object) -> str | None:
    return getattr(value, "stem", None)


every_case = pytest.mark.parametrize(("key", "path"), cases(), ids=named)
some_cases = pytest.mark.parametrize(("key", "path"), part(cases(), every=4), ids=named)


def items(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every span, log record and data point."""
    for resource in payload.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]
    for resource in payload.get("resourceLogs", ()):
        for scope in resource["scopeLogs"]:
            yield from scope["logRecords"]
    for resource in payload.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                for kind in ("sum", "gauge", "histogram"):
                    yield from metric.get(kind, {}).get("dataPoints", ())


def attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def canaries(prefix: str = "") -> list[dict[str, Any]]:
    """
    Return one attribute for each name that may hold content. A few also have the structured forms of content.
    """
    plain = [attribute(name, prefix + CANARY) for name in NEW_NAMES]
    nested = {"kvlistValue": {"values": [attribute("content", CANARY)]}}
    listed = {"arrayValue": {"values": [{"stringValue": CANARY}, nested]}}
    shapes = [{"key": "gen_ai.input.messages.v2", "value": listed}, {"key": "body.v2", "value": nested}]
    said = {
        "id": f"{CANARY}-{CANARY}-{CANARY}",
        "model": CANARY,
        "content": [{"text": CANARY}],
        "usage": {CANARY: CANARY},
    }
    kwargs = {"id": f"run-{CANARY}-{CANARY}", "content": CANARY, "response_metadata": {"id": CANARY}}
    chain = {"generations": [[{"text": CANARY, "message": {"id": CANARY, "kwargs": kwargs}}]]}
    answers = [attribute(name, json.dumps(answer)) for name in ANSWERS for answer in (chain, [said], said)]
    usages = [attribute(name, json.dumps({CANARY: 1, "input_tokens": CANARY})) for name in USAGE_OBJECTS]
    return [
        *plain,
        *shapes,
        *answers,
        *usages,
        attribute("metadata", json.dumps({"prompt": CANARY, "tier": {"content": CANARY}})),
    ]


def add_canaries(payload: dict[str, Any]) -> None:
    """Add canaries to items, their events, links and exemplars, and to resources and scopes."""
    for item in items(payload):
        present = {member["key"] for member in item.setdefault("attributes", [])}
        item["attributes"] = [mixed(member) for member in item["attributes"]]
        item["attributes"] += [member for member in canaries() if member["key"] not in present]
        if "spanId" in item and "startTimeUnixNano" in item:
            item.setdefault("events", []).append({"name": "gen_ai.content.prompt", "attributes": canaries()})
            item["events"].append({"name": "gen_ai.choice", "attributes": canaries('{"content": "')})
            item["events"] += [{"name": name, "attributes": canaries()} for name in sorted(READ_EVENTS)]
            item.setdefault("links", []).append({"attributes": canaries()})
            item.setdefault("status", {})["message"] = CANARY
            item["traceState"] = f"vendor={CANARY}"
        elif "bucketCounts" in item or "asInt" in item or "asDouble" in item:
            item.setdefault("exemplars", []).append({"filteredAttributes": canaries()})
        elif "stringValue" not in item.get("body", {}):
            item["body"] = {"kvlistValue": {"values": canaries()}}
    for group in next(iter(payload.values())):
        group.setdefault("resource", {}).setdefault("attributes", []).extend(canaries())


def add_free_canaries(payload: dict[str, Any]) -> None:
    """Add metadata to items, with names that callers may choose for content."""
    named = [attribute(name, CANARY) for name in FREE_NAMES]
    named.append(attribute("metadata", json.dumps(dict.fromkeys(content_names.CONTENT, CANARY))))
    for item in items(payload):
        item["attributes"] = [*item.get("attributes", ()), *named]


def mixed(member: dict[str, Any]) -> dict[str, Any]:
    """Add content to the two attributes that are read for numbers, because real ones contain it as well."""
    text = member["value"].get("stringValue")
    if member["key"] not in READ_FOR_NUMBERS or text is None:
        return member
    tree = json.loads(text) | {"content": {"parts": [{"text": CANARY}]}, "text": CANARY, CANARY: CANARY}
    return attribute(member["key"], json.dumps(tree))


def change_numbers(payload: dict[str, Any]) -> None:
    """Replace every number of every item with an impossible one."""
    for item in items(payload):
        for member in item["attributes"]:
            if member["value"].keys() & {"intValue", "doubleValue"}:
                member["value"] = {"doubleValue": -7.25}
        for name in item.keys() & {"asInt", "asDouble", "sum"}:
            item[name] = -7


def read(key: str, payload: dict[str, Any], options: ReadOptions | None = None) -> ReadOutcome:
    body = json.dumps(payload).encode()
    return finished(otlp.normalise_otlp(SIGNALS[key], body, json=True, options=options or ReadOptions()))  # type: ignore[arg-type]


def loaded(path: Path, *changes: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    payload: dict[str, Any] = copy.deepcopy(json.loads(path.read_text()))
    for change in changes:
        change(payload)
    return payload


@pytest.mark.proves("Content is dropped by name while decoding")
@every_case
def test_no_canary_gets_into_an_outcome(key: str, path: Path) -> None:
    """No canary appears in an outcome: in its records, tags, templates, reasons, rejects and shapes."""
    outcome = read(key, loaded(path, add_canaries), ReadOptions(explain=True))
    assert_balanced(outcome)
    assert CANARY not in repr(outcome)


@pytest.mark.proves("Content is dropped by name while decoding")
@pytest.mark.proves("A prompt reaches the disk under an unexpected name")
@some_cases
def test_no_canary_hides_under_a_free_name(key: str, path: Path) -> None:
    """Metadata named by callers is checked word by word, as single attributes and in one object."""
    outcome = read(key, loaded(path, add_free_canaries))
    assert CANARY not in repr(outcome)


@some_cases
def test_canaries_change_no_record(key: str, path: Path) -> None:
    before, after = read(key, loaded(path)), read(key, loaded(path, add_canaries))
    assert [record_to_json(r) | {"id": ""} for r in before.records] == [
        record_to_json(r) | {"id": ""} for r in after.records
    ]
    assert [(p.value, p.template) for p in before.points] == [(p.value, p.template) for p in after.points]


@some_cases
def test_content_cannot_be_stored_by_configuration(key: str, path: Path) -> None:
    """Content is dropped even if `privacy.keep_attributes` names it."""
    options = ReadOptions(keep_attributes=frozenset(CONTENT) - {"error"})
    assert CANARY not in repr(read(key, loaded(path, add_canaries), options))


@some_cases
def test_rejections_say_nothing_of_content(key: str, path: Path) -> None:
    """If every item has impossible numbers, the messages name fields, but neither values nor content."""
    outcome = read(key, loaded(path, add_canaries, change_numbers), ReadOptions(explain=True))
    assert_balanced(outcome)
    assert CANARY not in repr(outcome)
    assert not [reject for reject in outcome.rejects if "7.25" in reject.message or "-7" in reject.message]


@some_cases
def test_a_malformed_item_is_not_quoted(key: str, path: Path) -> None:
    """An error names a field and an offset, never the value."""
    payload = loaded(path, add_canaries)
    for item in items(payload):
        item["timeUnixNano" if "timeUnixNano" in item else "endTimeUnixNano"] = CANARY
        item["traceId"] = CANARY
    try:
        words = repr(read(key, payload))
    except BadPayload as error:
        words = str(error)
    assert CANARY not in words
