"""Results are remembered until a sum changes, and always equal a new computation."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache, partial
from typing import Any

import pytest

from spool import money
from spool.errors import TotalsIncomplete
from spool.ledger.billed import EVERY, BilledDay, BilledSum
from spool.ledger.costs import query_costs
from spool.ledger.days import cached_results
from spool.ledger.days.cached_results import RememberedCosts
from spool.ledger.dimensions import DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import Dimensions
from spool.ledger.token_sums import TokenSum
from spool.ledger.usages import UsageByGroup, usages_by_group
from spool.people import KEEP, People
from spool.record import NS, Inference
from tests.rounds import IS_LONG, as_proof, part
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger_log import FakeClock, FakeLog, FakePrices, call

NAMES = ("ada", "bob", "ada@example.com", "bob@example.com")
AUGUST, SEPTEMBER, OCTOBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (8, 9, 10))
LATE = datetime(2026, 10, 20, 12, tzinfo=UTC)
BEHIND_UTC = timezone(timedelta(hours=-7))
OF_AUGUST = CostQuery(since=AUGUST, until=SEPTEMBER, granularity="total", group_by=("team",))
OF_SEPTEMBER = replace(OF_AUGUST, since=SEPTEMBER, until=OCTOBER)


class Flat(FakePrices):
    def estimate_sum(self, total: TokenSum) -> str:
        return f"{total.input_tokens or 0}"


def _always(word: str, values: tuple[str, ...]) -> str:
    return word


class Counted:
    """Count how often sums are computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(cached_results, "query_costs", self._costs)

    def _costs(self, *asked: Any) -> Sequence[CostRow]:
        self.times += 1
        return query_costs(*asked)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def called(month: datetime, team: str, *, day: int = 5, user: str | None = None) -> Any:
    start = month.replace(day=day, hour=9)
    return call(start_time=int(start.timestamp()) * NS, team=team, user=user)


async def filled(ledgers: Ledgers) -> tuple[FakeLog, Ledger]:
    """Return a ledger in October with two calls in August and one in September."""
    log, ledger = FakeLog(), await ledgers.open(clock=FakeClock(LATE.timestamp()))
    made = [called(AUGUST, "search"), called(AUGUST, "checkout"), called(SEPTEMBER, "search")]
    log.add(made, at=LATE.timestamp())
    await ledger.catch_up(log)
    return log, ledger


async def fresh(ledgers: Ledgers, query: CostQuery) -> Sequence[CostRow]:
    """Compute the result without the remembered ones."""
    return await ledgers.store.read(lambda rows: query_costs(rows, query))


async def test_a_closed_month_is_added_up_once(ledgers: Ledgers, counted: Counted) -> None:
    """
    The result of a finished month is remembered until one of its sums changes. Changes of other months
    do not matter.
    """
    log, ledger = await filled(ledgers)
    first = await ledger.costs(OF_AUGUST)
    assert [("checkout",), ("search",)] == [row.group for row in first]
    assert await ledger.costs(OF_AUGUST) == first
    assert counted.times == 1
    await ledger.costs(replace(OF_AUGUST, include={"team": ("search",)}))
    assert 2 == counted.times
    log.add([called(SEPTEMBER, "late"), called(OCTOBER, "now")], at=LATE.timestamp())
    await ledger.catch_up(log)
    assert await ledger.costs(OF_AUGUST) == first
    assert counted.times == 2
    log.add([called(AUGUST, "late", day=31)], at=LATE.timestamp())
    await ledger.catch_up(log)
    assert [("checkout",), ("late",), ("search",)] == [row.group for row in await ledger.costs(OF_AUGUST)]
    assert 3 == counted.times


