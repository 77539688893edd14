"""
Payloads of one product: named by the address, or recognised by themselves.

PUT and PATCH mean the same as POST: some products let their users choose, and no choice may cost records.
"""

from __future__ import annotations

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.key_carriage import authorization, firehose_key
from gateway.http.requests import KeyRequest
from gateway.http.slices import drive
from gateway.normalise import any_format
from gateway.normalise.formats import answers as format_answers
from gateway.normalise.formats.recognise import format_shown

FIREHOSE_ID = "X-Amz-Firehose-Request-Id"


async def ingest_named(request: KeyRequest[bytes]) -> web.Response:
    """Take a payload of the format that the path names."""
    return await ingest(request, format=request.word("format"))


async def ingest(request: KeyRequest[bytes], *, format: str | None = None) -> web.Response:
    """Take a payload of `format`, or of the one that it shows, and answer as its product expects."""
    receivers, body = request.receivers, request.body
    named = format or format_shown(body, how="name it: POST /v1/ai-telemetry/{format}")
    work = any_format.normalise(named, body, options=receivers.options, hold=request.lease.take)
    outcome = await drive(work)
    receipt = await receivers.intake.take(outcome, request.bearer)
    answer = format_answers.answer(named, body, outcome, now=receivers.clock.now())
    response = _response(answer)
    if answer.status < 300:
        response.headers[answers.RECEIPT] = answers.receipt_line(receipt)
    return response


def check_format(request: web.Request) -> None:
    """Refusal 404 for a format that is not known."""
    if request.match_info["format"] not in any_format.FORMATS:
        known = ", ".join(any_format.FORMATS)
        raise Refusal(404, "unknown_format", f"This format is not known; known are {known}.")


def find_key(request: web.Request) -> str | None:
    """The key, where the named format carries it."""
    return firehose_key(request) if request.match_info["format"] == "bedrock" else authorization(request)


def firehose_error(request: web.Request, error: Refusal, now: float) -> web.Response:
    """The plain form, or that of Firehose for a request with its id."""
    request_id = request.headers.get(FIREHOSE_ID)
    if not request_id:
        return answers.refusal(error)
    answer = format_answers.firehose_answer(request_id, now=now, status=error.status, error=error.message)
    return answers.with_retry_after(_response(answer), error)


def langfuse_error(_: web.Request, error: Refusal, now: float) -> web.Response:
    answer = format_answers.refusal_answer("langfuse", b"", error, now=now)
    return answers.with_retry_after(_response(answer), error)


def _response(answer: format_answers.Answer) -> web.Response:
    return answers.respond(answer.body, status=answer.status, content_type=answer.content_type)
