"""The number of SQL statements per budget is limited, because neighbouring periods are read together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from gateway.money.budgets.declared import EXPANSIONS
from gateway.money.budgets.expansion import read_requested_sections
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from tests.gateway.money.budgets.house import House
from tests.spool.ledger.engines import POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import HOUR

T = TypeVar("T")
DAY = 24 * HOUR
# On these days New York's clocks go forward and back, so the days have 23 and 25 hours.
SPRING = datetime(2026, 3, 8, tzinfo=UTC).timestamp() + 15 * HOUR
AUTUMN = datetime(2026, 11, 1, tzinfo=UTC).timestamp() + 15 * HOUR
# maximum numbers of database statements for one budget: in an evaluation, and in a list
EVALUATION, LISTED = 40, 200


class CountedStore:
    """A ledger store that counts its read statements."""

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
        """Leave the store open, because the test owns it."""


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
    """Open an installation with 40 days of calls, whose ledger is in a database of the engine."""
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
        await ledger.sum_up_and_delete_hours()
        return await house.start(), counted

    yield open_house
    await ledgers.close()


@pytest.mark.parametrize("now", [SPRING, AUTUMN])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_evaluation_uses_few_statements(opened: Open, now: float, zone: str) -> None:
    """One budget with a forecast takes at most 40 statements, for any number of hours and days."""
    house, counted = await opened(now)
    await house.budget(await house.view(), time_zone=zone, forecast_alerts={"100": "Y"})
    await house.evaluate()
    counted.statements = 0
    house.spend("1")
    await house.ledger.catch_up(house.log)
    await house.evaluate()
    assert 0 < counted.statements <= EVALUATION


@pytest.mark.parametrize("now", [SPRING, AUTUMN])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
async def test_listed_budget_uses_few_statements(opened: Open, now: float, zone: str) -> None:
    """
    With all optional parts, a listed budget takes at most 200 statements, and its days add up to the month.
    """
    house, counted = await opened(now)
    budget = await house.budget(await house.view(), time_zone=zone)
    await house.evaluate()
    counted.statements = 0
    books = house.evaluator.budget_ledger()
    figures = await books.read_figures(budget, house.registry.views.find(budget.view_id))
    shown: Any = await read_requested_sections(books, figures, frozenset(EXPANSIONS))
    assert 0 < counted.statements <= LISTED
    *_, today = shown["burnup"]["daily"].values()
    assert shown["current"]["actual"] == today["actual"]
