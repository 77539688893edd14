"""
CloudEvents in OpenMeter's form.

An event with a model and counts of input or output is a call. OpenMeter's standard event counts one type of
tokens of a model, so it is usage that belongs to no known call. All other events are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    FormatAnswer,
    ItemFormat,
    ReadCall,
    ReadTokenCount,
    has_any_member,
    set_normalised_counts,
)
from gateway.normalise.litellm_calls import has_form_of_call_id
from gateway.normalise.outcome import ReadOutcome
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Usage, tokens_of_usage
from gateway.normalise.reading.values import Other, parse_amount, parse_count, struct_or_empty, text_or_none
from spool.identity import (
    AS_CALL,
    AS_COUNT,
    RecordIdentity,
    call_identity,
    dedup_key_of_cloud_event,
    is_long_id,
    links_by_common_id,
    random_identity,
)
from spool.record import Inference, UsageMetric

NAME = "openmeter"

_TOKEN_TYPES = {
    "input": "input",
    "prompt": "input",
    "system": "input",
    "request": "input",
    "output": "output",
    "completion": "output",
    "response": "output",
}
_KONG = "kong"


class OpenMeterData(Usage):
    model: Any = None
    provider: Any = None
    cost: Any = None
    tokens: Any = None
    type: Any = None
    # the service's name in Kong's events; Kong's other reports name the service in the same way
    service_name: Any = None


class OpenMeterEvent(msgspec.Struct):
    id: Any = None
    type: Any = None
    source: Any = None
    time: Any = None
    subject: Any = None
    data: OpenMeterData | Other = None


def read_calls(event: OpenMeterEvent) -> Iterable[ReadCall | ReadTokenCount]:
    """Read an event as one call if its data has a model and tokens of input or output."""
    data = struct_or_empty(event.data, OpenMeterData)
    tokens = tokens_of_usage(data)
    if text_or_none(data.model) is None:
        return ()
    if tokens.input is None and tokens.output is None:
        return _read_token_count(event, data)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.id),
        start_time=parse_instant(event.time),
        provider=stated_or_model_provider(data.provider, data.model),
        request_model=model_without_prefix(data.model, data.provider),
        cost=parse_amount(data.cost, "data.cost"),
    )
    set_normalised_counts(record, tokens)
    metadata = CallMetadata()
    metadata.fill_record(record, principal=text_or_none(event.subject))
    return (ReadCall(record, _call_identity_of_event(record, text_or_none(event.source)), metadata.left_out),)


def _read_token_count(event: OpenMeterEvent, data: OpenMeterData) -> Iterable[ReadTokenCount]:
    """
    Read the token count of OpenMeter's standard event. Its service name becomes a tag, so that counts of
    different sources stay apart.
    """
    number = parse_count(data.tokens, "data.tokens")
    token_type = _TOKEN_TYPES.get(text_or_none(data.type) or "")
    if not number or token_type is None:  # a count without a token type cannot be added to any sum
        return ()
    source, event_id = text_or_none(event.source), text_or_none(event.id)
    is_kong = (text_or_none(event.type) or "").startswith(f"{_KONG}.")
    metadata = CallMetadata()
    metadata.add_tag("service", text_or_none(data.service_name) or source if is_kong else source)
    metric = UsageMetric(
        id=b"",
        source=_KONG if is_kong else NAME,
        name="openmeter.tokens",
        model=model_without_prefix(data.model, data.provider),
        token_type=token_type,
        value=number,
        start_time=parse_instant(event.time),
        user=text_or_none(event.subject),
        tags=metadata.tags,
    )
    known = source is not None and event_id is not None
    identity = (
        RecordIdentity(dedup_key_of_cloud_event(source or "", event_id or "")) if known else random_identity()
    )
    return (ReadTokenCount(metric, identity, metadata.left_out),)


def _call_identity_of_event(record: Inference, source: str | None) -> RecordIdentity:
    event_id = record.request_id
    if not source or not event_id:
        return call_identity(record, own_id=event_id)
    event_key = dedup_key_of_cloud_event(source, event_id)
    if not is_long_id(event_id):
        return RecordIdentity(event_key)
    # LiteLLM uses its call id as the event id if the response has no id.
    links = (
        links_by_common_id(record, event_id, own_report_kind=AS_COUNT, other_report_kind=AS_CALL)
        if has_form_of_call_id(event_id)
        else ()
    )
    return RecordIdentity(call_identity(record, response_id=event_id).id, lookups=(event_key,), links=links)


def build_empty_answer(body: bytes, outcome: ReadOutcome, now: float) -> FormatAnswer:
    return FormatAnswer(204, b"")


def example_body(call: ExampleCall) -> Any:
    return {
        "specversion": "1.0",
        "type": "litellm_tokens",
        "id": call.response_id,
        "time": call.start_text,
        "subject": "example-user",
        "source": "tollhouse-example",
        "data": {
            "model": call.model,
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "cost": call.cost,
        },
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_any_member("specversion"),
    example=example_body,
    event=OpenMeterEvent,
    calls=read_calls,
    answer=build_empty_answer,
    answer_schemas={204: None},
    origins={
        "request_id": "id",
        "start_time": "time",
        "provider": "data.provider, else derived from the model name",
        "request_model": "data.model",
        "input_tokens": "data.prompt_tokens",
        "output_tokens": "data.completion_tokens",
        "cost": "data.cost",
        "user": "subject",
        "model": "data.model",
        "token_type": "data.type",
        "value": "data.tokens",
    },
)
