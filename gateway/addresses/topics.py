"""Addresses of devices, usage events and unit cost."""

from __future__ import annotations

from typing import Any

from gateway.api.kept import events as kept_events
from gateway.http.address import READ, WHOLE_BYTES, WRITE, Address, BodyLimit, Content
from gateway.http.answers import CLOUD_EVENTS, JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler
from gateway.receivers import devices, events, unit_cost
from gateway.schemas import ANYTHING, BOOLEAN, COUNT, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import (
    CREATE_EVENT,
    ENROLL,
    HEARTBEAT,
    PING,
)

CREATE_STREAM = "unit-cost_v1:create_telemetry_stream"
DELETE_STREAM = "unit-cost_v1:delete_telemetry_stream"
MANAGE_RECORDS = "unit-cost_v1:manage_telemetry_records"
READ_RECORDS = "unit-cost_v1:read_telemetry"

OR_NULL: Schema = {"type": ["string", "null"]}


# Devices.

_DEVICE = closed({"id": TEXT, "state": TEXT, "heartbeat_interval_s": {"type": "number"}})


def _device(
    path: str, scope: str, handler: AddressHandler, endpoint: str, summary: str, body: type, gives: Schema
) -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=scope,
        body=body,
        takes={JSON: body},
        may_be_empty=True,
        limit=BodyLimit(
            "devices.max_body_bytes", lambda services: services.topics.devices.settings.max_body_bytes
        ),
        gives={200: {JSON: gives}},
        refusals=(*WRITE, 404, 409, 410),
    )


DEVICES = (
    _device(
        "/v1/ai-control-plane/enroll",
        ENROLL,
        devices.enroll_device,
        "devices/enroll",
        "A device enrols; a key of its own comes with the first answer to `want_key`",
        devices.Report,
        closed({"device": _DEVICE}, {"key": TEXT}),
    ),
    _device(
        "/v1/ai-control-plane/heartbeat",
        HEARTBEAT,
        devices.heartbeat_device,
        "devices/heartbeat",
        "A device reports how it is",
        devices.Report,
        closed({"device": _DEVICE}),
    ),
    _device(
        "/v1/ai-control-plane/ping",
        PING,
        devices.ping_device,
        "devices/ping",
        "A device reports that it is still there",
        devices.Named,
        closed({"ok": {"const": True}}),
    ),
)


# Usage events.

_EVENT_ERROR = closed({"type": TEXT, "message": TEXT})
_EVENT_FATE = closed({"item": COUNT, "status": {"enum": ["accepted", "rejected"]}}, {"error": _EVENT_ERROR})

_EVENT = closed(
    {
        "topic": TEXT,
        "number": COUNT,
        "committed_at": TEXT,
        "state": TEXT,
        "amount": OR_NULL,
        "id": TEXT,
        "kind": TEXT,
        "source": TEXT,
        "event_id": OR_NULL,
        "event_type": TEXT,
        "subject": OR_NULL,
        "start_time": OR_NULL,
        "data": OBJECT,
        "tags": OBJECT,
        "shadow": BOOLEAN,
    },
)
_EVENT_TYPE = closed(
    {
        "type": TEXT,
        "count": COUNT,
        "amount": OR_NULL,
        "last_seen": OR_NULL,
        "sent_as": OR_NULL,
        "unmapped": BOOLEAN,
    }
)


def _events(path: str, handler: AddressHandler, summary: str, lists: List[Any], item: Schema) -> Address:
    """Declare an address of events. No scope of the catalogue reads events: they are telemetry as the streams are."""
    return Address(
        methods=("GET", "HEAD"),
        path=f"/v1/events{path}",
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint="events/read",
        scope=READ_RECORDS,
        lists=lists,
        item=item,
        refusals=READ,
    )


EVENTS = (
    Address(
        methods=("POST",),
        path="/v1/events",
        name="create_events",
        summary="Usage events: one, an array, JSON lines, or CloudEvents 1.0",
        handler=events.create_events,
        endpoint="events",
        scope=CREATE_EVENT,
        check=events.check_media_type,
        body=bytes,
        takes=dict.fromkeys((JSON, *CLOUD_EVENTS), ANYTHING),
        gives={200: {JSON: closed({"accepted": COUNT, "rejected": COUNT, "events": array(_EVENT_FATE)})}},
        takes_idempotency_key=True,
    ),
    _events(
        "",
        kept_events.read_events,
        "The usage events that are kept, the newest first",
        kept_events.EVENTS,
        _EVENT,
    ),
    _events(
        "/types",
        kept_events.read_event_types,
        "The types of usage events, with their sums",
        kept_events.TYPES,
        _EVENT_TYPE,
    ),
)


