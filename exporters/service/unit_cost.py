"""
Forwarding of unit-cost operations: unchanged to another Tollhouse, and without double counting to the cost service.

Another Tollhouse knows the ids of operations, so any operation may be repeated. The service cannot recognize
repeated sums. If only this Tollhouse writes a stream and has its whole history, records are sent as `replace` with
their totals, which may be repeated. Any other sum is sent only once; if no answer arrives, an operator decides
whether it arrived. `replace` and `delete` may be repeated in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from exporters.errors import (
    DeliveryTooLarge,
    Misconfigured,
    OutcomeUnknown,
    Retryable,
    SendError,
    SplitRequired,
)
from exporters.pace import DeliveryOrder, RateLimiter
from exporters.service.upstream_client import UpstreamClient
from spool.clock import Clock
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import NS, UnitCostOperation, rfc3339
from spool.streams import (
    DELETE,
    DROP,
    METRIC,
    REPLACE,
    SUM,
    StreamReader,
    StreamTotal,
    operation_key,
    rounded_text,
)

STREAM = "unit-cost"
DROPS = "unit-cost-streams"
MAX_RECORDS = 3000
MAX_BYTES = 4_900_000  # bytes; below the service's limit of 5 MB, whether a MB means 10^6 or 2^20 bytes
PER_S = 100.0  # records per second that the service accepts on average
# Maximum records at once: the number that PER_S allows in an hour. The service allows the number of a day,
# but after a restart this process does not know how many records it already sent.
BURST = 360_000.0
_NOT_TAKEN = (408, 413, 429, 503)  # response statuses which state that the service did nothing
_SEQUENCE = "unit-cost"

Totals = Mapping[tuple[str, str], StreamTotal]  # totals by stream and record key
_Shape = tuple[str, str, str, str | None, tuple[str, ...]]


@dataclass(slots=True)
class OperationRun:
    """Consecutive records for one request. `once`: they must not be repeated automatically."""

    shape: _Shape
    first: int
    once: bool
    records: list[UnitCostOperation] = field(default_factory=list)


class UnitCostExporter:
    in_flight = 1  # one delivery at a time, because operations on a record must arrive in order
    max_records = MAX_RECORDS

    def __init__(
        self,
        upstream: UpstreamClient,
        streams: StreamReader,
        *,
        clock: Clock,
        single_writer: Collection[str],
        to_tollhouse: bool,
    ) -> None:
        self._upstream = upstream
        self._streams = streams
        self._single_writer = frozenset(single_writer)
        self._to_tollhouse = to_tollhouse
        self._pace = RateLimiter(clock, per_s=PER_S, burst=BURST)
        self._order = DeliveryOrder()

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        """
        Wait until the rate limit allows the records. Then return the mark, which is the number of this
        attempt.

        A `?` after the number means that the attempt was already interrupted once. Nothing is sent before the
        mark is stored.
        """
        if self._to_tollhouse:
            return None
        attempt = str(delivery.attempts)
        if delivery.mark is not None and delivery.mark.rstrip("?") == attempt:
            return f"{attempt}?"
        await self._pace.wait_and_take_units(delivery.count)
        return attempt

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        records = [
            (number, record)
            for entry in entries
            for number, record in enumerate(entry.records, entry.first)
            if isinstance(record, UnitCostOperation)
        ]
        to_send = [(number, record) for number, record in records if not record.shadow]
        settlement = Settlement(
            delivered=len(to_send), shadow=len(records) - len(to_send), damaged=delivery.count - len(records)
        )
        with self._order.hold_turn(_SEQUENCE, delivery):
            totals = await self._find_totals(record for _, record in to_send)
            runs = list(self._group_runs(to_send, totals))
            if any(run.once for run in runs):
                await self._send_once(delivery, runs)
            else:
                for run in runs:
                    await self._send_run(run, totals, delivery.idempotency_key)
        return settlement

    async def close(self) -> None:
        await self._upstream.close()

    async def _find_totals(self, records: Iterator[UnitCostOperation]) -> Totals:
        if self._to_tollhouse:
            return {}
        places = {
            (record.stream, operation_key(record))
            for record in records
            if record.stream in self._single_writer and record.operation in (SUM, REPLACE)
        }
        return await self._streams.find_totals(sorted(places))

    def _group_runs(
        self, records: Sequence[tuple[int, UnitCostOperation]], totals: Totals
    ) -> Iterator[OperationRun]:
        run: OperationRun | None = None
        for number, record in records:
            operation, once = self._operation_to_send(record, totals)
            dimensions = tuple(sorted(record.dimensions))
            shape = (record.stream, record.stream_type, operation, record.granularity, dimensions)
            if run is not None and (run.shape, run.once) == (shape, once) and operation != DROP:
                run.records.append(record)
                continue
            if run is not None:
                yield run
            run = OperationRun(shape, number, once, [record])
        if run is not None:
            yield run

    def _operation_to_send(self, record: UnitCostOperation, totals: Totals) -> tuple[str, bool]:
        """Return the operation to send, and whether it may be sent only once."""
        if self._to_tollhouse or record.operation not in (SUM, REPLACE):
            return record.operation, False
        if record.stream in self._single_writer:
            total = totals.get((record.stream, operation_key(record)))
            if total is None or total.whole:  # no total: a later operation deletes the record
                return REPLACE, False
        return record.operation, record.operation == SUM

    async def _send_once(self, delivery: Delivery, runs: Sequence[OperationRun]) -> None:
        """
        Send sums that must not be sent twice. They get a request of their own, so that its response concerns
        exactly these records.
        """
        head = runs[0]
        stop = 1 if head.once else next(index for index, run in enumerate(runs) if run.once)
        if stop < len(runs):
            self._pace.return_units(delivery.count)
            raise SplitRequired(
                "sums must be sent in a request without other operations",
                second_first_number=runs[stop].first,
            )
        if delivery.mark is not None and delivery.mark.endswith("?"):
            raise OutcomeUnknown("Tollhouse was stopped while it waited for an answer", answered=False)
        body = _encode_body(head.records, ids=False)
        if len(body) > MAX_BYTES and delivery.count > 1:
            raise DeliveryTooLarge(f"{len(body)} bytes, over the service's 5 MB", answered=False)
        try:
            await self._send_body(head.shape, body, delivery.idempotency_key)
        except SendError as error:
            if not isinstance(error, Retryable) or error.status in _NOT_TAKEN:
                raise
            raise OutcomeUnknown(
                f"{error}; the cost service may have added the sums already", status=error.status
            ) from error
        except Exception as error:
            raise OutcomeUnknown(
                f"unexpected {type(error).__name__}; the cost service may have added the sums already"
            ) from error

    async def _send_run(self, run: OperationRun, totals: Totals, idempotency_key: str) -> None:
        stream, _, operation, _, _ = run.shape
        if operation == DROP:
            await self._delete_stream(stream)
            return
        records = run.records
        if operation == REPLACE and stream in self._single_writer and not self._to_tollhouse:
            records = _replace_by_totals(records, totals)
        for part in self._split_by_size(records):
            await self._send_body(run.shape, _encode_body(part, ids=self._to_tollhouse), idempotency_key)

    def _split_by_size(self, records: Sequence[UnitCostOperation]) -> Iterator[Sequence[UnitCostOperation]]:
        if not records:
            return
        size = len(_encode_body(records, ids=self._to_tollhouse))
        step = max(1, len(records) * MAX_BYTES // (size + size // 4)) if size > MAX_BYTES else len(records)
        for start in range(0, len(records), step):
            yield records[start : start + step]

    async def _send_body(self, shape: _Shape, body: bytes, idempotency_key: str) -> None:
        stream, kind, operation, _, _ = shape
        key = None if self._to_tollhouse else idempotency_key
        await self._upstream.send(
            STREAM, body, idempotency_key=key, kind=kind, stream=stream, operation=operation
        )

    async def _delete_stream(self, stream: str) -> None:
        try:
            await self._upstream.send(DROPS, b"true", method="DELETE", stream=stream)
        except Misconfigured as error:
            if error.status != 404:
                raise


def _replace_by_totals(records: Sequence[UnitCostOperation], totals: Totals) -> list[UnitCostOperation]:
    places = dict.fromkeys((record.stream, operation_key(record)) for record in records)
    return [_total_operation(totals[key], records[0].stream_type) for key in places if key in totals]


def _total_operation(total: StreamTotal, stream_type: str) -> UnitCostOperation:
    return UnitCostOperation(
        id=b"",
        stream=total.stream,
        stream_type=stream_type,
        operation=REPLACE,
        start_time=total.start_time,
        granularity=total.granularity,
        element_name=total.element_name,
        dimensions={name: list(values) for name, values in total.dimensions.items()},
        value=rounded_text(Decimal(total.value)),
    )


def _encode_body(records: Sequence[UnitCostOperation], *, ids: bool) -> bytes:
    return msgspec.json.encode({"records": [wire_record(record, with_id=ids) for record in records]})


def wire_record(record: UnitCostOperation, *, with_id: bool) -> dict[str, object]:
    """Return a record in the service's format. Values are numbers with exactly the stored digits."""
    wire: dict[str, object] = {"timestamp": rfc3339((record.start_time or 0) // NS * NS)}
    if record.stream_type == METRIC:
        if record.dimensions:
            dimensions = record.dimensions.items()
            wire["associated_cost"] = {name: values[0] for name, values in dimensions if values}
    else:
        wire["granularity"] = record.granularity
        if record.element_name is not None:
            wire["element_name"] = record.element_name
        if record.dimensions:
            wire["filter"] = record.dimensions
    if record.operation != DELETE and record.value is not None:
        wire["value"] = msgspec.Raw(record.value.encode())
    if with_id:
        wire["tollhouse_id"] = record.id.hex()
    return wire