@pytest.mark.one_engine
async def test_every_change_is_in_the_next_answer(ledgers: Ledgers) -> None:
    """
    Late calls, new prices, finished days, deleted hours, a recount and another dimension each change the next
    result, although results are remembered.
    """
    log, ledger = await filled(ledgers)
    by_day = replace(OF_AUGUST, granularity="daily")

    async def late() -> None:
        log.add([called(AUGUST, "late")], at=LATE.timestamp())
        await ledger.catch_up(log)

    async def priced() -> None:
        await ledger.reprice(log, Flat(), since=AUGUST)

    async def tidied() -> None:
        await ledger.sum_up_and_delete_hours()

    async def recounted() -> None:
        await ledger.rebuild(log)
        with pytest.raises(TotalsIncomplete):
            await ledger.costs(OF_AUGUST)
        await ledger.catch_up(log)

    changes: Sequence[Callable[[], Awaitable[None]]] = (late, priced, tidied, recounted, late)
    for change in changes:
        for query in (OF_AUGUST, by_day, OF_SEPTEMBER):
            await ledger.costs(query)
        await change()
        for query in (OF_AUGUST, by_day, OF_SEPTEMBER):
            assert await fresh(ledgers, query) == await ledger.costs(query), change.__name__
    assert 4 == sum(row.calls for row in await ledger.costs(OF_AUGUST))
    for word in ("one", "other"):
        part = DerivedDimension(name="Part", label="Part", sources=("team",), value=partial(_always, word))
        ledger.set_derived_dimensions([part])
        [row] = await ledger.costs(replace(OF_AUGUST, group_by=("Part",)))
        assert (word,) == row.group


@pytest.mark.one_engine
async def test_what_another_ledger_counted_is_known(ledgers: Ledgers) -> None:
    """Marks of changes are stored with the rows, so a second ledger on the same rows sees each change."""
    log, ledger = await filled(ledgers)
    await ledger.costs(OF_AUGUST)
    other = Ledger(ledgers.store, clock=FakeClock(LATE.timestamp()))
    await other.load()
    log.add([called(AUGUST, "late")], at=LATE.timestamp())
    await other.catch_up(log)
    assert await fresh(ledgers, OF_AUGUST) == await ledger.costs(OF_AUGUST)


class Orders:
    """A ledger whose results are remembered, another of another process, and random changes of what they show."""

    def __init__(self, ledgers: Ledgers, chance: random.Random) -> None:
        self.ledgers, self.chance, self.log = ledgers, chance, FakeLog()
        self.people = People(policy=KEEP, secret=b"s" * 32)
        self.names, self.linked, self.erased = [*NAMES], list[tuple[str, ...]](), list[tuple[str, ...]]()
        self.asked = 0

    async def open(self) -> None:
        self.ledger = await self.ledgers.open(clock=FakeClock(LATE.timestamp()))
        self.other = await self.new_ledger()
        self.ledger.people = self.people
        for _ in range(20):
            await self.late()

    async def new_ledger(self) -> Ledger:
        ledger = await Ledger(self.ledgers.store, clock=FakeClock(LATE.timestamp())).load()
        ledger.people = self.people
        return ledger

    async def late(self) -> None:
        month, user = self.chance.choice((AUGUST, SEPTEMBER, OCTOBER)), self.chance.choice(self.names)
        made = called(month, self.chance.choice("ab"), day=self.chance.randint(1, 20), user=user)
        self.log.add([made], at=LATE.timestamp())
        await self.ledger.catch_up(self.log)

    async def recalculated(self) -> None:
        await self.ledger.reprice(self.log, Flat(), since=self.chance.choice((AUGUST, SEPTEMBER, OCTOBER)))

    async def link(self) -> None:
        pair = tuple(self.chance.sample(self.names, 2)) if len(self.names) > 1 else ()
        self.linked = [pair] if pair and not self.linked else []
        self.people.replace_links(self.linked, self.erased)

    async def erase(self) -> None:
        if len(self.names) < 2:
            return
        name = self.names.pop(self.chance.randrange(len(self.names)))
        pseudonym = f"erased:{len(self.erased):016x}"
        self.linked = [pair for pair in self.linked if name not in pair]
        self.erased.append((pseudonym,))
        self.people.replace_links(self.linked, self.erased)

        async def records(_: int) -> None:
            for entry in self.log.entries:
                for record in entry.records:
                    if isinstance(record, Inference) and record.user == name:
                        record.user = pseudonym

        await self.ledger.rename_people(lambda each: pseudonym if each == name else each, records)
        assert name not in repr(self.ledger._remembered_costs._answers)
        assert not self.ledger._remembered_costs._dimensions
        await self.other.costs(OF_SEPTEMBER)
        assert name not in repr(self.other._remembered_costs._answers)
        assert not self.other._remembered_costs._dimensions

    async def check(self) -> None:
        by_user = replace(OF_AUGUST, until=LATE, group_by=("user",))
        queries = [
            by_user,
            replace(by_user, granularity="monthly"),
            replace(by_user, until=OCTOBER),
            *(replace(OF_SEPTEMBER, include={"user": (name,)}) for name in self.names),
        ]
        fresh = await self.new_ledger()
        for ledger in (self.ledger, self.other, self.ledger):
            assert await fresh.costs(self.by_person(fresh)) == await ledger.costs(self.by_person(ledger))
        for query in queries:
            expected = await fresh.costs(query)
            sides = [query, replace(query, since=SEPTEMBER, until=OCTOBER)]
            usages = await fresh.usages_of_queries(sides)
            for ledger in (self.ledger, self.other, self.ledger):
                self.asked += 1
                assert expected == await ledger.costs(query)
                assert usages == await ledger.usages_of_queries(sides)

    def by_person(self, ledger: Ledger) -> CostQuery:
        """Return a query by a dimension that it defines. It has names in memory, and depends on links."""
        shown = self.people.shown_name

        def define() -> DerivedDimension:
            return DerivedDimension(
                name="(who)", label="", sources=("user",), value=lru_cache(lambda names: shown(names[0]))
            )

        who = ledger.cached_dimension("who", define)
        return replace(OF_AUGUST, until=LATE, group_by=(who.name,), derived={who.name: who})


