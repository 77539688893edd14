"""
Log records that are AI calls, into inference records: the log side of one payload.

Which events are calls stands in `log_dialects`; Gemini CLI, which logs each call twice, is put together at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.normalise.options import Options
from gateway.normalise.otlp import log_dialects as dialects
from gateway.normalise.otlp import rows, semconv
from gateway.normalise.otlp.decoding.model import LogRecord
from gateway.normalise.otlp.log_dialects import CallEvent
from gateway.normalise.otlp.products.gemini_twins import GeminiTwins
from gateway.normalise.otlp.senders import Senders
from gateway.normalise.otlp.sources import source_of
from gateway.normalise.outcome import IMPLAUSIBLE, MERGED, NOT_AI, UNRECOGNISED_AI, Outcome
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.cache_inclusion import Tokens
from spool.identity import of_call
from spool.record import Inference

TURN = 2048  # calls to book without a pause


class Logs:
    """Takes log records, fills the outcome; what waits for its twin is booked in `finish`."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._twins = GeminiTwins()

    def take(self, place: int, record: LogRecord) -> None:
        """Every record ends up in exactly one term of the books, here or in `finish`."""
        name = dialects.event_name(record)
        source = source_of(record.resource, record.scope)
        event = dialects.find(name, source)
        if event is None and any(column in record.attributes for column in rows.ENVOYS_COLUMNS):
            self._take_row(place, record)
        elif event is None:
            self._ignore(name, record)
        elif event.dialect is dialects.GEMINI_CLI:
            self._twins.hold(place, record, event)
        elif name == dialects.DETAILS and source == dialects.GEMINI_CLI.source:
            self._take_twin(record)
        else:
            self._take_call(place, record, event)

    def settle(self, ended: frozenset[str]) -> Iterator[None]:
        """Traces are nothing to it."""
        return iter(())

    def finish(self) -> Iterator[None]:
        """Book the calls of Gemini CLI, each with what only its twin knows."""
        for number, (place, record, event) in enumerate(self._twins.pairs(), start=1):
            self._take_call(place, record, event)
            if number % TURN == 0:
                yield

    def _ignore(self, name: str, record: LogRecord) -> None:
        if dialects.is_understood(name) or not semconv.looks_like_ai(record.attributes):
            self._outcome.ignored[NOT_AI] += 1
        else:
            self._outcome.ignored[UNRECOGNISED_AI] += 1
            self._outcome.show_shape(record.attributes)

    def _take_row(self, place: int, record: LogRecord) -> None:
        tags = self._senders.tags_of(record.resource)
        device = self._senders.device
        if not rows.take(rows.ENVOY, place, record.attributes, self._outcome, tags=tags, device=device):
            self._outcome.ignored[NOT_AI] += 1

    def _take_twin(self, record: LogRecord) -> None:
        # It never counts: its call is the other record, be that one in this payload or in the one before.
        self._outcome.ignored[MERGED if self._twins.hold_twin(record) else NOT_AI] += 1

    def _take_call(self, place: int, record: LogRecord, event: CallEvent) -> None:
        try:
            if event.is_call(record.attributes):
                self._add(record, event)
            else:
                self._outcome.ignored[NOT_AI] += 1
        except words.Implausible as error:
            self._outcome.reject(place, IMPLAUSIBLE, f"log record {place}: {error}")

    def _add(self, record: LogRecord, event: CallEvent) -> None:
        dialect, attributes = event.dialect, record.attributes
        call = _inference(record, event)
        self._senders.sign(call, record.resource, attributes)
        self._outcome.note_session(call, semconv.first_text(record.resource.attributes, semconv.RESOURCE_SESSION))
        identity = of_call(
            call,
            response_id=semconv.first_text(attributes, dialect.response_id),
            shared_id=semconv.first_text(attributes, dialect.shared_id),
            span=dialect.own_span,
            sequence=words.text(attributes.get("event.sequence")),
        )
        why = _why(record, event, call) if self._outcome.why is not None else None
        self._outcome.add(call, identity, why, device=self._senders.device)


def _inference(record: LogRecord, event: CallEvent) -> Inference:
    dialect, attributes = event.dialect, record.attributes
    failed = event.failed or semconv.first_text(attributes, semconv.ERROR_TYPE) is not None
    model = semconv.first_text(attributes, dialect.model)
    provider = dialect.provider_of(attributes, model)
    tokens = dialect.count(attributes, provider)
    operation = words.text(attributes.get("gen_ai.operation.name"))
    return Inference(
        id=b"",
        source=dialect.source or source_of(record.resource, record.scope),
        request_id=semconv.first_text(attributes, semconv.REQUEST_ID),
        trace_id=record.trace_id,
        span_id=record.span_id,
        start_time=_start(record, event),
        end_time=record.time,
        provider=provider,
        operation=words.OPERATIONS.get(operation or "", dialect.operation),
        request_model=model,
        response_model=semconv.first_text(attributes, dialect.response_model),
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
        reasoning_tokens=tokens.reasoning,
        cost=semconv.cost_of(attributes),
        status="error" if failed else "ok",
        error_type=semconv.error_type(attributes) if failed else None,
    )


def _start(record: LogRecord, event: CallEvent) -> int | None:
    """The end less the duration; the end itself when there is none, or when it is longer than all time."""
    if record.time is None or not event.timed:
        return record.time
    duration = words.nanoseconds(record.attributes.get("duration_ms"))
    return record.time - duration if duration is not None and duration <= record.time else record.time


def _why(record: LogRecord, event: CallEvent, call: Inference) -> dict[str, str]:
    """Field by field, the attribute that was read and the rule that was applied to it."""
    dialect, attributes = event.dialect, record.attributes
    tables = {
        "request_id": semconv.REQUEST_ID,
        "request_model": dialect.model,
        "response_model": dialect.response_model,
        "provider": dialect.provider,
        "cost": semconv.COST,
        **{f"{field}_tokens": getattr(dialect.tokens, field) for field in Tokens._fields},
    }
    why = {
        field: name for field, names in tables.items() if (name := semconv.first_name(attributes, names)) is not None
    }
    for field, part in (("input_tokens", "cache or tool prompts"), ("output_tokens", "reasoning")):
        if field in why and getattr(call, field) != words.count(attributes[why[field]]):
            why[field] += f" + {part} (the dialect, the total or the figures say that it excludes it)"
    if call.provider is not None and "provider" not in why:
        why["provider"] = f"dialect {call.source}, or the model's name"
    why["source"] = f"event {dialects.event_name(record)}"
    return why
