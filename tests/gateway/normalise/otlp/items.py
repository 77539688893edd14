"""Builders of decoded OTLP items, and helpers that normalise them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from gateway.normalise.otlp.logs import OtlpLogReader
from gateway.normalise.otlp.metrics import PointReader
from gateway.normalise.otlp.model import Attributes, LogRecord, MetricPoint, Resource, Scope
from gateway.normalise.outcome import ReadOptions, ReadOutcome

SECOND = 1_000_000_000
NOW = 1_772_442_000 * SECOND


def log(
    attributes: Attributes | None = None,
    *,
    scope: str = "",
    resource: Attributes | None = None,
    body: str = "",
    event_name: str = "",
    time: int | None = NOW,
    trace_id: str | None = None,
    span_id: str | None = None,
) -> LogRecord:
    return LogRecord(
        resource=Resource(attributes=resource or {}),
        scope=Scope(name=scope, version=""),
        event_name=event_name,
        body=body,
        time=time,
        trace_id=trace_id,
        span_id=span_id,
        attributes=attributes or {},
    )


def point(name: str, value: Any, attributes: Attributes | None = None, **changes: Any) -> MetricPoint:
    fields: dict[str, Any] = {
        "resource": Resource(attributes=changes.pop("resource", {})),
        "scope": Scope(name=changes.pop("scope", ""), version="1"),
        "name": name,
        "unit": "",
        "cumulative": False,
        "start_time": NOW,
        "time": NOW + 60 * SECOND,
        "value": value,
        "attributes": attributes or {},
    }
    return MetricPoint(**(fields | changes))


def read_logs(*records: LogRecord, options: ReadOptions | None = None) -> ReadOutcome:
    return _read(OtlpLogReader, records, options or ReadOptions())


def read_points(*points: MetricPoint, options: ReadOptions | None = None) -> ReadOutcome:
    return _read(PointReader, points, options or ReadOptions())


def finished(normaliser: Generator[None, None, ReadOutcome]) -> ReadOutcome:
    """Run a normaliser to its end without an event loop; return the unpacked outcome."""
    while True:
        try:
            next(normaliser)
        except StopIteration as end:
            return unpacked(end.value)


def unpacked(outcome: ReadOutcome) -> ReadOutcome:
    """Unpack the parts of a large outcome, in the order in which records are stored."""
    records, identities, points = [], [], []
    for part in outcome.yield_parts():
        records += part.records
        identities += part.identities
        points += part.points
    outcome.records, outcome.identities, outcome.points, outcome.count = records, identities, points, 0
    return outcome


def _read(reader: Any, items: Iterable[Any], options: ReadOptions) -> ReadOutcome:
    outcome = ReadOutcome(why=[] if options.explain else None)
    taking = reader(outcome, options)
    for place, item in enumerate(items):
        outcome.received += 1
        taking.read_item(place, item)
    for _ in taking.add_items_that_waited() or ():
        pass
    assert_balanced(outcome)
    return outcome


def assert_balanced(outcome: ReadOutcome) -> None:
    """Check that the accounting of one payload balances."""
    assert outcome.received + outcome.split == (
        len(outcome.records) + len(outcome.points) + sum(outcome.ignored.values()) + len(outcome.rejects)
    )
    assert len(outcome.records) == len(outcome.identities)
    assert outcome.why is None or len(outcome.records) == len(outcome.why)


def picked(record: Any, *fields: str) -> dict[str, Any]:
    return {field: getattr(record, field) for field in fields}
