"""
AWS Bedrock's model invocation log: records, lines or CloudWatch subscriptions, possibly inside a Firehose delivery.

Only the provider's usage object is read from the bodies in the log. It has facts that the log's own counts
omit: the lifetime of cache writes, and the kinds of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gateway.core.errors import BadPayload, Refusal
from gateway.core.schemas import COUNT, TEXT, closed_object_schema, schema_with_description
from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    FormatAnswer,
    ItemFormat,
    Items,
    RawMembers,
    ReadCall,
    Unreadable,
    build_json_answer,
    has_object_with,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.outcome import ReadOutcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.items import MAX_PIECE, NestedPayloadUnpacker
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix
from gateway.normalise.reading.operations import CHAT, EMBEDDINGS
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Tokens, Usage, normalise_counts, tokens_of_usage
from gateway.normalise.reading.values import (
    BadValue,
    Other,
    dict_or_empty,
    parse_count,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference
from spool.turns.threads import prepare_types_for_msgspec

NAME = "bedrock"
FIREHOSE_ID_HEADER: Final = "X-Amz-Firehose-Request-Id"
FIREHOSE_ANSWER = closed_object_schema(
    {
        "requestId": schema_with_description(TEXT, "The id of the request, from its header."),
        "timestamp": schema_with_description(COUNT, "The time of the answer in epoch milliseconds."),
    },
    {"errorMessage": schema_with_description(TEXT, "What is wrong and what to do.")},
)
_MAX_WRAPPERS: Final = 4  # maximum nested wrappers: Firehose, its data, the subscription, its messages


class BedrockIdentity(msgspec.Struct):
    arn: Any = None


class BedrockInput(msgspec.Struct):
    inputTokenCount: Any = None
    cacheReadInputTokenCount: Any = None
    cacheWriteInputTokenCount: Any = None


class BedrockBody(msgspec.Struct):
    usage: Usage | Other = None


class BedrockOutput(msgspec.Struct):
    outputTokenCount: Any = None
    outputBodyJson: BedrockBody | Other = None  # a list of events if the response was streamed


class _Streamed(msgspec.Struct):
    """
    An event of a streamed response body. Claude states the usage in the first event, Nova Sonic in every
    event.
    """

    message: BedrockBody | Other = None
    event: _SonicEvent | Other = None


class _SonicEvent(msgspec.Struct):
    usageEvent: Usage | Other = None


# Names of wrappers. The last two strings begin a JSON escape of a letter, because a sender may escape the names.
_PACKED = (b'"awslogs"', b'"records"', b"\\u006", b"\\u007")


class BedrockEvent(msgspec.Struct):
    timestamp: Any = None
    identity: BedrockIdentity | Other = None
    requestId: Any = None
    operation: Any = None
    modelId: Any = None
    region: Any = None
    inferenceRegion: Any = None
    input: BedrockInput | Other = None
    output: BedrockOutput | Other = None
    errorCode: Any = None
    requestMetadata: Any = None


class _Packed(msgspec.Struct):
    data: str


class _LogEvent(msgspec.Struct):
    message: str


prepare_types_for_msgspec(_Packed, _LogEvent)


def has_bedrock_fields(members: RawMembers) -> bool:
    return (
        payload.is_equal_text(members.get("schemaType"), b'"ModelInvocationLog"')
        or "awslogs" in members
        or {"messageType", "logGroup"} <= members.keys()
        or has_object_with(members, "records", "data")
    )


def unwrap_log_records(raw: payload.Raw, nested_unpacking: NestedPayloadUnpacker) -> Items:
    """
    Yield the log records in one item, without any wrappers (lists, CloudWatch, Firehose). An unreadable
    wrapper affects only its own contents.
    """
    return _unwrap_log_record_layers(raw, nested_unpacking, _MAX_WRAPPERS)


def _unwrap_log_record_layers(
    raw: payload.Raw, nested_unpacking: NestedPayloadUnpacker, max_wrappers: int
) -> Items:
    members = payload.undecoded_members(raw)
    if max_wrappers and "awslogs" in members:
        yield from _unwrap_packed(members["awslogs"], "awslogs.data", nested_unpacking, max_wrappers - 1)
    elif max_wrappers and "records" in members and "schemaType" not in members:
        yield from _unwrap_firehose(members["records"], nested_unpacking, max_wrappers - 1)
    elif max_wrappers and "logEvents" in members:
        yield from _unwrap_subscription(members, nested_unpacking, max_wrappers - 1)
    else:
        del members  # release these references before reading a large record, because they hold a copy of it
        yield raw


def _unwrap_firehose(
    records: payload.Raw, nested_unpacking: NestedPayloadUnpacker, max_wrappers: int
) -> Items:
    index = 0
    for record in payload.array_elements(records):
        if not len(record):
            yield record
            continue
        yield from nested_unpacking.count_wrapper_as_item(record)
        yield from _unwrap_packed(record, f"records[{index}].data", nested_unpacking, max_wrappers)
        index += 1


def _unwrap_packed(
    packed: payload.Raw, field: str, nested_unpacking: NestedPayloadUnpacker, max_wrappers: int
) -> Items:
    if payload.is_null(packed):
        yield packed
        return
    try:
        body = yield from nested_unpacking.decode_and_inflate(msgspec.json.decode(packed, type=_Packed).data)
        for item in payload.items_of_body(body):
            if len(item):
                yield from nested_unpacking.count_wrapper_as_item(item)
                yield from _unwrap_log_record_layers(item, nested_unpacking, max_wrappers)
            else:
                yield item
    except payload.TooBig:
        yield Unreadable(f"{field} expands to more than {MAX_PIECE} bytes")
    except payload.UNREADABLE:
        yield Unreadable(f"{field} is not text")
    except BadPayload as error:
        yield Unreadable(f"{field}: {error.message}")
    except ValueError as error:
        yield Unreadable(f"{field} is {error}")


def _unwrap_subscription(
    members: RawMembers, nested_unpacking: NestedPayloadUnpacker, max_wrappers: int
) -> Items:
    # ignore control messages, with which CloudWatch tests the subscription
    if payload.is_equal_text(members.get("messageType"), b'"CONTROL_MESSAGE"'):
        yield b"{}"
        return
    index = 0
    for event in payload.array_elements(members["logEvents"]):
        if not len(event):
            yield event
            continue
        yield from nested_unpacking.count_wrapper_as_item(event)
        yield from _unwrap_log_event(event, index, nested_unpacking, max_wrappers)
        index += 1


def _unwrap_log_event(
    event: payload.Raw, index: int, nested_unpacking: NestedPayloadUnpacker, max_wrappers: int
) -> Items:
    if payload.is_null(event):
        yield event
        return
    try:
        message = msgspec.json.decode(event, type=_LogEvent).message
    except payload.UNREADABLE:
        yield Unreadable(f"logEvents[{index}].message is not text")
    else:
        yield from _unwrap_log_record_layers(
            message.encode("utf-8", "surrogatepass"), nested_unpacking, max_wrappers
        )


def read_calls(event: BedrockEvent) -> Iterable[ReadCall]:
    """Read one log record as one call. A control message contains no call."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.requestId),
        start_time=parse_instant(event.timestamp),
        provider="aws.bedrock",
        request_model=model_without_prefix(event.modelId, "bedrock"),
        # The called region comes first, because it decides the price and appears on the bill. inferenceRegion
        # is where an inference profile sent the call.
        region=region_of_call(event.region, event.inferenceRegion, model=event.modelId),
    )
    record.operation = _operation_of_bedrock_api(text_or_none(event.operation), record.request_model)
    set_normalised_counts(
        record,
        _tokens_of_log_record(
            struct_or_empty(event.input, BedrockInput), struct_or_empty(event.output, BedrockOutput)
        ),
    )
    if event.errorCode not in (None, "", "-"):
        mark_as_failed(record, event.errorCode)
    metadata = CallMetadata()
    metadata.add_caller_and_tags(dict_or_empty(event.requestMetadata))
    metadata.fill_record(record, principal=text_or_none(struct_or_empty(event.identity, BedrockIdentity).arn))
    # requestId is AWS's own id, which SDKs also report
    return (ReadCall(record, call_identity(record, response_id=record.request_id), metadata.left_out),)


