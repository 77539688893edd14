"""Logs of the clouds: Bedrock in all its wrappers, Vertex AI rows, and Azure API Management rows."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from gateway.core.errors import Refusal
from gateway.normalise import any_format
from gateway.normalise.outcome import MALFORMED, MERGED, NOT_AI, ReadOptions
from gateway.normalise.payload.items import MAX_PIECE, MAX_WHOLE
from spool.identity import dedup_key_of_parts
from spool.record import rfc3339
from tests.gateway.normalise.formats.payloads import case, one, read, run


def bedrock_record(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = case("bedrock", "converse-stream") | changes
    return record


def subscription(*records: Any, kind: str = "DATA_MESSAGE") -> dict[str, Any]:
    events = [
        {"id": str(n), "timestamp": 1, "message": r if isinstance(r, str) else json.dumps(r)}
        for n, r in enumerate(records)
    ]
    return {"messageType": kind, "logGroup": "bedrock", "logStream": "s", "logEvents": events}


def packed(value: Any, *, zipped: bool = True) -> str:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.b64encode(gzip.compress(body) if zipped else body).decode()


def firehose(*data: str) -> dict[str, Any]:
    return {"requestId": "r-1", "timestamp": 1, "records": [{"data": one} for one in data]}


def test_bedrock_in_every_wrapper_is_the_same_call() -> None:
    """
    Bedrock's log record gives the same call in every wrapper: alone, in a subscription, from a Lambda, and in
    Firehose with lines or a subscription.
    """
    record = bedrock_record()
    lines = json.dumps(record).encode() + b"\n"
    wrapped = [
        record,
        [record],
        subscription(record),
        {"awslogs": {"data": packed(subscription(record))}},
        firehose(packed(lines, zipped=False)),
        firehose(packed(lines)),
        firehose(packed(subscription(record))),
    ]
    assert {dedup_key_of_parts(2, record["requestId"])} == {one(None, body).id for body in wrapped}


def test_bedrock_control_messages_are_passed_over() -> None:
    """CloudWatch's control messages, with which it checks an address, get a normal 2xx and give no record."""
    probe = subscription(
        "CWL CONTROL MESSAGE: Checking health of destination Firehose.", kind="CONTROL_MESSAGE"
    )
    outcome = read(None, firehose(packed(probe), packed(subscription(bedrock_record()))))
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {NOT_AI: 1}


def test_bedrock_bad_data_costs_only_itself() -> None:
    """
    Broken base64, gzip, JSON and text are rejected with their position. The good record of the same
    delivery is stored.
    """
    good = packed(subscription(bedrock_record(), "not json"))
    body = firehose("*", packed(b"x", zipped=False), base64.b64encode(b"\x1f\x8bzz").decode(), good)
    body["records"].append({"data": 7})
    outcome = read("bedrock", body)
    assert 1 == len(outcome.records)
    assert [0, 1, 2, 4, 5] == [reject.item for reject in outcome.rejects]
    assert {MALFORMED} == {reject.reason for reject in outcome.rejects}
    assert outcome.rejects[0].message.startswith("records[0].data")


def test_bedrock_records_may_follow_each_other_without_separator() -> None:
    """
    Bedrock records may follow each other without a separator, as in Firehose's bodies and CloudWatch's files.
    """
    record = case("bedrock", "converse-stream")
    run = json.dumps(record) + json.dumps(record | {"requestId": "another-request-of-the-same-run"})
    packed = base64.b64encode(gzip.compress(run.encode())).decode()
    for body in (run.encode(), {"requestId": "r", "timestamp": 1, "records": [{"data": packed}]}):
        assert 2 == len(read(None, body).records)


