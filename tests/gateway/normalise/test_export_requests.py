"""OTLP from files: byte order marks, lines and arrays of requests, and protobuf that resembles JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise import any_format
from gateway.normalise.formats.list import recognise_format
from gateway.normalise.outcome import ReadOptions
from gateway.normalise.payload import body_limits
from tests.gateway.normalise.formats.payloads import read, run
from tests.gateway.normalise.otlp.payloads import in_protobuf, span, traces

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 1}


def request(number: int, **more: Any) -> dict[str, Any]:
    return traces(span(number, CHAT | more))


def lines(*requests: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, requests)).encode()


@pytest.mark.parametrize(
    "body",
    [
        lines(request(1), request(2)),
        lines({}, request(1), {"resource_spans": request(2)["resourceSpans"]}),
        json.dumps([request(1), request(2)]).encode(),
        b"\xef\xbb\xbf" + lines(request(1), request(2)),
    ],
)
def test_several_requests_are_one(body: bytes) -> None:
    """
    Several requests in one body are read as one, because the Collector's file exporter writes one request per
    line. A gateway that pushes OTLP may be named as the format.
    """
    assert [2, 2, 2] == [len(read(name, body).records) for name in (None, "otlp/traces", "openrouter")]


def test_joining_many_requests_gives_the_loop_its_turn() -> None:
    """Many tiny requests are joined in steps, so that the event loop gets its turn."""
    count = 10_000
    body = b"[" + b",".join([b"{}"] * count) + b"]"
    _, turns = run(any_format.normalise_body("otlp/traces", body, options=ReadOptions()))
    assert turns >= count * body_limits.ITEM_BYTES // body_limits.SLICE_BYTES


def test_calls_within_calls_are_found_across_requests() -> None:
    """A call is found inside another one across requests, because a parent may be written after its child."""
    outer = traces(span(1, CHAT))
    inner = traces(span(2, CHAT, parent=1))
    assert 1 == len(read(None, lines(inner, outer)).records)


def test_a_mark_before_one_request_costs_nothing() -> None:
    """A byte order mark before a request is ignored, because Windows programs write it."""
    assert 1 == len(read(None, b"\xef\xbb\xbf" + json.dumps(request(1), indent=1).encode()).records)


def test_requests_of_two_signals_are_refused_whole() -> None:
    """
    A body with requests of two signals is refused as a whole, because each signal has its own reader and
    nothing may be dropped silently.
    """
    with pytest.raises(BadPayload, match="export 1 in the body does not contain"):
        read(None, lines(request(1), {"resourceLogs": []}))


@pytest.mark.parametrize("name", [None, "otlp/traces", "openrouter"])
def test_a_broken_request_costs_only_itself(name: str | None) -> None:
    """
    A broken request affects no other. For example, a file that is still being written ends inside a line.
    Nulls and blank lines are ignored.
    """
    whole = lines(request(1), request(2))
    cut = json.dumps(request(3)).encode()[:200]
    for body in (whole + b"\r\n\r\n" + cut, cut + b"\nnull\n" + whole, b"listening\n" + whole + b"\n{}"):
        outcome = read(name, body)
        assert outcome.received == 3
        assert len(outcome.records) == 2
        assert ["is not an export request"] == [reject.message[10:] for reject in outcome.rejects]
    assert 2 == len(read(name, json.dumps([None, {"x": 1}, request(1), 3, request(2)]).encode()).records)


def test_protobuf_that_begins_like_json_is_protobuf() -> None:
    """
    Protobuf may start like JSON: a first field of 123 bytes is encoded as a line feed and a brace. It is
    still read as protobuf.
    """
    sizes = (
        in_protobuf(traces(span(1, {"gen_ai.operation.name": "chat", "model": "y" * n}))) for n in range(60)
    )
    body = next(body for body in sizes if body.startswith(b"\n{"))
    assert 1 == len(read("otlp/traces", body).records)


def test_protobuf_is_not_guessed() -> None:
    """No format is ever guessed for protobuf, because it has no member names by which to recognize one."""
    assert None is recognise_format(in_protobuf(request(1)))
