"""Results for billed money are the same with and without rollups, on every engine and after any change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spool.ledger.billed import CONNECTION, CORRECTS, EVERY, RESTATED, BilledDay, BilledSum
from spool.ledger.costs import query_costs
from spool.ledger.dimensions import BILLED, BILLED_TYPES, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import BILLED_ROLLUPS, DAY_S, Dimensions
from spool.sql.ledger import SqlLedgerRows
from tests.rounds import IS_LONG, part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.test_rollups import without
from tests.spool.ledger_log import BEGIN, FakeClock

DAYS = 70  # the days contain two whole rollups of four weeks, whatever the first day is
DAY_ONE = BEGIN // DAY_S * DAY_S
FIRST = datetime.fromtimestamp(DAY_ONE, UTC)
FRONT = DerivedDimension(
    name="own:front", label="Front", sources=("team",), value=lambda each: "yes" if each == ("a",) else ""
)
WHOLE = CostQuery(
    since=FIRST,
    until=FIRST + timedelta(days=DAYS),
    granularity="total",
    derived={FRONT.name: FRONT},
    arranged=1,
)
PART = replace(WHOLE, since=FIRST + timedelta(days=5), until=FIRST + timedelta(days=64))
QUESTIONS = (
    WHOLE,
    replace(
        WHOLE, arranged=BILLED_TYPES["discounted_cost"], group_by=("charge", "basis"), granularity="monthly"
    ),
    replace(WHOLE, group_by=("model",), granularity="weekly"),
    replace(WHOLE, group_by=("team",), granularity="daily"),
    replace(PART, group_by=("user",), granularity="monthly", include={"charge": ("usage",)}),
    replace(PART, group_by=("tag:service", "provider"), exclude={"basis": ("unallocated",)}),
    replace(PART, include={"team": ("a",)}, group_by=("charge",), granularity="weekly"),
    replace(WHOLE, exclude={"user": ("ada", "")}, granularity="monthly"),
    replace(PART, group_by=("own:front",), include={"model": ("m1", "m2")}),
    replace(PART, group_by=("team", "model"), top=2),
    replace(WHOLE, group_by=("user", "charge"), granularity="monthly", top=1),
    replace(WHOLE, group_by=("corrects", "team")),
    replace(WHOLE, exclude={"corrects": ("2026-10-12",)}),
    replace(PART, group_by=("origin", "service")),
    replace(WHOLE, only=frozenset({("a", "usage"), (None, "discount")}), group_by=("team", "charge")),
    replace(WHOLE, group_by=("team",), currency="EUR", granularity="weekly"),
)


def of(number: int, **more: Any) -> Dimensions:
    known = dict.fromkeys(Dimensions._fields, "") | {
        "kind": "call",
        "source": "litellm",
        "provider": ("openai", "anthropic")[number % 2],
        "model": f"m{number % 3}",
        "team": ("", "a", "b")[number % 3],
        "user": ("ada", "bob", "", "eve")[number % 4],
        "tags": '{"service": "web"}' if number % 2 else "",
        "size": 0,
    }
    return Dimensions(**{**known, **more})


def sums(number: int) -> list[BilledSum]:
    """Return the sums of a day: usage, a discount in both arrangements, and money without an owner."""
    nobody = of(number, kind=BILLED, team="", user="", tags="")
    return [
        *(BilledSum(of(number + each), "usage", "exact", EVERY, number * 10**27 + each) for each in range(5)),
        BilledSum(of(number), "discount", "shared", BILLED_TYPES["discounted_cost"], -number),
        BilledSum(nobody, "discount", "unallocated", 1, -number),
        BilledSum(nobody, "usage", "unallocated", EVERY, 7),
    ]


class Deal:
    """A ledger with bills of seventy days, and the changes that a test makes to it."""

    def __init__(self, ledgers: Ledgers, ledger: Ledger, clock: FakeClock) -> None:
        self.ledgers, self.ledger, self.clock = ledgers, ledger, clock
        self.mark = self.checks = 0

    def day(self, number: int, provider: str = "openai") -> BilledDay:
        self.mark += 1
        return BilledDay(
            day=DAY_ONE + number % DAYS * DAY_S, provider=provider, state="closed", mark=str(self.mark),
            source="bill", read_at=1.0, made_at=1.0,
        )  # fmt: skip

    async def begin(self) -> None:
        made = [
            (self.day(number, name), sums(number + 1)) for number in range(DAYS) for name in ("openai", "x")
        ]
        await self.ledger.store_billed_days(made)

    async def replaced(self, number: int) -> None:
        await self.ledger.store_billed_days([(self.day(number), sums(number + 50)[number % 4 :])])

    async def forgotten(self, number: int) -> None:
        await self.ledger.delete_billed_day(self.day(number).day, "openai")

    async def restated(self, number: int) -> None:
        entry = self.day(number, f"openai{CORRECTS}2026-10-12")
        row = sums(number + 1)[0]._replace(charge=RESTATED)
        await self.ledger.store_billed_days([(entry, [row])])

    async def connected(self, number: int) -> None:
        tags = '{"row:connection": "c-1", "row:origin": "billing", "row:service": "Atlas"}'
        row = BilledSum(of(number, kind=BILLED, tags=tags), "usage", "exact", EVERY, number)
        await self.ledger.store_billed_days([(self.day(number, f"MongoDB{CONNECTION}c-1:2026-10"), [row])])

    async def rolled_up(self, number: int) -> None:
        for _ in range(number * 5):
            if not await self.ledger.make_next_rollup():
                break

    async def opened_again(self, number: int) -> None:
        self.ledger = await self.ledgers.open(clock=self.clock)

    async def check(self, *, whole: bool = IS_LONG) -> None:
        """
        Compare all queries with and without rollups. If `whole` is false, compare alternately one half of them.
        """
        asked = QUESTIONS if whole else QUESTIONS[self.checks % 2 :: 2]
        self.checks += 1

        def work(ledger_rows: LedgerRows) -> list[tuple[list[CostRow], list[CostRow]]]:
            return [
                (query_costs(without(ledger_rows), each), query_costs(ledger_rows, each)) for each in asked
            ]

        for expected, found in await self.ledgers.store.read(work):
            assert expected == found
        assert await self.remembered() == await self.remembered()

    async def remembered(self) -> Sequence[CostRow]:
        """Return the ledger's result for a finished month, which it may remember, after comparing it."""
        found = await self.ledger.costs(PART)
        assert found == await self.ledgers.store.read(lambda rows: query_costs(without(rows), PART))
        return found


