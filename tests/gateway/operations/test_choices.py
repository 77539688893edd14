"""The values that filters of records offer."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from gateway.http.lists import Filter, filter_values_by_field
from gateway.operations.records.choices import filter_choices
from gateway.operations.records.newest import RECORDS
from gateway.operations.records.published import KeptRecord
from spool.cost_kinds import OUTCOME_TAGS
from spool.record import CALL_UNIT, CURRENCY, TOKEN_UNIT, Correction, Inference, Record, UsageMetric
from tests.spool.ledger_log import call

SOURCES, STATUSES = ("reported", "none"), ("ok", "error", "cached")
DERIVED = {
    "place": ("provider", "tag:place"),
    "outcome": ("status",),
    "reported": ("cost_source", "team"),
    "who": ("user",),
}
COUNTER: dict[str, Any] = {
    "source": "claude-code",
    "name": "cost",
    "value": "1",
    "unit": "USD",
    "start_time": 1,
}


def test_columns_offer_the_same_values_as_all_records() -> None:
    """
    Reading only records that differ in a filter's fields finds every value, for calls, corrections and counters, for
    fields, tags, and dimensions that are derived from several.
    """
    rows = [KeptRecord(record.topic, number, 1.0, False, record) for number, record in enumerate(records())]
    listed = replace(
        RECORDS,
        filters={
            **RECORDS.filters,
            **{name: derived(*sources) for name, sources in DERIVED.items()},
            "tag:place": Filter(values=lambda stored: (stored.value_for_filters("tag:place"),)),
        },
    )
    everything = filter_values_by_field(listed, lambda _: rows)
    assert everything == filter_choices(listed, rows, DERIVED)
    assert ["", "batch", "stock"] == everything["team"]
    assert {"a", "b", "gpt-4o", "gpt-5", "new"} == {*everything["model"]} - {""}
    assert ["", "here"] == everything["tag:place"]
    assert 4 < len(everything["place"])
    assert filter_values_by_field(listed, lambda _: []) == filter_choices(listed, [], DERIVED)


def test_outcomes_are_read_from_few_records() -> None:
    """Status and cost source read one record of each outcome, and each call without tokens, which may have a cost."""
    read = Counter[str]()

    def counted(name: str) -> Filter[KeptRecord]:
        def values(stored_record: KeptRecord) -> tuple[str, ...]:
            read[name] += 1
            return (stored_record.dimension_value_in_totals(name),)

        return Filter(values=values)

    records = [call(cost_source=source, status=status) for source in SOURCES for status in STATUSES] * 200
    records += [
        call(input_tokens=None, output_tokens=0, cost_source="none", estimated_cost=None, cost=cost)
        for cost in ("0", "1")
    ]
    rows = [KeptRecord(record.topic, number, 1.0, False, record) for number, record in enumerate(records)]
    listed = replace(RECORDS, filters={name: counted(name) for name in ("status", "cost_source")})
    found = filter_choices(listed, rows, {})
    assert {"free", "none", "reported", "without_usage"} == {*found["cost_source"]}
    assert {"status": len(STATUSES), "cost_source": len(SOURCES) * len(STATUSES) + 2} == read


def derived(*sources: str) -> Filter[KeptRecord]:
    return Filter(values=lambda stored: (" of ".join(map(stored.dimension_value_in_totals, sources)),))


def records() -> list[Record]:
    chance = random.Random(7)

    def some() -> Inference:
        return call(
            provider=chance.choice(("openai", "azure")),
            response_model=chance.choice((None, "gpt-5")),
            team=chance.choice((None, "stock", "batch")),
            user=chance.choice((None, "ada")),
            status=chance.choice(("ok", "error", "cached")),
            input_tokens=chance.choice((None, 0, 100)),
            output_tokens=chance.choice((None, 0, 10)),
            estimated_cost=chance.choice((None, "0", "0.5")),
            cost_source=chance.choice(("none", "estimated", "reported")),
            sender_key=chance.choice((None, "key")),
            tags=chance.choice(({}, {"place": "here"})),
        )

    corrected = Correction(
        id=b"\2" * 16, source="litellm", corrects=b"\0" * 16, reason="late_usage", known_at=1, start_time=1,
        before=some(), after=call(request_model="new", team="stock"),
    )  # fmt: skip
    counters = [UsageMetric(id=name.encode() * 16, model=name, **COUNTER) for name in ("a", "b")]
    counters += [
        UsageMetric(
            id=b"c" * 16, **{**COUNTER, "unit": unit, "tags": dict(zip(OUTCOME_TAGS, outcome, strict=True))}
        )
        for unit in (CALL_UNIT, TOKEN_UNIT, CURRENCY)
        for outcome in (("error", "reported"), ("ok", "estimated"))
    ]
    return [*(some() for _ in range(200)), corrected, *counters]
