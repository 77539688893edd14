"""
Metric points of another Tollhouse: taken as they are, under the id that they have there.

The attribute names are those that `exporters.service` writes: the semantic conventions where they have one, else
`tollhouse.*`.
"""

from __future__ import annotations

from gateway.normalise.otlp import families
from gateway.normalise.otlp.decoding.model import Point
from gateway.normalise.otlp.products import tollhouse
from gateway.normalise.otlp.sources import OTEL
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, Outcome
from gateway.normalise.reading import vocabulary as words
from spool.record import UsageMetric

VALUE = "tollhouse.value"  # decimal text: a double would round what a long sum of money adds up to

_TEXTS = {
    "model": "gen_ai.request.model",
    "token_type": "gen_ai.token.type",
    "session": "session.id",
    "user": "tollhouse.user",
    "team": "tollhouse.team",
    "api_key": "tollhouse.api_key",
    "device": "tollhouse.device",
}


def take(place: int, point: Point, outcome: Outcome) -> None:
    """One record of the other house, or one rejected item."""
    record_id = tollhouse.id_of(point.attributes)
    if record_id is None:
        outcome.reject(place, MALFORMED, f"data point {place}: {tollhouse.NO_ID}")
    elif point.unit not in (families.TOKENS, families.MONEY):
        outcome.reject(place, MALFORMED, f"data point {place}: unit is neither {families.TOKENS} nor {families.MONEY}")
    else:
        try:
            record = _record(point, record_id)
        except words.Implausible as error:
            outcome.reject(place, IMPLAUSIBLE, f"data point {place}: {error}")
            return
        tollhouse.add(record, point.attributes, outcome)


def _record(point: Point, record_id: bytes) -> UsageMetric:
    attributes = point.attributes
    record = UsageMetric(id=record_id, source="", name=point.name, unit=point.unit, tags={})
    for field, name in _TEXTS.items():
        setattr(record, field, tollhouse.text(attributes, name))
    record.source = tollhouse.text(attributes, "tollhouse.source") or OTEL
    value = attributes.get(VALUE, point.value)
    record.value = families.tokens(value) if point.unit == families.TOKENS else words.plain(families.money(value))
    if tollhouse.text(attributes, "tollhouse.times") is None:  # else both stand in for times that are not known
        record.start_time = point.start_time or None
        record.end_time = point.time or None
    return record
