"""Results are the same with and without rollups, on every engine and after any change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spool.ledger.costs import query_costs
from spool.ledger.dimensions import PRICED_BY, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows, Span
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import DAY_S
from spool.ledger.usages import MEASURES, UsageByGroup, row_usage, usages_by_group
from spool.record import NS, Correction, Inference, Record
from spool.sql.ledger import SqlLedgerRows
from tests.rounds import IS_LONG, part
from tests.spool.ledger.engines import ENGINES, MEMORY, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, FakePrices, call

DAYS = 70  # the days contain two whole rollups of four weeks, whatever the first day is
MOST_ROLLED = DAYS if IS_LONG else 8  # in fives of rollups, the longest first
FIRST = datetime.fromtimestamp(BEGIN, UTC)
FRONT = DerivedDimension(
    name="own:front", label="Front", sources=("team",), value=lambda each: "yes" if each == ("a",) else ""
)
DERIVED = {FRONT.name: FRONT}
WHOLE = CostQuery(since=FIRST, until=FIRST + timedelta(days=DAYS), granularity="total", derived=DERIVED)
PART = replace(WHOLE, since=FIRST + timedelta(days=5), until=FIRST + timedelta(days=64))
QUESTIONS = (
    WHOLE,
    replace(WHOLE, group_by=("model",), granularity="weekly"),
    replace(WHOLE, group_by=("team",), granularity="daily"),
    replace(WHOLE, include={"model": ("m1",)}, group_by=("user",), granularity="monthly"),
    replace(WHOLE, include={"source": ("litellm", "other")}, group_by=("model",), granularity="monthly"),
    replace(PART, exclude={"own:front": ("no",)}, group_by=("team",)),
    replace(PART, group_by=("user",), granularity="monthly"),
    replace(PART, group_by=("tag:service", "provider")),
    replace(PART, include={"team": ("a",)}, group_by=("status",), granularity="weekly"),
    replace(WHOLE, exclude={"user": ("ada", "")}, granularity="monthly"),
    replace(PART, group_by=("own:front",), include={"model": ("m1", "m2")}),
    replace(PART, group_by=("team", "model"), top=2),
    replace(WHOLE, group_by=("user",), granularity="monthly", top=1),
    replace(PART, group_by=("model", *PRICED_BY, "cost_source")),
)


class Deal:
    """A ledger of seventy days, and the changes that a test makes to it."""

    def __init__(self, ledgers: Ledgers, ledger: Ledger, clock: FakeClock) -> None:
        self.ledgers, self.ledger, self.clock = ledgers, ledger, clock
        self.log = FakeLog()
        self.last: Inference | None = None
        self.checks = 0

    def made(self, day: int, number: int) -> Inference:
        return call(
            start_time=(BEGIN + day % DAYS * DAY_S + number % 24 * HOUR) * NS,
            request_model=f"m{number % 3}",
            team=(None, "a", "b")[number % 3],
            user=("ada", "bob", None, "eve")[number % 4],
            status=("ok", "ok", "cached", "error")[(day + number) % 4],
            tags={"service": "web"} if number % 2 else {"service_tier": "batch"},
            input_tokens=(100, 150_000, None)[day % 3],
            cost=f"{number + 1}.000000000000000001",
            cost_source="reported",
        )

    def add(self, records: list[Record | None]) -> None:
        """
        Add records that arrive after all days, because a call that starts after its arrival is not believed.
        """
        self.log.add(records, at=self.clock.now())

    async def begin(self) -> None:
        self.add([self.made(day, day + more) for day in range(DAYS) for more in range(3)])
        await self.late(3)

    async def late(self, day: int) -> None:
        self.last = self.made(day, day + 7)
        self.add([self.last])
        await self.counted()

    async def corrected(self, day: int) -> None:
        before = self.last or self.made(day, 1)
        after = call(start_time=before.start_time, cost="99.5", cost_source="reported", user="eve")
        self.add(
            [
                Correction(
                    id=b"c" * 16,
                    source="litellm",
                    corrects=before.id,
                    reason="late_usage",
                    known_at=1,
                    start_time=before.start_time or 0,
                    before=before,
                    after=after,
                )
            ]
        )
        self.last = after
        await self.counted()

    async def repriced(self, day: int) -> None:
        await self.ledger.reprice(self.log, FixedPrice(), since=FIRST + timedelta(days=day % DAYS))

    async def forgotten(self, day: int) -> None:
        self.log.forget_below(day)
        await self.ledger.rebuild(self.log)
        await self.counted()

    async def rolled_up(self, day: int) -> None:
        for _ in range(day * 5):
            if not await self.ledger.make_next_rollup():
                break

    async def opened_again(self, day: int) -> None:
        self.ledger = await self.ledgers.open(clock=self.clock)

    async def counted(self) -> None:
        await self.ledger.catch_up(self.log)
        await self.ledger.sum_up_and_delete_hours()

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
        for query in asked:
            await self.check_usages(replace(query, granularity="total", measures=MEASURES, top=None))

    async def check_usages(self, query: CostQuery) -> None:
        """Compare the usage of groups with the rows of the same query."""

        def work(ledger_rows: LedgerRows) -> tuple[list[CostRow], list[UsageByGroup]]:
            return query_costs(without(ledger_rows), query), list(
                usages_by_group(ledger_rows, [query, query], None)
            )

        rows, found = await self.ledgers.store.read(work)
        assert [{row.group: row_usage(row) for row in rows}] * 2 == found


class FixedPrice(FakePrices):
    def estimate_sum(self, total: Any) -> str | None:
        return "7.25"


def without(ledger_rows: LedgerRows) -> LedgerRows:
    """Return the same rows without any rollup."""

    class Plain:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger_rows, name)

        def valid_rollup_keys(self, since: int, until: int) -> tuple[()]:
            return ()

    return Plain()


async def deal(ledgers: Ledgers) -> Deal:
    clock = FakeClock(BEGIN + (DAYS + 3) * DAY_S)
    dealt = Deal(ledgers, await ledgers.open(clock=clock), clock)
    await dealt.begin()
    return dealt


STEPS: dict[str, Callable[[Deal, int], Awaitable[None]]] = {
    "late": Deal.late,
    "corrected": Deal.corrected,
    "repriced": Deal.repriced,
    "forgotten": Deal.forgotten,
    "rolled up": Deal.rolled_up,
    "opened again": Deal.opened_again,
}


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
    """Rollups change no result after late calls, corrections, new prices, rebuilds or restarts."""

    async def check() -> None:
        ledgers = Ledgers.of(engine, request, tmp_path)
        try:
            dealt = await deal(ledgers)
            await dealt.rolled_up(DAYS)
            for name, day in steps:
                await STEPS[name](dealt, day)
                await dealt.check()
            await dealt.check(whole=True)
            assert not await dealt.ledger.invalidate_differing_rollups()
        finally:
            await ledgers.close()

    for old in tmp_path.glob("*.sqlite*"):
        old.unlink()
    asyncio.run(check())


async def test_queries_use_rollups(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Queries use rollups: a wrong rollup changes their results until it is compared with its days and made again.
    """
    monkeypatch.setattr("spool.ledger.days.rollups.RECENT_S", 0)  # none of single days, which are many
    dealt = await deal(ledgers)
    [expected] = await dealt.ledger.costs(WHOLE)
    await dealt.rolled_up(MOST_ROLLED)
    assert [expected] == await dealt.ledger.costs(WHOLE)

    def spoil(ledger_rows: LedgerRows) -> None:
        assert isinstance(ledger_rows, SqlLedgerRows)
        ledger_rows._tables.run(f"UPDATE {ledger_rows._table('rollups')} SET calls = calls + 1")

    await ledgers.store.change(spoil)
    [spoiled] = await dealt.ledger.costs(WHOLE)
    assert spoiled.calls > expected.calls
    assert [expected] == await ledgers.store.read(lambda rows: query_costs(without(rows), WHOLE))
    found = await dealt.ledger.compare_and_note_differences(dealt.log)
    assert found.rollups and "rollups" in found.problem_sentences()[-1]
    assert [expected] == await dealt.ledger.costs(WHOLE)
    await dealt.rolled_up(MOST_ROLLED)
    assert [expected] == await dealt.ledger.costs(WHOLE)
    assert not (await dealt.ledger.compare_and_note_differences(dealt.log)).problem_sentences()


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_filter_that_every_call_passes_is_none(ledgers: Ledgers) -> None:
    """
    If every call passes a filter, rollups without the filter's dimension serve the query. If a call fails the
    filter, the query reads days.
    """

    def asked(ledger_rows: LedgerRows, query: CostQuery) -> tuple[list[CostRow], set[int]]:
        found = set[int]()

        class Noted:
            def __getattr__(self, name: str) -> Any:
                return getattr(ledger_rows, name)

            def totals_by_group(self, spans: Sequence[Span], *what: Any, **how: Any) -> Any:
                found.update(rollup for _, _, _, rollup in spans)
                return ledger_rows.totals_by_group(spans, *what, **how)

        return query_costs(cast(LedgerRows, Noted()), query), found

    months = replace(PART, granularity="monthly", group_by=("team",))
    wide = replace(
        months, include={"api_key": ("",), "source": ("litellm", "other")}, exclude={"user": ("x",)}
    )
    narrow = replace(wide, exclude={"user": ("ada",), "device": ("x",)})
    dealt = await deal(ledgers)
    await dealt.rolled_up(DAYS)
    whole, rollups = await ledgers.store.read(lambda rows: asked(rows, months))
    assert (whole, rollups) == await ledgers.store.read(lambda rows: asked(rows, wide))
    assert rollups == {2}
    part, rollups = await ledgers.store.read(lambda rows: asked(rows, narrow))
    assert 0 in rollups and sum(row.calls for row in part) < sum(row.calls for row in whole)


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_comparison_by_model_reads_rollups(ledgers: Ledgers) -> None:
    """
    The usage of models with all that their prices depend on comes from rollups, which have a row per model instead
    of one per set of dimensions.
    """
    dealt = await deal(ledgers)
    starts = [(BEGIN + day * DAY_S) * NS for day in range(20, 40)]
    dealt.add([call(start_time=start, user=f"user-{n}") for n in range(50) for start in starts])
    await dealt.counted()
    await dealt.rolled_up(DAYS)
    of_kinds = replace(PART, granularity="total", measures=MEASURES, group_by=("model", *PRICED_BY, "region"))

    def read(ledger_rows: LedgerRows) -> tuple[set[int], int]:
        found, count = set[int](), 0

        class Noted:
            def __getattr__(self, name: str) -> Any:
                return getattr(ledger_rows, name)

            def sums_by_dimension_set(self, spans: Sequence[Span], query: CostQuery) -> Any:
                nonlocal count
                found.update(rollup for _, _, _, rollup in spans)
                sums = list(ledger_rows.sums_by_dimension_set(spans, query))
                count += len(sums)
                return sums

        assert list(usages_by_group(cast(LedgerRows, Noted()), [of_kinds], None))
        return found, count

    rollups, few = await ledgers.store.read(read)
    days, many = await ledgers.store.read(lambda rows: read(without(rows)))
    assert ({5}, {0}) == (rollups, days)
    assert 3 * few < many


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_rollups_of_single_days_by_user_are_recent(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollups of single days by user are made of recent days, and deleted once their day is old."""
    monkeypatch.setattr("spool.ledger.days.rollups.RECENT_S", 5 * DAY_S)
    dealt = await deal(ledgers)

    async def recent() -> list[int]:
        made = await ledgers.store.read(lambda rows: rows.valid_rollup_keys(0, 1 << 62))
        return sorted(
            (start - BEGIN) // DAY_S for number, width, start in made if (number, width) == (3, DAY_S)
        )

    await dealt.rolled_up(DAYS)
    last = (await ledgers.store.read(lambda rows: rows.state_values()["daily"]) - BEGIN) // DAY_S
    assert [*range(last - 5, last)] == await recent()
    monkeypatch.setattr("spool.ledger.days.rollups.RECENT_S", 3 * DAY_S)
    dealt.clock.at += 2 * DAY_S  # this deletes hours, so that old rollups are deleted as well
    await dealt.counted()
    assert [*range(last - 3, last)] == await recent()
    await dealt.check(whole=True)
    await dealt.rolled_up(DAYS)
    assert [*range(last - 3, last)] == await recent()


@pytest.mark.parametrize("ledgers", [MEMORY], indirect=True)
async def test_rollups_are_made_in_the_background(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollups are made in the background by a task, also without new calls, as after an upgrade."""
    made = asyncio.Semaphore(0)
    make_next = Ledger.make_next_rollup

    async def make(ledger: Ledger) -> bool:
        has_made = await make_next(ledger)
        if not has_made:
            made.release()
        return has_made

    monkeypatch.setattr(Ledger, "make_next_rollup", make)
    for name in ("ROLL_REST", "ROLL_WAIT_S"):
        monkeypatch.setattr(f"spool.ledger.ledger.{name}", 0)
    dealt = await deal(ledgers)
    making = asyncio.create_task(dealt.ledger.make_rollups_until_cancelled())
    assert await made.acquire()
    making.cancel()
    assert await ledgers.store.read(lambda rows: rows.valid_rollup_keys(0, 1 << 62))
    await dealt.check()