async def deal(ledgers: Ledgers) -> Deal:
    clock = FakeClock(DAY_ONE + (DAYS + 40) * DAY_S)
    dealt = Deal(ledgers, await ledgers.open(clock=clock), clock)
    await dealt.begin()
    return dealt


STEPS: dict[str, Callable[[Deal, int], Awaitable[None]]] = {
    "replaced": Deal.replaced,
    "forgotten": Deal.forgotten,
    "restated": Deal.restated,
    "connected": Deal.connected,
    "rolled up": Deal.rolled_up,
    "opened again": Deal.opened_again,
}


@pytest.mark.proves("rollups change no answer")
@pytest.mark.parametrize("engine", part(ENGINES, every=2))
@settings(
    max_examples=6 if IS_LONG else 2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # without shrinking, because shrinking an example takes too long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.tuples(st.sampled_from([*STEPS]), st.integers(1, DAYS)), min_size=4, max_size=8))
def test_answers_are_the_same_with_rollups(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    """Rollups change no result after days are replaced or deleted, after new entries, or after restarts."""

    async def check() -> None:
        ledgers = Ledgers.of(engine, request, tmp_path)
        try:
            dealt = await deal(ledgers)
            await dealt.check()
            await dealt.rolled_up(DAYS)
            for name, number in steps:
                await STEPS[name](dealt, number)
                await dealt.check()
            await dealt.check(whole=True)
            assert not await dealt.ledger.invalidate_differing_rollups()
        finally:
            await ledgers.close()

    for old in tmp_path.glob("*.sqlite*"):
        old.unlink()
    asyncio.run(check())


async def test_queries_use_rollups(ledgers: Ledgers) -> None:
    """
    Queries use rollups: a wrong rollup changes their results until it is compared with its days and made again.
    """
    by_team = replace(WHOLE, group_by=("team",))
    dealt = await deal(ledgers)
    expected = {query.group_by: await fresh(ledgers, query) for query in (WHOLE, by_team)}
    await dealt.rolled_up(DAYS)
    made = await ledgers.store.read(lambda rows: rows.valid_rollup_keys(0, 1 << 62))
    assert made and min(number for number, _, _ in made) > BILLED_ROLLUPS

    def spoil(ledger_rows: LedgerRows) -> None:
        assert isinstance(ledger_rows, SqlLedgerRows)
        ledger_rows._tables.run(f"UPDATE {ledger_rows._table('billed_rollups')} SET low = low + 1")

    await ledgers.store.change(spoil)
    for query in (WHOLE, by_team):
        assert expected[query.group_by] != await fresh(ledgers, query)
    assert await dealt.ledger.invalidate_differing_rollups()
    for query in (WHOLE, by_team):
        assert expected[query.group_by] == await fresh(ledgers, query)
    await dealt.rolled_up(DAYS)
    assert not await dealt.ledger.invalidate_differing_rollups()
    for query in (WHOLE, by_team):
        assert expected[query.group_by] == await fresh(ledgers, query)


async def fresh(ledgers: Ledgers, query: CostQuery) -> Sequence[CostRow]:
    """Compute the result without the remembered ones."""
    return await ledgers.store.read(lambda rows: query_costs(rows, query))