def test_bedrock_bombs_are_rejected_before_they_unfold() -> None:
    """
    An oversized item is rejected before it inflates, and the others are accepted. A delivery with too many
    items is refused as a whole.
    """
    bomb = base64.b64encode(gzip.compress(bytes(MAX_PIECE + 1), 1)).decode()
    outcome = read("bedrock", firehose(bomb, packed(bedrock_record())))
    assert len(outcome.records) == 1
    assert len(outcome.rejects) == 1
    assert "expands to more than" in outcome.rejects[0].message
    with pytest.raises(Refusal) as refused:
        read("bedrock", [firehose(bomb)] * (MAX_WHOLE // MAX_PIECE + 1))
    assert refused.value.status == 413
    assert refused.value.type == "body_too_large"


def test_bedrock_wrappers_inflated_bytes_count_toward_the_limit() -> None:
    """Bytes that Bedrock's wrappers inflate to count toward the in-flight limit, so they may be refused."""
    held: list[int] = []
    line = json.dumps(bedrock_record()).encode()
    body = json.dumps(firehose(packed(line), packed(line, zipped=False))).encode()
    run(any_format.normalise_body("bedrock", body, options=ReadOptions(), hold=held.append))
    assert [len(line)] * 2 == held


def test_bedrock_arns_errors_and_embeddings() -> None:
    """
    The ARN of a profile is reduced to its last part. An error has a code and no tokens, and Titan's
    calls are embeddings.
    """
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
    assert "abc123" == one("bedrock", bedrock_record(modelId=arn)).request_model
    failed = one("bedrock", bedrock_record(errorCode="ThrottlingException", input={}, output={}))
    assert failed.status == "error"
    assert failed.error_type == "ThrottlingException"
    assert failed.input_tokens is None
    titan = bedrock_record(operation="InvokeModel", modelId="amazon.titan-embed-text-v2:0")
    assert "embeddings" == one("bedrock", titan).operation


def test_bedrock_null_entries_are_passed_over() -> None:
    """Null entries are neither calls nor rejects, at any level."""
    wrapped = subscription(bedrock_record())
    wrapped["logEvents"].append(None)
    outcome = read(
        "bedrock", {"requestId": "r", "timestamp": 1, "records": [None, {"data": packed(wrapped)}]}
    )
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {NOT_AI: 2}
    assert outcome.rejects == []


@pytest.mark.parametrize("said", ["", "-", None])
def test_bedrock_empty_error_code_is_no_error(said: Any) -> None:
    """An empty error code counts as null, so the call did not fail."""
    assert "ok" == one("bedrock", bedrock_record(errorCode=said)).status


def test_bedrock_whose_principal_is_unknown_has_the_callers_user() -> None:
    """If Bedrock's principal is unknown, the user is the one in the request's metadata."""
    record = one(
        "bedrock",
        bedrock_record(identity=None, requestMetadata={"userId": "u", "sessionId": "s", "x": {"a": 1}}),
    )
    assert record.user == "u"
    assert record.session == "s"
    assert record.tags == {}


def test_vertex_columns_may_be_text_and_times_bigquerys() -> None:
    """
    Vertex AI columns may be text, and times may have BigQuery's form. The id keeps every digit as a number
    or a string.
    """
    row = case("vertex", "bigquery-row-thoughts")
    exported = row | {
        "logging_time": "2025-09-02 10:14:50.313000 UTC",
        "request_id": "98765432101234567890",
        "full_request": json.dumps(row["full_request"]),
        "full_response": json.dumps(row["full_response"]),
        "otel_log": json.dumps(row["otel_log"]),
    }
    record = one(None, exported)
    assert record.request_id == "98765432101234567890"
    assert record.input_tokens == 2152
    assert record.reasoning_tokens == 844
    assert record.team == "search"
    assert "4bf92f3577b34da6a3ce929d0e0e4736" == record.trace_id


def test_vertex_ids_in_exponent_form_are_shared_by_others() -> None:
    """
    An id in exponent form has lost its last digits, so several calls may share it. It is stored as text, and
    the dedup key also uses tokens and time.
    """
    body = (
        json.dumps(case("vertex", "bigquery-row-thoughts"))
        .replace("98765432101234567", "9.8765432E+16")
        .encode()
    )
    outcome = read(None, body)
    assert ["9.8765432E+16"] == [getattr(record, "request_id", None) for record in outcome.records]
    assert [2] == [len(found.lookups) for found in outcome.identities]


@pytest.mark.parametrize(
    "written", ["-9876543210123456789", "98765432101234567.0", "123456789012345678901234567890"]
)
def test_vertex_ids_stay_as_they_are_written(written: str) -> None:
    """An id in a Vertex AI row is stored as written, for any number in the column."""
    body = json.dumps(case("vertex", "bigquery-row-thoughts")).replace("98765432101234567", written).encode()
    assert written == one(None, body).request_id


@pytest.mark.parametrize(
    "resource", ["models/", "publishers/google/models/", "projects/p/publishers/google/models/"]
)
def test_vertex_models_may_be_named_as_resources(resource: str) -> None:
    """If a Vertex model is named as a resource, the last part of the resource name is the model."""
    row = case("vertex", "bigquery-row-thoughts")
    assert "gemini-2.5-pro" == one(None, row | {"model": resource + "gemini-2.5-pro"}).request_model


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "CANARY"}}, "RESOURCE_EXHAUSTED"),
        ({"error": {"code": 429, "message": "CANARY"}}, "429"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "CANARY"}}, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("write", [dict, json.dumps, lambda answer: "\n " + json.dumps(answer)])
