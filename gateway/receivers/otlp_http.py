"""OTLP over HTTP: traces, metrics and logs in protobuf or JSON, and profiles, which are taken and dropped."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from gateway.errors import BadPayload, Refusal
from gateway.http import answers
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.inflight_bytes import Share
from gateway.http.requests import KeyRequest
from gateway.normalise.otlp import Signal
from gateway.normalise.outcome import MALFORMED, Outcome
from gateway.receivers.decoding import decoded
from gateway.workers.jobs import SentBody

SLICED: Final = 64 * 1024  # bytes of a request that is not worth the way to the thread

_IS_JSON: Final = {answers.JSON: True, answers.PROTOBUF: False}

# What a partial success calls the items of a signal.
MEMBERS: dict[Signal, str] = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}


async def export(signal: Signal, request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """Normalise and keep the items of one signal; those that are malformed are a partial success."""
    receivers = request.receivers
    json = is_json(request.http) is True
    # Nobody holds the body afterwards: the records are out of it, and the commit may take a while.
    outcome = await read_export(
        signal, request.take_body(), json=json, receivers=receivers, share=request.share
    )
    receipt = await receivers.intake.take(outcome, request.bearer)
    if outcome.rejects:
        refuse_when_all_malformed(outcome)
    answer = answers.otlp_success(outcome.rejects, member=MEMBERS[signal], json=json)
    return answers.respond(answer, content_type=answers.JSON if json else answers.PROTOBUF, receipt=receipt)


async def read_export(
    signal: Signal, body: bytes, *, json: bool, receivers: ReceiverServices, share: Share
) -> Outcome:
    """The outcome of a request; of one with more than a few items on the thread."""
    sent = SentBody.of_export(signal, body, json=json)
    del body
    return (await decoded(receivers, sent, share, aside_above=SLICED)).outcome


async def drop_profiles(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """Keep nothing: a sender that exports all signals need not be told to leave this one out."""
    if is_json(request.http):
        return answers.respond(b"{}", content_type=answers.JSON)
    return answers.respond(b"", content_type=answers.PROTOBUF)


def is_json(request: web.Request) -> bool | None:
    """
    Return True if the content type is JSON, False for protobuf, None for another; case and parameters
    do not matter.
    """
    said = _IS_JSON.get(request.headers.get("Content-Type", ""))  # nearly always as it stands there
    return _IS_JSON.get(request.content_type.lower()) if said is None else said


def check_media_type(request: web.Request) -> None:
    if request.headers.get("Content-Type", "") in _IS_JSON:
        return
    if is_json(request) is None:
        message = f"Content-Type must be {answers.PROTOBUF} or {answers.JSON}."
        raise Refusal(415, "unsupported_media_type", message)


def status_error(request: web.Request, error: Refusal, _: float) -> web.Response:
    """`google.rpc.Status` in the encoding of the request."""
    return answers.otlp_refusal(error, json=is_json(request) is not False)


def refuse_when_all_malformed(outcome: Outcome) -> None:
    """Raise BadPayload for a payload in which nothing could be read, once its items are in the books."""
    rejects = outcome.rejects
    if rejects and len(rejects) >= outcome.received and all(reject.reason == MALFORMED for reject in rejects):
        raise BadPayload(answers.reasons(rejects))
