"""How many statements budgets cost a database: the ledger is asked about neighbouring periods together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from gateway.money.budgets.declared import EXPANSIONS
from gateway.money.budgets.expansion import expanded
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from tests.gateway.money.budgets.house import House
from tests.spool.ledger.engines import POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import HOUR

T = TypeVar("T")
DAY = 24 * HOUR
# The day on which clocks go forward in New York, and the one on which they go back: days of 23 and of 25
# hours.
SPRING = datetime(2026, 3, 8, tzinfo=UTC).timestamp() + 15 * HOUR
AUTUMN = datetime(2026, 11, 1, tzinfo=UTC).timestamp() + 15 * HOUR
EVALUATION, LISTED = 40, 200  # the most statements of one budget


class CountedStore:
    """A ledger's store that counts the statements of reading."""

    shares_log = False

    def __init__(self, store: LedgerStore) -> None:
        self.statements = 0
        self._store = store

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        def counted(rows: Any) -> T:
            rows._connection = _CountedConnection(rows._connection, self)
            return work(rows)

        return await self._store.read(counted)

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._store.change(work)

    async def close(self) -> None:
        """The store belongs to the test."""


class _CountedConnection:
    def __init__(self, connection: Any, counted: CountedStore) -> None:
        self._connection = connection
        self._counted = counted

    def execute(self, *statement: Any, **options: Any) -> Any:
        self._counted.statements += 1
        return self._connection.execute(*statement, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


Open = Callable[[float], Awaitable[tuple[House, CountedStore]]]


@pytest_asyncio.fixture(params=[SQLITE, POSTGRES])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """A house at a time, with 40 days of calls behind it, over an engine that keeps its ledger in a database."""
    ledgers = Ledgers.of(request.param, request, tmp_path)

    async def open_house(now: float) -> tuple[House, CountedStore]:
        house = House(at=now - 40 * DAY)
        ledger = await ledgers.open(clock=house.clock)
        counted = CountedStore(ledgers.store)
        house._rows = counted  # type: ignore[assignment]
        for day in range(40):
            house.spend("1.5", at=now - day * DAY)
            house.spend("0.5", at=now - day * DAY - HOUR)
        house.clock.at = now
        await ledger.catch_up(house.log)
        await ledger.tidy()
        return await house.start(), counted

    yield open_house
    await ledgers.close()


@pytest.mark.parametrize("now", [SPRING, AUTUMN])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_an_evaluation_asks_few_statements(opened: Open, now: float, zone: str) -> None:
    """One budget, forecast and all, takes at most 40, however many hours and days the forecast reads."""
    house, counted = await opened(now)
    await house.budget(await house.view(), time_zone=zone, forecast_alerts={"100": "Y"})
    await house.evaluate()
    counted.statements = 0
    await house.evaluate()
    assert 0 < counted.statements <= EVALUATION


@pytest.mark.parametrize("now", [SPRING, AUTUMN])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_a_listed_budget_asks_few_statements(opened: Open, now: float, zone: str) -> None:
    """With everything that a list can show of it, at most 200; and the days add up to what the month spent."""
    house, counted = await opened(now)
    budget = await house.budget(await house.view(), time_zone=zone)
    await house.evaluate()
    counted.statements = 0
    books = house.evaluator.books()
    figures = await books.figures(budget, house.registry.views.find(budget.view_id))
    shown: Any = await expanded(books, figures, frozenset(EXPANSIONS))
    assert 0 < counted.statements <= LISTED
    *_, today = shown["burnup"]["daily"].values()
    assert shown["current"]["actual"] == today["actual"]