def test_vertex_answers_may_be_errors(answer: Any, error_type: str, write: Any) -> None:
    """Google and its partners write errors as objects or as text. Both are read."""
    record = one(None, case("vertex", "bigquery-row-thoughts") | {"full_response": write(answer)})
    assert record.status == "error"
    assert record.error_type == error_type
    assert record.input_tokens is None


def test_vertex_partner_models_count_in_their_own_way() -> None:
    """
    Calls of partner models count by the partner's rules. Anthropic's answer is in the same column, and the
    provider is still Vertex.
    """
    row = case("vertex", "bigquery-row-thoughts") | {
        "api_method": "streamRawPredict",
        "model": "publishers/anthropic/models/claude-sonnet-4-5",
        "full_response": {
            "id": "msg_vrtx_01AbCdEfGhIjKlMnOpQr",
            "model": "claude-sonnet-4-5@20250929",
            "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 40},
        },
    }
    record = one("vertex", row)
    assert record.provider == "gcp.vertex_ai"
    assert record.operation == "chat"
    assert record.request_model == "claude-sonnet-4-5"
    assert record.input_tokens == 41


def test_azure_rows_of_messages_belong_to_the_row_with_figures() -> None:
    """
    Azure writes messages and figures of a call in separate rows. Event Hub may send these rows in any order.
    Seconds with seven decimals are accepted.
    """
    rows = case("azure_apim", "llm-log-rows")
    outcome = read(None, {"records": rows[::-1]})
    assert outcome.received == 3
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {MERGED: 2}
    assert "2025-11-04T09:12:33.456789Z" == rfc3339(outcome.records[0].start_time)


def test_azure_rows_with_figures_are_calls_without_a_deployment() -> None:
    """
    A row with figures is a call even without a deployment, because models of other providers have none. A row
    with neither is part of a message.
    """
    header, *messages = case("azure_apim", "llm-log-rows")
    record = one("azure_apim", header | {"DeploymentName": "", "ModelName": "claude-sonnet-4-5"})
    assert record.request_model is None
    assert record.response_model == "claude-sonnet-4-5"
    assert record.input_tokens == 1320
    assert {MERGED: 2} == dict(read("azure_apim", messages).ignored)


def test_azure_numbers_may_be_text_and_a_long_response_id_is_the_identity() -> None:
    """
    Numbers may be text. A long response id is the dedup key, but a short one identifies nothing, because it
    may occur twice.
    """
    row = case("azure_apim", "llm-log-rows")[0]
    long = row | {
        "PromptTokens": "1320",
        "RequestId": "chatcmpl-9Ri1u4Va0IOdj525McVFHn6RZJU9I",
        "OperationName": "Embeddings_Create",
    }
    record = one("azure_apim", long)
    assert record.input_tokens == 1320
    assert record.operation == "embeddings"
    assert dedup_key_of_parts(2, long["RequestId"]) == record.id
    assert dedup_key_of_parts(5, "azure_apim", row["CorrelationId"]) == one("azure_apim", row).id
