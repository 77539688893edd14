"""Values that decide a price and arrive after the call: the service tier, and the results of a batch."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

import pytest

from tests.integration.order.running import Request, Row, told_in_memory
from tests.integration.payloads import json_span, json_traces
from tests.spool.contract.examples import NOON

STANDARD, HALF = (
    "0.00225",
    "0.001125",
)  # price of 1,000 input tokens of gpt-5 at $1.25 per million and 100 output tokens at $10 per million, and its half
COUNTS: dict[str, str | int] = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}
SETTLED = {"service_tier": "flex"}


def report(*, tier: str = "", counts: bool = True) -> Request:
    told: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.id": "chatcmpl-0a1b2c3d4e5f60718293a4b5",
        **(COUNTS if counts else {}),
        **({"openai.response.service_tier": tier} if tier else {}),
    }
    attributes = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in told.items()
    ]
    start = int(NOON) * 10**9
    span = json_span(attributes=attributes, startTimeUnixNano=str(start), endTimeUnixNano=str(start + 10**9))
    return Request("otlp/traces", json_traces(span))


def told_late(*requests: Request, pauses: list[float]) -> tuple[Row, Row]:
    """Return the record and its only correction, after checking that repeats add nothing."""
    rows, conflicts = told_in_memory([*requests, *requests], pauses=pauses)
    assert 0 == conflicts
    correction, record = sorted(rows, key=lambda row: row["kind"])
    assert record["id"] == correction["corrects"]
    assert correction["reason"] == "late_usage"
    return record, correction


def test_the_tier_of_an_open_record_decides_its_price() -> None:
    """While a record is open, any report may state the tier that decides its price, in any order."""
    for order in permutations((report(), report(tier="flex"), report(counts=False))):
        rows, conflicts = told_in_memory(order)
        assert [(HALF, "flex", 0)] == [
            (row["estimated_cost"], row["tags"]["service_tier"], conflicts) for row in rows
        ]


def test_the_tier_of_a_closed_record_is_a_correction() -> None:
    """
    If the flex tier arrives after the record was delivered, a correction takes back the difference and has the
    tier.
    """
    record, correction = told_late(report(), report(tier="flex"), pauses=[60])
    assert record["estimated_cost"] == STANDARD
    assert record["tags"] == {}
    assert correction["cost"] == f"-{HALF}"
    assert correction["tags"] == SETTLED
    assert correction["input_tokens"] == 0


@pytest.mark.parametrize("hours", [0.1, 23])
def test_the_results_of_a_batch_are_a_correction(hours: float) -> None:
    """
    A call in a batch is reported at its request. If the usage and the batch tier arrive later with the results,
    they become a correction.
    """
    asked, result = report(counts=False), report(tier="batch")
    record, correction = told_late(asked, result, pauses=[hours * 3600, 0])
    assert record["estimated_cost"] is None
    assert record["input_tokens"] is None
    assert correction["cost"] == HALF
    assert correction["input_tokens"] == 1000
    assert correction["output_tokens"] == 100
    assert correction["tags"]["service_tier"] == "batch"


def test_another_tag_changes_no_price() -> None:
    """A tier without a price of its own causes no correction."""
    rows, _ = told_in_memory([report(), report(tier="default")], pauses=[60])
    assert [Decimal(STANDARD)] == [Decimal(row["estimated_cost"]) for row in rows]