def _tokens_of_log_record(input: BedrockInput, output: BedrockOutput) -> Tokens:
    """
    Return the log's own counts, with the facts that only a body has. If the log has no counts, return the
    counts of the body.
    """
    body = _tokens_in_body(output.outputBodyJson)
    input_tokens = parse_count(input.inputTokenCount, "input.inputTokenCount")
    output_tokens = parse_count(output.outputTokenCount, "output.outputTokenCount")
    if input_tokens is None and output_tokens is None:
        return body
    reported = Tokens(
        input_tokens,
        output_tokens,
        parse_count(input.cacheReadInputTokenCount, "input.cacheReadInputTokenCount"),
        parse_count(input.cacheWriteInputTokenCount, "input.cacheWriteInputTokenCount"),
        cache_write_1h=body.cache_write_1h,
        meters=body.meters,
    )
    return normalise_counts(reported, without_cache=True)


def _tokens_in_body(body: Any) -> Tokens:
    """
    Return the counts of the usage object in a response. Return no counts if there is no usage object or if a
    count is impossible.
    """
    usage: Any = struct_or_empty(body, BedrockBody).usage
    if isinstance(body, list):
        usage_events = [raw for raw in body if b"message_start" in bytes(raw) or b"usageEvent" in bytes(raw)]
        last = struct_or_none(usage_events[-1], _Streamed) if usage_events else None
        streamed = last or _Streamed()
        usage = struct_or_empty(streamed.message, BedrockBody).usage
        usage = struct_or_empty(streamed.event, _SonicEvent).usageEvent or usage
    try:
        return tokens_of_usage(usage) if isinstance(usage, Usage) else Tokens()
    except BadValue:
        return Tokens()


