"""Answers that the libraries of senders can read, and long JSON that is encoded in pieces."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Response
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gateway.core.errors import Refusal
from gateway.http import answers
from gateway.http.answers import SLICE_BYTES, json_pieces
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, RejectedPayloadItem
from spool.log.values import Receipt

REJECTS = [
    RejectedPayloadItem(3, MALFORMED, "traceId must be 32 hex digits"),
    RejectedPayloadItem(7, IMPLAUSIBLE, "cache above input"),
] * 100


def body_of(answer: Response) -> bytes:
    assert isinstance(answer.body, bytes)
    return answer.body


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 3), (401, 16), (403, 7), (404, 12), (405, 2), (413, 2), (415, 2), (429, 8), (500, 2), (503, 14)],
)
def test_a_refusal_is_a_status_in_both_encodings(status: int, code: int) -> None:
    """A refusal is a google.rpc.Status with the code of the OTLP table. Google's own classes can parse it."""
    error = Refusal(status, "type", "Send it as Ünïcode.")
    said = Status.FromString(body_of(answers.otlp_refusal(error, json=False)))
    assert said.code == code
    assert said.message == "Send it as Ünïcode."
    assert {"code": code, "message": "Send it as Ünïcode."} == json.loads(
        body_of(answers.otlp_refusal(error, json=True))
    )


def test_full_success_is_empty() -> None:
    """
    The answer to a complete success is `{}` in JSON and zero bytes in protobuf. In both, partial_success
    is not set.
    """
    assert b"{}" == answers.otlp_success([], [], member="rejectedSpans", json=True)
    assert b"" == answers.otlp_success([], [], member="rejectedSpans", json=False)


def test_partial_success_counts_and_explains() -> None:
    """
    In JSON, the number of rejected items is a string. The message summarizes the reasons, so its length does
    not grow with their number.
    """
    said = ExportTraceServiceResponse.FromString(
        answers.otlp_success(REJECTS, [], member="rejectedSpans", json=False)
    )
    read = json.loads(answers.otlp_success(REJECTS, [], member="rejectedSpans", json=True))
    assert 200 == said.partial_success.rejected_spans
    assert {"rejectedSpans": "200", "errorMessage": said.partial_success.error_message} == read[
        "partialSuccess"
    ]
    assert said.partial_success.error_message.startswith(
        "100 malformed, 100 implausible. item 3: traceId must be 32 hex digits; item 7: cache above input"
    )
    assert len(said.partial_success.error_message) <= answers.MAX_MESSAGE


def test_retry_info_is_in_the_grpc_details() -> None:
    """RetryInfo is part of a refusal only if a repeat of the request can succeed."""
    wait = Status.FromString(answers.status_details(Refusal(503, "busy", "later", retry_after_s=300), 14))
    info = RetryInfo()
    assert wait.details[0].Unpack(info)
    assert Duration(seconds=300) == info.retry_delay
    assert not Status.FromString(answers.status_details(Refusal(413, "large", "smaller"), 8)).details


def test_retry_after_is_a_whole_second_at_least() -> None:
    """Retry-After is at least 1, because a client that reads 0 would repeat at once."""
    response = answers.refusal_response(Refusal(503, "busy", "later", retry_after_s=0))
    assert "1" == response.headers["Retry-After"]


def test_the_receipt_is_one_line() -> None:
    response = answers.bytes_response(b"", receipt=Receipt(id="abc", records=3, ignored=2, rejected=1))
    assert (
        "id=abc; records=3; ignored=2; rejected=1; durability=fsync" == response.headers["Tollhouse-Receipt"]
    )


@pytest.mark.parametrize(("rows", "is_one"), [(3, True), (1000, True), (40_000, False)])
async def test_an_answer_of_a_slice_says_its_length(rows: int, is_one: bool) -> None:
    """
    An answer is sent in pieces only if it is larger than a slice, for any number of members. Both ways send
    the same bytes.
    """
    value = {"rows": [{"model": "m", "calls": number} for number in range(rows)]}

    async def as_it_is(request: web.Request) -> web.StreamResponse:
        return await answers.send_answer(request, value, status=200)

    async def from_a_thread(request: web.Request) -> web.StreamResponse:
        return await answers.send_answer(
            request, await answers.encode_in_thread(value, status=200), status=200
        )

    app = web.Application()
    app.add_routes([web.get("/loop", as_it_is), web.get("/thread", from_a_thread)])
    client: TestClient[web.Request, web.Application]
    async with TestClient(TestServer(app)) as client:
        for path in ("/loop", "/thread"):
            async with client.get(path) as answer:
                assert orjson.dumps(value) == await answer.read()
                assert is_one == ("Content-Length" in answer.headers)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes that each call of the encoder returns."""
    sizes: list[int] = []
    dumps = orjson.dumps

    def noted(value: object) -> bytes:
        sizes.append(len(text := dumps(value)))
        return text

    monkeypatch.setattr(orjson, "dumps", noted)
    return sizes


def some(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(6 if depth else 4)
    if kind == 0:
        return rng.choice((None, True, False, 0, -17, 2**40, 0.5))
    if kind < 4:
        return 'é"\\\n' * rng.randrange(3) + "x" * rng.choice((0, 3, 40, 300))
    members = range(rng.choice((0, 1, 5, 40)))
    if kind == 4:
        return [some(rng, depth - 1) for _ in members]
    return {f"name {member}": some(rng, depth - 1) for member in members}


@pytest.mark.parametrize("seed", range(12))
def test_pieces_are_the_bytes_of_one_call(seed: int) -> None:
    value = some(random.Random(seed), 5)
    assert orjson.dumps(value) == b"".join(json_pieces(value))


ROW = {"usage_date": "2026-11-01T00:00:00Z", "cost": "0.000123", "team": "search", "calls": 17, "share": None}


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [ROW] * 40_000, "total": ROW},
        {"dimensions": [{"id": str(number), "elements": [ROW] * 400} for number in range(90)]},
        {f"name {number}": ROW for number in range(40_000)},
        [["x" * 200] * 100 for _ in range(300)],
    ],
    ids=["rows", "rows of rows", "a mapping", "texts"],
)
def test_no_call_encodes_much(value: Any, encoded: list[int]) -> None:
    """No encoder call and no piece is much larger than a slice, because the event loop waits for each."""
    expected = len(orjson.dumps(value))
    encoded.clear()
    pieces = list(json_pieces(value))
    assert expected == sum(map(len, pieces))
    assert 2 * SLICE_BYTES > max(*encoded, *map(len, pieces))
    assert 8 * expected / SLICE_BYTES > len(pieces)  # the answer must not have many tiny pieces either


def test_a_small_value_is_one_piece(encoded: list[int]) -> None:
    """A small value costs one encoder call, because most answers are small."""
    assert [orjson.dumps(ROW)] == list(json_pieces(ROW))
    assert 1 == len(encoded[:-1])
