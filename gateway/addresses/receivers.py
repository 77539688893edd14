"""Addresses that take in telemetry: OTLP, AI telemetry of other products, devices, events, unit cost, billing data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gateway.http.address import ERROR, READ, WRITE, Address, Content
from gateway.http.answers import JSON, PROTOBUF
from gateway.http.key_carriage import AS_BASIC, AS_BEARER, IN_HEADER, IN_PATH, KEY, KeyCarriage
from gateway.http.requests import AddressHandler
from gateway.normalise.formats.list import FORMAT_NAMES, FORMATS
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import json_schema
from gateway.receivers import ai_telemetry, billing, devices, events, helicone, langfuse, otlp_http, unit_cost
from gateway.schemas import ANYTHING, BYTES, COUNT, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import (
    BILLING_DROP,
    CREATE_EVENT,
    ENROLL,
    HEARTBEAT,
    INGEST,
    PING,
    VALIDATE_BILLING_DROP,
)

CREATE_STREAM = "unit-cost_v1:create_telemetry_stream"
DELETE_STREAM = "unit-cost_v1:delete_telemetry_stream"
MANAGE_RECORDS = "unit-cost_v1:manage_telemetry_records"
READ_RECORDS = "unit-cost_v1:read_telemetry"

OR_NULL: Schema = {"type": ["string", "null"]}
CLOUD_EVENTS: Content = dict.fromkeys(("application/cloudevents+json", "application/cloudevents-batch+json"), ANYTHING)


# OTLP/HTTP: both encodings in, the same encoding out, refusals as google.rpc.Status.


OTLP_ERRORS: Content = {PROTOBUF: BYTES, JSON: closed({"code": {"type": "integer"}, "message": TEXT})}


def _otlp(
    path: str, signal: Signal, name: str, summary: str, decoded: type, *, key: KeyCarriage = IN_HEADER
) -> Address:
    # The document describes the outermost members; the rest is opentelemetry-proto's.
    members: tuple[str, ...] = decoded.__struct_fields__  # type: ignore[attr-defined]
    member = {"type": ["array", "null"], "items": {"type": ["object", "null"]}}
    message = {"type": "object", "properties": dict.fromkeys(members, member)}
    partial_success = closed({otlp_http.MEMBERS[signal]: TEXT, "errorMessage": TEXT})
    return Address(
        methods=("POST",),
        path=path,
        name=name,
        summary=summary,
        handler=partial(otlp_http.export, signal),
        endpoint=f"otlp/{signal}",
        scope=INGEST,
        key=key,
        check=otlp_http.check_media_type,
        body=bytes,
        takes={PROTOBUF: BYTES, JSON: message},
        gives={200: {PROTOBUF: BYTES, JSON: closed({}, {"partialSuccess": partial_success})}},
        errors=OTLP_ERRORS,
        error_form=otlp_http.status_error,
    )


OTLP = (
    _otlp("/v1/traces", "traces", "export_traces", "OTLP/HTTP traces", json_schema.JsonTraces),
    _otlp("/v1/metrics", "metrics", "export_metrics", "OTLP/HTTP metrics", json_schema.JsonMetrics),
    _otlp("/v1/logs", "logs", "export_logs", "OTLP/HTTP logs", json_schema.JsonLogs),
    Address(
        methods=("POST",),
        path="/v1development/profiles",
        name="export_profiles",
        summary="OTLP/HTTP profiles, taken and dropped",
        handler=otlp_http.drop_profiles,
        endpoint="otlp/profiles",
        scope=INGEST,
        check=otlp_http.check_media_type,
        body=bytes,
        takes={PROTOBUF: BYTES, JSON: OBJECT},
        gives={200: {PROTOBUF: BYTES, JSON: closed({})}},
        errors=OTLP_ERRORS,
        error_form=otlp_http.status_error,
    ),
)

# OTLP over gRPC, for a server of its own: a call is a stream, whose key is checked before its message is received.
# Each service has one method, Export; None: taken and dropped.
_COLLECTOR = "opentelemetry.proto.collector"
GRPC_SERVICES: Mapping[str, Signal | None] = {
    f"{_COLLECTOR}.trace.v1.TraceService": "traces",
    f"{_COLLECTOR}.metrics.v1.MetricsService": "metrics",
    f"{_COLLECTOR}.logs.v1.LogsService": "logs",
    f"{_COLLECTOR}.profiles.v1development.ProfilesService": None,
}


# AI telemetry of gateways, in their own formats, and other products' protocols.


def _with_own(taken: Schema) -> Mapping[int, Content]:
    """The answers to a payload that was taken, by status: Tollhouse's own, and those that the formats declare."""
    by_status: dict[int, list[Schema]] = {200: [taken]}
    for format in FORMATS:
        for status, schema in format.answer_schemas.items():
            by_status.setdefault(status, []).extend([] if schema is None else [schema])
    return {
        status: {JSON: schemas[0] if len(schemas) == 1 else {"anyOf": schemas}} if schemas else {}
        for status, schemas in sorted(by_status.items())
    }


