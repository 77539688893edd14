"""
What a sender is told, in its own product's way: the house's JSON, Langfuse's 207, Firehose's own id, OpenMeter's 204.

Pure: a format's name, the body as it came (inflated), and what became of it give a status and bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gateway.errors import Refusal
from gateway.normalise.formats.langfuse import events as langfuse
from gateway.normalise.outcome import MALFORMED, Outcome, Reject
from gateway.normalise.payload import items as payload

JSON = "application/json"


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str


class _Firehose(msgspec.Struct, rename="camel"):
    request_id: str
    records: msgspec.Raw  # there may be millions


class _Event(msgspec.Struct):
    id: Any = None


_event = msgspec.json.Decoder(_Event)


def answer(format: str, body: bytes, outcome: Outcome, *, now: float) -> Answer:
    """
    For a payload that was read and is on disk.

    A payload in which every item is malformed was not taken: 400, as the senders of each product understand it.
    """
    if format == "langfuse":
        return langfuse_answer(body, outcome)
    if _is_all_malformed(outcome):
        first = outcome.rejects[0]
        message = f"every item is malformed; the first ({first.item}): {first.message}"
        return refusal_answer(format, body, Refusal(400, "bad_payload", message), now=now)
    if format == "bedrock" and (request_id := firehose_request_id(body)):
        return firehose_answer(request_id, now=now)
    if format == "openmeter":
        return Answer(204, b"", JSON)
    return _json(200, {
        "format": format,
        "accepted": outcome.count + len(outcome.records) + len(outcome.points) + max(outcome.pending, 0),
        "ignored": outcome.ignored.total(),
        "rejected": [_reject(reject) for reject in outcome.rejects],
    })  # fmt: skip


def refusal_answer(format: str | None, body: bytes, refusal: Refusal, *, now: float) -> Answer:
    """For a request that was refused as a whole; Firehose wants its own request id back even then."""
    if format in ("bedrock", None) and (request_id := firehose_request_id(body)):
        return firehose_answer(request_id, now=now, status=refusal.status, error=refusal.message)
    if format == "langfuse":
        return _json(refusal.status, {"error": refusal.type, "message": refusal.message})
    return _json(refusal.status, {"error": {"type": refusal.type, "message": refusal.message}})


def langfuse_answer(body: bytes, outcome: Outcome) -> Answer:
    """207 with one entry per event under the sender's own event ids: a rejected one is 400 and is not sent again."""
    rejects = {reject.item: reject for reject in outcome.rejects}
    successes, errors = [], []
    for index, raw in enumerate(langfuse.events(body)):
        event_id = _event_id(raw)
        if (reject := rejects.get(index)) is None:
            successes.append({"id": event_id, "status": 201})
        else:
            errors.append({"id": event_id, "status": 400, "message": reject.message, "error": reject.reason})
    return _json(207, {"successes": successes, "errors": errors})


def firehose_answer(request_id: str, *, now: float, status: int = 200, error: str | None = None) -> Answer:
    """Firehose repeats a request whole until it reads its own request id and a time in milliseconds."""
    said: dict[str, Any] = {"requestId": request_id, "timestamp": int(now * 1000)}
    if error is not None:
        said["errorMessage"] = error
    return _json(status, said)


def firehose_request_id(body: bytes) -> str | None:
    """The request id of a Firehose delivery, None for any other body."""
    try:
        return msgspec.json.decode(body, type=_Firehose).request_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_all_malformed(outcome: Outcome) -> bool:
    # A figure that no call can have was read, and Firehose and Kong would only send it again and again.
    are_malformed = all(reject.reason == MALFORMED for reject in outcome.rejects)
    return 0 < outcome.received + outcome.split == len(outcome.rejects) and are_malformed


def _reject(reject: Reject) -> dict[str, object]:
    return {"item": reject.item, "reason": reject.reason, "message": reject.message}


def _event_id(raw: payload.Raw) -> str:
    try:
        event_id = payload.decode(raw, _event).id
    except payload.UNREADABLE:
        return ""
    return event_id if isinstance(event_id, str) else ""


def _json(status: int, said: object) -> Answer:
    return Answer(status, msgspec.json.encode(said), JSON)
