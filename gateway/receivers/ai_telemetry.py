"""
Payloads of one product: named by the address, or recognised by themselves.

PUT and PATCH mean the same as POST: some products let their users choose, and no choice may cost records.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.key_carriage import authorization
from gateway.http.requests import KeyRequest
from gateway.http.turns import LARGE, aside, drive_aside
from gateway.normalise.formats.engine.answers import answer_to, refusal_to
from gateway.normalise.formats.engine.declaration import FormatAnswer
from gateway.normalise.formats.engine.recognise import recognised
from gateway.normalise.formats.list import BY_NAME, FORMAT_NAMES
from gateway.receivers.decoding import decoded
from gateway.workers.jobs import SentBody


async def ingest_named(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """Take a payload of the format that the path names."""
    return await ingest(request, format=request.word("format"))


async def ingest(request: KeyRequest[ReceiverServices, bytes], *, format: str | None = None) -> web.Response:
    """Take a payload of `format`, or of the one that it shows, and answer as its product expects."""
    receivers = request.receivers
    body = request.body
    size, how = len(body), "name it: POST /v1/ai-telemetry/{format}"
    if format is None:
        format = await aside(partial(recognised, body, how=how), is_large=size > LARGE)
    outcome, reports = await decoded(
        receivers, SentBody.of_format(format, body), request.share, aside_above=0
    )
    receipt = await receivers.intake.take(outcome, request.bearer, reports)
    answering = answer_to(format, body, outcome, now=receivers.clock.now())
    answer = await drive_aside(lambda _: answering, request.share.take, size=size)
    response = _response(answer)
    if answer.status < 300:
        response.headers[answers.RECEIPT] = answers.receipt_line(receipt)
    return response


def check_format(request: web.Request) -> None:
    """Refusal 404 for a format that is not known."""
    if request.match_info["format"] not in FORMAT_NAMES:
        known = ", ".join(FORMAT_NAMES)
        raise Refusal(404, "unknown_format", f"This format is not known; known are {known}.")


def find_key(request: web.Request) -> str | None:
    """The key, where the senders of the named format put it."""
    format = BY_NAME.get(request.match_info["format"])
    own_header = format.key_header if format else None
    own_key = request.headers.get(own_header) if own_header else None
    return own_key or authorization(request)


def sender_error(request: web.Request, error: Refusal, now: float) -> web.Response:
    """The plain form, or that of a product that shows itself in the headers."""
    return answers.with_retry_after(_response(refusal_to(request.headers, b"", error, now=now)), error)


def _response(answer: FormatAnswer) -> web.Response:
    return answers.respond(answer.body, status=answer.status, content_type=answer.content_type)
