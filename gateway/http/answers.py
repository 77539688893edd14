"""
Answers on the wire: successes and refusals, in the encoding of their endpoint.

OTLP endpoints answer `google.rpc.Status` in the request's encoding, all others `{"error": {"type", "message"}}`.
The three messages that OTLP needs have the same two fields, so they are written by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from aiohttp import web

from gateway.errors import Refusal
from gateway.normalise.outcome import Reject
from spool.log.values import Receipt

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
CLOUD_EVENTS = ("application/cloudevents+json", "application/cloudevents-batch+json")
RECEIPT = "Tollhouse-Receipt"

MAX_MESSAGE = 1000  # clients limit what they read of an answer, and nobody reads more
MAX_EXAMPLES = 3
SLOW_S = 60.0  # in which a reader takes a piece

_UNCACHED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

# HTTP status -> google.rpc.Code; everything else is UNKNOWN.
_CODES = {400: 3, 401: 16, 403: 7, 404: 12, 429: 8, 502: 14, 503: 14, 504: 14}
_UNKNOWN = 2
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def code_of(status: int) -> int:
    """The gRPC code of an HTTP status."""
    return _CODES.get(status, _UNKNOWN)


def receipt_line(receipt: Receipt) -> str:
    return (
        f"id={receipt.id}; records={receipt.records}; ignored={receipt.ignored}; "
        f"rejected={receipt.rejected}; durability={receipt.durability}"
    )


def respond(
    body: bytes, *, status: int = 200, content_type: str = JSON, receipt: Receipt | None = None
) -> web.Response:
    headers = {"Content-Type": content_type}
    if receipt is not None:
        headers[RECEIPT] = receipt_line(receipt)
    return web.Response(body=body, status=status, headers=headers)


def json_response(value: Any, *, status: int = 200, receipt: Receipt | None = None) -> web.Response:
    return respond(orjson.dumps(value), status=status, receipt=receipt)


async def send_pieces(request: web.Request, pieces: Iterable[bytes], *, content_type: str) -> web.StreamResponse:
    """
    Send an answer that is never whole in memory; what the pieces hold may be given back when this returns.

    A reader that stands still, or a piece that cannot be made, ends the connection without the end of the answer.
    """
    response = web.StreamResponse(headers={"Content-Type": content_type, **_UNCACHED})
    await response.prepare(request)
    try:
        for piece in pieces:
            async with asyncio.timeout(SLOW_S):
                await response.write(piece)
        await response.write_eof()
    except BaseException as error:
        if request.transport is not None:
            request.transport.abort()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            raise
    return response


def uncached_json(payload: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer that no cache keeps and no browser reinterprets."""
    return web.Response(
        body=orjson.dumps(payload),
        status=status,
        content_type="application/json",
        headers={**_UNCACHED, **(headers or {})},
    )


def refusal(error: Refusal) -> web.Response:
    """The plain form: a stable type and a message that says what to do."""
    body = orjson.dumps({"error": {"type": error.type, "message": error.message}})
    return with_retry_after(respond(body, status=error.status), error)


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
    """How many items were refused for which reason, with the first few by name."""
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
