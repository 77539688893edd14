"""An erasure next to contracts: their amounts and the FOCUS rows of them stay, and no name of the person is left."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from aiohttp import ClientSession, UnixConnector

from gateway.bills.months import CalendarMonth
from gateway.configuration.sections import Config
from gateway.core.paths import OPERATOR_API, socket_path
from spool.people import ERASED
from tests.integration.conftest import Serve
from tests.integration.operations.people.test_privacy import CANARY, allow, erased, stored
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_linked_names import sent, world_of
from tests.integration.test_one_identity import AS, World, checked

TERMS: Sequence[Mapping[str, Any]] = (
    {"kind": "capacity", "models": ["gpt-4o"], "unit": "ptu", "number": "2", "price": "1.25", "per": "hour"},
    {"kind": "discount", "models": ["gpt-4.1"], "percent": "10"},
    {"kind": "fee", "amount": "31", "per": "month", "percent": "7"},
    {"kind": "credit", "amount": "40", "per": "month"},
)
Costs = Counter[tuple[str, ...]]


def months() -> list[CalendarMonth]:
    """Return the months of the calls that `sent` stores."""
    now = datetime.now(UTC)
    names = {f"{time:%Y-%m}" for time in (now, now - timedelta(hours=101))}
    return [CalendarMonth.of(name) for name in sorted(names)]


async def amounts(world: World) -> list[Any]:
    """Return what contracts cost in the months of the calls, and paid costs by charge and team."""
    found = [checked(await world.ask("GET", "/contract-costs", month=month.name)) for month in months()]
    paid = await world.ask("GET", "/report", range="last_7d", cost_type="paid_cost", by="charge,team")
    return [*found, checked(paid)["rows"]]


async def focus_file(world: World) -> str:
    """Return the FOCUS rows of the months of the calls, with those of contracts."""
    first, last = months()[0].days[0], months()[-1].days[-1]
    days = [datetime.fromtimestamp(day, UTC).date().isoformat() for day in (first, last)]
    socket = socket_path(world.serving.app.config.data_dir)
    path = f"http://tollhouse{OPERATOR_API}/focus?from={days[0]}&to={days[1]}&plans=true"
    async with (
        ClientSession(connector=UnixConnector(str(socket))) as session,
        session.get(path, headers=AS) as answer,
    ):
        text = await answer.text()
        assert 200 == answer.status, text
        return text


async def price_books(world: World) -> set[str]:
    return {str(getattr(each, "price_book", "")) for each in await world.serving.records()}


async def until_priced(world: World, chance: random.Random, mark: str) -> None:
    """Send calls until one has the contract's price: it reaches a gateway shortly after it was stored."""
    while not any(mark in book for book in await price_books(world)):
        await sent(world, chance, ["bob"])


def without_name(found: Any) -> Any:
    """Return an answer with the name of the contract as it was before the erasure."""
    return json.loads(json.dumps(found).replace(f"Terms of {ERASED}", f"Terms of {CANARY}"))


def focus_costs(text: str) -> Costs:
    """Return billed and effective costs by day, kind of charge and model."""
    sums: Costs = Counter()
    for row in csv.DictReader(io.StringIO(text)):
        place = (row["ChargePeriodStart"], row["ChargeCategory"], row["SkuId"])
        for column in ("BilledCost", "EffectiveCost"):
            sums[column, *place] += Decimal(row[column])  # type: ignore[assignment]
    return sums


async def test_amounts_of_contracts_outlive_an_erasure(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]]
) -> None:
    """
    On each engine, an erased person's calls keep their share of capacity, fees and credits. The contract has the
    person's name, which the price book of each call states, and a recalculation has the terms.
    """
    config, outside = storage_of
    chance = random.Random(5)
    world = await world_of(serve, config)
    await allow(world)
    contract = {"name": f"Terms of {CANARY}.", "provider": "openai", "since": "2026-01-01", "terms": [*TERMS]}
    checked(await world.ask("POST", "/contracts", contract))
    await until_priced(world, chance, f"+contract:{contract['name']}")
    await sent(world, chance, [*chance.choices((CANARY, "bob"), k=20), CANARY])
    checked(await world.ask("POST", "/ledger/reprice", {"since": "2026-01-01"}))
    before, focus = await amounts(world), await focus_file(world)
    assert {f"+contract:{contract['name']}" in book for book in await price_books(world)} == {True, False}
    await erased(world, texts=True)
    assert CANARY.encode() not in await stored(world, outside)
    assert f"+contract:Terms of {ERASED}." in "".join(await price_books(world))
    assert before == [without_name(each) for each in await amounts(world)]
    focus_after = await focus_file(world)
    assert CANARY in focus and CANARY not in focus_after
    assert focus_costs(focus) == focus_costs(without_name(focus_after))
    verified = checked(await world.ask("GET", "/verify"))
    assert [] == verified["imbalances"]
