"""The adviser over a real ledger and registry, from calls to realized savings, while time passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.money.recommendations import adviser as advising
from gateway.money.recommendations.adviser import RecommendationUpdater
from gateway.money.recommendations.facts import DAY_S
from gateway.money.recommendations.gathering import Sources
from gateway.operations.list import declared_tables
from spool.errors import SpoolUnavailable
from spool.ledger.ledger import Ledger
from spool.record import NS, Inference
from spool.registry.insights import FindingMergeCounts
from spool.registry.operators import Actor
from spool.registry.recommendations import Recommendation
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.registry import open_registry
from tests.gateway.money.recommendations.examples import BOOK, NOW, call
from tests.spool.ledger_log import FakeClock, FakeLog
from tests.waiting import awaited

ADA = Actor("ada@example.com", "local")


@dataclass
class House:
    """A clock, a log, and an adviser over them."""

    clock: FakeClock
    log: FakeLog
    registry: Registry
    adviser: RecommendationUpdater

    def calls(self, days: int, *, tier: str, first: float = 0) -> None:
        """Add a call on each of the last days: $4.90 as priority or $2.80 as standard."""
        tags = {"service": "answers", "service_tier": tier}
        new_calls = [self._call(first + day, tags) for day in range(days)]
        self.log.add(new_calls, at=self.clock.at)

    def _call(self, days_ago: float, tags: dict[str, str]) -> Inference:
        return call(start_time=int((self.clock.at - days_ago * DAY_S) * NS), tags=tags)

    async def look(self) -> FindingMergeCounts:
        return (await self.adviser.find_and_store_savings()).merged

    async def only(self) -> Recommendation:
        [one] = await self.registry.recommendations.all()
        return one


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    clock, log = FakeClock(NOW), FakeLog()
    registry = await open_registry(tmp_path, secret=b"s" * 32, clock=clock, declared=declared_tables())
    sources = Sources(ledger=Ledger(new_in_memory_ledger(), clock=clock), log=log, prices=lambda: BOOK)  # type: ignore[arg-type]
    yield House(clock, log, registry, RecommendationUpdater(sources, registry.recommendations, clock))
    await registry.close()


async def test_what_was_promised_is_saved(house: House) -> None:
    """
    Ten calls of $4.90 before the change and sixteen calls of $2.80 after it. The difference per call is
    the realized saving.
    """
    house.calls(10, tier="priority", first=1)
    assert 1 == (await house.look()).new
    recommendation = await house.only()
    assert "21" == recommendation.saving.monthly_savings
    await house.registry.recommendations.change_recommendations(
        [recommendation.id], status="addressed", actor=ADA
    )
    house.clock.at += 14 * DAY_S
    house.calls(14, tier="default")
    assert (done := await house.look()).gone == 1
    assert done.reopened == 0
    assert (await house.only()).realized is None
    assert (await house.only()).promised == "21"
    house.clock.at += 3 * DAY_S
    house.calls(3, tier="default")
    await house.look()
    realized = (await house.only()).realized
    assert realized is not None
    assert "33.6" == realized.amount  # sixteen whole days with one call at $2.10 each


async def test_calls_after_addressing_make_the_recommendation_new_again(house: House) -> None:
    """
    Priority calls continue after a recommendation was addressed. For some days they count as part of the
    change. Later ones make the recommendation new again, once they reach the minimum.
    """
    house.calls(10, tier="priority", first=1)
    await house.look()
    await house.registry.recommendations.change_recommendations(
        [(await house.only()).id], status="addressed", actor=ADA
    )
    house.clock.at += 5 * DAY_S
    house.calls(5, tier="priority")
    assert 0 == (await house.look()).reopened  # two calls of $4.20 in total do not reopen it
    house.clock.at += DAY_S
    house.calls(1, tier="priority")
    assert 1 == (await house.look()).reopened
    assert (again := await house.only()).status == "new"
    assert again.saving.monthly_savings == "6.3"
    await house.look()
    assert "33.6" == (await house.only()).saving.monthly_savings  # the saving is for the whole month again


async def test_a_month_is_thirty_days(house: House) -> None:
    """Calls older than thirty days do not count. When all calls are older, the recommendation is closed."""
    house.calls(3, tier="priority", first=27)
    await house.look()
    assert "6.3" == (await house.only()).saving.monthly_savings
    house.clock.at += DAY_S
    await house.look()
    assert not (await house.only()).is_open


async def test_it_looks_again_and_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adviser runs again and again. If one evaluation fails, the next one still runs."""
    monkeypatch.setattr(advising, "EVERY_S", 0)
    looked = asyncio.Event()
    looks = iter([SpoolUnavailable("full"), None])

    async def look() -> None:
        error = next(looks, None)
        if error is not None:
            raise error
        looked.set()

    monkeypatch.setattr(house.adviser, "find_and_store_savings", look)
    task = asyncio.create_task(house.adviser.run())
    await awaited(looked.wait())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
