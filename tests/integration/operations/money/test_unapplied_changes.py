"""Changes of contracts and own prices that earlier calls do not have, until these are recalculated."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.bills.contracts.declared import price_terms
from gateway.intake.prices import PriceBook
from gateway.money.insights.detector_facts import UnappliedChange
from gateway.operations.money.insights import make_insight_updater
from gateway.operations.money.own_prices import price_overrides
from gateway.operations.money.unapplied_changes import find_unapplied_changes
from spool.engines import POSTGRES, SQLITE
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.record import Inference
from spool.registry.notices import WARNING
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof, examples
from tests.spool.contract.examples import add, call
from tests.spool.kept import kept_insights
from tests.spool.postgres_cluster import Schema

NOON = datetime(2026, 9, 21, 12, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86_400.0
DISCOUNT = [{"kind": "discount", "percent": "50"}]
CONTRACT: dict[str, Any] = {"name": "Half", "provider": "openai", "since": "2026-09-01", "terms": DISCOUNT}
# a recalculation keeps the estimate of a call that has no price any more, so the list has a price too
PRICE: dict[str, Any] = {"model": "gemini-2.5-*", "provider": "gcp.gemini", "input": "2", "output": "8"}
MODELS = {"openai": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gcp.gemini": "gemini-2.5-pro"}


class Site:
    """An installation whose calls are priced on arrival, with a copy of each call."""

    def __init__(self, server: OperatorServer) -> None:
        self.server = server
        self.calls: list[Inference] = []

    def book(self) -> PriceBook:
        registry = self.server.registry
        return PriceBook(CARD, price_overrides(registry), price_terms(registry))

    async def send(self, provider: str, *, ago_h: float) -> None:
        """Store a call that began some hours ago, with the estimate of now."""
        at = self.server.clock.now() - ago_h * HOUR
        known = call(len(self.calls), at=at, provider=provider, request_model=MODELS[provider],
                     response_model=MODELS[provider], cost=None, input_tokens=1_000_000)  # fmt: skip
        self.book().price_record(known[0])
        self.calls.append(known[0])
        await add(self.server.services.spool.log, known)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = await self.server.ask(method, path, body)
        assert answer.status < 300, answer.payload
        return answer.payload

    async def recalculate(self, since: float) -> None:
        day = datetime.fromtimestamp(since, UTC).date().isoformat()
        await self.ask("POST", "/ledger/reprice", {"since": day})

    async def changes(self) -> Sequence[UnappliedChange]:
        ledger = self.server.services.money.ledger
        await ledger.catch_up(self.server.services.spool.log)
        return await find_unapplied_changes(self.server.registry, ledger)

    async def waiting(self) -> list[tuple[str, str, int]]:
        return [
            (change.name, datetime.fromtimestamp(change.since, UTC).strftime("%d"), change.calls)
            for change in await self.changes()
        ]

    async def has_old_estimates(self) -> bool:
        """Return whether the totals differ from the calls at today's prices, by a count of each call."""
        ledger, book = self.server.services.money.ledger, self.book()
        await ledger.catch_up(self.server.services.spool.log)
        query = CostQuery(
            since=datetime.fromtimestamp(NOON - 400 * DAY, UTC),
            until=datetime.fromtimestamp(NOON + 400 * DAY, UTC),
            granularity=TOTAL,
        )
        counted = sum((Decimal(row.cost) for row in await ledger.costs(query)), Decimal(0))
        return counted != sum((Decimal(book.estimate_record(each) or 0) for each in self.calls), Decimal(0))


CARD = PriceBook.load().card


@pytest_asyncio.fixture(params=[SQLITE, as_proof(POSTGRES)])
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    stored = None
    if request.param == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        stored = schema.settings(tmp_path)
    sites: list[Site] = []
    async with operator_server(
        tmp_path, engine=request.param, clock=MovedClock(NOON), stored=stored, prices=lambda: sites[0].book()
    ) as server:
        sites.append(Site(server))
        yield sites[0]