def _operation_of_bedrock_api(written: str | None, model: str | None) -> str | None:
    if written is None:
        return None
    if written.startswith("Converse"):
        return CHAT
    if written.startswith("InvokeModel"):
        return EMBEDDINGS if model and "embed" in model else CHAT
    return None


def firehose_answer_or_none(body: bytes, outcome: ReadOutcome, now: float) -> FormatAnswer | None:
    """
    Return Firehose's response format. Firehose repeats a delivery until the response has its request id and a
    time in milliseconds.
    """
    request_id = _firehose_request_id(body)
    return _firehose_answer(200, request_id, now) if request_id else None


def firehose_refusal(
    headers: Mapping[str, str], body: bytes, refusal: Refusal, now: float
) -> FormatAnswer | None:
    """Return a refusal with Firehose's request id, which Firehose expects."""
    request_id = headers.get(FIREHOSE_ID_HEADER) or _firehose_request_id(body)
    if request_id is None:
        return None
    return _firehose_answer(refusal.status, request_id, now, errorMessage=refusal.message)


def _firehose_answer(status: int, request_id: str, now: float, **more: str) -> FormatAnswer:
    return build_json_answer(status, {"requestId": request_id, "timestamp": int(now * 1000), **more})


def _firehose_request_id(body: bytes) -> str | None:
    members = payload.undecoded_members(body)
    try:
        return msgspec.json.decode(members["requestId"], type=str) if "records" in members else None
    except (KeyError, *payload.UNREADABLE):
        return None


def example_body(call: ExampleCall) -> Any:
    return {
        "schemaType": "ModelInvocationLog",
        "schemaVersion": "1.0",
        "timestamp": call.start_text,
        "accountId": "123456789012",
        "identity": {"arn": "arn:aws:iam::123456789012:user/example-user"},
        "region": "us-east-1",
        "requestId": call.uuid,
        "operation": "Converse",
        "modelId": "amazon.nova-lite-v1:0",
        "input": {
            "inputTokenCount": call.input_tokens,
            "cacheReadInputTokenCount": 0,
            "cacheWriteInputTokenCount": 0,
        },
        "output": {"outputTokenCount": call.output_tokens},
        "requestMetadata": {"team": "example-team"},
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_bedrock_fields,
    example=example_body,
    event=BedrockEvent,
    calls=read_calls,
    unwrap=unwrap_log_records,
    signs_of_packing=_PACKED,
    key_header="X-Amz-Firehose-Access-Key",
    answer=firehose_answer_or_none,
    answer_schemas={200: FIREHOSE_ANSWER},
    refuse=firehose_refusal,
    refusal_schema=FIREHOSE_ANSWER,
    origins={
        "request_id": "requestId",
        "start_time": "timestamp",
        "provider": "always Bedrock for this log",
        "operation": "operation",
        "request_model": "modelId",
        "region": "region, else inferenceRegion (global profile in modelId: global)",
        "input_tokens": "input.inputTokenCount + both cache counts",
        "output_tokens": "output.outputTokenCount",
        "cache_read_tokens": "input.cacheReadInputTokenCount",
        "cache_write_tokens": "input.cacheWriteInputTokenCount",
        "status": "errorCode",
        "error_type": "errorCode",
        "user": "identity.arn, else requestMetadata.user",
        "team": "requestMetadata.team",
        "session": "requestMetadata.session_id",
    },
)