_REJECT = closed({"item": COUNT, "reason": TEXT, "message": TEXT})
_TAKEN = closed({"format": TEXT, "accepted": COUNT, "ignored": COUNT, "rejected": array(_REJECT)})
_INGESTED: Mapping[int, Content] = _with_own(_TAKEN)
_OWN_REFUSALS = [format.refusal_schema for format in FORMATS if format.refusal_schema is not None]
_INGEST_ERRORS: Content = {JSON: {"anyOf": [ERROR, *_OWN_REFUSALS]}}
_LANGFUSE_ERRORS: Content = {JSON: closed({"error": TEXT, "message": TEXT})}

AI_TELEMETRY = (
    Address(
        methods=("POST", "PUT", "PATCH"),
        path="/v1/ai-telemetry",
        name="ingest_recognised",
        summary="A payload of any known format, recognised by itself",
        handler=ai_telemetry.ingest,
        endpoint="ai-telemetry",
        scope=INGEST,
        body=bytes,
        takes={JSON: ANYTHING},
        gives=_INGESTED,
        errors=_INGEST_ERRORS,
        error_form=ai_telemetry.sender_error,
    ),
    Address(
        methods=("POST",),
        path="/v1/ai-telemetry/helicone/{hook}",
        name="helicone_webhook",
        summary="Helicone's webhook; the last part of the address is a key for AI telemetry and nothing else",
        handler=helicone.helicone_webhook,
        endpoint="helicone",
        scope=INGEST,
        key=IN_PATH,
        sole_scope=True,
        body=bytes,
        takes={JSON: ANYTHING},
        gives={200: {JSON: OBJECT}},
    ),
    Address(
        methods=("POST", "PUT", "PATCH"),
        path="/v1/ai-telemetry/{format:.+}",
        name="ingest_format",
        summary="A payload of a named format",
        handler=ai_telemetry.ingest_named,
        endpoint="ai-telemetry",
        scope=INGEST,
        key=KeyCarriage(ai_telemetry.find_key, (KEY,)),
        check=ai_telemetry.check_format,
        body=bytes,
        takes={JSON: ANYTHING},
        gives=_INGESTED,
        errors=_INGEST_ERRORS,
        refusals=(*WRITE, 404),
        error_form=ai_telemetry.sender_error,
        choices={"format": FORMAT_NAMES},
    ),
    Address(
        methods=("POST",),
        path="/api/public/ingestion",
        name="langfuse_ingestion",
        summary="Langfuse's batches: 207 with the fate of every event",
        handler=partial(ai_telemetry.ingest, format="langfuse"),
        endpoint="langfuse",
        scope=INGEST,
        key=AS_BASIC,
        body=bytes,
        takes={JSON: OBJECT},
        gives={207: _INGESTED[207]},
        errors=_LANGFUSE_ERRORS,
        error_form=langfuse.langfuse_error,
    ),
    _otlp(
        "/api/public/otel/v1/traces",
        "traces",
        "langfuse_traces",
        "OTLP/HTTP traces under Langfuse's address",
        json_schema.JsonTraces,
        key=AS_BASIC,
    ),
    Address(
        methods=("GET",),
        path="/api/public/health",
        name="langfuse_health",
        summary="What Langfuse's clients ask first",
        handler=langfuse.langfuse_health,
        endpoint="langfuse/health",
        gives={200: {JSON: closed({"status": TEXT, "version": TEXT})}},
        errors=_LANGFUSE_ERRORS,
        refusals=(415, 500, 503),
        error_form=langfuse.langfuse_error,
    ),
    Address(
        methods=("GET",),
        path="/api/public/projects",
        name="langfuse_projects",
        summary="How Langfuse's clients check a key: the same answer for everybody",
        handler=langfuse.langfuse_projects,
        endpoint="langfuse/projects",
        scope=INGEST,
        key=AS_BASIC,
        gives={200: {JSON: closed({"data": array(OBJECT)})}},
        errors=_LANGFUSE_ERRORS,
        refusals=(401, 403, 415, 429, 500, 503),
        error_form=langfuse.langfuse_error,
    ),
    Address(
        methods=("POST",),
        path="/api/v1/events",
        name="openmeter_events",
        summary="OpenMeter's CloudEvents, one or many",
        handler=partial(ai_telemetry.ingest, format="openmeter"),
        endpoint="openmeter",
        scope=INGEST,
        key=AS_BEARER,
        body=bytes,
        takes=CLOUD_EVENTS,
        gives={200: {JSON: OBJECT}, 204: {}},
    ),
)


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
        max_bytes=devices.MAX_BODY_BYTES,
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
        takes={JSON: ANYTHING, **CLOUD_EVENTS},
        gives={200: {JSON: closed({"accepted": COUNT, "rejected": COUNT, "events": array(_EVENT_FATE)})}},
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


