"""Sums of a day have a price only if it holds for the whole day. The price of midnight is not that of the day."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.bills.reconciliation.counting import TokenPrices, group_uses_by_seller
from gateway.intake.prices import PriceBook
from spool.record import NS
from tests.spool.ledger.engines import MEMORY, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

BOOK = PriceBook.load()
BY_HOUR, AT_ALL_HOURS = ("deepseek", "deepseek-chat-v3-0324"), ("openai", "gpt-4o")


@pytest.mark.parametrize(("named", "has_price"), [(BY_HOUR, False), (AT_ALL_HOURS, True)])
@pytest.mark.parametrize("later", [0, 70 * 24 * HOUR], ids=["hours", "days"])
async def test_a_day_with_several_prices_has_none(
    named: tuple[str, str], has_price: bool, later: int
) -> None:
    """The price of the first model changes at 00:30 and 16:30. All calls are made in between."""
    (provider, model), prices = named, TokenPrices(BOOK)
    clock, log = FakeClock(BEGIN + 48 * HOUR), FakeLog()
    ledger = await Ledgers(MEMORY, Path(), None).open(clock=clock)
    starts = [(BEGIN + hour * HOUR) * NS for hour in (9, 10)]
    log.add([call(provider=provider, request_model=model, start_time=start) for start in starts], at=clock.at)
    await ledger.catch_up(log)
    clock.at += later
    await ledger.sum_up_and_delete_hours()
    [usage] = await ledger.usage_of_day(BEGIN)
    [use] = group_uses_by_seller([usage], prices)[provider]
    assert has_price == bool(use.values)
    assert has_price == bool(prices.list_prices_on_day(provider, model, "", BEGIN))
    assert has_price == (prices.meter_costs_of_sum(usage.tokens) is not None)
    await ledger.close()
