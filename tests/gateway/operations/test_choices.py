"""The values that filters of records offer."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from gateway.http.lists import Filter, known_values
from gateway.operations.records.choices import choices
from gateway.operations.records.newest import RECORDS
from gateway.operations.records.published import KeptRecord
from spool.record import Correction, Inference, Record, UsageMetric
from tests.spool.ledger_log import call

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
            "tag:place": Filter(values=lambda stored: (stored.value("tag:place"),)),
        },
    )
    everything = known_values(listed, lambda _: rows)
    assert everything == choices(listed, rows, DERIVED)
    assert ["", "batch", "stock"] == everything["team"]
    assert {"a", "b", "gpt-4o", "gpt-5", "new"} == {*everything["model"]} - {""}
    assert ["", "here"] == everything["tag:place"]
    assert 4 < len(everything["place"])
    assert known_values(listed, lambda _: []) == choices(listed, [], DERIVED)


def derived(*sources: str) -> Filter[KeptRecord]:
    return Filter(values=lambda stored: (" of ".join(map(stored.counted, sources)),))


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
            sender_key=chance.choice((None, "key")),
            tags=chance.choice(({}, {"place": "here"})),
        )

    corrected = Correction(
        id=b"\2" * 16, source="litellm", corrects=b"\0" * 16, reason="late_usage", known_at=1, start_time=1,
        before=some(), after=call(request_model="new", team="stock"),
    )  # fmt: skip
    counters = [UsageMetric(id=name.encode() * 16, model=name, **COUNTER) for name in ("a", "b")]
    return [*(some() for _ in range(200)), corrected, *counters]
