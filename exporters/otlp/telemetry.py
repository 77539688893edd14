"""
AI telemetry as OTLP over HTTP: inference records become spans, usage metrics become delta sums.

One delivery is one request. A delivery with both kinds of records is first split into two with their own
idempotency keys. If one key stood for two requests and only one was accepted, the failure of the other would lead
to a new key, with which the accepted request would be sent again.

Points of usage metrics have the same `tollhouse.*` attributes as spans. A metric that reverts an earlier record has
a negative value, so it is in a separate sum that is not monotonic. A correction of a call becomes such sums of the
differences, with names that begin with `tollhouse.correction.`, because spans cannot be reverted. For a call that
no longer counts, one of them is -1 call.

Money is sent as a double, as OTLP requires, and exactly in `tollhouse.value`. Equal records always become equal
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, cast

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, NumberDataPoint, Sum

from exporters import batch as batches
from exporters.batch import RecordBatch, SendTally, map_with_pauses
from exporters.errors import DeliveryTooLarge, Rejected, SplitRequired
from exporters.http.answers import HttpAnswer, check_not_web_page, rejected_count_in_receipt
from exporters.http.client import MAX_ITEMS_ANSWER_BYTES, PROTOBUF, HttpClient
from exporters.otlp.spans import (
    PackedSpans,
    SpanEncoder,
    join_export_request,
    native_module_for_packed_entries,
)
from spool.cost_kinds import OUTCOME_TAGS, call_cost_source, call_pricing_status
from spool.deliveries.values import Delivery, Settlement
from spool.identity import derived_dedup_key
from spool.log.values import LogEntry
from spool.meters import METERS, SCALE, quantity_in_millionths
from spool.record import (
    CALL_UNIT,
    CORRECTED_COUNTS,
    CURRENCY,
    NS,
    Correction,
    Inference,
    UsageMetric,
    charge_differences,
    cost_differences,
    count_difference,
    decimal_text,
)

CONTENT_TYPE = PROTOBUF
TRACES = "traces"
METRICS = "metrics"
OUT_OF_RANGE = ValueError, OverflowError, IndexError, struct.error
_JSON_COUNT = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints"}

# The field of each attribute, in the order of the wire format.
_ATTRIBUTES = {
    "tollhouse.source": "source",
    "gen_ai.request.model": "model",
    "gen_ai.token.type": "token_type",
    "tollhouse.meter": "meter",
    "session.id": "session",
    "tollhouse.user": "user",
    "tollhouse.team": "team",
    "tollhouse.api_key": "api_key",
    "tollhouse.device": "device",
}


class TelemetryTarget(Protocol):
    """The addresses and headers of an OTLP receiver."""

    def url(self, stream: str) -> str | None: ...

    def authorization(self, stream: str) -> str | None:
        """Return the value of the authorization header. Raises Misconfigured if the secret cannot be read."""
        ...

    def name_refused_key_in_errors(self, stream: str) -> AbstractContextManager[None]:
        """In the block, add the name of the refused key to errors, if there are several keys."""
        ...

    def headers(self) -> Mapping[str, str]: ...


class EncodedBody(NamedTuple):
    body: bytes
    items: int | None = None  # number of spans or data points in the body; None means one per record


class TelemetryExporter:
    def __init__(
        self,
        client: HttpClient,
        target: TelemetryTarget,
        *,
        in_flight: int = 4,
        max_records: int = 1000,
        max_bytes: int = 4 * 1024**2,
    ) -> None:
        self.in_flight = in_flight
        self.max_records = max_records
        self._max_bytes = max_bytes
        self._client = client
        self._target = target
        self._spans = SpanEncoder()
        self._packed: PackedSpans | None = None

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        packed = await self._encode_packed_spans(delivery, entries)
        if packed is not None:
            return await self._send_stream(delivery, TRACES, *packed)
        batch = batches.build_batch_without_duplicates(delivery, entries)
        boundary = batches.kind_change_nearest_middle(delivery, batch)
        if boundary is not None:
            raise SplitRequired(
                "spans and counters are sent in separate requests", second_first_number=boundary
            )
        if not batch.records:
            return batch.settlement_unless_all_rejected()
        stream = METRICS if isinstance(batch.records[0][0], (UsageMetric, Correction)) else TRACES
        if self._target.url(stream) is None:
            # with an empty path, the operator turned the stream off, so nothing is rejected
            count = len(batch.records)
            return Settlement(delivered=0, unmapped=count, shadow=batch.shadow, damaged=batch.damaged)
        return await self._send_stream(delivery, stream, batch.tally, await self._encode_batch(batch))

    async def close(self) -> None:
        await self._client.close()

    async def _encode_packed_spans(
        self, delivery: Delivery, entries: Sequence[LogEntry]
    ) -> tuple[SendTally, EncodedBody] | None:
        """Encode records that are still packed. Return None if they must be decoded first."""
        native = native_module_for_packed_entries(entries)
        if native is None or self._target.url(TRACES) is None:
            return None
        if self._packed is None:
            self._packed = PackedSpans(native, self._spans)
        try:
            encoded = await self._packed.encode_spans(delivery, entries)
        except OUT_OF_RANGE as error:
            raise _unsendable_error(error) from error
        if encoded is None or not encoded[0].sent:
            return None
        tally, fields = encoded
        return tally, EncodedBody(join_export_request(fields))

    async def _send_stream(
        self, delivery: Delivery, stream: str, tally: SendTally, encoded: EncodedBody
    ) -> Settlement:
        url = self._target.url(stream)
        assert url is not None
        if len(encoded.body) > self._max_bytes and delivery.count > 1:
            raise DeliveryTooLarge(f"{len(encoded.body)} bytes, over batch_bytes", answered=False)
        with self._target.name_refused_key_in_errors(stream):
            answer = await self._client.send(
                url,
                encoded.body,
                content_type=CONTENT_TYPE,
                authorization=self._target.authorization(stream),
                idempotency_key=delivery.idempotency_key,
                headers=self._target.headers(),
                max_answer_bytes=MAX_ITEMS_ANSWER_BYTES,
            )
        check_not_web_page(answer)
        refused, message = rejected_count_and_message(answer, stream)
        return tally.settlement_unless_all_rejected(
            rejected_items=refused, sent_items=encoded.items, rejection_text=message
        )

    async def _encode_batch(self, batch: RecordBatch) -> EncodedBody:
        items = None
        try:
            if isinstance(batch.records[0][0], Inference):
                spans = cast("Sequence[tuple[Inference, float]]", batch.records)
                body = join_export_request(await map_with_pauses(spans, self._spans.encode_fields))
            else:
                points = cast("Sequence[tuple[UsageMetric | Correction, float]]", batch.records)
                request = MetricsRequest()
                await map_with_pauses(points, request.add_records)
                body, items = request.encode(), request.points
        except OUT_OF_RANGE as error:
            raise _unsendable_error(error) from error
        return EncodedBody(body, items)


def _unsendable_error(error: Exception) -> Rejected:
    """
    Return the rejection of a record with a number that OTLP cannot hold, so that all other records are still
    sent.
    """
    return Rejected(f"a record cannot be encoded as OTLP: {error}", answered=False)


def rejected_count_and_message(answer: HttpAnswer, stream: str) -> tuple[int, str | None]:
    """
    Return the number of rejected items, and the message. A Tollhouse reports them in its receipt.

    Return (0, None) if the answer reports neither, because a 2xx means that everything was accepted. A
    message without a number is only a warning.
    """
    is_json = answer.media_type == "application/json"
    count, message = (
        _read_json_rejections(answer.body, stream) if is_json else _read_protobuf_rejections(answer, stream)
    )
    count = max(count, rejected_count_in_receipt(answer))
    return (count, answer.without_secrets(message) or None) if count > 0 else (0, None)


def _read_protobuf_rejections(answer: HttpAnswer, stream: str) -> tuple[int, str]:
    try:
        if stream == "metrics":
            metrics = ExportMetricsServiceResponse.FromString(answer.body).partial_success
            return metrics.rejected_data_points, metrics.error_message
        traces = ExportTraceServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        return 0, ""
    return traces.rejected_spans, traces.error_message


def _read_json_rejections(body: bytes, stream: str) -> tuple[int, str]:
    try:
        document: Any = orjson.loads(body)
        partial = document["partialSuccess"]
        count = int(partial.get(_JSON_COUNT[stream], 0))  # JSON has int64 as text
        message = partial.get("errorMessage", "")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return 0, ""
    return count, message if isinstance(message, str) else ""


class MetricsRequest:
    """An ExportMetricsServiceRequest that is filled step by step."""

    def __init__(self) -> None:
        self._request = ExportMetricsServiceRequest()
        resource = self._request.resource_metrics.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "tollhouse"
        self._scope = resource.scope_metrics.add()
        self._scope.scope.name = "tollhouse"
        self._sums: dict[tuple[str, str, bool], Sum] = {}
        self.points = 0

    def add_records(self, records: Iterable[tuple[UsageMetric | Correction, float]]) -> None:
        for record, committed_at in records:
            if isinstance(record, Correction):
                self.add_records((counter, committed_at) for counter in correction_counters(record))
                continue
            falls = record.value < 0 if isinstance(record.value, int) else record.value.startswith("-")
            series = (record.name, record.unit, falls)
            if series not in self._sums:
                metric = self._scope.metrics.add(name=record.name, unit=record.unit)
                metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
                metric.sum.is_monotonic = not falls
                self._sums[series] = metric.sum
            self.points += 1
            _fill_point(self._sums[series].data_points.add(), record, committed_at)

    def encode(self) -> bytes:
        return self._request.SerializeToString(deterministic=True)


def correction_counters(record: Correction) -> Iterable[UsageMetric]:
    """
    Yield counters of the changes in a correction: the call under its new outcome instead of the old one, its cost, and
    each count that it changes.
    """
    before, after = record.before, record.after
    is_moved = (before.status, call_pricing_status(before)) != (after.status, call_pricing_status(after))
    if after.shadow or is_moved:
        yield _call_count_metric(record, before, -1)
    if is_moved and not after.shadow:
        yield _call_count_metric(record, after, 1)
    for cost_source, amount in cost_differences(record).items():
        counter = _correction_metric(record, "cost", None, decimal_text(amount), CURRENCY)
        if cost_source != "reported":
            counter.id = derived_dedup_key(record.id, f"cost {cost_source}")
        counter.tags = {**counter.tags, OUTCOME_TAGS[1]: cost_source}
        yield counter
    for currency, amount in charge_differences(record).items():
        if amount:
            yield _correction_metric(record, "cost", None, decimal_text(amount), currency)
    for name in CORRECTED_COUNTS:
        difference = count_difference(record, name)
        if difference:
            yield _correction_metric(record, "tokens", name.removesuffix("_tokens"), difference, "{token}")
    for name, difference in _meter_differences(record).items():
        yield _correction_metric(record, "tokens", None, difference, "{token}", meter=name)


def _call_count_metric(record: Correction, call: Inference, count_change: int) -> UsageMetric:
    counter = _correction_metric(record, "calls", None, count_change, CALL_UNIT)
    if count_change > 0:
        counter.id = derived_dedup_key(record.id, f"calls {CALL_UNIT} again")
    outcome = zip(OUTCOME_TAGS, (call.status, call_cost_source(call)), strict=True)
    counter.tags = {**counter.tags, **dict(outcome)}
    return counter


def _meter_differences(record: Correction) -> dict[str, int]:
    """
    Return the changes of meters that are parts of the token counts. A change of any other meter shows only
    in the cost.
    """
    before = record.before.meters
    after = record.after.meters
    names = [name for name in {**before, **after} if name in METERS and METERS[name].is_part_of_token_count]
    differences = {
        name: quantity_in_millionths(after.get(name, 0)) - quantity_in_millionths(before.get(name, 0))
        for name in names
    }
    return {name: difference // SCALE for name, difference in differences.items() if difference}


def _correction_metric(
    record: Correction,
    counted_name: str,
    token_type: str | None,
    value: int | str,
    unit: str,
    *,
    meter: str | None = None,
) -> UsageMetric:
    call = record.after
    own_name = counted_name if unit == CURRENCY else f"{counted_name} {unit}"
    return UsageMetric(
        id=derived_dedup_key(record.id, meter or token_type or own_name),
        meter=meter,
        source=record.source,
        name=f"tollhouse.correction.{counted_name}",
        model=call.response_model or call.request_model,
        token_type=token_type,
        value=value,
        unit=unit,
        start_time=record.start_time,
        end_time=record.start_time,
        session=call.session,
        user=call.user,
        team=call.team,
        api_key=call.api_key,
        device=call.device,
        tags={"correction_of": record.corrects.hex(), "correction_reason": record.reason},
    )


def _fill_point(point: NumberDataPoint, record: UsageMetric, committed_at: float) -> None:
    _put_attribute(point, "tollhouse.id", record.id.hex())
    for attribute, field in _ATTRIBUTES.items():
        value = getattr(record, field)
        if value is not None:
            _put_attribute(point, attribute, value)
    if isinstance(record.value, int):
        point.as_int = record.value
    else:
        point.as_double = float(record.value)
        _put_attribute(point, "tollhouse.value", record.value)
        _put_attribute(point, "tollhouse.currency", record.unit)
    for name, value in record.tags.items():
        _put_attribute(point, f"tollhouse.tag.{name}", value)
    if record.start_time is None and record.end_time is None:
        point.start_time_unix_nano = point.time_unix_nano = int(committed_at * NS)
        _put_attribute(point, "tollhouse.times", "none")
    else:  # if one of the two times is unknown, OTLP writes it as 0
        point.start_time_unix_nano = record.start_time or 0
        point.time_unix_nano = record.end_time or 0


def _put_attribute(point: NumberDataPoint, key: str, value: str) -> None:
    point.attributes.add(key=key).value.string_value = value
