"""Azure API Management: rows of its gateway LLM log. One row of a call has its counts, the others messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import Call, ExampleCall, ItemFormat, Items, Members, any_inside
from gateway.normalise.formats.engine.rules import count_tokens
from gateway.normalise.outcome import MERGED, NOT_AI
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.unfolding import Unfolding
from gateway.normalise.reading.models import model_name
from gateway.normalise.reading.operations import CHAT, EMBEDDINGS
from gateway.normalise.reading.times import instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import count, text
from spool.identity import is_long, of_call
from spool.record import Inference

NAME = "azure_apim"
PROVIDER = "azure.ai.openai"


class AzureApimEvent(msgspec.Struct):
    """Columns with messages are not decoded."""

    TimeGenerated: Any = None
    OperationName: Any = None
    CorrelationId: Any = None
    DeploymentName: Any = None
    ModelName: Any = None
    PromptTokens: Any = None
    CompletionTokens: Any = None
    RequestId: Any = None


def has_sign(members: Members) -> bool:
    names = ("CorrelationId", "DeploymentName")
    return {*names} <= members.keys() or any_inside(members, "records", *names)


def unwrap(raw: payload.Raw, _: Unfolding) -> Items:
    """The rows of an Event Hub message, else the row itself."""
    rows = payload.peek(raw).get("records")
    return payload.array(raw if rows is None else rows)


def calls(event: AzureApimEvent) -> Iterable[Call]:
    """The row with a deployment, or with figures, is the call."""
    deployment = text(event.DeploymentName)
    input_tokens = count(event.PromptTokens, "PromptTokens")
    tokens = Tokens(input_tokens, count(event.CompletionTokens, "CompletionTokens"))
    if deployment is None and not tokens:
        return ()
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.CorrelationId),
        start_time=instant(event.TimeGenerated),
        provider=PROVIDER,
        operation=_operation(text(event.OperationName) or ""),
        request_model=model_name(deployment, PROVIDER),
        response_model=model_name(event.ModelName, PROVIDER),
    )
    count_tokens(record, tokens)
    # RequestId is the model's response id; APIM itself makes the correlation id.
    response_id = text(event.RequestId)
    unique = response_id if response_id and is_long(response_id) else None
    return (Call(record, of_call(record, response_id=unique, own_id=record.request_id)),)


def ignored_as(event: AzureApimEvent) -> str:
    """A row of message chunks belongs to the row that has the figures."""
    return MERGED if text(event.CorrelationId) else NOT_AI


def _operation(name: str) -> str | None:
    if name.startswith("ChatCompletions_"):
        return CHAT
    return EMBEDDINGS if name.startswith("Embeddings_") else None


def example(call: ExampleCall) -> Any:
    return [{
        "TimeGenerated": call.start, "OperationName": "ChatCompletions_Create",
        "CorrelationId": call.uuid, "DeploymentName": call.model, "ModelName": call.response_model,
        "PromptTokens": call.input_tokens, "CompletionTokens": call.output_tokens,
        "RequestId": call.response_id,
    }]  # fmt: skip


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_sign,
    example=example,
    event=AzureApimEvent,
    calls=calls,
    unwrap=unwrap,
    ignored_as=ignored_as,
    origins={
        "request_id": "CorrelationId",
        "start_time": "TimeGenerated",
        "provider": "the log is Azure's",
        "operation": "OperationName",
        "request_model": "DeploymentName",
        "response_model": "ModelName",
        "input_tokens": "PromptTokens",
        "output_tokens": "CompletionTokens",
    },
)
