"""Google Vertex AI: rows of the request-response table. Only the response has the counts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    ReadCall,
    add_tier_tag,
    has_all_members,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.payload.provider_bodies import ProviderBody
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix
from gateway.normalise.reading.operations import CHAT, GENERATE
from gateway.normalise.reading.regions import region_of_address, region_of_call
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.values import (
    Other,
    dict_or_empty,
    first_text,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.identity import RecordIdentity, call_identity, is_long_id
from spool.record import Inference

NAME = "vertex"
PROVIDER = "gcp.vertex_ai"

_DIGITS = re.compile(r"-?\d+")


class VertexRequest(msgspec.Struct):
    labels: Any = None


class VertexFailure(msgspec.Struct):
    status: Any = None
    code: Any = None
    type: Any = None


class VertexAnswer(ProviderBody):
    error: VertexFailure | Other = None


class VertexPlace(msgspec.Struct):
    region: Any = None


class VertexOtelLog(msgspec.Struct):
    trace_id: Any = None


class _Text(msgspec.Struct):
    value: str


class VertexEvent(msgspec.Struct):
    logging_time: Any = None
    request_id: msgspec.Raw = msgspec.Raw()
    model: Any = None
    api_method: Any = None
    full_request: VertexRequest | Other = None
    full_response: VertexAnswer | Other = None
    otel_log: VertexOtelLog | Other = None
    endpoint: Any = None
    metadata: VertexPlace | Other = None


def read_calls(event: VertexEvent) -> Iterable[ReadCall]:
    response_body = struct_or_empty(event.full_response, VertexAnswer)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=_text_or_exact_number(event.request_id),
        trace_id=text_or_none(struct_or_empty(event.otel_log, VertexOtelLog).trace_id),
        start_time=parse_instant(event.logging_time),
        provider=PROVIDER,
        operation=_operation_of_method(text_or_none(event.api_method)),
        request_model=model_without_prefix(
            _model_without_resource_path(text_or_none(event.model) or ""), PROVIDER
        ),
        response_model=model_without_prefix(response_body.answering_model, PROVIDER),
        region=region_of_address(event.endpoint)
        or region_of_call(struct_or_empty(event.metadata, VertexPlace).region),
    )
    set_normalised_counts(record, response_body.counted_tokens())
    if isinstance(response_body.error, VertexFailure):
        mark_as_failed(record, response_body.error.status, response_body.error.code, response_body.error.type)
    metadata = CallMetadata()
    metadata.add_caller_and_tags(dict_or_empty(struct_or_empty(event.full_request, VertexRequest).labels))
    add_tier_tag(metadata, response_body.service_tier_name)
    metadata.fill_record(record)
    return (ReadCall(record, _call_identity_of_response(record, response_body), metadata.left_out),)


def _call_identity_of_response(record: Inference, response_body: VertexAnswer) -> RecordIdentity:
    """
    Return the dedup key of a call. It uses the response id, which SDKs also report. Without one it uses the
    row's id.

    Some exports write the row's id as 9.87E+16 and lose digits. Several calls can share such an id.
    """
    response_id = first_text(response_body.id, response_body.responseId)
    if response_id and is_long_id(response_id):
        return call_identity(record, response_id=response_id)
    if record.request_id and _DIGITS.fullmatch(record.request_id):
        return call_identity(record, response_id=record.request_id, own_id=record.request_id)
    return call_identity(record, shared_id=record.request_id)


def _text_or_exact_number(raw: msgspec.Raw) -> str | None:
    written = bytes(raw).strip()
    if written[:1] == b'"':
        parsed = struct_or_none(b'{"value":' + written + b"}", _Text)
        return text_or_none(parsed.value) if parsed else None
    return text_or_none(written.decode()) if written[:1].isdigit() or written[:1] == b"-" else None


def _model_without_resource_path(model: str) -> str:
    return ("/" + model).rpartition("/models/")[2].removeprefix("/")


def _operation_of_method(method: str | None) -> str | None:
    lower = (method or "").lower()
    if lower.endswith("generatecontent"):
        return GENERATE
    return CHAT if lower.endswith("rawpredict") else None


def example_body(call: ExampleCall) -> Any:
    return {
        "logging_time": call.start_text,
        "request_id": call.end_ns * 10 + secrets.randbelow(10),
        "model": "gemini-2.5-flash",
        "api_method": "generateContent",
        "full_request": {"labels": {"team": "example-team"}},
        "full_response": {
            "modelVersion": "gemini-2.5-flash",
            "usageMetadata": {
                "promptTokenCount": call.input_tokens,
                "candidatesTokenCount": call.output_tokens,
                "cachedContentTokenCount": call.cached_tokens,
            },
        },
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_all_members("full_response", "logging_time"),
    example=example_body,
    event=VertexEvent,
    calls=read_calls,
    origins={
        "request_id": "request_id as written",
        "trace_id": "otel_log.trace_id",
        "start_time": "logging_time",
        "provider": "always Vertex AI for this table",
        "operation": "api_method",
        "request_model": "model",
        "response_model": "full_response.modelVersion, else full_response.model",
        "region": "endpoint, else metadata.region",
        "input_tokens": "full_response.usageMetadata, else full_response.usage",
        "output_tokens": "full_response.usageMetadata, else full_response.usage",
        "cache_read_tokens": "full_response.usageMetadata.cachedContentTokenCount, else full_response.usage",
        "cache_write_tokens": "full_response.usage",
        "reasoning_tokens": "full_response.usageMetadata.thoughtsTokenCount, else full_response.usage",
        "status": "full_response.error",
        "error_type": "full_response.error",
        "user": "full_request.labels.user",
        "team": "full_request.labels.team",
        "session": "full_request.labels.session",
    },
)