# Unit cost. The first path that matches takes the request.

_STREAMS = "/unit-cost/v1/telemetry"
_STREAM = _STREAMS + "/{type:allocation|metric}/{stream}"
_STREAM_FIELDS = closed({"name": TEXT, "type": TEXT, "granularity": OR_NULL, "dimensions": ANYTHING})
_STREAM_SHOWN: Content = {JSON: closed({"stream": _STREAM_FIELDS})}
_ACCEPTED: Content = {JSON: closed({"accepted": COUNT})}
_RECORD = closed(
    {"timestamp": TEXT, "granularity": OR_NULL, "value": OR_NULL},
    {"element_name": TEXT, "filter": OBJECT, "associated_cost": OBJECT},
)


def _records(path: str, name: str, summary: str, *, endpoint: str = "unit-cost/records") -> Address:
    return Address(
        methods=("GET", "HEAD"),
        path=path,
        name=name,
        summary=summary,
        handler=unit_cost.read_records,
        endpoint=endpoint,
        scope=READ_RECORDS,
        lists=unit_cost.RECORDS,
        item=_RECORD,
        refusals=(*READ, 404),
    )


def _managing(path: str, name: str, handler: AddressHandler, summary: str) -> Address:
    return Address(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        endpoint="unit-cost",
        scope=MANAGE_RECORDS,
        body=bytes,
        takes={JSON: OBJECT},
        gives={200: _ACCEPTED, 201: _ACCEPTED},
        refusals=(*WRITE, 404, 409),
        takes_idempotency_key=True,
    )


UNIT_COST = (
    Address(
        methods=("GET", "HEAD"),
        path=_STREAMS,
        name="list_telemetry_streams",
        summary="The unit-cost streams that are there",
        handler=unit_cost.list_streams,
        endpoint="unit-cost",
        scope=READ_RECORDS,
        lists=unit_cost.STREAMS,
        item=_STREAM_FIELDS,
        refusals=READ,
    ),
    _managing(
        _STREAMS, "sum_records_of_streams", unit_cost.sum_records, "Add records that name their streams"
    ),
    Address(
        methods=("PUT",),
        path=_STREAM,
        name="create_stream",
        summary="Create a stream, or see that it is there",
        handler=unit_cost.create_stream,
        endpoint="unit-cost",
        scope=CREATE_STREAM,
        body=bytes,
        max_bytes=WHOLE_BYTES,
        takes={JSON: OBJECT},
        gives={200: _STREAM_SHOWN, 201: _STREAM_SHOWN},
        refusals=(*WRITE, 404, 409),
    ),
    _managing(_STREAM, "sum_records_of_stream", unit_cost.sum_records, "Add records, by the older address"),
    _records(_STREAM, "read_stream", "The records of a stream, by its older address", endpoint="unit-cost"),
    _managing(
        _STREAM + "/{operation:sum|replace|delete}",
        "manage_records",
        unit_cost.manage_records,
        "Add, replace or delete records of a stream",
    ),
    _records(_STREAM + "/records", "read_records", "The records of a stream of this type, with their totals"),
    _records(
        _STREAMS + "/{stream}/records", "read_records_by_name", "The records of a stream and their totals"
    ),
    Address(
        methods=("DELETE",),
        path=_STREAMS + "/{stream}",
        name="delete_stream",
        summary='Delete a stream; one that holds records wants {"force": true}',
        handler=unit_cost.delete_stream,
        endpoint="unit-cost/streams",
        scope=DELETE_STREAM,
        body=bytes,
        max_bytes=WHOLE_BYTES,
        gives={200: {JSON: closed({"stream": closed({"name": TEXT, "deleted": {"const": True}})})}},
        refusals=(*WRITE, 404, 409),
    ),
)


ROWS = (*DEVICES, *EVENTS, *UNIT_COST)
