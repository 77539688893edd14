"""
Recalculations of estimates. Each call has the estimate of the newest recalculation after it was counted, whatever
arrives later: the sums are those of a ledger that counted the final calls once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gateway.configuration.sections import PriceOverride
from gateway.intake.prices import PriceBook
from spool.ledger.comparing import LedgerMender
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TOTAL, CostQuery
from spool.ledger.sums import WIDTH
from spool.ledger.work import WorkLimits
from spool.log.amendments import amended
from spool.log.planning.corrections import correction, merged, placed, taken_back
from spool.record import NS, Correction, Inference, Record
from tests.spool.ledger.engines import MEMORY, POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
SEEDS = int(os.environ.get("TOLLHOUSE_RECALCULATION_SEEDS", "6"))
EVER: Any = {
    "since": datetime.fromtimestamp(BEGIN - 400 * DAY, UTC),
    "until": datetime.fromtimestamp(BEGIN + 400 * DAY, UTC),
}
LIMITS = WorkLimits(retention_s=1000.0 * DAY, retention_units_s=1000.0 * DAY)  # no unit expires
GROUPS = (
    ("request_model", "team", "status", "cost_source"),
    ("session",),
    ("run",),
    ("repository",),
    ("repository", "request_model", "cost_source"),
    (),
)
# models by the form of their price: one price, a higher one for large inputs, another one at night, none in most books
PLAIN, TIERED, NIGHTLY, RARE = "acme-plain", "acme-tiered", "acme-nightly", "acme-rare"
LARGE = 200_000
# at these hours, the price of NIGHTLY changes
CHANGING_HOURS = (0, 16)


def book_of(price: int, *, has_rare: bool = False) -> PriceBook:
    """Return a book in which a million input tokens cost `price` dollars, and twice as much if large or at night."""
    night = {"hours": ["16:30", "00:30"]}
    rows: dict[str, list[dict[str, Any]]] = {
        PLAIN: [{}],
        TIERED: [{"tiers": [{"above": LARGE, **cost(2 * price)}]}],
        NIGHTLY: [{}, {**night, **cost(2 * price)}],
        **({RARE: [{}]} if has_rare else {}),
    }
    models = [
        {"id": name, "match": {"equals": [name]}, "prices": [{**cost(price), **row} for row in prices]}
        for name, prices in rows.items()
    ]
    card = {
        "format": 1,
        "version": f"acme-{price}-{has_rare}",
        "source": {"name": "Acme", "date": "2026-11-27", "currency": "USD"},
        "providers": {"acme": {"models": models}},
    }
    return PriceBook.of_texts(msgspec.json.encode(card), b"{}")


def cost(price: int) -> dict[str, Any]:
    return {"input": str(price), "output": "0", "cache_read": "0"}


class Made(NamedTuple):
    """A recalculation, by hand."""

    price: int
    has_rare: bool
    since: int
    reach: int
    hourly: int

    def estimate(self, call: Inference) -> Decimal | None:
        at = (call.start_time or 0) // NS
        is_hour = at // HOUR * HOUR >= self.hourly
        if at // (HOUR if is_hour else DAY) * (HOUR if is_hour else DAY) < self.since:
            return None
        hour = at % DAY // HOUR
        is_dear = call.request_model == TIERED and (call.input_tokens or 0) > LARGE
        if call.request_model == NIGHTLY:
            if not is_hour or hour in CHANGING_HOURS:
                return None
            is_dear = hour > CHANGING_HOURS[1]
        if call.request_model == RARE and not self.has_rare:
            return None
        return Decimal((call.input_tokens or 0) * self.price * (1 + is_dear)) / 10**6


@dataclass
class Counted:
    call: Inference
    number: int
    corrections: int = 0


class Calls:
    """A ledger, its log, and the calls by hand."""

    def __init__(self, ledgers: Ledgers, chance: random.Random) -> None:
        self._ledgers, self.chance = ledgers, chance
        self.clock, self.log = FakeClock(BEGIN + 100 * DAY), FakeLog()
        self.calls: list[Counted] = []
        self.made: list[Made] = []
        self.ledger: Ledger
        self._kept_from = 1

    async def open(self) -> None:
        self.ledger = await self._ledgers.open(clock=self.clock, work=LIMITS)

    async def _count(self, *records: Record) -> None:
        self.log.add(records, at=self.clock.at)
        await self.ledger.catch_up(self.log)

    async def add(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            number = self.log.closed_below()
            new = self._new_call(number)
            await self._count(new)
            self.calls.append(Counted(new, number))

    def _new_call(self, number: int) -> Inference:
        chance = self.chance
        age = chance.randrange(3 * DAY) + chance.choice((0, 0, 70 * DAY))
        model = chance.choice((PLAIN, TIERED, NIGHTLY, RARE))
        return call(
            id=number.to_bytes(16, "big"),
            provider="acme",
            request_model=model,
            team=chance.choice(("ads", "search")),
            start_time=int(self.clock.at - age) * NS,
            session=chance.choice((None, "s1", "s2")),
            tags=chance.choice(({}, {"repository": "shop"}, {"repository": "site"})),
            **self._measured(is_cached=chance.random() < 0.1),
        )

    def _measured(self, *, is_cached: bool = False) -> dict[str, Any]:
        """Return tokens, and an estimate of its own as prices were when the report arrived."""
        estimate = self.chance.choice((None, f"0.{self.chance.randrange(1, 99):02}"))
        return {
            "input_tokens": self.chance.choice((1, 1000, LARGE, LARGE + 1, 500_000)),
            "estimated_cost": estimate,
            "cost_source": "none" if estimate is None else "estimated",
            "status": "cached" if is_cached else "ok",
        }

    def _correctable(self) -> list[Counted]:
        """Return the calls whose records the log still has."""
        return [each for each in self.calls if each.number >= self._kept_from and each.corrections < 10]

    async def correct(self) -> None:
        """Report some calls again: more tokens, a cost, or the runs around them."""
        found = self._correctable()
        for one in self.chance.sample(found, min(len(found), 4)):
            change = self._change(one)
            if change is not None:
                one.call, one.corrections = change.after, one.corrections + 1
                await self._count(change)

    def _change(self, one: Counted) -> Correction | None:
        now = int(self.clock.at) * NS
        match self.chance.randrange(3):
            case 0:
                fields = self._measured()
                fields |= {"status": one.call.status}
                if one.call.cost is not None:
                    fields["cost_source"] = "reported"
                return correction(
                    one.call, one.corrections, one.call, fields, replaces_cost=False, now_ns=now
                )
            case 1:
                reported = {"cost": f"0.{self.chance.randrange(1, 99)}", "cost_source": "reported"}
                return correction(
                    one.call, one.corrections, one.call, reported, replaces_cost=True, now_ns=now
                )
            case _:
                run = {"run": f"r{self.chance.randrange(4)}"}
                return placed(one.call, one.corrections, run, now_ns=now)

    async def join(self) -> None:
        """Two records turn out to be one call: the first one gets the tokens, and the later one no longer counts."""
        found = self._correctable()
        if len(found) < 2:
            return
        first, later = sorted(self.chance.sample(found, 2), key=lambda each: each.number)
        now = int(self.clock.at) * NS
        fields = {"input_tokens": later.call.input_tokens}
        change = merged(first.call, first.corrections, later.call, fields, now_ns=now)
        gone = taken_back(later.call, later.corrections, first.call.id, later.call, now_ns=now)
        if change is not None:
            first.call, first.corrections = change.after, first.corrections + 1
        self.calls.remove(later)
        await self._count(*([change] if change else []), gone)

    async def recalculate(self) -> None:
        hourly = int((await self.ledger.hours_since()).timestamp())
        day = int(self.clock.at // DAY) * DAY
        since = self.chance.choice((BEGIN - 300 * DAY, day - 75 * DAY, day - DAY, day - DAY + 7 * HOUR))
        price, has_rare = self.chance.randrange(1, 9), self.chance.random() < 0.4
        await self.ledger.reprice(book_of(price, has_rare=has_rare), since=datetime.fromtimestamp(since, UTC))
        self.made.append(Made(price, has_rare, since, self.log.closed_below(), hourly))

    async def restart(self) -> None:
        await self.open()

    async def rebuild(self) -> None:
        await self.ledger.rebuild(self.log)
        await self.ledger.catch_up(self.log)

    async def repair(self) -> None:
        """Lose a call of each hour, and count the hours again."""

        def lose(rows: Any) -> None:
            for start in rows.starts(HOUR, 0):
                rows.add(HOUR, [(start, min(rows.numbers(HOUR, start)), [-1, *[0] * (WIDTH - 1)])])

        if await self.ledger._read(lambda rows: len(rows.starts(HOUR, 0))) and self._kept_from == 1:
            await self.ledger._change(lose)
            await LedgerMender(ledger=self.ledger, log=self.log, clock=self.clock).mend()

    async def age(self) -> None:
        """Sum up finished days, and delete the hours of old ones."""
        self.clock.at += self.chance.choice((0, DAY, 65 * DAY))
        await self.ledger.tidy()

    async def forget(self) -> None:
        """Delete the oldest records, as retention does."""
        self._kept_from = max(self._kept_from, self.log.closed_below() - 30)
        self.log.forget_below(self._kept_from)

    def final(self) -> list[Inference]:
        """Return the calls as they are in the end, each with its estimate."""
        return [self._recalculated(each) for each in self.calls]

    def _recalculated(self, one: Counted) -> Inference:
        for made in reversed(self.made):
            if one.number < made.reach and (estimate := made.estimate(one.call)) is not None:
                source = "reported" if one.call.cost is not None else "estimated"
                return amended(one.call, {"estimated_cost": f"{estimate:f}", "cost_source": source})
        return one.call

    async def check(self) -> None:
        counted = await Ledgers(MEMORY, Path(), None).open(clock=self.clock, work=LIMITS)
        log = FakeLog()
        log.add(self.final(), at=self.clock.at)
        await counted.catch_up(log)
        for by in GROUPS:
            assert await sums_of(counted, by) == await sums_of(self.ledger, by)
        await counted.close()
        assert [] == (await self.ledger.compare(self.log)).words()


async def sums_of(ledger: Ledger, by: Sequence[str]) -> dict[Any, Any]:
    rows = await ledger.costs(CostQuery(**EVER, granularity=TOTAL, group_by=tuple(by)))
    sums = {
        row.group: (
            row.calls,
            row.input_tokens,
            row.cost,
            row.reported,
            row.estimated,
            row.saved,
            row.unpriced,
        )
        for row in rows
    }
    return {group: values for group, values in sums.items() if any(Decimal(value) for value in values)}


@pytest.fixture
async def calls(engine: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    ledgers = Ledgers.of(engine, request, tmp_path)
    made = Calls(ledgers, random.Random(seed))
    await made.open()
    yield made
    await ledgers.close()


@pytest.mark.parametrize(
    ("engine", "seed"),
    [*((SQLITE, seed) for seed in range(SEEDS)), *((POSTGRES, seed) for seed in range(0, SEEDS, 6))],
)
@pytest.mark.usefixtures("unflushed")
async def test_every_order_gives_the_sums_of_the_final_calls(calls: Calls) -> None:
    """Late reports, costs, runs, merged calls, recalculations, restarts, rebuilds and repairs in any order."""
    happenings: Sequence[Callable[[], Any]] = (
        calls.correct, calls.correct, calls.join, calls.recalculate, calls.recalculate, calls.restart,
        calls.rebuild, calls.repair, calls.age, calls.forget,
    )  # fmt: skip
    for _ in range(12):
        await calls.add()
        for happen in calls.chance.choices(happenings, k=3):
            await happen()
        await calls.check()


@pytest.mark.parametrize("later", [0, 70 * DAY], ids=["hours", "days"])
async def test_a_sum_over_several_prices_keeps_its_estimate(later: int) -> None:
    """
    The model costs twice as much from 00:30 to 16:30. Without new prices, a recalculation changes nothing, also if only
    the sum of the day is stored. An own price without times applies to it.
    """
    list_prices, clock, log = PriceBook.load(), FakeClock(BEGIN + 2 * DAY), FakeLog()
    ledger = await Ledgers(MEMORY, Path(), None).open(clock=clock)
    made = [
        call(
            provider="deepseek", request_model="deepseek-chat-v3-0324", start_time=(BEGIN + minute * 60) * NS
        )
        for minute in (20, 40, 600, 995, 1000)
    ]
    for each in made:
        list_prices.price(each)
    log.add(made, at=clock.at)
    await ledger.catch_up(log)
    before = await sums_of(ledger, ())
    clock.at += later
    await ledger.tidy()
    ever = datetime.fromtimestamp(BEGIN - DAY, UTC)
    kept = await ledger.reprice(list_prices, since=ever)
    assert (0, 1 if later else 2) == (kept.rows, kept.unpriced)
    assert before == await sums_of(ledger, ())
    own = PriceOverride(model="deepseek-*", input=Decimal(10_000), output=Decimal(0), cache_read=Decimal(0))
    assert "5" == (await ledger.reprice(list_prices.with_own(own), since=ever)).after
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    assert "5" == (await sums_of(ledger, ()))[()][2]
    await ledger.close()
