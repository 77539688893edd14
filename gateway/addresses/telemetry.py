"""Addresses of AI telemetry: OTLP over HTTP, formats of gateways, and other products' protocols."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gateway.http.address import ERROR, WRITE, Address, Content
from gateway.http.answers import CLOUD_EVENTS, JSON, PROTOBUF
from gateway.http.key_carriage import AS_BASIC, AS_BEARER, IN_HEADER, IN_PATH, KEY, KeyCarriage
from gateway.normalise.formats.list import FORMAT_NAMES, FORMATS
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import json_schema
from gateway.receivers import ai_telemetry, helicone, langfuse, otlp_http
from gateway.schemas import ANYTHING, BYTES, COUNT, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import INGEST

# OTLP/HTTP: both encodings in, the same encoding out, refusals as google.rpc.Status.

_OTLP_ERRORS: Content = {PROTOBUF: BYTES, JSON: closed({"code": {"type": "integer"}, "message": TEXT})}


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
        checks_query=key is IN_HEADER,  # under another product's address its client decides what it sends
        check=otlp_http.check_media_type,
        body=bytes,
        takes={PROTOBUF: BYTES, JSON: message},
        gives={200: {PROTOBUF: BYTES, JSON: closed({}, {"partialSuccess": partial_success})}},
        errors=_OTLP_ERRORS,
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
        errors=_OTLP_ERRORS,
        error_form=otlp_http.status_error,
    ),
)

# AI telemetry of gateways, in their own formats, and other products' protocols.


def _with_own(taken: Schema) -> Mapping[int, Content]:
    """The answers to a payload that was taken, by status: Tollhouse's own, and those that the formats declare."""
    by_status: dict[int, list[Schema]] = {200: [taken]}
    for format in FORMATS:
        for status, schema in format.answer_schemas.items():
            by_status.setdefault(status, []).extend([] if schema is None else [schema])
    return {status: _content(schemas) for status, schemas in sorted(by_status.items())}


def _content(schemas: list[Schema]) -> Content:
    if not schemas:
        return {}
    return {JSON: schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}


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
        checks_query=False,  # another product's client decides what it sends
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
        checks_query=False,  # another product's client decides what it sends
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
        checks_query=False,  # another product's client decides what it sends
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
        checks_query=False,  # another product's client decides what it sends
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
        checks_query=False,  # another product's client decides what it sends
        summary="OpenMeter's CloudEvents, one or many",
        handler=partial(ai_telemetry.ingest, format="openmeter"),
        endpoint="openmeter",
        scope=INGEST,
        key=AS_BEARER,
        body=bytes,
        takes=dict.fromkeys(CLOUD_EVENTS, ANYTHING),
        gives={200: {JSON: OBJECT}, 204: {}},
    ),
)

ROWS = (*OTLP, *AI_TELEMETRY)
