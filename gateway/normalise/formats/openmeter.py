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
    Call,
    Count,
    ExampleCall,
    FormatAnswer,
    ItemFormat,
    any_of,
    count_tokens,
)
from gateway.normalise.litellm_calls import is_call_id
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import model_name, stated_or_model_provider
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Usage, tokens_of_usage
from gateway.normalise.reading.values import Other, count, money, nested, text
from spool.identity import (
    AS_CALL,
    AS_COUNT,
    Identity,
    answer_links,
    call_identity,
    cloud_event_id,
    is_long,
    no_identity,
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


def read_calls(event: OpenMeterEvent) -> Iterable[Call | Count]:
    """Read an event as one call if its data has a model and tokens of input or output."""
    data = nested(event.data, OpenMeterData)
    tokens = tokens_of_usage(data)
    if text(data.model) is None:
        return ()
    if tokens.input is None and tokens.output is None:
        return _read_token_count(event, data)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.id),
        start_time=parse_instant(event.time),
        provider=stated_or_model_provider(data.provider, data.model),
        request_model=model_name(data.model, data.provider),
        cost=money(data.cost, "data.cost"),
    )
    count_tokens(record, tokens)
    metadata = Metadata()
    metadata.fill_record(record, principal=text(event.subject))
    return (Call(record, _identity(record, text(event.source)), metadata.left_out),)


def _read_token_count(event: OpenMeterEvent, data: OpenMeterData) -> Iterable[Count]:
    """Read the count of a standard event. The service name keeps the counts of different sources apart."""
    number = count(data.tokens, "data.tokens")
    token_type = _TOKEN_TYPES.get(text(data.type) or "")
    if not number or token_type is None:  # a count without a token type cannot be added to any sum
        return ()
    source, event_id = text(event.source), text(event.id)
    is_kong = (text(event.type) or "").startswith(f"{_KONG}.")
    metadata = Metadata()
    metadata.add_tag("service", text(data.service_name) or source if is_kong else source)
    metric = UsageMetric(
        id=b"",
        source=_KONG if is_kong else NAME,
        name="openmeter.tokens",
        model=model_name(data.model, data.provider),
        token_type=token_type,
        value=number,
        start_time=parse_instant(event.time),
        user=text(event.subject),
        tags=metadata.tags,
    )
    known = source is not None and event_id is not None
    identity = Identity(cloud_event_id(source or "", event_id or "")) if known else no_identity()
    return (Count(metric, identity, metadata.left_out),)


def _identity(record: Inference, source: str | None) -> Identity:
    event_id = record.request_id
    if not source or not event_id:
        return call_identity(record, own_id=event_id)
    event_key = cloud_event_id(source, event_id)
    if not is_long(event_id):
        return Identity(event_key)
    # LiteLLM uses its call id as the event id if the response has no id.
    links = answer_links(record, event_id, own=AS_COUNT, other=AS_CALL) if is_call_id(event_id) else ()
    return Identity(call_identity(record, response_id=event_id).id, lookups=(event_key,), links=links)


def answer_without_body(body: bytes, outcome: Outcome, now: float) -> FormatAnswer:
    """Return 204. OpenMeter's clients read nothing else."""
    return FormatAnswer(204, b"")


def example(call: ExampleCall) -> Any:
    return {
        "specversion": "1.0",
        "type": "litellm_tokens",
        "id": call.response_id,
        "time": call.start,
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
    has_sign=any_of("specversion"),
    example=example,
    event=OpenMeterEvent,
    calls=read_calls,
    answer=answer_without_body,
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
