"""
Metric points of another Tollhouse: taken as they are, under the id that they have there.

The attribute names are those that `exporters.service` writes: the semantic conventions where they have one, else
`tollhouse.*`.
"""

from __future__ import annotations

import re

from gateway.normalise import tags as tag_rules
from gateway.normalise.otlp import families
from gateway.normalise.otlp import vocabulary as words
from gateway.normalise.otlp.model import Attributes, Point
from gateway.normalise.otlp.sources import OTEL
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, Outcome
from spool.identity import Identity
from spool.record import UsageMetric

MARK = "tollhouse.id"
VALUE = "tollhouse.value"  # decimal text: a double would round what a long sum of money adds up to
_TAG = "tollhouse.tag."
_ID = re.compile(r"[0-9a-fA-F]{32}")


def take(place: int, point: Point, outcome: Outcome) -> None:
    """One record of the other house, or one rejected item."""
    record_id = _id(point.attributes[MARK])
    if record_id is None:
        outcome.reject(place, MALFORMED, f"data point {place}: {MARK} is not 32 hex digits")
    elif point.unit not in (families.TOKENS, families.MONEY):
        outcome.reject(place, MALFORMED, f"data point {place}: unit is neither {families.TOKENS} nor {families.MONEY}")
    else:
        try:
            record = _record(point)
        except words.Implausible as error:
            outcome.reject(place, IMPLAUSIBLE, f"data point {place}: {error}")
            return
        outcome.left_out += _add_tags(record.tags, point.attributes)
        outcome.forwarded.add(len(outcome.records))
        outcome.add(record, Identity(record_id), {"id": MARK})


def _id(value: object) -> bytes | None:
    return bytes.fromhex(value) if isinstance(value, str) and _ID.fullmatch(value) else None


def _record(point: Point) -> UsageMetric:
    attributes = point.attributes

    def said(name: str) -> str | None:
        value = attributes.get(name)
        return value if isinstance(value, str) and 0 < len(value) <= words.MAX_TEXT else None

    value = attributes.get(VALUE, point.value)
    known = said("tollhouse.times")  # which of the two times are the call's own, when not both are
    return UsageMetric(
        id=b"",
        source=said("tollhouse.source") or OTEL,
        name=point.name,
        model=said("gen_ai.request.model"),
        token_type=said("gen_ai.token.type"),
        value=families.tokens(value) if point.unit == families.TOKENS else words.plain(families.money(value)),
        unit=point.unit,
        start_time=(point.start_time or None) if known in (None, "start") else None,
        end_time=(point.time or None) if known in (None, "end") else None,
        session=said("session.id") or said("gen_ai.conversation.id"),
        user=said("tollhouse.user"),
        team=said("tollhouse.team"),
        api_key=said("tollhouse.api_key"),
        device=said("tollhouse.device"),
        tags={},
    )


def _add_tags(tags: dict[str, str], attributes: Attributes) -> int:
    return sum(
        not tag_rules.put(tags, name[len(_TAG) :], value) for name, value in attributes.items() if name.startswith(_TAG)
    )
