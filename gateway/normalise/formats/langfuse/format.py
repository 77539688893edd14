"""Langfuse's ingestion API as a format: recognition, responses and an example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any
from uuid import uuid4

import msgspec

from gateway.core.schemas import COUNT, TEXT, array_schema, closed_object_schema, schema_with_description
from gateway.normalise.formats.engine.declaration import (
    Answering,
    BatchFormat,
    ExampleCall,
    RawMembers,
    build_json_answer,
    inner_objects,
)
from gateway.normalise.formats.langfuse.batch import LangfuseEvent, events_in_batches, read_langfuse_batch
from gateway.normalise.formats.langfuse.generations import NAME, ORIGINS
from gateway.normalise.outcome import ReadOutcome
from gateway.normalise.payload import body_limits
from gateway.normalise.payload import items as payload
from gateway.normalise.reading.values import decode_object

FATE = closed_object_schema(
    {
        "id": schema_with_description(TEXT, "The id of the item."),
        "status": schema_with_description(COUNT, "The HTTP status for the item."),
    },
    {
        "message": schema_with_description(TEXT, "What is wrong and what to do."),
        "error": schema_with_description(TEXT, "The type of the error."),
    },
)
FATES = closed_object_schema(
    {
        "successes": schema_with_description(array_schema(FATE), "The stored items."),
        "errors": schema_with_description(array_schema(FATE), "The rejected items."),
    }
)


def has_langfuse_fields(members: RawMembers) -> bool:
    if "batch" not in members:
        return False
    items = inner_objects(members, "batch")
    first = next(items, None)  # an empty batch is also recognized as Langfuse's
    return first is None or any({"type", "body"} <= item.keys() for item in chain((first,), items))


def example_body(call: ExampleCall) -> Any:
    trace = {
        "id": call.trace_id,
        "userId": "example-user",
        "sessionId": "example-session",
        "tags": ["env:example"],
    }
    generation = {
        "id": call.uuid,
        "traceId": call.trace_id,
        "model": call.model,
        "startTime": call.start_text,
        "endTime": call.end_text,
        "usageDetails": call.usage,
        "costDetails": {"total": call.cost},
    }
    bodies = {"trace-create": trace, "generation-create": generation}
    batch = []
    for type, body in bodies.items():
        batch.append({"id": str(uuid4()), "type": type, "timestamp": call.end_text, "body": body})
    return {"batch": batch}


def answer_with_status_per_event(body: bytes, outcome: ReadOutcome, _: float) -> Answering:
    """
    Return 207 with one entry per event, under the sender's event id. Events with status 400 are not sent
    again by Langfuse's SDKs.
    """
    rejects = {reject.item: reject for reject in outcome.rejects}
    errors: list[dict[str, object]] = []

    def yield_successes_and_collect_errors() -> Iterator[dict[str, object]]:
        for index, raw in enumerate(filter(len, events_in_batches(body))):
            event_id, reject = _event_id_or_empty(raw), rejects.get(index)
            if reject is None:
                yield {"id": event_id, "status": 201}
            else:
                errors.append(
                    {"id": event_id, "status": 400, "message": reject.message, "error": reject.reason}
                )

    successes_json = yield from body_limits.encode_list_in_turns(yield_successes_and_collect_errors())
    errors_json = yield from body_limits.encode_list_in_turns(errors)
    return build_json_answer(
        207, {"successes": msgspec.Raw(successes_json), "errors": msgspec.Raw(errors_json)}
    )


def _event_id_or_empty(raw: payload.Raw) -> str:
    try:
        event_id = decode_object(raw, LangfuseEvent).id
    except payload.UNREADABLE:
        return ""
    return event_id if isinstance(event_id, str) else ""


FORMAT = BatchFormat(
    name=NAME,
    has_sign=has_langfuse_fields,
    example=example_body,
    origins=ORIGINS,
    answer=answer_with_status_per_event,
    answer_schemas={207: FATES},
    answers_each_item=True,
    read=read_langfuse_batch,
)
