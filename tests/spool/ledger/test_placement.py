"""
Sums of many sets of dimensions, compared with the rule for them written plainly: up to a maximum, each set has
its own sum in a period. Later sets first lose their owner, then the model and similar dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from spool.ledger import counting
from spool.ledger.counting import DimensionNumbering, MissedNumbers, read_state
from spool.ledger.ledger_rows import LedgerRows, LedgerStore
from spool.ledger.sums import DAY_S, HOUR_S, OTHER, WIDTH, Dimensions, HourlySums, Measures
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, NS, Inference
from tests.rounds import part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import BEGIN, call

MAX_ROWS = 20
DAYS = (BEGIN // DAY_S * DAY_S, BEGIN // DAY_S * DAY_S + DAY_S)
HOURS = (DAYS[0] + 9 * HOUR_S, DAYS[0] + 10 * HOUR_S, DAYS[1], DAYS[1] + HOUR_S)
TEXTS = ("a", "b", "Jürgen", "l" * 300, "l" * 256 + "m", "broken \ud800", "", None)

Period = tuple[int, int]


class PlainSums:
    """The sums by period and dimensions, one call after the other."""

    def __init__(self) -> None:
        self.periods: dict[Period, dict[Dimensions, Measures]] = {}
        self.daily = 0

    def add(self, sums: HourlySums) -> None:
        for hour, dimensions, measures in sums.hourly_rows():
            self._add((HOUR_S, hour), dimensions, measures)
            if hour < self.daily:
                self._add((DAY_S, hour // DAY_S * DAY_S), dimensions, measures)

    def sum_up(self, day: int) -> None:
        self.daily = day + DAY_S
        for (width, start), rows in list(self.periods.items()):
            if width == HOUR_S and day <= start < day + DAY_S:
                for dimensions, measures in rows.items():
                    self._count((DAY_S, day), dimensions, measures)

    def _add(self, period: Period, dimensions: Dimensions, measures: Measures) -> None:
        self._count(period, self._placed(self.periods.get(period, {}), _stored(dimensions)), measures)

    def _placed(self, present: dict[Dimensions, Measures], own: Dimensions) -> Dimensions:
        if own in present or len(present) < MAX_ROWS:
            return own
        nobody = own._replace(user=OTHER, device=OTHER, api_key=OTHER, tags="")
        if nobody in present or len(present) < MAX_ROWS * 11 // 10:
            return nobody
        work = dict.fromkeys(counting.WORK, OTHER)
        return Dimensions(**{**nobody._asdict(), **work})

    def _count(self, period: Period, dimensions: Dimensions, measures: Measures) -> None:
        rows = self.periods.setdefault(period, {})
        before = rows.get(dimensions, [0] * WIDTH)
        rows[dimensions] = [one + other for one, other in zip(before, measures, strict=True)]


def _stored(dimensions: Dimensions) -> Dimensions:
    cut = [
        value[:256].encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for value in dimensions
    ]
    return Dimensions._make(cut)


def random_call(chance: Random, variety: int) -> Inference:
    start = chance.choice(HOURS) + chance.randrange(HOUR_S)
    text: Any = lambda name: chance.choice((*TEXTS, *(f"{name}-{number}" for number in range(variety))))  # noqa: E731
    return call(
        start_time=start * NS,
        end_time=(start + chance.randrange(200)) * NS,
        user=text("user"),
        team=chance.choice(TEXTS),
        device=chance.choice((None, "laptop")),
        request_model=text("model"),
        tags=chance.choice(({}, {"service": "x"}, {"service": "é"})),
        input_tokens=chance.choice((None, 7, 150_000)),
        estimated_cost=chance.choice(("0.1", "12345.000000000000000000000000001")),
    )


class Counters:
    """Several processes that count into the same sums. Each of them remembers what it stored."""

    def __init__(self, store: LedgerStore, processes: int) -> None:
        self._store = store
        self._placements = [DimensionNumbering(MAX_ROWS) for _ in range(processes)]
        self.plain = PlainSums()
        self._reach = 1

    async def change(self, chance: Random, work: Callable[[LedgerRows, DimensionNumbering], object]) -> None:
        placement = chance.choice(self._placements)

        def begun(ledger_rows: LedgerRows) -> None:
            placement.begin_transaction(ledger_rows)
            work(ledger_rows, placement)

        await self._store.change(begun)

    async def count(self, chance: Random, calls: list[Inference]) -> None:
        sums = HourlySums(("service",))
        sums.add_entries(
            [LogEntry(topic=AI_TELEMETRY, first=self._reach, committed_at=HOURS[-1], records=calls)]
        )
        first, self._reach = self._reach, self._reach + len(calls)

        def work(ledger_rows: LedgerRows, placement: DimensionNumbering) -> None:
            counting.add_counted_sums(
                ledger_rows,
                sums,
                placement,
                first_number=first,
                next_number=self._reach,
                missed_numbers=MissedNumbers(),
                tags=None,
            )

        await self.change(chance, work)
        self.plain.add(sums)

    async def sum_up(self, chance: Random) -> None:
        day = DAYS[1] if self.plain.daily else DAYS[0]
        if (DAY_S, day) not in self.plain.periods and any(
            day <= hour < day + DAY_S for width, hour in self.plain.periods if width == HOUR_S
        ):
            await self.change(chance, lambda rows, _: counting.sum_up_next_unsummed_day(rows, day + DAY_S))
            self.plain.sum_up(day)

    async def remove(self, chance: Random) -> None:
        """Delete a period and the dimensions that no other has, as a repair and a clean-up do."""
        if self.plain.periods and (period := chance.choice(sorted(self.plain.periods)))[0] == HOUR_S:
            width, start = period

            def work(ledger_rows: LedgerRows, placement: DimensionNumbering) -> None:
                ledger_rows.delete_sums(
                    width,
                    [(start, number) for number in ledger_rows.dimension_set_numbers_in_period(width, start)],
                )
                ledger_rows.delete_unused_dimension_sets()
                placement.forget_numbers()

            await self.change(chance, work)
            del self.plain.periods[period]

    async def assert_equal(self) -> None:
        def work(ledger_rows: LedgerRows) -> dict[Period, dict[Dimensions, Measures]]:
            assert self.plain.daily == read_state(ledger_rows)["daily"]
            return {
                (width, start): dict(ledger_rows.read_sums(width, start))
                for width in (HOUR_S, DAY_S)
                for start in ledger_rows.period_starts(width, 0)
            }

        assert self.plain.periods == await self._store.read(work)


@pytest.mark.parametrize("variety", part([2, 40], every=2))
@pytest.mark.parametrize("seed", part(range(4), every=4))
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_sums_follow_the_plain_rule(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch, variety: int, seed: int
) -> None:
    """
    Calls of several processes, of finished days, and between repairs are in the same sums as by the plain rule.
    The memory of numbers and of periods is small, so it is emptied during the test.
    """
    chance = Random(seed)
    monkeypatch.setattr(counting, "MOST_NUMBERS", 30)
    monkeypatch.setattr(counting, "MOST_PRESENT", 1)
    monkeypatch.setattr(counting, "MOST_PACKED", 2)
    monkeypatch.setattr(counting, "MOST_PERIODS", 2)
    await ledgers.open()
    counters = Counters(ledgers.store, processes=1 + seed % 3)
    for _ in range(30):
        await counters.count(chance, [random_call(chance, variety) for _ in range(chance.choice((1, 5, 60)))])
        if chance.random() < 0.1:
            await counters.sum_up(chance)
        if chance.random() < 0.3:
            await counters.remove(chance)
        await counters.assert_equal()
