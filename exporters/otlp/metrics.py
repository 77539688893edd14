"""
Usage metrics as delta sums of OTLP, with the same `tollhouse.*` attributes on each point as spans have.

What takes back an earlier record has a negative value: such points stand in sums of their own, which are not
monotonic. A correction of a call leaves as such sums of its differences, under names that begin with
`tollhouse.correction.`: spans have no way to take anything back.

Money leaves as a double, as OTLP wants it, and exactly in `tollhouse.value`. The same records always become
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, NumberDataPoint, Sum

from spool.identity import of_derived
from spool.meters import METERS, SCALE, millionths
from spool.record import (
    CORRECTED_COUNTS,
    CURRENCY,
    NS,
    Correction,
    UsageMetric,
    charge_differences,
    cost_difference,
    count_difference,
    decimal_text,
)

# Attribute -> field, in the order of the wire.
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


class MetricsRequest:
    """An ExportMetricsServiceRequest that is filled some records at a time."""

    def __init__(self) -> None:
        self._request = ExportMetricsServiceRequest()
        resource = self._request.resource_metrics.add()
        resource.resource.attributes.add(key="service.name").value.string_value = "tollhouse"
        self._scope = resource.scope_metrics.add()
        self._scope.scope.name = "tollhouse"
        self._sums: dict[tuple[str, str, bool], Sum] = {}
        self.points = 0

    def add(self, records: Iterable[tuple[UsageMetric | Correction, float]]) -> None:
        """Each record comes with the time of its commit, in seconds."""
        for record, committed_at in records:
            if isinstance(record, Correction):
                self.add((counter, committed_at) for counter in counters_of(record))
                continue
            falls = record.value < 0 if isinstance(record.value, int) else record.value.startswith("-")
            series = (record.name, record.unit, falls)
            if series not in self._sums:
                metric = self._scope.metrics.add(name=record.name, unit=record.unit)
                metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
                metric.sum.is_monotonic = not falls
                self._sums[series] = metric.sum
            self.points += 1
            _fill(self._sums[series].data_points.add(), record, committed_at)

    def encoded(self) -> bytes:
        return self._request.SerializeToString(deterministic=True)


def counters_of(record: Correction) -> Iterable[UsageMetric]:
    """Returns counters of what a correction adds or takes away: its cost, and each count that it changes."""
    yield _counter(record, "cost", None, decimal_text(cost_difference(record)), CURRENCY)
    for currency, amount in charge_differences(record).items():
        if amount:
            yield _counter(record, "cost", None, decimal_text(amount), currency)
    for name in CORRECTED_COUNTS:
        difference = count_difference(record, name)
        if difference:
            yield _counter(record, "tokens", name.removesuffix("_tokens"), difference, "{token}")
    for name, difference in _meter_differences(record).items():
        yield _counter(record, "tokens", None, difference, "{token}", meter=name)


def _meter_differences(record: Correction) -> dict[str, int]:
    """Parts of tokens that the call has more than was counted. Other units have no counter that means no money."""
    before = record.before.meters
    after = record.after.meters
    names = [name for name in {**before, **after} if name in METERS and METERS[name].is_part]
    found = {name: millionths(after.get(name, 0)) - millionths(before.get(name, 0)) for name in names}
    return {name: difference // SCALE for name, difference in found.items() if difference}


def _counter(
    record: Correction,
    of: str,
    token_type: str | None,
    value: int | str,
    unit: str,
    *,
    meter: str | None = None,
) -> UsageMetric:
    call = record.after
    own_name = of if unit == CURRENCY else f"{of} {unit}"
    return UsageMetric(
        id=of_derived(record.id, meter or token_type or own_name),
        meter=meter,
        source=record.source,
        name=f"tollhouse.correction.{of}",
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


def _fill(point: NumberDataPoint, record: UsageMetric, committed_at: float) -> None:
    _put(point, "tollhouse.id", record.id.hex())
    for attribute, field in _ATTRIBUTES.items():
        value = getattr(record, field)
        if value is not None:
            _put(point, attribute, value)
    if isinstance(record.value, int):
        point.as_int = record.value
    else:
        point.as_double = float(record.value)
        _put(point, "tollhouse.value", record.value)
        _put(point, "tollhouse.currency", record.unit)
    for name, value in record.tags.items():
        _put(point, f"tollhouse.tag.{name}", value)
    if record.start_time is None and record.end_time is None:
        point.start_time_unix_nano = point.time_unix_nano = int(committed_at * NS)
        _put(point, "tollhouse.times", "none")
    else:  # OTLP has a value for a time that is not known: 0
        point.start_time_unix_nano = record.start_time or 0
        point.time_unix_nano = record.end_time or 0


def _put(point: NumberDataPoint, key: str, value: str) -> None:
    point.attributes.add(key=key).value.string_value = value