async def test_a_contract_waits_until_its_calls_are_recalculated(site: Site) -> None:
    """
    A contract since the 1st is entered on the 21st. A warning names the calls of before, until a recalculation from
    their first day. A new name changes no price, and a deletion waits again.
    """
    await site.send("openai", ago_h=50)
    await site.send("openai", ago_h=3)
    await site.send("anthropic", ago_h=3)
    made = (await site.ask("POST", "/contracts", CONTRACT))["contract"]
    assert await site.waiting() == [("Half", "19", 2)]
    await make_insight_updater(site.server.services).find_and_store_insights()
    [insight] = [
        each
        for each in await kept_insights(site.server.registry)
        if str(each.finding).startswith("contract_")
    ]
    assert WARNING == insight.severity
    assert "tollhouse ledger reprice --from 2026-09-19" in insight.description
    site.server.clock.move(HOUR)
    await site.recalculate(NOON - DAY)
    assert await site.waiting() == [("Half", "19", 2)]
    await site.recalculate(NOON - 2 * DAY)
    assert await site.waiting() == []
    site.server.clock.move(HOUR)
    renamed = await site.ask(
        "PATCH", f"/contracts/{made['id']}", {"name": "Whole", "version": made["version"]}
    )
    assert await site.waiting() == []
    await site.ask("DELETE", f"/contracts/{renamed['contract']['id']}")
    assert await site.waiting() == [("Whole", "19", 2)]
    site.server.clock.move(HOUR)
    await site.recalculate(NOON - 2 * DAY)
    assert await site.waiting() == []
    await make_insight_updater(site.server.services).find_and_store_insights()
    [insight] = [
        each
        for each in await kept_insights(site.server.registry)
        if str(each.finding).startswith("contract_")
    ]
    assert "addressed" == insight.status


async def test_terms_that_price_no_earlier_call_wait_for_nothing(site: Site) -> None:
    """A contract before its first call, one with only a fee, and a price of another model need no recalculation."""
    await site.ask("POST", "/contracts", {**CONTRACT, "since": "2026-09-21"})
    site.server.clock.move(2 * HOUR)
    await site.send("openai", ago_h=0.5)
    fee = [{"kind": "fee", "amount": "5", "per": "month"}]
    await site.ask("POST", "/contracts", {**CONTRACT, "name": "Fee", "terms": fee})
    await site.ask("POST", "/prices", PRICE)
    assert await site.waiting() == []


@pytest.mark.parametrize("seed", range(examples(60)))
async def test_old_estimates_always_wait(site: Site, seed: int) -> None:
    """
    In random orders of calls, late calls, changes and recalculations, no call has an old estimate unless a change is
    waiting. A recalculation from the first day of the waiting changes makes all estimates current.
    """
    chance = random.Random(seed)
    for _ in range(25):
        await _random_step(site, chance)
        site.server.clock.move(chance.choice([60.0, HOUR, 30 * HOUR]))
        waiting = await site.changes()
        if not waiting:
            assert not await site.has_old_estimates()
        elif chance.random() < 0.3:
            await site.recalculate(min(change.since for change in waiting))
            assert await site.waiting() == []
            assert not await site.has_old_estimates()


async def _random_step(site: Site, chance: random.Random) -> None:
    path, draft = chance.choice([("/contracts", CONTRACT), ("/prices", PRICE)])
    step = chance.choice(["call", "call", "call", "create", "edit", "delete", "recalculate"])
    rows = (await site.ask("GET", path))[path[1:]]
    day = datetime.fromtimestamp(site.server.clock.now() - chance.randrange(9) * DAY, UTC).date().isoformat()
    changed = {"since": day} if chance.random() < 0.5 else _other_amount(path, chance)
    if step == "call":
        await site.send(chance.choice(list(MODELS)), ago_h=chance.choice([0.0, 1.0, 20.0, 90.0]))
    elif step == "recalculate":
        await site.recalculate(site.server.clock.now() - chance.randrange(9) * DAY)
    elif step == "create" and not rows:
        await site.ask("POST", path, {**draft, **changed})
    elif step == "edit" and rows:
        await site.ask("PATCH", f"{path}/{rows[0]['id']}", {**changed, "version": rows[0]["version"]})
    elif step == "delete" and rows:
        await site.ask("DELETE", f"{path}/{rows[0]['id']}")


def _other_amount(path: str, chance: random.Random) -> dict[str, Any]:
    amount = str(chance.randrange(1, 90))
    return {"input": amount} if path == "/prices" else {"terms": [{"kind": "discount", "percent": amount}]}
