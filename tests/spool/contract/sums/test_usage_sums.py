"""
The usage that a provider may bill for a day equals a recount of the log, before and after its hours
become a day.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

from spool import money
from spool.ledger.ledger import Ledger
from spool.ledger.sums import DAY_S, HOUR_S
from spool.record import NS, Inference
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

DAYS = [BEGIN - DAY_S, BEGIN]
KINDS = (
    {"user": "ann"},
    {"user": "bob"},
    {"tags": {"service_tier": "batch"}},
    {"status": "cached"},
    {"status": "error", "cost": "0.02", "cost_source": "reported"},
    {"estimated_cost": None, "cost_source": "none"},
    {"input_tokens": None},
    {"output_tokens": None},
)


def traffic() -> list[Inference]:
    return [
        call(start_time=(day + hour * HOUR_S) * NS, api_key=key, **fields)
        for day in DAYS
        for hour in (1, 2)
        for key in ("a", "b")
        for fields in KINDS
    ]


async def by_key(ledger: Ledger) -> dict[tuple[int, str | None, str, bool], tuple[int, int, Decimal]]:
    """Return calls, input tokens and cost by (day, key, mode, sized)."""
    found: dict[tuple[int, str | None, str, bool], tuple[int, int, Decimal]] = defaultdict(
        lambda: (0, 0, Decimal(0))
    )
    for day in DAYS:
        for each in await ledger.usage_of_day(day):
            assert each.dimensions.user is None
            assert each.dimensions.device is None
            assert each.dimensions.tags == ""
            place = day, each.dimensions.api_key, each.dimensions.mode, each.sized
            calls, tokens, cost = found[place]
            cost += Decimal(money.units_to_text(each.cost))
            found[place] = calls + each.tokens.calls, tokens + each.tokens.input_tokens, cost
    return dict(found)


async def test_by_hours_and_summed_up(ledgers: Ledgers) -> None:
    """
    The usage of a day counts all calls by mode, from hours and from the sum of the day, except answers from a
    gateway's own cache. Calls with unknown tokens are separate.
    """
    log, clock = FakeLog(), FakeClock(BEGIN + 12 * HOUR_S)
    log.add(traffic(), at=clock.at)
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    expected = {}
    for day in DAYS:
        for key in ("a", "b"):
            expected[day, key, "", True] = (8, 800, Decimal("0.0414"))
            expected[day, key, "batch", True] = (2, 200, Decimal("0.0007"))
            expected[day, key, "", False] = (4, 200, Decimal("0.0014"))
    assert expected == await by_key(ledger)
    await ledger.sum_up_and_delete_hours()
    assert expected == await by_key(ledger)
