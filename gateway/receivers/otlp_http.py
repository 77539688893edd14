"""OTLP over HTTP: traces, metrics and logs in protobuf or JSON, and profiles, which are taken and dropped."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from gateway.errors import BadPayload, Refusal
from gateway.http import answers, operations
from gateway.http.boundary import Handler, admit, authorization, drive, guarded, read_body
from gateway.normalise.otlp import requests as otlp
from gateway.normalise.otlp.decoding import json_schema
from gateway.normalise.otlp.requests import Signal
from gateway.normalise.outcome import MALFORMED, Outcome
from gateway.services import ReceiverServices
from spool.registry.scopes import INGEST

# What a partial success calls the items of a signal.
MEMBERS: dict[Signal, str] = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}
READ_AS: dict[Signal, type] = {
    "traces": json_schema.Traces,
    "metrics": json_schema.Metrics,
    "logs": json_schema.Logs,
}

OPERATIONS = (
    *(
        operations.otlp(
            f"/v1/{signal}",
            f"export_{signal}",
            f"OTLP/HTTP {signal}",
            scope=INGEST,
            decoded=decoded,
            member=MEMBERS[signal],
        )
        for signal, decoded in READ_AS.items()
    ),
    operations.otlp(
        "/v1development/profiles",
        "export_profiles",
        "OTLP/HTTP profiles, taken and dropped",
        scope=INGEST,
        decoded=None,
        member=None,
    ),
)


def is_json(request: web.Request) -> bool | None:
    """Whether the body says it is JSON (True), protobuf (False) or neither (None), whatever the case and parameters."""
    match request.content_type.lower():
        case answers.JSON:
            return True
        case answers.PROTOBUF:
            return False
    return None


def needs_media_type(request: web.Request) -> bool:
    json = is_json(request)
    if json is None:
        message = f"Content-Type must be {answers.PROTOBUF} or {answers.JSON}."
        raise Refusal(415, "unsupported_media_type", message)
    return json


def dress(request: web.Request, error: Refusal) -> web.Response:
    return answers.otlp_refusal(error, json=is_json(request) is not False)


def door(
    signal: Signal, services: ReceiverServices, *, key: Callable[[web.Request], str | None] = authorization
) -> Handler:
    """`POST /v1/{signal}`; `key` finds the key on a door that takes another product's way of carrying it."""

    async def export(request: web.Request) -> web.Response:
        json = needs_media_type(request)
        bearer = admit(services, request, key(request))
        with services.budget.lease() as lease:
            body = await read_body(services, request, lease, bearer)
            outcome = await drive(otlp.normalise(signal, body, json=json, options=services.options), size=len(body))
            del body  # the records are out of it, and the commit may take a while
            receipt = await services.intake.take(outcome, bearer)
        refuse_when_all_malformed(outcome)
        answer = answers.otlp_success(outcome.rejects, member=MEMBERS[signal], json=json)
        return answers.respond(answer, content_type=answers.JSON if json else answers.PROTOBUF, receipt=receipt)

    return guarded(f"otlp/{signal}", export, services, dress=dress)


def profiles(services: ReceiverServices) -> Handler:
    """`POST /v1development/profiles`: a sender that exports all signals need not be told to leave this one out."""

    async def drop(request: web.Request) -> web.Response:
        json = needs_media_type(request)
        bearer = admit(services, request, authorization(request))
        with services.budget.lease() as lease:
            await read_body(services, request, lease, bearer)
        return answers.respond(b"{}" if json else b"", content_type=answers.JSON if json else answers.PROTOBUF)

    return guarded("otlp/profiles", drop, services, dress=dress)


def refuse_when_all_malformed(outcome: Outcome) -> None:
    """A payload in which nothing could be read is the sender's 400, once its items are in the books."""
    rejects = outcome.rejects
    if rejects and len(rejects) >= outcome.received and all(reject.reason == MALFORMED for reject in rejects):
        raise BadPayload(answers.reasons(rejects))
