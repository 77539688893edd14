"""Counted costs of sellers without a bill are read with one query of the ledger."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.counting import find_seller
from gateway.bills.reconciliation.gathering import counted_cost_by_seller
from spool.record import NS
from spool.sqlite.ledger import open_ledger
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

PROVIDERS = ("openai", "azure", None, "anthropic")
NOW = BEGIN + 30 * HOUR


async def test_the_sums_are_those_of_all_days(tmp_path: Path) -> None:
    """
    The sums of sellers without a bill include calls answered by a gateway's cache, makers and products,
    and other currencies.
    """
    ledger = await open_ledger(tmp_path, clock=FakeClock(NOW))
    log = FakeLog()
    log.add(
        [
            call(
                start_time=(BEGIN + number * HOUR) * NS,
                source=("litellm", "cursor", "github-copilot")[number % 3],
                provider=PROVIDERS[number % 4],
                request_model=("gpt-4o", "claude-sonnet-4-5", "own")[number % 3],
                status=("ok", "cached", "error")[number % 5 % 3],
                cost=f"{number}.000000000000000001",
                cost_source="reported",
                charges={"EUR": "1.5"} if number % 7 == 0 else {},
            )
            for number in range(28)
        ]
    )
    try:
        await ledger.catch_up(log)
        month = CalendarMonth.of(f"{datetime.fromtimestamp(BEGIN, UTC):%Y-%m}")
        expected: dict[str, int] = defaultdict(int)
        for day in month.days:
            for use in await ledger.usage_of_day(day):
                of = use.dimensions
                expected[find_seller(of.source, of.provider, of.model)] += use.cost
        assert dict(expected) == dict(await counted_cost_by_seller(ledger, month, NOW))
        assert len(expected) > 2
    finally:
        await ledger.close()
