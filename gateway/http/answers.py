"""
Answers in the encoding of their endpoint.

OTLP endpoints answer `google.rpc.Status`, others `{"error": {"type", "message"}}`. OTLP's three messages have
the same two fields, so no protobuf library is needed.

JSON is encoded in pieces, because one call for a large value would block the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import orjson
from aiohttp import web

from gateway.core.errors import Refusal
from gateway.normalise.outcome import RejectedPayloadItem
from spool.log.values import Receipt

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
CSV = "text/csv; charset=utf-8"
CLOUD_EVENTS = ("application/cloudevents+json", "application/cloudevents-batch+json")
RECEIPT = "Tollhouse-Receipt"
CHALLENGE = "WWW-Authenticate"

MAX_MESSAGE = 1000  # characters of a message, because clients limit the text that they read
MAX_EXAMPLES = 3
SLOW_S = 60.0  # seconds in which a client must read one piece

UNCACHED: Mapping[str, str] = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

# gRPC codes; every other status is UNKNOWN
_CODES = {400: 3, 401: 16, 403: 7, 404: 12, 429: 8, 502: 14, 503: 14, 504: 14}
_UNKNOWN = 2
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"

# bytes per call of the encoder, which takes well under a millisecond
SLICE_BYTES = 128 * 1024
_PIECE_BYTES = SLICE_BYTES // 4  # smaller pieces are joined up to this
# Minimum weight: inspecting a member costs as much as encoding these bytes.
_MEMBER = 48


def grpc_code_for_status(status: int) -> int:
    return _CODES.get(status, _UNKNOWN)


def receipt_line(receipt: Receipt) -> str:
    return (
        f"id={receipt.id}; records={receipt.records}; ignored={receipt.ignored}; "
        f"rejected={receipt.rejected}; durability={receipt.durability}"
    )


def bytes_response(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = JSON,
    receipt: Receipt | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    headers = {"Content-Type": content_type, **(headers or {})}
    if receipt is not None:
        headers[RECEIPT] = receipt_line(receipt)
    return web.Response(body=body, status=status, headers=headers)


def json_response(value: Any, *, status: int = 200, receipt: Receipt | None = None) -> web.Response:
    """
    Return a JSON response for a small value. Large values need `send_json`, which does not block the event
    loop.
    """
    return bytes_response(orjson.dumps(value), status=status, receipt=receipt)


@dataclass(frozen=True, kw_only=True)
class AnswerInPieces:
    """
    An answer that is sent in pieces. Each piece has at most a few hundred KiB, because encoding it blocks the
    event loop.
    """

    pieces: Iterable[bytes]
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: UNCACHED)


async def send_json(
    request: web.Request, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """
    Send a value as JSON. Up to SLICE_BYTES it is one body with its length. A larger value is sent in pieces,
    and other tasks run in between.
    """
    pieces = iter(json_pieces(value))
    first: list[bytes] = []
    for piece in pieces:
        if first:
            await asyncio.sleep(0)
        first.append(piece)
        if not _is_one_piece(first):
            own_headers = {"Content-Type": JSON, **(headers or {})}
            return await _send_response(request, chain(first, pieces), status=status, headers=own_headers)
    return bytes_response(b"".join(first), status=status, headers=headers)


def _is_one_piece(pieces: Sequence[bytes]) -> bool:
    return sum(map(len, pieces)) <= SLICE_BYTES


async def send_pieces(
    request: web.Request, pieces: Iterable[bytes], *, content_type: str
) -> web.StreamResponse:
    """
    Send pieces as one answer. After the return, the caller may free the memory of the pieces.

    If the client stalls or a piece cannot be made, the connection is aborted, so the client sees a truncated
    answer.
    """
    return await _send_response(
        request, pieces, status=200, headers={"Content-Type": content_type, **UNCACHED}
    )


async def send_answer(
    request: web.Request,
    answer: web.StreamResponse | Mapping[str, object] | AnswerInPieces,
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send an answer. `status` and `headers` apply to a mapping, which is sent as JSON."""
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, AnswerInPieces):
        own_headers = {"Content-Type": answer.content_type, **answer.headers}
        return await _send_response(request, answer.pieces, status=answer.status, headers=own_headers)
    return await send_json(request, answer, status=status, headers=headers)


async def encode_in_thread(
    answer: web.StreamResponse | Mapping[str, object] | AnswerInPieces,
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse | AnswerInPieces:
    """
    Encode a large answer in a thread, so that the event loop is not blocked.

    The result does not refer to the original objects, so they are freed before it is sent.
    """
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, AnswerInPieces):
        return replace(answer, pieces=await asyncio.to_thread(list, answer.pieces))
    if can_encode_in_one_step(answer):
        return bytes_response(orjson.dumps(answer), status=status, headers=headers)
    handed = [answer]
    # The thread must free the answer: a million objects on the event loop would block it for about 50 ms.
    del answer
    pieces = await asyncio.to_thread(lambda: list(json_pieces(handed.pop())))
    if _is_one_piece(pieces):
        return bytes_response(b"".join(pieces), status=status, headers=headers)
    return AnswerInPieces(pieces=pieces, content_type=JSON, status=status, headers=headers or {})