@pytest.mark.parametrize("seed", [0, *map(as_proof, (1, 2))])
@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_a_result_is_never_older_than_a_change(ledgers: Ledgers, seed: int, counted: Counted) -> None:
    """
    After late calls, new prices, erasures and links of names in any order, results equal those of a new ledger. An
    erased name is in no remembered result, group or filter, also of another process after its next query.
    """
    orders = Orders(ledgers, random.Random(seed))
    await orders.open()
    changes = [orders.late, orders.recalculated, orders.link, orders.erase]
    for change in (*changes, *orders.chance.choices(changes, k=8 if IS_LONG else 2)):
        await orders.check()
        await change()
        await orders.check()
    assert counted.times < orders.asked


def billed(day: datetime, mark: str, units: int) -> tuple[BilledDay, list[BilledSum]]:
    made = BilledDay(
        day=int(day.timestamp()),
        provider="openai",
        state="closed",
        mark=mark,
        source="bill",
        read_at=1.0,
        made_at=1.0,
    )
    known: dict[str, Any] = dict.fromkeys(Dimensions._fields, "")
    dimensions = Dimensions(**{**known, "size": 0, "team": "search"})
    return made, [BilledSum(dimensions, "usage", "exact", EVERY, units)]


async def test_billed_money_of_a_closed_month_is_added_up_once(ledgers: Ledgers, counted: Counted) -> None:
    """
    Billed costs of a finished month are added up once. The result is remembered until a day of the month is
    replaced or deleted. Calls and bills of other months do not matter.
    """
    log, ledger = await filled(ledgers)
    asked = replace(OF_AUGUST, arranged=1)
    for units in (5, 7):
        await ledger.store_billed_days([billed(AUGUST, str(units), units)])
        for _ in range(2):
            assert [f"{units}"] == [str(money.text_to_units(row.cost)) for row in await ledger.costs(asked)]
    assert 2 == counted.times
    await ledger.store_billed_days([billed(SEPTEMBER, "1", 3)])
    log.add([called(AUGUST, "late")], at=LATE.timestamp())
    await ledger.catch_up(log)
    await ledger.costs(asked)
    assert 2 == counted.times
    other = await Ledger(ledgers.store, clock=FakeClock(LATE.timestamp())).load()
    await other.delete_billed_day(int(AUGUST.timestamp()), "openai")
    assert await ledger.costs(asked) == []
    assert counted.times == 3


