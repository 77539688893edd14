"""
Answers on the wire: successes and refusals, in the encoding of their endpoint.

OTLP endpoints answer `google.rpc.Status` in the request's encoding, all others `{"error": {"type",
"message"}}`. The three messages that OTLP needs have the same two fields, so they are written by hand.

A large answer is JSON in pieces: it is never encoded in one call, because the event loop stands still that long.
A small value is one piece, written by orjson as a whole. Of a large one each list and each object is cut
between its members.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import orjson
from aiohttp import web

from gateway.normalise.outcome import Reject
from gateway.service.errors import Refusal
from spool.log.values import Receipt

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
CSV = "text/csv; charset=utf-8"
CLOUD_EVENTS = ("application/cloudevents+json", "application/cloudevents-batch+json")
RECEIPT = "Tollhouse-Receipt"
CHALLENGE = "WWW-Authenticate"

MAX_MESSAGE = 1000  # clients limit what they read of an answer, and nobody reads more
MAX_EXAMPLES = 3
SLOW_S = 60.0  # in which a reader takes a piece

UNCACHED: Mapping[str, str] = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

# HTTP status -> google.rpc.Code; everything else is UNKNOWN.
_CODES = {400: 3, 401: 16, 403: 7, 404: 12, 429: 8, 502: 14, 503: 14, 504: 14}
_UNKNOWN = 2
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"

SLICE_BYTES = 128 * 1024  # of JSON in one call of the encoder: well under a millisecond
_PIECE_BYTES = SLICE_BYTES // 4  # from so many on a piece is not made longer
_MEMBER = 48  # the least that a member counts for: to look at one takes as long as to encode so many bytes


def code_of(status: int) -> int:
    """The gRPC code of an HTTP status."""
    return _CODES.get(status, _UNKNOWN)


def receipt_line(receipt: Receipt) -> str:
    return (
        f"id={receipt.id}; records={receipt.records}; ignored={receipt.ignored}; "
        f"rejected={receipt.rejected}; durability={receipt.durability}"
    )


def respond(
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
    """A small JSON answer; see `send_json` for any other."""
    return respond(orjson.dumps(value), status=status, receipt=receipt)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """An answer that is never one text. Each piece is at most some hundred KiB: the loop waits for it."""

    pieces: Iterable[bytes]
    content_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: UNCACHED)


async def send_json(
    request: web.Request, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """
    A JSON answer. It is encoded in pieces, and the loop gets its turn between; what is larger than a slice is
    sent in pieces, too.
    """
    pieces = iter(json_pieces(value))
    first: list[bytes] = []
    for piece in pieces:
        if first:
            await asyncio.sleep(0)
        first.append(piece)
        if not _is_whole(first):
            own = {"Content-Type": JSON, **(headers or {})}
            return await _send(request, chain(first, pieces), status=status, headers=own)
    return respond(b"".join(first), status=status, headers=headers)


def _is_whole(pieces: Sequence[bytes]) -> bool:
    """True if pieces are sent as one, with their length."""
    return sum(map(len, pieces)) <= SLICE_BYTES


async def send_pieces(
    request: web.Request, pieces: Iterable[bytes], *, content_type: str
) -> web.StreamResponse:
    """
    Send an answer that is never whole in memory; what the pieces hold may be given back when this returns.

    A reader that stands still, or a piece that cannot be made, ends the connection without the end of the answer.
    """
    return await _send(request, pieces, status=200, headers={"Content-Type": content_type, **UNCACHED})


async def give(
    request: web.Request,
    answer: web.StreamResponse | Mapping[str, object] | Pieces,
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send what a handler answers; `status` and `headers` are for a mapping, which becomes JSON."""
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Pieces):
        own = {"Content-Type": answer.content_type, **answer.headers}
        return await _send(request, answer.pieces, status=answer.status, headers=own)
    return await send_json(request, answer, status=status, headers=headers)


async def encoded(
    answer: web.StreamResponse | Mapping[str, object] | Pieces,
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse | Pieces:
    """
    An answer as the bytes that `give` sends, of a large one made in a thread: while it is sent, nothing else of
    it is held.
    """
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Pieces):
        return replace(answer, pieces=await asyncio.to_thread(list, answer.pieces))
    if is_small(answer):
        return respond(orjson.dumps(answer), status=status, headers=headers)
    handed = [answer]
    del answer  # the thread lets go of it as well: a million objects take the loop some 50 ms
    made = await asyncio.to_thread(lambda: list(json_pieces(handed.pop())))
    if _is_whole(made):
        return respond(b"".join(made), status=status, headers=headers)
    return Pieces(pieces=made, content_type=JSON, status=status, headers=headers or {})


