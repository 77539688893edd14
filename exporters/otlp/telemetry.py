"""
AI telemetry as OTLP over HTTP: inference records as spans, usage metrics as delta sums.

One delivery is one request. A delivery that holds both kinds is split between them first: sent as two
requests, one could be taken and the other answered with an error, and the new key that this error demands
would send the first again. Each part has a key of its own, so neither is ever repeated for the other's sake.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporters import batch as batches
from exporters.batch import Batch, Tally, in_turns
from exporters.errors import DeliveryTooLarge, Divide, Rejected
from exporters.http.answers import HttpAnswer, refuse_page, rejected_by_receipt
from exporters.http.client import MAX_ITEMS_ANSWER_BYTES, PROTOBUF, Client
from exporters.otlp import encoding
from exporters.otlp.encoding import Encoded, EncodeElsewhere
from exporters.otlp.metrics import MetricsRequest
from exporters.otlp.packed import PackedSpans, native_of
from exporters.otlp.spans import SpanEncoder, request_of
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry
from spool.record import Correction, Inference, UsageMetric

CONTENT_TYPE = PROTOBUF
TRACES = "traces"
METRICS = "metrics"
OUT_OF_RANGE = ValueError, OverflowError, IndexError, struct.error
_JSON_COUNT = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints"}


class Target(Protocol):
    """Where OTLP is sent, and with which headers."""

    def url(self, stream: str) -> str | None:
        """None if the stream is not sent."""
        ...

    def authorization(self, stream: str) -> str | None:
        """The value of the header; Misconfigured if its secret cannot be read."""
        ...

    def naming_key(self, stream: str) -> AbstractContextManager[None]:
        """Say which key was refused, if it is one of several."""
        ...

    def headers(self) -> Mapping[str, str]: ...


class TelemetryExporter:
    def __init__(
        self,
        client: Client,
        target: Target,
        *,
        in_flight: int = 4,
        max_records: int = 1000,
        max_bytes: int = 4 * 1024**2,
        elsewhere: EncodeElsewhere | None = None,
    ) -> None:
        """`elsewhere` encodes spans in another process."""
        self.in_flight = in_flight
        self.max_records = max_records
        self._max_bytes = max_bytes
        self._client = client
        self._target = target
        self._spans = SpanEncoder()
        self._elsewhere = elsewhere
        self._packed: PackedSpans | None = None

    async def prepare(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        packed = await self._packed_spans(delivery, entries)
        if packed is not None:
            return await self._send(delivery, TRACES, *packed)
        batch = batches.without_shadows(delivery, entries)
        boundary = batches.nearest_boundary(delivery, batch)
        if boundary is not None:
            raise Divide("spans and counters leave in requests of their own", at=boundary)
        if not batch.records:
            return batch.settlement()
        stream = METRICS if isinstance(batch.records[0][0], (UsageMetric, Correction)) else TRACES
        if self._target.url(stream) is None:
            # The operator's own setting, not a refusal of the upstream.
            count = len(batch.records)
            return Settlement(delivered=0, unmapped=count, shadow=batch.shadow, damaged=batch.damaged)
        return await self._send(delivery, stream, batch.tally, await self._encoded(batch))

    async def close(self) -> None:
        await self._client.close()

    async def _packed_spans(
        self, delivery: Delivery, entries: Sequence[Entry]
    ) -> tuple[Tally, Encoded] | None:
        """Spans of records that are still packed; None if they are to be decoded."""
        native = native_of(entries)
        if native is None or self._target.url(TRACES) is None:
            return None
        if self._packed is None:
            self._packed = PackedSpans(native, self._spans)
        try:
            found = await self._packed.encoded(delivery, entries)
        except OUT_OF_RANGE as error:
            raise _unsendable(error) from error
        if found is None or not found[0].sent:
            return None
        tally, fields = found
        body = request_of(fields)
        return tally, Encoded(body, len(body), is_compressed=False)

    async def _send(self, delivery: Delivery, stream: str, tally: Tally, encoded: Encoded) -> Settlement:
        url = self._target.url(stream)
        assert url is not None
        if encoded.size > self._max_bytes and delivery.count > 1:
            raise DeliveryTooLarge(f"{encoded.size} bytes, over batch_bytes", answered=False)
        with self._target.naming_key(stream):
            answer = await self._client.send(
                url,
                encoded.body,
                content_type=CONTENT_TYPE,
                is_compressed=encoded.is_compressed,
                authorization=self._target.authorization(stream),
                idempotency_key=delivery.idempotency_key,
                headers=self._target.headers(),
                max_answer_bytes=MAX_ITEMS_ANSWER_BYTES,
            )
        refuse_page(answer)
        refused, words = rejected(answer, stream)
        return tally.settlement(refused=refused, items=encoded.items, words=words)

    async def _encoded(self, batch: Batch) -> Encoded:
        spans = [(record, at) for record, at in batch.records if isinstance(record, Inference)]
        if self._elsewhere is not None and len(spans) >= encoding.LEAST:
            compresses = self._client.compresses
            answer = await self._elsewhere(encoding.packed(spans, compresses=compresses))
            if answer is not None:
                return encoding.unpacked(answer, compresses=compresses)
        points = [
            (record, at) for record, at in batch.records if isinstance(record, (UsageMetric, Correction))
        ]
        items = None
        try:
            if spans:
                body = request_of(await in_turns(spans, self._spans.fields))
            else:
                request = MetricsRequest()
                await in_turns(points, request.add)
                body, items = request.encoded(), request.points
        except OUT_OF_RANGE as error:
            raise _unsendable(error) from error
        return Encoded(body, len(body), is_compressed=False, items=items)


def _unsendable(error: Exception) -> Rejected:
    """A number too large for OTLP: only its record is at fault, the others of the delivery must go on."""
    return Rejected(f"a record cannot be written as OTLP: {error}", answered=False)


def rejected(answer: HttpAnswer, stream: str) -> tuple[int, str | None]:
    """
    Return how many items were rejected, and the message. The receipt of a Tollhouse counts too.

    (0, None) if neither can be read: the status was a 2xx, so everything was accepted. A message without a
    count is a warning.
    """
    is_json = answer.media_type == "application/json"
    count, words = _json(answer.body, stream) if is_json else _protobuf(answer, stream)
    count = max(count, rejected_by_receipt(answer))
    return (count, answer.without_secrets(words) or None) if count > 0 else (0, None)


def _protobuf(answer: HttpAnswer, stream: str) -> tuple[int, str]:
    try:
        if stream == "metrics":
            metrics = ExportMetricsServiceResponse.FromString(answer.body).partial_success
            return metrics.rejected_data_points, metrics.error_message
        traces = ExportTraceServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        return 0, ""
    return traces.rejected_spans, traces.error_message


def _json(body: bytes, stream: str) -> tuple[int, str]:
    try:
        document: Any = orjson.loads(body)
        partial = document["partialSuccess"]
        count = int(partial.get(_JSON_COUNT[stream], 0))  # int64 is text in JSON
        words = partial.get("errorMessage", "")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return 0, ""
    return count, words if isinstance(words, str) else ""
