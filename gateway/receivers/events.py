"""`POST /v1/events`: usage events, as plain JSON or as CloudEvents 1.0; the answer says what became of each item."""

from __future__ import annotations

from aiohttp import web

from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.boundary import Handler, admit, authorization, drive, guarded, read_body
from gateway.http.operations import ANYTHING, COUNT, TEXT, Operation, array, closed
from gateway.intake.deposits import Deposits
from gateway.normalise.events import Events, is_binary, read, read_binary
from gateway.services import ReceiverServices
from spool.registry.scopes import CREATE_EVENT

_JSON_TYPES = ("application/octet-stream", "text/plain", "application/x-www-form-urlencoded")  # what lazy clients say

_ERROR = closed({"type": TEXT, "message": TEXT})
_ITEM = closed({"item": COUNT, "status": {"enum": ["accepted", "rejected"]}}, {"error": _ERROR})

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/events",
        name="create_events",
        summary="Usage events: one, an array, JSON lines, or CloudEvents 1.0",
        scope=CREATE_EVENT,
        takes={
            answers.JSON: ANYTHING,
            "application/cloudevents+json": ANYTHING,
            "application/cloudevents-batch+json": ANYTHING,
        },
        gives={200: {answers.JSON: closed({"accepted": COUNT, "rejected": COUNT, "events": array(_ITEM)})}},
    ),
)


def door(services: ReceiverServices, deposits: Deposits) -> Handler:
    async def take(request: web.Request) -> web.Response:
        binary = is_binary(request.headers)
        if not binary:
            _check_media_type(request)
        bearer = admit(services, request, authorization(request), scope=CREATE_EVENT)
        with services.budget.lease() as lease:
            body = await read_body(services, request, lease, bearer)
            events = read_binary(body, request.headers) if binary else await drive(read(body), size=len(body))
            if events.received and len(events.rejects) == events.received:
                raise Refusal(400, "malformed", answers.reasons(events.rejects))
            receipt = await deposits.events(events, bearer)
        return answers.json_response(_said(events), receipt=receipt)

    return guarded("events", take, services)


def _check_media_type(request: web.Request) -> None:
    """What a body is shows in its first bytes, but one that says it is something else altogether is believed."""
    media = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media and not media.endswith(("json", "+json", "jsonl")) and media not in _JSON_TYPES:
        message = "Send JSON, JSON lines, application/cloudevents+json or application/cloudevents-batch+json."
        raise Refusal(415, "unsupported_media_type", message)


def _said(events: Events) -> dict[str, object]:
    """Whether each item was accepted, and nothing beyond that: new and known are told alike."""
    refused = {reject.item: reject for reject in events.rejects}
    items: list[dict[str, object]] = []
    for place in range(events.received):
        reject = refused.get(place)
        if reject is None:
            items.append({"item": place, "status": "accepted"})
        else:
            error = {"type": reject.reason, "message": reject.message}
            items.append({"item": place, "status": "rejected", "error": error})
    return {"accepted": len(events.records), "rejected": len(events.rejects), "events": items}