async def _send(
    request: web.Request, pieces: Iterable[bytes], *, status: int, headers: Mapping[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=headers)
    await response.prepare(request)
    try:
        for piece in pieces if request.method != "HEAD" else ():
            async with asyncio.timeout(SLOW_S):
                await response.write(piece)
            await asyncio.sleep(0)  # a write that finds room in the buffer does not let the loop turn
        await response.write_eof()
    except BaseException as error:
        if request.transport is not None:
            request.transport.abort()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            raise
    return response


def uncached_json(payload: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A small JSON answer that no cache keeps and no browser reinterprets; see `send_json` for any other."""
    return web.Response(
        body=orjson.dumps(payload),
        status=status,
        content_type="application/json",
        headers={**UNCACHED, **(headers or {})},
    )


def refusal(error: Refusal) -> web.Response:
    """The plain form: a stable type and a message that says what to do."""
    body = orjson.dumps({"error": {"type": error.type, "message": error.message}})
    headers = {} if error.challenge is None else {CHALLENGE: error.challenge}
    return with_retry_after(respond(body, status=error.status, headers=headers), error)


def otlp_refusal(error: Refusal, *, json: bool) -> web.Response:
    """`google.rpc.Status` in the encoding of the request."""
    code = code_of(error.status)
    if json:
        body = orjson.dumps({"code": code, "message": error.message})
    else:
        body = _message(code, error.message)
    response = respond(body, status=error.status, content_type=JSON if json else PROTOBUF)
    return with_retry_after(response, error)


def with_retry_after(response: web.Response, error: Refusal) -> web.Response:
    """Whole seconds, at least one; nothing when a repeat cannot help."""
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, error.retry_after_s))
    return response


def otlp_success(rejects: Sequence[Reject], *, member: str, json: bool) -> bytes:
    """Export*ServiceResponse: empty when everything was taken, else how many were not and why."""
    if not rejects:
        return b"{}" if json else b""
    if json:
        # int64 is text in proto3's JSON.
        return orjson.dumps({"partialSuccess": {member: str(len(rejects)), "errorMessage": reasons(rejects)}})
    return b"\x0a" + _sized(_message(len(rejects), reasons(rejects)))


def reasons(rejects: Sequence[Reject]) -> str:
    """Summarise how many items were refused for which reason, with the first few by name."""
    counts = Counter(reject.reason for reject in rejects)
    summary = ", ".join(f"{n} {reason}" for reason, n in counts.most_common())
    examples = "; ".join(f"item {reject.item}: {reject.message}" for reject in rejects[:MAX_EXAMPLES])
    return f"{summary}. {examples}"[:MAX_MESSAGE]


def status_details(error: Refusal, code: int) -> bytes:
    """`grpc-status-details-bin`: the Status again, with RetryInfo where a repeat can help."""
    status = _message(code, error.message)
    if error.retry_after_s is None:
        return status
    duration = b"\x08" + _varint(max(1, error.retry_after_s))
    retry_info = b"\x0a" + _sized(duration)
    any_value = b"\x0a" + _sized(_RETRY_INFO) + b"\x12" + _sized(retry_info)
    return status + b"\x1a" + _sized(any_value)


def _message(number: int, text: str) -> bytes:
    """A protobuf message of an integer in field 1 and text in field 2: Status and every Export*PartialSuccess."""
    return b"\x08" + _varint(number) + b"\x12" + _sized(text.encode())


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def json_pieces(value: object) -> Iterator[bytes]:
    """The JSON of a value as orjson writes it, in pieces of at most about SLICE_BYTES."""
    gathered = bytearray()
    for part in _parts(value):
        if gathered and len(gathered) + len(part) > _PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
        gathered += part
    yield bytes(gathered)


def is_small(value: object) -> bool:
    """True if a value is encoded in one call."""
    return _weight(value) <= SLICE_BYTES


def _parts(value: Any) -> Iterator[bytes]:
    if not isinstance(value, (dict, list, tuple)) or is_small(value):
        yield orjson.dumps(value)
    elif isinstance(value, dict):
        before = b"{"
        for name, each in value.items():
            yield before + orjson.dumps(name) + b":"
            yield from _parts(each)
            before = b","
        yield b"}"
    else:
        before = b"["
        for run in _runs(value):
            yield before
            if len(run) == 1:
                yield from _parts(run[0])
            else:
                yield orjson.dumps(run)[1:-1]
            before = b","
        yield b"]"


def _runs(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The members of a list in their order, together as long as they are small."""
    run: list[Any] = []
    total = 0
    for each in values:
        own = _weight(each) + _MEMBER
        if run and total + own > SLICE_BYTES:
            yield run
            run, total = [], 0
        run.append(each)
        total += own
    if run:
        yield run


def _weight(value: object) -> int:
    """
    About how many bytes the JSON of a value has, or more for many small members; of one that is over
    SLICE_BYTES, some number over it.
    """
    weight = 0
    waiting: list[Any] = [value]
    while waiting and weight <= SLICE_BYTES:
        each = waiting.pop()
        if isinstance(each, str):
            weight += len(each)
        elif isinstance(each, (dict, list, tuple)):
            weight += len(each) * _MEMBER
            if weight <= SLICE_BYTES:
                waiting.extend(each)
                if isinstance(each, dict):
                    waiting.extend(each.values())
    return weight
