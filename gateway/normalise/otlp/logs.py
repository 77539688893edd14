"""
Conversion of log records that are AI calls to inference records.

If a product logs each call twice, the two records are paired at the end of the payload.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.conventions import LOGGED, OTEL
from gateway.normalise.otlp.metrics import find_metric_family, is_metric_repeating_other_reports
from gateway.normalise.otlp.model import DETAILS, Attributes, LogRecord
from gateway.normalise.otlp.product import (
    AttributeNamesByField,
    LogEvent,
    LogRecordPairs,
    Names,
    TelemetryProduct,
    TokenNames,
)
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.senders import Senders, product_of_sender
from gateway.normalise.otlp.shapes import FIELD_NAMES, find_or_build_shape
from gateway.normalise.otlp.spans.calls import read_meters
from gateway.normalise.outcome import MERGED, NOT_AI, UNRECOGNISED_AI, ReadOptions, ReadOutcome
from gateway.normalise.reading import operations, times, values
from gateway.normalise.reading.ai_names import is_usage_name
from gateway.normalise.reading.assistants import ASSISTANTS
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.tokens import set_token_counts
from spool.identity import (
    AS_ASSISTANT,
    build_relayed_report,
    call_identity,
    dedup_key_from_call_id,
    dedup_keys_of_request_id,
    identity_of_call_end_report,
    with_span_scope,
)
from spool.record import Inference


def _is_call_event(attributes: Attributes) -> bool:
    operation = values.text_or_none(attributes.get("gen_ai.operation.name"))
    if operation is not None:
        return operation in operations.BY_NAME
    model_or_provider = semconv.first_text(
        attributes, (*LOGGED.model, *LOGGED.response_model, *LOGGED.provider)
    )
    figures = (*LOGGED.tokens.input, *LOGGED.tokens.output)
    reported = semconv.name_of_first_value(attributes, (*figures, *semconv.ERROR_TYPE))
    return model_or_provider is not None and reported is not None


_EVENTS = {name: (product, event) for product in PRODUCTS for name, event in product.events.items()}
_DETAILS = {
    product: LogEvent(dialect=product.details, is_call=_is_call_event, adds_to_call=True)
    for product in PRODUCTS
    if product.details is not None  # all other products write this event as the conventions define it
}
_NAMING = tuple([product.event_name for product in PRODUCTS if product.event_name is not None])
_UNDERSTOOD = tuple([beginning for product in PRODUCTS for beginning in product.event_beginnings])
_STEPS_OF_COUNTERS = frozenset({"counter", "monotonic_counter", "histogram"})
_NO_CALLS = frozenset({name for product in PRODUCTS for name in product.no_calls})


def find_call_event(name: str, sender: TelemetryProduct) -> tuple[TelemetryProduct, LogEvent] | None:
    if name == DETAILS:
        return sender, _DETAILS.get(sender, _DETAILS[OTEL])
    return _EVENTS.get(name)


def is_event_known_as_no_call(name: str, attributes: Attributes) -> bool:
    return name in _NO_CALLS or (name.startswith(_UNDERSTOOD) and not _has_usage(attributes))


def has_only_logged_counter_increments(attributes: Attributes) -> bool:
    """
    Return whether a log record repeats a counter. Rust's tracing library sends counter increments as metrics
    and also logs them.
    """
    counted = [name for name in attributes if is_usage_name(name)]
    return bool(counted) and all(_is_logged_counter_increment(name) for name in counted)


def _is_logged_counter_increment(name: str) -> bool:
    kind, _, metric = name.partition(".")
    return kind in _STEPS_OF_COUNTERS and (
        find_metric_family(metric) is not None or is_metric_repeating_other_reports(metric)
    )


def _has_usage(attributes: Attributes) -> bool:
    return any(is_usage_name(name) and _is_positive(value) for name, value in attributes.items())


def _is_positive(value: object) -> bool:
    try:
        return float(str(value)) > 0
    except ValueError:
        return False


def event_name(record: LogRecord, sender: TelemetryProduct) -> str:
    """Return the event's name: from the attribute, else from the record's own field, else from the body."""
    name = values.text_or_none(record.attributes.get("event.name")) or record.event_name or record.body
    for whole_name in _NAMING:
        name = whole_name(record, name, sender.source)
    return name


TURN = 2048  # calls added before the event loop gets a turn


class OtlpLogReader:
    """
    Reads log records into an outcome. If a product logs each call twice, the call is added in
    `add_items_that_waited`, when both records have been read.
    """

    def __init__(self, outcome: ReadOutcome, options: ReadOptions) -> None:
        self._outcome = outcome
        self._senders = Senders(outcome, options)
        self._twins: dict[TelemetryProduct, LogRecordPairs] = {
            product: product.twins() for product in PRODUCTS if product.twins is not None
        }

    def read_item(self, item_index: int, record: LogRecord) -> None:
        """Read a record. It is counted exactly once in the outcome, here or in `add_items_that_waited`."""
        sender = product_of_sender(record.resource, record.scope)
        name = event_name(record, sender)
        event_of_product = find_call_event(name, sender)
        if event_of_product is None:
            if not self._read_record_if_from_tollhouse(item_index, record):
                self._ignore_record(name, record)
            return
        product, event = event_of_product
        twins = self._twins.get(product)
        if twins is None:
            self._add_call_or_reject(item_index, record, product, event)
        elif name == DETAILS:
            # The product's own record of the call counts, and may be in an earlier payload.
            if twins.hold_genai_event_if_it_completes_call(record):
                self._outcome.ignored[MERGED] += 1
                because = f"repeats the call that {product.source} reports with an event of its own"
                self._outcome.note_dropped_duplicate(f"log record {item_index}", because)
            else:
                self._outcome.ignored[NOT_AI] += 1
        else:
            twins.hold_product_event(item_index, record, event)

    def add_calls_of_ended_traces(self, ended: frozenset[str]) -> Iterator[None]:
        return iter(())

    def add_items_that_waited(self) -> Iterator[None]:
        for product, twins in self._twins.items():
            for number, (index, record, event) in enumerate(
                twins.complete_calls_from_genai_events(), start=1
            ):
                self._add_call_or_reject(index, record, product, event)
                if number % TURN == 0:
                    yield

    def _read_record_if_from_tollhouse(self, index: int, record: LogRecord) -> bool:
        for product in find_or_build_shape(record.attributes).taken_by:
            if product.take_log is not None:
                self._senders.set_current_resource(record.resource)
                tags, device = self._senders.tags, self._senders.device
                version = self._senders.sender_version(record.resource, record.scope)
                if not product.take_log(
                    index, record, self._outcome, tags=tags, device=device, version=version
                ):
                    self._outcome.ignored[NOT_AI] += 1
                return True
        return False

    def _ignore_record(self, name: str, record: LogRecord) -> None:
        if (
            is_event_known_as_no_call(name, record.attributes)
            or not find_or_build_shape(record.attributes).names_ai
        ):
            self._outcome.ignored[NOT_AI] += 1
        elif has_only_logged_counter_increments(record.attributes):
            self._outcome.ignored[MERGED] += 1
        else:
            self._outcome.ignored[UNRECOGNISED_AI] += 1
            self._outcome.note_unrecognised_names(record.attributes)

    def _add_call_or_reject(
        self, index: int, record: LogRecord, product: TelemetryProduct, event: LogEvent
    ) -> None:
        try:
            if event.is_call(record.attributes):
                self._add_call_record(record, product, event)
            else:
                self._outcome.ignored[NOT_AI] += 1
        except values.BadValue as error:
            self._outcome.reject_item(index, error.reason, f"log record {index}: {error}")

    def _add_call_record(self, record: LogRecord, product: TelemetryProduct, event: LogEvent) -> None:
        dialect, attributes = event.dialect, record.attributes
        shape = find_or_build_shape(attributes)
        call = _build_call_record(record, product, event, shape)
        self._senders.fill_caller_and_tags(call, product, record.resource, attributes)
        self._outcome.note_resource_session(call, self._senders.caller.session, device=self._senders.device)
        own_id = semconv.first_text(attributes, dialect.own_id)
        identity = call_identity(
            call,
            response_id=semconv.first_text(attributes, dialect.response_id),
            shared_id=semconv.first_text(attributes, dialect.shared_id),
            span=dialect.own_span and own_id is None,
            own_id=own_id,
            sequence=values.text_or_none(attributes.get("event.sequence")),
        )
        if identity.scope is not None:
            identity = with_span_scope(identity, record.scope.name)
        also: tuple[bytes, ...] = ()
        if names := (*dialect.provider_request_id, *shape.provider_request_id):
            also = dedup_keys_of_request_id(call, semconv.first_provider_request_id(attributes, names))
            identity = identity._replace(also=tuple([name for name in also if name != identity.id]))
        if (call_id := semconv.first_text(attributes, dialect.call_id)) is not None:
            name = dedup_key_from_call_id(product.source, call_id)
            if not event.adds_to_call:
                identity = identity._replace(joins=(name,))
            elif dialect.own_id:
                identity = identity._replace(also=(*identity.also, name))
            else:  # no id of the event identifies only this event
                identity = identity_of_call_end_report(identity, name)
        if event.is_final:
            identity = identity._replace(is_final=True)
        if event.links is not None:
            identity = identity._replace(links=identity.links + event.links(attributes, call))
        assistant = ASSISTANTS.get(product.source)
        if assistant is not None and not event.adds_to_call:
            session = assistant.session_if_sent_to_gateways(attributes)
            relay = build_relayed_report(
                call,
                session,
                report_kind=AS_ASSISTANT,
                states_request_id=bool(also),
                lacks_common_id=not assistant.carriers,
                program=assistant.program,
            )
            identity = identity._replace(relay=relay, is_of_assistant=True)
        why = _field_origins_of_call(record, product, event, call) if self._outcome.why is not None else None
        version = self._senders.sender_version(record.resource, record.scope)
        self._outcome.add_record(call, identity, why, device=self._senders.device, version=version)


def _build_call_record(
    record: LogRecord, product: TelemetryProduct, event: LogEvent, attribute_names: AttributeNamesByField
) -> Inference:
    dialect, attributes = event.dialect, record.attributes
    failed = event.failed or semconv.first_text(attributes, semconv.ERROR_TYPE) is not None
    failed = failed or semconv.has_error_finish(attributes, semconv.FINISH_REASONS, dialect.tokens.output)
    model = semconv.first_text(attributes, dialect.model)
    provider = dialect.provider_or_default(attributes, model)
    tokens = dialect.read_tokens(attributes, provider, model)
    operation = values.text_or_none(attributes.get("gen_ai.operation.name"))
    cost = semconv.reported_cost(attributes, FIELD_NAMES["cost"])
    # set the rest afterwards, because calls with more than 15 keyword arguments are slow in Python
    call = Inference(
        id=b"",
        source=product.source,
        request_id=semconv.first_text(attributes, _names_of_request_id(event)),
        trace_id=record.trace_id,
        span_id=record.span_id,
        start_time=_start_time_of_call(record, event),
        end_time=record.time,
        provider=provider,
        operation=operations.BY_NAME.get(operation or "", dialect.operation),
        request_model=model,
        response_model=semconv.first_text(attributes, dialect.response_model),
        cost=cost,
        status="error" if failed else "ok",
        error_type=semconv.machine_readable_error(attributes) if failed else None,
    )
    set_token_counts(call, tokens)
    if cost is None:
        call.charges = semconv.reported_charges(attributes, FIELD_NAMES["cost"])
    if attribute_names.meters:
        call.meters = read_meters(attributes, attribute_names) or call.meters
    if product.zero_cost_is_unknown:
        call.cost = cost_unless_placeholder_zero(call, cost)
    call.region = semconv.processing_region(
        attributes, attribute_names.region, attribute_names.address, provider=provider, model=model
    )
    if event.refine is not None:
        event.refine(attributes, call)
    return call


def _names_of_request_id(event: LogEvent) -> Names:
    return (
        FIELD_NAMES["request_id"]
        if event.adds_to_call
        else (*FIELD_NAMES["request_id"], *event.dialect.own_id)
    )


def _start_time_of_call(record: LogRecord, event: LogEvent) -> int | None:
    if record.time is None or not event.timed:
        return record.time
    duration = times.milliseconds_to_ns(record.attributes.get("duration_ms"))
    return record.time - duration if duration is not None and duration <= record.time else record.time


def _field_origins_of_call(
    record: LogRecord, product: TelemetryProduct, event: LogEvent, call: Inference
) -> dict[str, str]:
    dialect, attributes = event.dialect, record.attributes
    region_attribute = semconv.name_of_region_attribute(
        attributes, FIELD_NAMES["region"], FIELD_NAMES["address"], provider=call.provider
    )
    tables = {
        "request_id": _names_of_request_id(event),
        "request_model": dialect.model,
        "response_model": dialect.response_model,
        "provider": dialect.provider,
        "cost": FIELD_NAMES["cost"],
        "region": () if region_attribute is None else (region_attribute,),
        **{f"{field}_tokens": getattr(dialect.tokens, field) for field in TokenNames.__slots__},
    }
    names_by_field = {
        field: semconv.name_of_first_value(attributes, names) for field, names in tables.items()
    }
    why = {field: name for field, name in names_by_field.items() if name is not None}
    for field, part in (("input_tokens", "cache or tool prompts"), ("output_tokens", "reasoning")):
        if field in why and getattr(call, field) != semconv.parse_count_if_number(
            attributes[why[field]], why[field]
        ):
            why[field] += f" + {part} (excluded from this attribute by dialect, total or counts)"
    if call.provider is not None and "provider" not in why:
        why["provider"] = f"by dialect {call.source}, or derived from the model name"
    if call.region is not None and call.region == region_of_call(model=call.request_model):
        why["region"] = "derived from the model name"
    why["source"] = f"read from event {event_name(record, product)}"
    return why
