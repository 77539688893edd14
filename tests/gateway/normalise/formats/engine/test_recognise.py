"""
Recognition of formats by their typical members, in any wrapping and position. The wrapping does not
change the records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise.formats.list import FORMAT_NAMES, recognise_format, recognise_format_or_refuse
from gateway.normalise.outcome import NOT_AI, UNRECOGNISED_AI, ReadOutcome
from tests.gateway.normalise.formats.payloads import Case, case, cases, read, told

SIGNS: list[tuple[str, dict[str, Any]]] = [
    ("otlp/traces", {"resourceSpans": []}),
    ("otlp/metrics", {"resourceMetrics": []}),
    ("otlp/logs", {"resource_logs": []}),
    ("langfuse", {"batch": [{"type": "trace-create", "body": {}}]}),
    ("langfuse", {"batch": [None, {"x": 1}, {"type": "trace-create", "body": {}}], "metadata": {}}),
    ("langfuse", {"batch": []}),
    ("litellm", {"litellm_call_id": "1"}),
    ("litellm", {"custom_llm_provider": "openai", "call_type": "acompletion"}),
    ("kong", {"latencies": {}, "started_at": 1}),
    ("portkey", {"ai_org": None}),
    ("portkey", {"request": {"portkeyHeaders": {}}}),
    ("bedrock", {"schemaType": "ModelInvocationLog"}),
    ("bedrock", {"awslogs": {"data": ""}}),
    ("bedrock", {"requestId": "r", "records": [None, {"x": 1}, {"data": ""}]}),
    ("bedrock", {"messageType": "CONTROL_MESSAGE", "logGroup": ""}),
    ("cloudflare", {"tokens_in": 0}),
    ("cloudflare", {"result": {"tokens_in": 0}, "success": True}),
    ("cloudflare", {"result": [None, {"x": 1}, {"tokens_in": 0}], "success": True}),
    ("cloudflare", {"result": [], "result_info": {}}),
    ("envoy_ai_gateway", {"gen_ai.request.model_override": None}),
    ("envoy_ai_gateway", {"x-envoy-origin-path": "/"}),
    ("helicone", {"request_response_url": "u"}),
    ("helicone", {"request_id": "r", "response_body": ""}),
    ("bifrost", {"RootSpan": None}),
    ("apisix", {"llm_summary": {}}),
    ("higress", {"ai_log": "-"}),
    ("agentgateway", {"scope": "request", "gateway": "g", "gen_ai.request.model": "m"}),
    ("agentgateway", {"scope": "request", "route": "r", "http.status": 200}),
    ("vertex", {"logging_time": "", "full_response": {}}),
    ("azure_apim", {"CorrelationId": "c", "DeploymentName": "d"}),
    ("azure_apim", {"records": [{"CorrelationId": "c"}, {"CorrelationId": "c", "DeploymentName": "d"}]}),
    ("openmeter", {"specversion": "1.0"}),
    ("openrouter", {"data": {"native_tokens_prompt": 1}}),
]
UNKNOWN: list[dict[str, Any]] = [
    {"id": 1},
    {"scope": "request"},
    {"scope": "request", "gateway": "g"},
    {"started_at": 1},
    {"request_id": "r"},
    {"records": [{"x": 1}], "result": "x", "data": None, "batch": 3, "request": []},
    {"batch": [{"type": "x"}]},
    {"schemaType": "Other"},
]


def lines(items: list[Any], end: str = "\n") -> bytes:
    return end.join(map(json.dumps, items)).encode()


def wrapped(items: list[Any]) -> Iterator[bytes]:
    """
    Yield the items in every wrapping that senders and shippers use, mixed with foreign items and broken text.
    """
    yield json.dumps(items).encode()
    yield b"\xef\xbb\xbf \r\n" + json.dumps(items, indent=2).encode() + b"\r\n"
    yield json.dumps([None, {"x": 1}, [], "text", 3, True, *items, None]).encode()
    yield b"[{'not': json}, " + json.dumps(items).encode()[1:]
    yield b'[{"n": NaN, "s": "\\ud800"}, ' + json.dumps(items).encode()[1:]
    yield lines(items)
    yield b"\xef\xbb\xbf" + lines(items, "\r\n\r\n") + b"\r\n"
    yield lines([None, {"x": 1}, {}, [], 3, *items])
    yield b"listening on :1975\n" + lines(items)
    yield b'{"cut": \n' + lines(items, '\n{"broken": \n') + b'\n{"cut": '
    yield lines([[item] for item in items])
    yield lines(items, "")
    if len(items) == 1:
        yield json.dumps(items[0]).encode()
        yield b"\r\n\t " + json.dumps(items[0], indent=1).encode() + b" \n"


@pytest.mark.parametrize(("format", "item"), SIGNS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_sign_is_seen_in_every_wrapping(format: str, item: dict[str, Any]) -> None:
    """A format is recognized in every wrapping, wherever the typical member is."""
    assert {format} == {recognise_format(body) for body in wrapped([dict(reversed(item.items())), item])}
    assert format == recognise_format(json.dumps(item).encode())


@pytest.mark.parametrize("item", UNKNOWN)
def test_half_a_sign_is_none(item: dict[str, Any]) -> None:
    """
    If only some of the typical members exist, no format is guessed, because a wrong format would ignore all
    payloads of the sender.
    """
    assert {None} == {recognise_format(body) for body in wrapped([item])}


@pytest.mark.parametrize(
    "case", [one for one in cases() if b"resource" not in one.body[:99]], ids=lambda case: case.name
)
def test_records_do_not_depend_on_the_wrapping(case: Case) -> None:
    """The records do not depend on the wrapping, nor on the order of items and members."""
    expected = rows(read(None, case.body))
    shuffler = random.Random(case.name)
    bodies = (
        [json.dumps(shuffled(json.loads(case.body), shuffler)).encode()] if is_document(case.body) else []
    )
    if case.format != "langfuse":  # Langfuse SDKs send one object and expect a result for each event
        items = shuffled(items_of(case.body), shuffler)
        bodies += wrapped(shuffler.sample(items, len(items)))
    for body in bodies:
        assert case.format == recognise_format(body)
        assert expected == rows(read(None, body))


@pytest.mark.parametrize("one_by_one", [True, False], ids=["lines", "array"])
def test_a_sign_may_come_late(one_by_one: bool) -> None:
    """
    A format is recognized although only a few of a thousand entries are AI calls. A logger of all traffic
    sends such bodies.
    """
    entries = [{"request": {"uri": "/"}, "response": {"status": 200}}] * 1999 + [{"llm_summary": {}}]
    assert "apisix" == recognise_format(lines(entries) if one_by_one else json.dumps(entries).encode())


def test_a_large_member_before_the_sign_is_no_hindrance() -> None:
    """A format is recognized even if a large member comes first, and even if that member is not JSON."""
    large = {"x": "}],[{" * 500_000}
    for first in (json.dumps(large), json.dumps(large)[:-1] + ", 'y': NaN}"):
        assert "kong" == recognise_format(f'[{first}, {{"started_at": 1, "latencies": {{}}}}]'.encode())


def test_the_first_that_shows_itself_decides() -> None:
    """A body belongs to one product. If an item matches two formats, the order of the table decides."""
    kong, portkey = {"started_at": 1, "latencies": {}}, {"ai_org": "openai"}
    assert "kong" == recognise_format(lines([{"x": 1}, kong, portkey]))
    assert "portkey" == recognise_format(lines([{"x": 1}, portkey, kong]))
    assert "kong" == recognise_format(json.dumps(portkey | kong).encode())


@pytest.mark.parametrize("name", [None, "kong"])
def test_items_of_another_format_are_not_said_to_be_no_calls(name: str | None) -> None:
    """
    Items of another format are ignored as unrecognized. The operator sees their member names but never a value.
    """
    call, plain = case("kong", "http-log-bedrock-unpriced"), {"started_at": 1, "latencies": {}}
    outcome = read(
        name, lines([call, {"ai_org": "CANARY", "ai_model": "m"}, plain, {"x": 1}, {"resourceSpans": []}])
    )
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {UNRECOGNISED_AI: 2, NOT_AI: 2}
    assert [("ai_model", "ai_org"), ("resourceSpans",)] == outcome.unrecognised


def test_unrecognized_body_gets_an_error_that_says_what_to_do() -> None:
    """
    If no format is recognized, the error lists the formats and says how to name one. If the body is not JSON,
    the error says that instead.
    """
    with pytest.raises(BadPayload) as refused:
        recognise_format_or_refuse(b'{"x": 1}', how_to_name_format="name it with --as")
    assert "name it with --as" in refused.value.message
    assert all(format in refused.value.message for format in FORMAT_NAMES)
    with pytest.raises(BadPayload, match="not a JSON object"):
        recognise_format_or_refuse(b"x=1", how_to_name_format="name it")


def is_document(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def items_of(body: bytes) -> list[Any]:
    if not is_document(body):
        return [json.loads(line) for line in body.splitlines()]
    document = json.loads(body)
    return document if isinstance(document, list) else [document]


def shuffled(value: Any, shuffler: random.Random) -> Any:
    """Reorder the members at every depth."""
    if isinstance(value, dict):
        names = shuffler.sample(list(value), len(value))
        return {name: shuffled(value[name], shuffler) for name in names}
    return [shuffled(one, shuffler) for one in value] if isinstance(value, list) else value


def rows(outcome: ReadOutcome) -> list[str]:
    """Return each record as text, with its internal id if it has one."""
    return sorted(json.dumps(row, sort_keys=True) for row in told(outcome))