def _managing(path: str, name: str, summary: str, handler: AddressHandler) -> Address:
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
    )


UNIT_COST = (
    _managing(_STREAMS, "sum_records_of_streams", "Add records that name their streams", unit_cost.sum_records),
    Address(
        methods=("PUT",),
        path=_STREAM,
        name="create_stream",
        summary="Create a stream, or see that it is there",
        handler=unit_cost.create_stream,
        endpoint="unit-cost",
        scope=CREATE_STREAM,
        body=bytes,
        takes={JSON: OBJECT},
        gives={200: _STREAM_SHOWN, 201: _STREAM_SHOWN},
        refusals=(*WRITE, 404, 409),
    ),
    _managing(_STREAM, "sum_records_of_stream", "Add records to a stream, by its older address", unit_cost.sum_records),
    _records(_STREAM, "read_stream", "The records of a stream, by its older address", endpoint="unit-cost"),
    _managing(
        _STREAM + "/{operation:sum|replace|delete}",
        "manage_records",
        "Add, replace or delete records of a stream",
        unit_cost.manage_records,
    ),
    _records(_STREAM + "/records", "read_records", "The records of a stream of this type, with their totals"),
    _records(_STREAMS + "/{stream}/records", "read_records_by_name", "The records of a stream, with their totals"),
    Address(
        methods=("DELETE",),
        path=_STREAMS + "/{stream}",
        name="delete_stream",
        summary='Delete a stream; one that holds records wants {"force": true}',
        handler=unit_cost.delete_stream,
        endpoint="unit-cost/streams",
        scope=DELETE_STREAM,
        body=bytes,
        gives={200: {JSON: closed({"stream": closed({"name": TEXT, "deleted": {"const": True}})})}},
        refusals=(*WRITE, 404, 409),
    ),
)


# Billing data. Both names of the segment are accepted, independent of the upstream's.

_BILLING = "/v2/connections/billing/{segment:external|anycost}"
_DROP_KEPT = closed({"drop_id": TEXT, "month": OR_NULL, "row_count": COUNT})
_DROP_VALIDATED = closed({"is_valid": {"type": "boolean"}, "errors": array(TEXT)})

BILLING = (
    Address(
        methods=("POST",),
        path=_BILLING + "/validate_billing_drop",
        name="validate_billing_drop",
        summary="What would be wrong with a drop; nothing is kept",
        handler=billing.validate_billing_drop,
        endpoint="billing/validate",
        scope=VALIDATE_BILLING_DROP,
        body=bytes,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"connection": _DROP_VALIDATED})}},
        refusals=(*WRITE, 404),
    ),
    Address(
        methods=("POST",),
        path=_BILLING + "/{connection_id}/billing_drops",
        name="create_billing_drop",
        summary="Billing data of one month for an established connection",
        handler=billing.create_billing_drop,
        endpoint="billing",
        scope=BILLING_DROP,
        body=bytes,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"connection": _DROP_KEPT})}},
        refusals=(*WRITE, 404),
    ),
)

RECEIVERS = (*OTLP, *AI_TELEMETRY, *DEVICES, *EVENTS, *UNIT_COST, *BILLING)