@pytest.mark.one_engine
async def test_the_running_month_is_added_up_after_each_change(ledgers: Ledgers, counted: Counted) -> None:
    """
    A result of the running month is remembered until one of its sums changes. Billed costs of the running month
    are not remembered, and results by a dimension that the query itself defines only if it is lasting.
    """
    log, ledger = await filled(ledgers)
    running = replace(OF_AUGUST, until=LATE)
    for times in (1, 2):
        for _ in range(2):
            assert await fresh(ledgers, running) == await ledger.costs(running)
        assert times == counted.times
        log.add([called(OCTOBER, f"late {times}")], at=LATE.timestamp())
        await ledger.catch_up(log)
    own = DerivedDimension(name="Part", label="Part", sources=("team",), value=lambda values: values[0])
    for _ in range(2):
        await ledger.costs(replace(OF_AUGUST, group_by=("Part",), derived={"Part": own}))
    # These queries do not use the remembered results, so they are not counted.
    assert 2 == counted.times
    lasting = [ledger.cached_dimension(["any", "list"], lambda: replace(own)) for _ in range(2)]
    for dimension in lasting:
        await ledger.costs(replace(OF_AUGUST, group_by=("Part",), derived={"Part": dimension}))
    assert 3 == counted.times
    for number in range(cached_results.MOST_DIMENSIONS):
        ledger.cached_dimension(number, lambda: replace(own))
    assert ledger.cached_dimension(["any", "list"], lambda: replace(own)) is not lasting[0]
    await ledger.store_billed_days([billed(OCTOBER, "1", 5)])
    for _ in range(2):
        await ledger.costs(replace(running, since=OCTOBER, until=OCTOBER + timedelta(days=2), arranged=1))
    assert 5 == counted.times
    edges = [datetime(2026, month, 1, tzinfo=BEHIND_UTC) for month in (9, 10)]
    for _ in range(2):
        await ledger.costs(replace(OF_AUGUST, since=edges[0], until=edges[1], zone=BEHIND_UTC))
    assert 6 == counted.times


async def test_usages_are_read_again_after_each_change(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison reads only the time in which a sum changed, and its usages always equal those of a new ledger."""
    log, ledger = await filled(ledgers)
    sides = [OF_AUGUST, replace(OF_SEPTEMBER, until=LATE)]
    read: list[datetime] = []

    def counting(rows: Any, queries: Sequence[CostQuery], *others: Any) -> Iterator[UsageByGroup]:
        read.extend(query.since for query in queries)
        return usages_by_group(rows, queries, *others)

    monkeypatch.setattr("spool.ledger.usages.usages_by_group", counting)
    for changed, expected in (
        (SEPTEMBER, [AUGUST, SEPTEMBER]), (AUGUST, [SEPTEMBER]), (OCTOBER, [AUGUST]), (OCTOBER, [SEPTEMBER])
    ):  # fmt: skip
        for _ in range(2):
            assert await ledgers.store.read(
                lambda rows: list(usages_by_group(rows, sides, None))
            ) == await ledger.usages_of_queries(sides)
        assert expected == read
        read.clear()
        log.add([called(changed, "late", day=7)], at=LATE.timestamp())
        await ledger.catch_up(log)


@pytest.mark.one_engine
async def test_answers_are_bounded(ledgers: Ledgers, counted: Counted) -> None:
    """
    The limit of remembered results is their total number of rows. The result unused for longest is dropped
    first, and a larger result is not stored.
    """
    await filled(ledgers)
    now = LATE.timestamp()
    few = RememberedCosts(most_rows=5)  # each result counts as its number of rows plus one
    no_one = replace(OF_AUGUST, include={"team": ("nobody",)})

    async def ask(query: CostQuery) -> int:
        before = counted.times
        await ledgers.store.read(lambda rows: few.costs(rows, query, None, None, now))
        return counted.times - before

    assert [1, 0] == [await ask(OF_AUGUST), await ask(OF_AUGUST)]
    assert [1, 0] == [await ask(OF_SEPTEMBER), await ask(OF_SEPTEMBER)]
    assert [0, 1] == [await ask(OF_AUGUST), await ask(no_one)]
    assert [1, 0] == [await ask(OF_SEPTEMBER), await ask(no_one)]
    days = replace(OF_AUGUST, granularity="daily", group_by=("team", "user"), until=OCTOBER)
    assert [1, 0] == [await ask(days), await ask(days)]
    before, none = counted.times, RememberedCosts(most_rows=2)
    for _ in range(2):
        await ledgers.store.read(lambda rows: none.costs(rows, OF_AUGUST, None, None, now))
    assert before + 2 == counted.times


async def test_amounts_in_other_currencies_are_added_up(ledgers: Ledgers, counted: Counted) -> None:
    """
    A result with amounts in other currencies is remembered, and it has these amounts unconverted, because
    exchange rates are not stored with the rows.
    """
    log, ledger = await filled(ledgers)
    start = int(AUGUST.timestamp()) * NS
    log.add([call(start_time=start, charges={"EUR": "1.5"}, cost_source="reported")], at=LATE.timestamp())
    await ledger.catch_up(log)
    for _ in range(2):
        rows = await ledger.costs(OF_AUGUST)
        assert [{"EUR": "1.5"}] == [row.charges for row in rows if row.charges]
    assert 2 == counted.times
