"""
Everything that moves calls between units of work, in random order: listed units, `(other)` and calls without a unit are
all calls, and each listed unit has all its calls.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spool.ledger.comparing import LedgerMender
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER, WIDTH
from spool.ledger.work import UNITS, WorkLimits
from spool.ledger.work_links import BRANCH, REPOSITORY, WorkUnitLink, WorkUnitLinks
from spool.record import NS, Inference
from spool.registry.roles import LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, as_proof
from tests.spool.ledger.engines import POSTGRES, SQLITE, Ledgers
from tests.spool.ledger.test_work import Book, corrected, made_call
from tests.spool.ledger.test_work_links import DAY, TARGETS, by_hand, link_of
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog

SEEDS = 1000 if IS_LONG else 1
FIRST = int(os.environ.get("TOLLHOUSE_WORK_FIRST_SEED", "0"))
LIMITS = WorkLimits(ids_per_month=15, retention_s=50.0 * DAY, retention_units_s=70.0 * DAY)
NAMES = {
    "session": 60,
    "run": 40,
    "repository": 5,
    "branch": 20,
    "commit": 60,
    "pull_request": 40,
    "ticket": 20,
}
DIMENSIONS = ("team", "request_model", "status")
SLICE = LedgerSlice(parts=((RoleFilter(dimension="team", values=("ads",)),),))
LATE_S = 40 * DAY
Sums = dict[tuple[str | None, ...], tuple[int, Decimal]]


@pytest.fixture
async def ledgers(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledgers]:
    found = Ledgers.of(engine, request, tmp_path)
    yield found
    await found.close()


class History:
    """A ledger under random changes, with the calls and links that its sums must have."""

    def __init__(self, ledgers: Ledgers, chance: random.Random) -> None:
        self._ledgers, self._chance = ledgers, chance
        self._clock, self._log = FakeClock(BEGIN + 4 * DAY), FakeLog()
        self._number = 0
        self.calls = dict[bytes, Inference]()
        self.links = list[WorkUnitLink]()
        # by call, the last price of calls that were counted before it changed
        self._prices = dict[bytes, str]()
        self._forgotten = set[
            tuple[int, int]
        ]()  # units whose old calls are in `(other)`, so no link finds them
        self.ledger: Ledger

    async def open(self) -> None:
        self.ledger = await self._ledgers.open(clock=self._clock, work=LIMITS)

    async def add_calls(self) -> None:
        chance, added = self._chance, list[Any]()
        recent = [
            call for call in self.calls.values() if (call.start_time or 0) // NS > self._clock.at - 60 * DAY
        ]
        for _ in range(chance.randrange(1, 60) if self.calls else 40):
            self._number += 1
            if recent and chance.random() < 0.3:
                change = corrected(chance, self.calls[chance.choice(recent).id], self._number)
                self._rename(change.after)
                if price := self._prices.get(change.corrects):
                    estimate_again(change.after, price)
                self.calls[change.corrects] = change.after
                added.append(change)
            else:
                record = made_call(chance, self._number)
                age_s = chance.randrange(3 * DAY) + (LATE_S if chance.random() < 0.1 else 0)
                record.start_time = int(self._clock.at - age_s) * NS
                self._rename(record)
                self.calls[record.id] = record
                added.append(record)
        self._log.add(added, at=self._clock.at)
        await self.ledger.catch_up(self._log)

    def _rename(self, record: Inference) -> None:
        """Choose among so many units that not all of them can be listed."""
        chance = self._chance
        record.tags = {unit: f"{unit}-{chance.randrange(NAMES[unit])}" for unit in record.tags}
        record.session = record.session and f"session-{chance.randrange(NAMES['session'])}"
        record.run = record.run and f"run-{chance.randrange(NAMES['run'])}"
        record.parent_run = record.parent_run and f"run-{chance.randrange(NAMES['run'])}"

    async def change_links(self) -> None:
        chance = self._chance
        await self._unlink_expired()
        self.links = [link for link in self.links if chance.random() < 0.7]
        for _ in range(chance.randrange(4)):
            unit, target = chance.choice(("session", "branch", "commit")), chance.choice(TARGETS)
            since = int(self._clock.at // DAY - chance.randrange(50)) * DAY
            new = link_of(
                unit,
                f"{unit}-{chance.randrange(NAMES[unit])}",
                target,
                f"{target}-{chance.randrange(NAMES[target] + 3)}",
                repository=f"repository-{chance.randrange(NAMES['repository'])}",
                since=since,
                until=since + chance.randrange(1, 60) * DAY,
            )
            units = [(new.unit, new.id), *([(REPOSITORY, new.repository)] if unit == BRANCH else [])]
            is_unlisted = [
                (UNITS[unit].number, id) in self._forgotten
                or await self.ledger.is_unit_merged_into_other(unit, id)
                for unit, id in units
            ]
            if not any(is_unlisted) and not any(map(new.overlaps, self.links)):
                self.links.append(new)
        await self.ledger.apply_links(WorkUnitLinks(self.links))

    async def _unlink_expired(self) -> None:
        """Delete links to targets that are no longer listed, as the gateway does."""
        for link in [*self.links]:
            if await self.ledger.is_unit_merged_into_other(link.target, link.target_number):
                self.links.remove(link)

    async def restart(self) -> None:
        await self.open()

    async def rebuild(self) -> None:
        await self.ledger.rebuild(self._log)
        await self.ledger.catch_up(self._log)

    async def later(self) -> None:
        """Let units expire, and let hours become days."""
        await self._unlink_expired()
        await self.ledger.apply_links(WorkUnitLinks(self.links))
        self._clock.at += self._chance.choice((1, 10, 40, 150)) * DAY
        before = await self._unlisted()
        await self.ledger.sum_up_and_delete_hours()
        self._forgotten |= before - await self._unlisted()

    async def _unlisted(self) -> set[tuple[int, int]]:
        def units(rows: Any) -> set[tuple[int, int]]:
            return {*rows._tables.all(f"SELECT unit, id FROM {rows._table('work_unlisted')}")}

        return await self.ledger._read_rows(units)

    async def unlist(self) -> None:
        await self.ledger.sum_up_and_delete_hours()

    async def reprice(self) -> None:
        price = str(Decimal(self._chance.randrange(1, 100)).scaleb(-6))
        await self.ledger.reprice(
            self._log, Book(price), since=datetime.fromtimestamp(BEGIN - 200 * DAY, UTC)
        )
        self._prices = dict.fromkeys(self.calls, price)
        for record in self.calls.values():
            estimate_again(record, price)

    async def repair(self) -> None:
        def lose_a_call(ledger_rows: LedgerRows) -> None:
            for start in ledger_rows.period_starts(HOUR, 0)[:1]:
                ledger_rows.add_sums(
                    HOUR,
                    [
                        (
                            start,
                            min(ledger_rows.dimension_set_numbers_in_period(HOUR, start)),
                            [-1] + [0] * (WIDTH - 1),
                        )
                    ],
                )
                ledger_rows.delete_unit_sums(start)

        await self.ledger._change_rows(lose_a_call)
        await LedgerMender(ledger=self.ledger, log=self._log, clock=self._clock).compare_and_repair()

    async def verify(self) -> None:
        assert [] == (await self.ledger.compare_and_note_differences(self._log)).problem_sentences()

    def windows(self) -> list[tuple[float, float]]:
        """The longest time ranges of a query by unit: the last one, and an earlier one."""
        end = self._clock.at // DAY * DAY + DAY
        return [
            (end - 92 * DAY, end),
            (begin := end - self._chance.randrange(92, 400) * DAY, begin + 92 * DAY),
        ]


@pytest.mark.parametrize(
    ("engine", "seed"),
    [
        *((SQLITE, FIRST + number) for number in range(SEEDS)),
        *(as_proof((POSTGRES, FIRST + number)) for number in range(0, SEEDS, 20)),
    ],
)
@pytest.mark.usefixtures("unflushed")
async def test_no_call_is_lost_or_doubled_between_units(ledgers: Ledgers, seed: int) -> None:
    """
    No call is lost or counted twice between units of work: calls, corrections, late calls, late parents, links, new
    prices, units beyond the limit, expired and forgotten units, deleted hours, restarts, rebuilds and repairs. All
    sums are those of the calls, to the last digit.
    """
    chance = random.Random(seed)
    history = History(ledgers, chance)
    await history.open()
    happenings = (
        history.restart, history.rebuild, history.later, history.later, history.unlist, history.unlist,
        history.reprice, history.repair, history.change_links,
    )  # fmt: skip
    for _ in range(14 if IS_LONG else 5):
        await history.add_calls()
        for happen in chance.sample(happenings, 2):
            await happen()
        for since, until in history.windows():
            times = {"since": datetime.fromtimestamp(since, UTC), "until": datetime.fromtimestamp(until, UTC)}
            within = {
                id: record
                for id, record in history.calls.items()
                if since <= (record.start_time or 0) // NS < until
            }
            await check_units(history, within, chance.sample([*UNITS], 2), times)
        await history.verify()
    whole = {
        name: datetime.fromtimestamp(BEGIN + day * DAY, UTC)
        for name, day in (("since", -200), ("until", 2000))
    }
    for unit in UNITS:
        found = sums_of(await history.ledger.costs(query(whole, unit, *DIMENSIONS)))
        assert by_hand(history.calls, history.links, *DIMENSIONS) == without_unit(found)


def estimate_again(record: Inference, price: str) -> None:
    if record.request_model == "gpt-5":
        record.estimated_cost = str(Decimal(price) * (record.input_tokens or 0))


async def check_units(
    history: History, calls: Mapping[bytes, Inference], units: Sequence[str], times: Any
) -> None:
    """
    Each listed unit has all its calls, and so have the calls without a unit. For each set of dimensions, all rows
    together are all calls. So it is for people with restricted access.
    """
    own = {id: record for id, record in calls.items() if record.team == "ads"}
    restricted = SlicedLedger(history.ledger, SLICE)
    asked = [(unit, *more) for unit in units for more in ((), DIMENSIONS)]
    for ledger, visible in ((history.ledger, calls), (restricted, own)):
        answers = await ledger.costs_of_queries([query(times, *by) for by in asked])
        for (unit, *more), rows in zip(asked, answers, strict=True):
            expected, found = by_hand(visible, history.links, unit, *more), sums_of(rows)
            listed = {group[0] for group in found} - {OTHER}
            assert among(expected, listed | {None}) == among(found, listed | {None})
            assert by_hand(visible, history.links, *more) == without_unit(found)


def query(times: Any, *by: str) -> CostQuery:
    return CostQuery(**times, granularity=TOTAL, group_by=by)


def sums_of(rows: Collection[Any]) -> Sums:
    return {row.group: (row.calls, Decimal(row.cost)) for row in rows}


def among(sums: Sums, units: Collection[str | None]) -> Sums:
    return {group: values for group, values in sums.items() if group[0] in units}


def without_unit(sums: Sums) -> Sums:
    """Add up all units of each set of dimensions."""
    calls, costs = defaultdict[Any, int](int), defaultdict[Any, Decimal](Decimal)
    for (_, *group), (count, cost) in sums.items():
        calls[tuple(group)] += count
        costs[tuple(group)] += cost
    return {group: (calls[group], costs[group]) for group in calls}
