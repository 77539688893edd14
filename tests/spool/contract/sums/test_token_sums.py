"""The priceable sums of a day equal a recount of the log, before and after its hours become a day."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from functools import partial

import pytest

from spool import money
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import DAY_S, HOUR_S
from spool.record import NS, Inference
from spool.sql import ledger as statements
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

DAYS = [BEGIN - 2 * DAY_S, BEGIN - DAY_S, BEGIN]


def traffic() -> list[Inference]:
    """
    Return calls of three days, two teams and three hours a day: with and without own cost, cached, unpriced.
    """
    return [
        call(start_time=(day + hour * HOUR_S) * NS, team=team, **fields)
        for day in DAYS
        for hour in (1, 2, 9)
        for team in ("a", "b")
        for fields in (
            {},
            {"cost": "0.1", "cost_source": "reported", "cache_read_tokens": 40},
            {"status": "cached"},
            {"status": "error", "cost": "0.02", "cost_source": "reported"},
            {"estimated_cost": None, "cost_source": "none"},
            {"input_tokens": None, "cost": "5", "cost_source": "reported"},
            {"cost": "0.01", "cost_source": "reported", "meters": {"web_searches": 2}, "user": "ada"},
        )
    ]


async def by_day(ledger: Ledger) -> dict[tuple[int, str], tuple[int, int, Decimal, int]]:
    """Return calls, input tokens, cost, and searches in millionths by (day, team)."""
    found: dict[tuple[int, str], tuple[int, int, Decimal, int]] = defaultdict(lambda: (0, 0, Decimal(0), 0))
    for day in DAYS:
        for each in await ledger.sums_of_day(day, max_sums=100):
            assert each.day == day == each.tokens.time // NS
            place = day, str(each.dimensions.team)
            calls, tokens, cost, searches = found[place]
            cost += Decimal(money.units_to_text(each.cost))
            searches += each.tokens.meters.get("web_searches", 0)
            found[place] = calls + each.tokens.calls, tokens + each.tokens.input_tokens, cost, searches
    return dict(found)


async def test_by_hours_and_summed_up(ledgers: Ledgers) -> None:
    """
    Twelve calls per day and team have a cost and a known input. The sums are equal before and after the
    day is finished.
    """
    log, clock = FakeLog(), FakeClock(BEGIN + 12 * HOUR_S)
    log.add(traffic(), at=clock.at)
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    expected = {(day, team): (12, 1200, Decimal("0.39105"), 6_000_000) for day in DAYS for team in ("a", "b")}
    assert expected == await by_day(ledger)
    await ledger.sum_up_and_delete_hours()
    assert expected == await by_day(ledger)


async def test_the_most_costly_come_first(ledgers: Ledgers) -> None:
    log, clock = FakeLog(), FakeClock(BEGIN + 12 * HOUR_S)
    log.add(
        [
            call(team=team, cost=cost, cost_source="reported")
            for team, cost in (("a", "1"), ("b", "3"), ("c", "2"))
        ]
    )
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    assert ["b", "c"] == [each.dimensions.team for each in await ledger.sums_of_day(BEGIN, max_sums=2)]
    assert [] == await ledger.sums_of_day(BEGIN - DAY_S, max_sums=2)


def count_dearest(ledger_rows: LedgerRows, most: int) -> int:
    return len(ledger_rows.token_sums_by_dimension_set(DAY_S, BEGIN, most_expensive_count=most))


@pytest.mark.parametrize("alike", [1, 1000])
async def test_the_dearest_of_a_day_are_read_alone(
    ledgers: Ledgers, alike: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Reading only the most expensive sums gives the same as reading all sums. Amounts may differ only in the
    last digit, and more sums may cost nearly the same than the first query reads.
    """
    monkeypatch.setattr(statements, "ALIKE", alike)
    log, clock = FakeLog(), FakeClock(BEGIN + 2 * DAY_S)
    amounts = ["0.3", "0.2", *(f"0.1{'0' * 20}{last}" for last in range(7)), "0.05", "-0.4", "0"]
    log.add(
        [call(user=f"user-{place}", cost=cost, cost_source="reported") for place, cost in enumerate(amounts)]
    )
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    read = list[int]()
    for most in (1, 2, 3, 8, 20):
        everything = await ledger.sums_of_day(BEGIN, max_sums=most, chosen=lambda _: True)
        assert everything == await ledger.sums_of_day(BEGIN, max_sums=most)
        assert [each.cost for each in everything] == sorted([each.cost for each in everything], reverse=True)
        count = partial(count_dearest, most=most)
        read.append(await ledgers.store.read(count))
    assert read == [1, 2, 9, 9, 12]


@pytest.mark.one_engine
async def test_several_days_are_read_together(ledgers: Ledgers) -> None:
    """
    Several days are read together, and each has the same sums as when it is read separately. Sums of equal cost are
    ordered by dimensions, and equal dimensions are shared objects.
    """
    log, clock = FakeLog(), FakeClock(BEGIN + 12 * HOUR_S)
    log.add(traffic(), at=clock.at)
    users = [call(start_time=DAYS[0] * NS, user=user, cost="0.3", cost_source="reported") for user in "cbdae"]
    log.add(users, at=clock.at)
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    for _ in range(2):
        for most in (1, 2, 4, 5, 6, 100):
            alone = [each for day in DAYS for each in await ledger.sums_of_day(day, max_sums=most)]
            together = await ledger.sums_of_days(DAYS, max_sums=most)
            found = [each for sums in together for each in sums]
            assert alone == sorted(found, key=lambda each: (each.day, -each.cost, each.dimensions))
            assert len(together) == len({id(each.dimensions) for each in found})
        first = [each.dimensions.user for each in await ledger.sums_of_day(DAYS[0], max_sums=6)]
        assert ["a", "b", "c", "d", "e"] == [user for user in first if user and user in "abcde"]
        chosen = await ledger.sums_of_day(DAYS[0], max_sums=2, chosen=lambda each: (each.user or "") > "b")
        assert ["c", "d"] == [each.dimensions.user for each in chosen]
        await ledger.sum_up_and_delete_hours()
