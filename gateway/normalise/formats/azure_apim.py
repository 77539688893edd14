"""
Azure API Management: rows of its gateway LLM log, and rows that `llm-emit-token-metric` writes to AppMetrics.

In the log, one row per call has the counts, and the other rows have messages. A metric counts tokens
without naming calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    Items,
    RawMembers,
    ReadCall,
    ReadTokenCount,
    has_object_with,
    set_normalised_counts,
)
from gateway.normalise.outcome import MERGED, NOT_AI
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.items import NestedPayloadUnpacker
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix
from gateway.normalise.reading.operations import CHAT, EMBEDDINGS
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import dict_or_empty, parse_count, text_or_none
from spool.identity import RecordIdentity, call_identity, dedup_key_of_cloud_event, is_long_id
from spool.record import Inference, UsageMetric

NAME = "azure_apim"
PROVIDER = "azure.ai.openai"


class AzureApimEvent(msgspec.Struct):
    """A row of the log or of AppMetrics. Columns with message content are not decoded."""

    TimeGenerated: Any = None
    OperationName: Any = None
    CorrelationId: Any = None
    DeploymentName: Any = None
    ModelName: Any = None
    PromptTokens: Any = None
    CompletionTokens: Any = None
    RequestId: Any = None
    # columns of the table AppMetrics
    Name: Any = None
    Sum: Any = None
    ItemCount: Any = None
    AppRoleInstance: Any = None
    Properties: Any = None


_TOKEN_TYPES = {"Prompt Tokens": "input", "Completion Tokens": "output"}
_TOTAL = "Total Tokens"  # name of the meter for the sum of prompt and completion tokens
_METRIC_COLUMNS = ("Name", "Sum", "ItemCount")


def has_azure_apim_fields(members: RawMembers) -> bool:
    names = ("CorrelationId", "DeploymentName")
    is_log = {*names} <= members.keys() or has_object_with(members, "records", *names)
    return (
        is_log
        or {*_METRIC_COLUMNS} <= members.keys()
        or has_object_with(members, "records", *_METRIC_COLUMNS)
    )


def rows_in_message(raw: payload.Raw, _: NestedPayloadUnpacker) -> Items:
    rows = payload.undecoded_members(raw).get("records")
    return payload.array_elements(raw if rows is None else rows)


def read_calls(event: AzureApimEvent) -> Iterable[ReadCall | ReadTokenCount]:
    if event.Name is not None:
        return _read_token_count(event)
    deployment = text_or_none(event.DeploymentName)
    input_tokens = parse_count(event.PromptTokens, "PromptTokens")
    tokens = Tokens(input_tokens, parse_count(event.CompletionTokens, "CompletionTokens"))
    if deployment is None and not tokens:
        return ()
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.CorrelationId),
        start_time=parse_instant(event.TimeGenerated),
        provider=PROVIDER,
        operation=_operation_of_azure_name(text_or_none(event.OperationName) or ""),
        request_model=model_without_prefix(deployment, PROVIDER),
        response_model=model_without_prefix(event.ModelName, PROVIDER),
    )
    set_normalised_counts(record, tokens)
    # RequestId is the provider's response id. API Management creates the correlation id.
    response_id = text_or_none(event.RequestId)
    unique = response_id if response_id and is_long_id(response_id) else None
    return (ReadCall(record, call_identity(record, response_id=unique, own_id=record.request_id)),)


def _read_token_count(event: AzureApimEvent) -> Iterable[ReadTokenCount]:
    """
    Read a metric row: the tokens of one minute. The log has the same tokens by call. So the count names no
    service, by which Tollhouse recognizes that it repeats logged calls.
    """
    name, dimensions = text_or_none(event.Name) or "", dict_or_empty(event.Properties)
    number = parse_count(event.Sum, "Sum")
    if not number or name not in _TOKEN_TYPES:
        return ()
    metadata = CallMetadata()
    metadata.add_tag("api", text_or_none(dimensions.get("API ID")))
    metadata.add_tag("subscription", text_or_none(dimensions.get("Subscription ID")))
    metric = UsageMetric(
        id=b"",
        source=NAME,
        name="azure_apim.tokens",
        token_type=_TOKEN_TYPES[name],
        value=number,
        start_time=parse_instant(event.TimeGenerated),
        tags=metadata.tags,
    )
    key_facts = [
        name,
        event.TimeGenerated,
        event.AppRoleInstance,
        event.Sum,
        event.ItemCount,
        sorted(dimensions.items()),
    ]
    return (
        ReadTokenCount(
            metric, RecordIdentity(dedup_key_of_cloud_event(NAME, str(key_facts))), metadata.left_out
        ),
    )


def reason_row_is_ignored(event: AzureApimEvent) -> str:
    """
    Return why a row without a call is ignored. A row with messages repeats the row with the counts, and a row
    of total tokens repeats the rows of input and output.
    """
    if event.Name is not None:
        return MERGED if text_or_none(event.Name) == _TOTAL else NOT_AI
    return MERGED if text_or_none(event.CorrelationId) else NOT_AI


def _operation_of_azure_name(name: str) -> str | None:
    if name.startswith("ChatCompletions_"):
        return CHAT
    return EMBEDDINGS if name.startswith("Embeddings_") else None


def example_body(call: ExampleCall) -> Any:
    return [
        {
            "TimeGenerated": call.start_text,
            "OperationName": "ChatCompletions_Create",
            "CorrelationId": call.uuid,
            "DeploymentName": call.model,
            "ModelName": call.response_model,
            "PromptTokens": call.input_tokens,
            "CompletionTokens": call.output_tokens,
            "RequestId": call.response_id,
        }
    ]


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_azure_apim_fields,
    example=example_body,
    event=AzureApimEvent,
    calls=read_calls,
    unwrap=rows_in_message,
    ignored_as=reason_row_is_ignored,
    origins={
        "request_id": "CorrelationId",
        "start_time": "TimeGenerated",
        "provider": "always Azure OpenAI for this log",
        "operation": "OperationName",
        "request_model": "DeploymentName",
        "response_model": "ModelName",
        "input_tokens": "PromptTokens",
        "output_tokens": "CompletionTokens",
        "token_type": "Name",
        "value": "Sum",
    },
)
