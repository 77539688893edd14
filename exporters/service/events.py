"""
Forwarding of usage events: as CloudEvents to another Tollhouse, or as unit-cost operations in this one's log.

The cost service accepts no metered events, so `[upstream.events]` maps types of events to unit-cost streams.
The operations are appended to this Tollhouse's own log. Their ids are derived from the events' ids, so a
repeat adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import orjson

from exporters import batch as batches
from exporters.batch import map_with_pauses
from exporters.errors import DeliveryTooLarge
from exporters.http.answers import rejected_count_in_receipt
from exporters.http.client import MAX_ITEMS_ANSWER_BYTES
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import UpstreamClient
from exporters.settings import EventStream, UpstreamSettings
from spool.deliveries.values import Delivery, Settlement
from spool.identity import RecordIdentity, derived_dedup_key
from spool.log.protocols import RecordLog
from spool.log.values import LogEntry, Submission
from spool.record import NS, UNIT_COST, Record, Scalar, UnitCostOperation, UsageEvent, rfc3339
from spool.streams import rounded_text

BATCH = "application/cloudevents-batch+json"
STREAM = "usage-events"
AMOUNT_NAMES = ("amount", "value")  # fields that hold the amount, unless the type's mapping names another
COUNTED = "1"  # value of `EventStream.value` with which each event counts as 1
MOST_ZEROS = 100  # maximum zeros of an amount in plain notation, because 1e999999 would take a megabyte


def forwarded_form(settings: UpstreamSettings, type: str) -> str | None:
    """Return in which form events of a type are sent upstream, or None if they are only stored."""
    if not settings.base_url:
        return None
    if UpstreamPaths(settings).url_template(STREAM) is not None:
        return "event"
    mapped = settings.events.get(type)
    return None if mapped is None else f"unit-cost stream {mapped.stream}"


def needs_event_mapping(settings: UpstreamSettings) -> bool:
    return bool(settings.base_url) and UpstreamPaths(settings).url_template(STREAM) is None


def is_unmapped_event_type(settings: UpstreamSettings, type: str) -> bool:
    """
    Return whether events of a type are not sent because the upstream accepts no events and the type has no stream.
    """
    return needs_event_mapping(settings) and type not in settings.events


def event_amount(settings: UpstreamSettings, event: UsageEvent) -> Decimal | None:
    """
    Return the amount that an event adds to its stream or, without a stream, the amount that it states. Return
    None if it has no amount.
    """
    stream = settings.events.get(event.event_type)
    if stream is None and not any(_event_value_at(event, name) is not None for name in AMOUNT_NAMES):
        return None
    amount = _event_amount_at(event, "" if stream is None else stream.value)
    return None if amount is None else Decimal(amount)


class EventExporter:
    """
    Sends events to another Tollhouse, one batch per delivery. Events keep their ids, so a repeat is not
    counted.
    """

    in_flight = 4
    max_records = 1000

    def __init__(self, upstream: UpstreamClient, *, max_bytes: int) -> None:
        self._upstream = upstream
        self._max_bytes = max_bytes

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        batch = batches.build_batch_without_duplicates(delivery, entries)
        if not batch.records:
            return batch.settlement_unless_all_rejected()
        events = [(record, at) for record, at in batch.records if isinstance(record, UsageEvent)]
        body = b"[%b]" % b",".join(await map_with_pauses(events, _encode_events))
        if len(body) > self._max_bytes and delivery.count > 1:
            raise DeliveryTooLarge(f"{len(body)} bytes, over batch_bytes", answered=False)
        key = delivery.idempotency_key
        answer = await self._upstream.send(
            STREAM, body, content_type=BATCH, idempotency_key=key, max_answer_bytes=MAX_ITEMS_ANSWER_BYTES
        )
        count, message = _decode_rejections(answer.body)
        refused = max(count, rejected_count_in_receipt(answer))
        reason = answer.without_secrets(message) or "the response names rejected events"
        return batch.settlement_unless_all_rejected(
            rejected_items=refused, rejection_text=reason if refused else None
        )

    async def close(self) -> None:
        await self._upstream.close()


def _encode_events(events: Sequence[tuple[UsageEvent, float]]) -> bytes:
    return b",".join([orjson.dumps(cloud_event(event, at)) for event, at in events])


def cloud_event(event: UsageEvent, committed_at: float) -> dict[str, Any]:
    """
    Return the event as a CloudEvent with its own id and its record id. Without a time of its own, it gets the
    commit time.
    """
    return {
        **event.tags,
        "specversion": "1.0",
        "id": event.event_id or event.id.hex(),
        "source": event.source,
        "type": event.event_type,
        "time": rfc3339(event.start_time if event.start_time is not None else int(committed_at * NS)),
        **({} if event.subject is None else {"subject": event.subject}),
        "datacontenttype": "application/json",
        "data": event.data,
        "tollhouseid": event.id.hex(),
    }


class _EventError(msgspec.Struct):
    message: str = ""


class _EventOutcome(msgspec.Struct):
    error: _EventError | None = None


class _EventsAnswer(msgspec.Struct):
    rejected: int = 0
    events: list[_EventOutcome] = []


_answer = msgspec.json.Decoder(_EventsAnswer)


def _decode_rejections(body: bytes) -> tuple[int, str]:
    """
    Return the number of events that another Tollhouse rejected, and its message about the first one. Return
    (0, "") for any other response.
    """
    try:
        answer = _answer.decode(body)
    except msgspec.MsgspecError:
        return 0, ""
    return answer.rejected, next((fate.error.message for fate in answer.events if fate.error), "")


class StreamMapper:
    """
    Converts events of mapped types to `sum` operations in this log. Events of other types count as
    `unmapped`.
    """

    in_flight = 1
    max_records = 1000

    def __init__(
        self,
        record_log: RecordLog,
        streams: Mapping[str, EventStream],
        learn: Callable[[Sequence[UnitCostOperation]], None],
    ) -> None:
        self._log = record_log
        self._streams = streams
        self._learn = learn

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        batch = batches.build_batch_without_duplicates(delivery, entries)
        mapped = [self._map_record(record, committed_at) for record, committed_at in batch.records]
        operations = [operation for operation in mapped if operation is not None]
        if operations:
            await self._log.append_submission(
                Submission(
                    topic=UNIT_COST,
                    received=len(operations),
                    records=operations,
                    identities=[RecordIdentity(operation.id) for operation in operations],
                )
            )
            self._learn(operations)
        unmapped = len(batch.records) - len(operations)
        return Settlement(
            delivered=len(operations), shadow=batch.shadow, unmapped=unmapped, damaged=batch.damaged
        )

    async def close(self) -> None:
        """Do nothing, because a mapper has no connection."""

    def _map_record(self, record: Record, committed_at: float) -> UnitCostOperation | None:
        stream = self._streams.get(record.event_type) if isinstance(record, UsageEvent) else None
        if stream is None or not isinstance(record, UsageEvent):
            return None
        return _event_operation(record, stream, committed_at)


def _event_operation(event: UsageEvent, stream: EventStream, committed_at: float) -> UnitCostOperation | None:
    """
    Return the operation for an event. Return None if the event has no positive amount, or lacks the element
    or a dimension.
    """
    amount = _event_amount_at(event, stream.value)
    element = _event_text_at(event, stream.element) if stream.type == "allocation" else None
    dimensions = {name: _event_text_at(event, where) for name, where in stream.dimensions.items()}
    if amount is None or (stream.type == "allocation" and element is None) or None in dimensions.values():
        return None
    return UnitCostOperation(
        id=derived_dedup_key(event.id, stream.stream),
        stream=stream.stream,
        stream_type=stream.type,
        operation="sum",
        start_time=event.start_time if event.start_time is not None else int(committed_at * NS),
        granularity=stream.granularity if stream.type == "allocation" else "DAILY",
        element_name=element,
        dimensions={name: [value] for name, value in dimensions.items() if value is not None},
        value=amount,
    )


def _event_amount_at(event: UsageEvent, field_path: str) -> str | None:
    value: Scalar | None = 1
    if field_path != COUNTED:
        stated = (_event_value_at(event, name) for name in ([field_path] if field_path else AMOUNT_NAMES))
        value = next((found for found in stated if found is not None), None if field_path else 1)
    if value is None or isinstance(value, bool):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    is_amount = amount.is_finite() and amount > 0 and abs(amount.adjusted()) <= MOST_ZEROS
    return rounded_text(amount) if is_amount else None


def _event_text_at(event: UsageEvent, field_path: str) -> str | None:
    value = _event_value_at(event, field_path)
    return None if value is None or value == "" else str(value)


def _event_value_at(event: UsageEvent, field_path: str) -> Scalar | None:
    fields = {"subject": event.subject, "source": event.source, "type": event.event_type}
    if field_path in fields:
        return fields[field_path]
    name = field_path.removeprefix("data.")
    return event.data.get(name, event.tags.get(name))