async def _send_response(
    request: web.Request, pieces: Iterable[bytes], *, status: int, headers: Mapping[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    async with open_piece_sender(request, response) as send:
        for piece in pieces if request.method != "HEAD" else ():
            await send(piece)
    return response


@asynccontextmanager
async def open_piece_sender(
    request: web.Request, response: web.StreamResponse
) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """
    Yield a function that sends a piece of the answer. The answer ends when the block ends.

    An error before the first piece is raised. After it, or if the client stalls, the connection is aborted.
    """

    async def send_answer_piece(piece: bytes) -> None:
        if not response.prepared:
            await response.prepare(request)
        async with asyncio.timeout(SLOW_S):
            await response.write(piece)
        await asyncio.sleep(0)  # write() does not yield while the buffer has space

    try:
        yield send_answer_piece
        await response.write_eof()
    except BaseException as error:
        if not response.prepared:
            raise
        if request.transport is not None:
            request.transport.abort()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            raise


def uncached_json(payload: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """
    Return a JSON response that clients do not cache. Only for small values, because encoding blocks the event
    loop.
    """
    return web.Response(
        body=orjson.dumps(payload),
        status=status,
        content_type="application/json",
        headers={**UNCACHED, **(headers or {})},
    )


def refusal_response(error: Refusal) -> web.Response:
    body = orjson.dumps({"error": {"type": error.type, "message": error.message}})
    headers = {} if error.challenge is None else {CHALLENGE: error.challenge}
    return add_retry_after(bytes_response(body, status=error.status, headers=headers), error)


def otlp_refusal(error: Refusal, *, json: bool) -> web.Response:
    code = grpc_code_for_status(error.status)
    if json:
        body = orjson.dumps({"code": code, "message": error.message})
    else:
        body = _encode_status(code, error.message)
    response = bytes_response(body, status=error.status, content_type=JSON if json else PROTOBUF)
    return add_retry_after(response, error)


def add_retry_after(response: web.Response, error: Refusal) -> web.Response:
    """
    Add `Retry-After` to a response, in whole seconds and at least 1. It is omitted if a retry cannot help.
    """
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, error.retry_after_s))
    return response


def otlp_success(
    rejects: Sequence[RejectedPayloadItem], warnings: Sequence[str], *, member: str, json: bool
) -> bytes:
    """
    Return the body of a successful OTLP answer, with the number of rejected items, the reasons, and warnings
    about the other items.
    """
    if not rejects and not warnings:
        return b"{}" if json else b""
    parts = [summarize_rejects(rejects), *warnings] if rejects else warnings
    text = " ".join(parts)[:MAX_MESSAGE]
    if json:
        # int64 is text in proto3 JSON
        return orjson.dumps({"partialSuccess": {member: str(len(rejects)), "errorMessage": text}})
    return b"\x0a" + _with_length_prefix(_encode_status(len(rejects), text))


def summarize_rejects(rejects: Sequence[RejectedPayloadItem]) -> str:
    counts = Counter(reject.reason for reject in rejects)
    summary = ", ".join(f"{n} {reason}" for reason, n in counts.most_common())
    examples = "; ".join(f"item {reject.item}: {reject.message}" for reject in rejects[:MAX_EXAMPLES])
    return f"{summary}. {examples}"[:MAX_MESSAGE]


def status_details(error: Refusal, code: int) -> bytes:
    """Return the encoded `google.rpc.Status` of an error, with RetryInfo if a retry can help."""
    status = _encode_status(code, error.message)
    if error.retry_after_s is None:
        return status
    duration = b"\x08" + _encode_varint(max(1, error.retry_after_s))
    retry_info = b"\x0a" + _with_length_prefix(duration)
    any_value = b"\x0a" + _with_length_prefix(_RETRY_INFO) + b"\x12" + _with_length_prefix(retry_info)
    return status + b"\x1a" + _with_length_prefix(any_value)


def _encode_status(status_code: int, text: str) -> bytes:
    return b"\x08" + _encode_varint(status_code) + b"\x12" + _with_length_prefix(text.encode())


def _with_length_prefix(data: bytes) -> bytes:
    return _encode_varint(len(data)) + data


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def json_pieces(value: object) -> Iterator[bytes]:
    """Encode a value as orjson does, in pieces of about SLICE_BYTES."""
    gathered = bytearray()
    for part in _json_parts(value):
        if gathered and len(gathered) + len(part) > _PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
        gathered += part
    yield bytes(gathered)


def can_encode_in_one_step(value: object) -> bool:
    return _estimate_json_bytes(value) <= SLICE_BYTES


def _json_parts(value: Any) -> Iterator[bytes]:
    if not isinstance(value, (dict, list, tuple)) or can_encode_in_one_step(value):
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        separator = b"{"
        for name, member in value.items():
            yield separator + orjson.dumps(name) + b":"
            yield from _json_parts(member)
            separator = b","
        yield b"}"
    else:
        separator = b"["
        for run in _group_by_estimated_bytes(value):
            yield separator
            if len(run) == 1:
                yield from _json_parts(run[0])
            else:
                yield orjson.dumps(run)[1:-1]
            separator = b","
        yield b"]"


def _group_by_estimated_bytes(values: Iterable[Any]) -> Iterator[list[Any]]:
    run: list[Any] = []
    total = 0
    for member in values:
        weight = _estimate_json_bytes(member) + _MEMBER
        if run and total + weight > SLICE_BYTES:
            yield run
            run, total = [], 0
        run.append(member)
        total += weight
    if run:
        yield run


def _estimate_json_bytes(value: object) -> int:
    """Estimate the JSON size of a value in bytes, up to SLICE_BYTES. Each member counts at least _MEMBER."""
    weight = 0
    waiting: list[Any] = [value]
    while waiting and weight <= SLICE_BYTES:
        item = waiting.pop()
        if isinstance(item, str):
            weight += len(item)
        elif isinstance(item, (dict, list, tuple)):
            weight += len(item) * _MEMBER
            if weight <= SLICE_BYTES:
                waiting.extend(item)
                if isinstance(item, dict):
                    waiting.extend(item.values())
    return weight
