"""
OTLP over HTTP: traces, metrics and logs in protobuf or JSON. Profiles are accepted, but not stored.

The response has the encoding of the request. A refusal is a google.rpc.Status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

import msgspec
from aiohttp import web

from gateway.core.errors import BadPayload, Refusal
from gateway.core.first_use import import_in_thread
from gateway.core.schemas import (
    BYTES,
    OBJECT,
    TEXT,
    Schema,
    closed_object_schema,
    open_object_schema,
    schema_with_description,
)
from gateway.http import answers
from gateway.http.address import IN_HEADER, ApiAddress, Content, KeyCarriage
from gateway.http.answers import JSON, PROTOBUF
from gateway.http.inflight_bytes import RequestByteReservation
from gateway.http.turns import run_in_slices, run_on_thread_if_large
from gateway.intake.start_times import describe_misdated_items
from gateway.normalise import otlp
from gateway.normalise.otlp import Signal
from gateway.normalise.otlp.decoding import json_schema, protobuf_decoder
from gateway.normalise.outcome import MALFORMED, NO_ITEMS, ReadOutcome
from gateway.normalise.payload.first_bytes import describe_foreign_encoding
from gateway.normalise.payload.wire_fields import field_tag_start_and_end
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.receiver_services import ReceiverServices
from spool.registry.scopes import INGEST

_log = logging.getLogger(__name__)

# size in bytes from which a request is decoded on the thread; for a smaller request, switching to the thread
# costs more than it saves
SLICED: Final = 64 * 1024

_IS_JSON: Final = {JSON: True, PROTOBUF: False}

_ERRORS: Content = {
    PROTOBUF: BYTES,
    JSON: closed_object_schema(
        {
            "code": schema_with_description({"type": "integer"}, "The code of gRPC."),
            "message": schema_with_description(TEXT, "What is wrong and what to do."),
        }
    ),
}

# Name of the response member that counts rejected items in a partial success.
MEMBERS: dict[Signal, str] = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}


def is_json(request: web.Request) -> bool | None:
    """
    Return True for JSON, False for protobuf and None for any other content type. Case and parameters are ignored.
    """
    # A lookup of the exact text comes first, because nearly all senders write the header in the same way.
    is_json_type = _IS_JSON.get(request.headers.get("Content-Type", ""))
    return _IS_JSON.get(request.content_type.lower()) if is_json_type is None else is_json_type


def check_media_type(request: web.Request) -> None:
    if request.headers.get("Content-Type", "") in _IS_JSON:
        return
    if is_json(request) is None:
        message = f"Content-Type must be {PROTOBUF} or {JSON}."
        raise Refusal(415, "unsupported_media_type", message)


def otlp_error_response(request: web.Request, error: Refusal, _: float) -> web.Response:
    return answers.otlp_refusal(error, json=is_json(request) is not False)


def _partial_success_schema(member: str) -> Schema:
    partial_success = closed_object_schema(
        {
            member: schema_with_description(TEXT, "The number of rejected items."),
            "errorMessage": schema_with_description(
                TEXT, "Why items were rejected, or a warning about stored or ignored items."
            ),
        }
    )
    description = "Present if items were rejected, or if there is a warning."
    return closed_object_schema({}, {"partialSuccess": schema_with_description(partial_success, description)})


def otlp_address(
    path: str, signal: Signal, summary: str, decoded: type, *, key: KeyCarriage = IN_HEADER
) -> ApiAddress:
    """Declare an address for one signal. `decoded` is the type of a JSON body."""
    # The API description lists only the outermost members, because opentelemetry-proto defines the inner ones.
    name: str = decoded.__struct_fields__[0]  # type: ignore[attr-defined]
    member = {"type": ["array", "null"], "items": {"type": ["object", "null"]}}
    message = open_object_schema(
        {name: schema_with_description(member, f"{signal.capitalize()}, as in OTLP.")}
    )
    return ApiAddress(
        methods=("POST",),
        path=path,
        summary=summary,
        endpoint=f"otlp/{signal}",
        scope=INGEST,
        key=key,
        # reject unknown parameters, except at addresses of other products, whose clients choose them
        checks_query=key is IN_HEADER,
        check=check_media_type,
        takes={PROTOBUF: BYTES, JSON: message},
        gives={200: {PROTOBUF: BYTES, JSON: _partial_success_schema(MEMBERS[signal])}},
        errors=_ERRORS,
        error_form=otlp_error_response,
    )


@otlp_address("/v1/traces", "traces", "OTLP/HTTP traces", json_schema.JsonTraces)
def export_traces(request: KeyRequest[ReceiverServices, bytes]) -> Awaitable[web.Response]:
    return store_export("traces", request)


@otlp_address("/v1/metrics", "metrics", "OTLP/HTTP metrics", json_schema.JsonMetrics)
def export_metrics(request: KeyRequest[ReceiverServices, bytes]) -> Awaitable[web.Response]:
    return store_export("metrics", request)


@otlp_address("/v1/logs", "logs", "OTLP/HTTP logs", json_schema.JsonLogs)
def export_logs(request: KeyRequest[ReceiverServices, bytes]) -> Awaitable[web.Response]:
    return store_export("logs", request)


async def store_export(signal: Signal, request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """Normalise and store the items of one signal. Malformed items are reported as a partial success."""
    receivers = request.receivers
    json = is_json(request.http) is True
    # The body is passed without another reference to it, so that its memory is free during the commit.
    outcome = await read_export(
        signal, request.take_body(), json=json, receivers=receivers, reservation=request.share
    )
    outcome.set_sending_program(request.http.headers.get("User-Agent"))
    receipt = await receivers.intake.store_outcome(outcome, request.bearer)
    if outcome.rejects:
        refuse_when_all_malformed(outcome)
    if NO_ITEMS in outcome.ignored:
        extra = {"action": "no_items", "endpoint": f"otlp/{signal}", "address": request.http.remote}
        _log.warning("a request has none of the members that its address reads", extra=extra)
    warnings = [*outcome.warnings, *describe_misdated_items(outcome.misdated)]
    answer = answers.otlp_success(outcome.rejects, warnings, member=MEMBERS[signal], json=json)
    return answers.bytes_response(answer, content_type=JSON if json else PROTOBUF, receipt=receipt)


async def read_export(
    signal: Signal,
    body: bytes,
    *,
    json: bool,
    receivers: ReceiverServices,
    reservation: RequestByteReservation,
) -> ReadOutcome:
    """
    Return the outcome of a request. Its items count in the request's share of bytes in flight.

    A request with many items is read on the thread for long jobs. Raises BadPayload and Refusal as the
    normaliser does.
    """
    options, decoder = receivers.options, receivers.compiled_decoder
    if decoder is not None and decoder.made is None:
        await import_in_thread("gateway.normalise.otlp.decoding.compiled_decoder")
    traces = protobuf_decoder.traces if decoder is None else decoder()
    if len(body) <= SLICED:
        reading = otlp.normalise_otlp(
            signal, body, json=json, options=options, hold=reservation.reserve_bytes, traces=traces
        )
        return await receivers.together.run(reading)
    return await run_in_slices(
        lambda hold: otlp.normalise_otlp(signal, body, json=json, options=options, hold=hold, traces=traces),
        reservation.reserve_bytes,
        body_bytes=len(body),
    )


@ApiAddress(
    methods=("POST",),
    path="/v1development/profiles",
    name="export_profiles",
    summary="OTLP/HTTP profiles, accepted but not stored",
    endpoint="otlp/profiles",
    scope=INGEST,
    check=check_media_type,
    takes={PROTOBUF: BYTES, JSON: OBJECT},
    gives={200: {PROTOBUF: BYTES, JSON: _partial_success_schema("rejectedProfiles")}},
    errors=_ERRORS,
    error_form=otlp_error_response,
)
async def drop_profiles(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """
    Accept profiles without storing them, so that a sender that exports all signals needs no special configuration.
    """
    json = is_json(request.http) is True
    body = request.take_body()
    answer = await run_on_thread_if_large(
        lambda: answer_to_profiles(body, json=json), is_large=len(body) > SLICED
    )
    return answers.bytes_response(answer, content_type=JSON if json else PROTOBUF)


def answer_to_profiles(body: bytes, *, json: bool) -> bytes:
    """Return an answer that says that profiles are not stored. Raises BadPayload if the body is unreadable."""
    try:
        if json:
            has_items = bool(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        else:
            has_items = bool(body) and bool(field_tag_start_and_end(memoryview(body), 0))
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise BadPayload(describe_foreign_encoding(body) or "body: not a JSON object") from None
    warnings = ["Profiles are not stored; switch off their export."] if has_items else []
    return answers.otlp_success([], warnings, member="rejectedProfiles", json=json)


def refuse_when_all_malformed(outcome: ReadOutcome) -> None:
    """Raise BadPayload if every item is malformed. The accounting already includes the items."""
    rejects = outcome.rejects
    if rejects and len(rejects) >= outcome.received and all(reject.reason == MALFORMED for reject in rejects):
        raise BadPayload(answers.summarize_rejects(rejects))
