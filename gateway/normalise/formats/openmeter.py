"""CloudEvents as OpenMeter takes them; those with a model and tokens are calls, the others are ignored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import Call, ExampleCall, FormatAnswer, ItemFormat, any_of
from gateway.normalise.formats.engine.rules import count_tokens
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import model_name, provider
from gateway.normalise.reading.times import instant
from gateway.normalise.reading.tokens import Usage, of_usage
from gateway.normalise.reading.values import Other, money, nested, text
from spool.identity import Identity, of_call, of_event
from spool.record import Inference

NAME = "openmeter"


class OpenMeterData(Usage):
    model: Any = None
    provider: Any = None
    cost: Any = None


class OpenMeterEvent(msgspec.Struct):
    id: Any = None
    source: Any = None
    time: Any = None
    subject: Any = None
    data: OpenMeterData | Other = None


def calls(event: OpenMeterEvent) -> Iterable[Call]:
    """An event is a call when its data has both a model and tokens."""
    data = nested(event.data, OpenMeterData)
    tokens = of_usage(data)
    if text(data.model) is None or (tokens.input is None and tokens.output is None):
        return ()
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.id),
        start_time=instant(event.time),
        provider=provider(data.provider, data.model),
        request_model=model_name(data.model, data.provider),
        cost=money(data.cost, "data.cost"),
    )
    count_tokens(record, tokens)
    metadata = Metadata()
    metadata.describe(record, principal=text(event.subject))
    return (Call(record, _identity(record, text(event.source)), metadata.left_out),)


def _identity(record: Inference, source: str | None) -> Identity:
    if source and record.request_id:
        return Identity(of_event(source, record.request_id))
    return of_call(record, own_id=record.request_id)


def answer(body: bytes, outcome: Outcome, now: float) -> FormatAnswer:
    """204: OpenMeter's clients look at nothing else."""
    return FormatAnswer(204, b"")


def example(call: ExampleCall) -> Any:
    return {
        "specversion": "1.0", "type": "litellm_tokens", "id": call.response_id, "time": call.start,
        "subject": "example-user", "source": "tollhouse-example",
        "data": {
            "model": call.model, "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens, "cost": call.cost,
        },
    }  # fmt: skip


FORMAT = ItemFormat(
    name=NAME,
    has_sign=any_of("specversion"),
    example=example,
    event=OpenMeterEvent,
    calls=calls,
    answer=answer,
    answer_schemas={204: None},
    origins={
        "request_id": "id",
        "start_time": "time",
        "provider": "data.provider, else the model",
        "request_model": "data.model",
        "input_tokens": "data.prompt_tokens",
        "output_tokens": "data.completion_tokens",
        "cost": "data.cost",
        "user": "subject",
    },
)
