"""The verdict on one record, which manifests of data lakes and agents sum up, agrees with the ledger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spool import money
from spool.ledger.sums import MAX_MONEY, MAX_TOKENS, HourlySums
from spool.ledger.verdicts import counted_amounts
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, CALL_UNIT, CURRENCY, NS, TOKEN_UNIT, Record, UsageMetric
from tests.spool.ledger_log import BEGIN, call


def metric(value: int | str, unit: str) -> UsageMetric:
    return UsageMetric(
        id=b"m" * 16, source="litellm", name="usage", unit=unit, value=value, start_time=BEGIN * NS
    )


@pytest.mark.parametrize(
    ("build", "limit"),
    [
        pytest.param(lambda units: call(cost=money.units_to_text(units), cost_source="reported", estimated_cost=None),
                     MAX_MONEY, id="cost of a call"),
        pytest.param(lambda count: call(input_tokens=count), MAX_TOKENS, id="input of a call"),
        pytest.param(lambda count: call(output_tokens=count), MAX_TOKENS, id="output of a call"),
        pytest.param(lambda units: metric(money.units_to_text(units), CURRENCY), MAX_MONEY, id="dollars"),
        pytest.param(lambda count: metric(count, TOKEN_UNIT), MAX_TOKENS, id="tokens"),
        pytest.param(lambda count: metric(count, CALL_UNIT), MAX_TOKENS, id="calls"),
    ],
)  # fmt: skip
def test_the_ledger_counts_exactly_what_the_verdict_counts(
    build: Callable[[int], Record], limit: int
) -> None:
    """Both count the largest plausible amount, and neither counts more than that."""
    for amount, is_counted in ((limit, True), (limit + 1, False)):
        record = build(amount)
        sums = HourlySums()
        sums.add_entries([LogEntry(topic=AI_TELEMETRY, first=1, committed_at=BEGIN, records=[record])])
        assert is_counted == bool(list(sums.hourly_rows()))
        assert is_counted == counted_amounts(record).counted
