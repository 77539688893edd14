"""
Costs of any age and zone equal a recount of the records, or are refused by name if the stored sums are too coarse.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from spool.errors import NotKept
from spool.ledger.dimensions import GRANULARITIES, TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.record import NS
from tests.rounds import part
from tests.spool.contract.test_ledger import Flat, hourly
from tests.spool.ledger.engines import ENGINES, Ledgers
from tests.spool.ledger.rebuilding import are_totals_complete
from tests.spool.ledger_log import HOUR, FakeClock, FakeLog, call, recount

DAYS = 120
DAY = timedelta(days=1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
# in both ranges of stored hours, a clock change occurs
BEGINS = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 8)]
Sums = dict[str, tuple[int, Decimal]]
Calls = Sequence[tuple[datetime, Decimal]]

pytestmark = pytest.mark.rule


class History:
    """Calls of 120 days except for a silent week in each half, and the ledger that counted them."""

    def __init__(self, begin: datetime, ledger: Ledger, clock: FakeClock) -> None:
        self.begin, self.ledger, self.clock = begin, ledger, clock
        self.end = begin + DAYS * DAY
        self.calls, self._log = calls_since(begin)

    async def live(self) -> None:
        self.clock.at = self.end.timestamp()
        await self.ledger.catch_up(FakeLog.of(self._log, upto=DAYS))
        await self.ledger.sum_up_and_delete_hours()

    @property
    def border(self) -> datetime:
        return self.end - 62 * DAY

    def recount(self, query: CostQuery) -> Sums:
        return recount_since(self.begin, query.since, query.until, query.granularity, query.zone)

    def divides(self, query: CostQuery) -> set[str]:
        """Return which stored sums the ends of the query divide ("hour", "day"), by brute force."""
        found = set()
        for end in (query.since, query.until):
            length = DAY if end.astimezone(UTC) < self.border else timedelta(hours=1)
            seconds = end.timestamp() % length.total_seconds()
            start = end.astimezone(UTC) - timedelta(seconds=seconds)
            if seconds and any(start <= time < start + length for time, _ in self.calls):
                found.add("day" if length == DAY else "hour")
        return found


@cache
def calls_since(begin: datetime) -> tuple[Calls, FakeLog]:
    """Return each call with its cost, and a log with one entry per day."""
    log, chance, calls = FakeLog(), random.Random(1), list[tuple[datetime, Decimal]]()
    for day in range(DAYS):
        quiet = day in range(20, 27) or day in range(90, 97)
        times = [] if quiet else [begin + day * DAY + half * timedelta(minutes=30) for half in range(48)]
        made = [(time, Decimal(chance.randint(1, 10**6)) / 10**9) for time in times]
        fields = [
            {"start_time": int(time.timestamp()) * NS, "estimated_cost": f"{cost:f}"} for time, cost in made
        ]
        log.add([call(**each) for each in fields], at=(begin + (day + 1) * DAY).timestamp())
        calls += made
    return calls, log


@cache
def recount_since(begin: datetime, since: datetime, until: datetime, granularity: str, zone: tzinfo) -> Sums:
    """Recount by brute force, once for all engines."""
    found: Sums = {}
    for time, cost in calls_since(begin)[0]:
        if since <= time < until:
            period = label(time, granularity, zone)
            calls, total = found.get(period, (0, Decimal(0)))
            found[period] = calls + 1, total + cost
    return found


def label(time: datetime, granularity: str, zone: tzinfo) -> str:
    """Return the period of an instant, only from the wall clock of the zone."""
    there = time.astimezone(zone)
    match granularity:
        case "hourly":
            return there.strftime("%Y-%m-%d %H %z")
        case "daily":
            return there.date().isoformat()
        case "weekly":
            return (there.date() - timedelta(days=there.weekday())).isoformat()
        case "monthly":
            return there.strftime("%Y-%m")
        case "quarterly":
            return f"{there.year} {(there.month - 1) // 3}"
    return str(there.year) if granularity == "yearly" else TOTAL


async def answer(ledger: Ledger, query: CostQuery) -> Sums:
    rows = await ledger.costs(query)
    return {label(row.start, query.granularity, query.zone): (row.calls, Decimal(row.cost)) for row in rows}


async def lived(ledgers: Ledgers, begin: datetime) -> History:
    clock = FakeClock(begin.timestamp())
    history = History(begin, await ledgers.open(clock=clock), clock)
    await history.live()
    assert history.border == (await history.ledger.state()).hourly_since
    return history


@pytest.mark.parametrize("begin", part(BEGINS, every=2), ids=lambda begin: begin.strftime("%B"))
async def test_120_days_in_four_zones(ledgers: Ledgers, begin: datetime) -> None:
    """
    Costs of 120 days in four zones: if the sums are fine enough, the result is the recount to the digit. Otherwise
    the error names the border.
    """
    history = await lived(ledgers, begin)
    border = history.border.strftime("%Y-%m-%dT%H:%M:%SZ")
    told: dict[tuple[str, str], set[str]] = {}
    for zone in map(ZoneInfo, ZONES):
        for asked, first in (("all", begin + DAY), ("hours kept", history.border + DAY)):
            since = first.replace(tzinfo=zone)
            for granularity in (*GRANULARITIES, TOTAL):
                query = CostQuery(since=since, until=history.end + DAY, granularity=granularity, zone=zone)
                outcomes = told.setdefault((zone.key, asked), set())
                try:
                    # Run the query before the recount, because a refused query needs no recount.
                    found = await answer(history.ledger, query)
                    assert history.recount(query) == found, (zone, granularity)
                    outcomes.add("exact")
                except NotKept as error:
                    assert border in str(error) or "on the hour" in str(error)
                    outcomes.add("days" if border in str(error) else "hours")
    assert {
        # in UTC, only hourly periods are refused, if days instead of hours are stored
        ("UTC", "all"): {"exact", "days"},
        ("UTC", "hours kept"): {"exact"},
        ("Europe/Berlin", "all"): {"days"},
        ("Europe/Berlin", "hours kept"): {"exact"},
        ("America/New_York", "all"): {"days"},
        ("America/New_York", "hours kept"): {"exact"},
        ("Asia/Kolkata", "all"): {"days"},
        ("Asia/Kolkata", "hours kept"): {"hours"},
    } == told


@pytest.mark.parametrize("seed", part(range(2), every=2))
async def test_any_span(ledgers: Ledgers, seed: int) -> None:
    """A span is refused exactly if one of its ends divides an hour or day with calls."""
    history = await lived(ledgers, BEGINS[1])
    chance, outcomes = random.Random(seed), Counter[str]()
    for _ in range(100):
        whole = chance.choice([timedelta(minutes=30), timedelta(hours=1), DAY])
        instants = sorted(history.begin + chance.randrange(DAYS * DAY // whole) * whole for _ in range(2))
        query = CostQuery(since=instants[0], until=instants[1] + whole, granularity=TOTAL)
        divided = history.divides(query)
        outcomes[" ".join(sorted(divided))] += 1
        if divided:
            with pytest.raises(NotKept):
                await history.ledger.costs(query)
        else:
            assert history.recount(query) == await answer(history.ledger, query)
    print(f"seed {seed}: {dict(outcomes)}")
    assert outcomes.keys() >= {"", "day", "hour"}


async def test_spans_without_calls(ledgers: Ledgers) -> None:
    """
    Days and hours without calls may be divided anywhere, so they are returned in every zone and granularity.
    """
    history = await lived(ledgers, BEGINS[0])
    for first in (21, 91):
        since = history.begin + first * DAY
        for zone in map(ZoneInfo, ZONES):
            for granularity in GRANULARITIES:
                query = CostQuery(since=since, until=since + 5 * DAY, granularity=granularity, zone=zone)
                assert [] == list(await history.ledger.costs(query))


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_late_calls_of_days(ledgers: Ledgers) -> None:
    """
    A call that arrives after its hour was deleted counts in its day. Hours of that day are still refused.
    """
    history = await lived(ledgers, BEGINS[0])
    log = FakeLog()
    log.add([None] * ((await history.ledger.state()).reach - 1))
    log.add([call(start_time=int((history.begin + 22 * DAY).timestamp()) * NS + 5 * HOUR * NS)])
    await history.ledger.catch_up(log)
    day = CostQuery(since=history.begin + 22 * DAY, until=history.begin + 23 * DAY)
    assert [1] == [row.calls for row in await history.ledger.costs(day)]
    with pytest.raises(NotKept, match="Your period splits a stored sum at 2026-01-23T01:00:00Z"):
        await history.ledger.costs(CostQuery(since=day.since, until=day.until, granularity="hourly"))


async def test_prices_of_a_part_of_a_sum(ledgers: Ledgers) -> None:
    """
    Only whole sums get new prices. If the start is inside a sum, new prices are refused, and the start
    is not moved.
    """
    history = await lived(ledgers, BEGINS[0])
    for since in (history.begin + timedelta(hours=7), history.end - timedelta(minutes=90)):
        with pytest.raises(NotKept):
            await history.ledger.reprice(history._log, Flat(), since=since)
    assert (await history.ledger.reprice(history._log, Flat(), since=history.begin)).rows > 0


@pytest.mark.parametrize("gone", [1, 7, 20, 39])
async def test_ledger_knows_the_first_hour_with_all_records(ledgers: Ledgers, gone: int) -> None:
    """A ledger that starts after old records were deleted knows the first hour for which it has all records."""
    log, chance = FakeLog(), random.Random(gone)
    for entry in range(40):
        arrival = BEGINS[0].timestamp() + entry * HOUR // 2
        starts = [int(arrival) // HOUR * HOUR + chance.randrange(-5 * HOUR, 2 * HOUR) for _ in range(5)]
        log.add([call(start_time=start * NS) for start in starts], at=arrival)
    everything = recount(log)
    log.forget_below(gone * 5 + 1)
    ledger = await ledgers.open(chunk=3, clock=FakeClock(BEGINS[0].timestamp() + 20 * HOUR))
    assert not await are_totals_complete(ledger)
    await ledger.catch_up(log)
    assert await are_totals_complete(ledger)
    state = await ledger.state()
    assert state.whole_since
    assert state.missed == 5 * gone
    assert await ledger.start_of_complete_hours() == state.whole_since.timestamp()
    found = await hourly(ledger, since=int(BEGINS[0].timestamp()) - 24 * HOUR, days=4)
    assert _from(state.whole_since, everything) == _from(state.whole_since, found)
    assert everything != found
    log.add([call() for _ in range(5)])
    await ledger.rebuild(log)
    assert not await are_totals_complete(ledger)


def _from(since: datetime, sums: Mapping[tuple[Any, ...], object]) -> dict[tuple[Any, ...], object]:
    return {group: sum_ for group, sum_ in sums.items() if group[0] >= since.timestamp()}


@pytest.mark.parametrize("zone", [*ZONES, "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"])
async def test_periods_of_a_year_end(ledgers: Ledgers, zone: str) -> None:
    """Hours and days are consecutive in every zone, despite the clock changes of a year."""
    ledger = await ledgers.open()
    for granularity, length in (("hourly", 400), ("daily", 10_000)):
        for begin in BEGINS:
            query = CostQuery(since=begin, until=begin + length * HOUR * timedelta(seconds=1), granularity=granularity,
                              zone=ZoneInfo(zone))  # fmt: skip
            assert [] == list(await ledger.costs(query))


@pytest.mark.parametrize("changed", [date(2026, 4, 5), date(2026, 10, 4)], ids=["back", "forward"])
async def test_a_day_on_which_a_clock_changed_by_half_an_hour(ledgers: Ledgers, changed: date) -> None:
    """
    A day is exact if no call is in an hour that a midnight divides. Otherwise the day and its hours are refused.
    """
    zone, half, hour = ZoneInfo("Australia/Lord_Howe"), timedelta(minutes=30), timedelta(hours=1)
    midnights = [
        datetime.fromisoformat(f"{changed + days * DAY}").replace(tzinfo=zone).astimezone(UTC)
        for days in range(-2, 4)
    ]
    begin, end = midnights[0], midnights[-1]
    divided = {midnight.replace(minute=0) for midnight in midnights if midnight.minute}
    assert {midnight.minute for midnight in midnights} == {0, 30}
    times = [begin + count * half for count in range((end - begin) // half)]
    calls = [at for at in times if at.replace(minute=0) not in divided]
    log, ledger = FakeLog(), await ledgers.open(clock=FakeClock((end + DAY).timestamp()))
    log.add([call(start_time=int(at.timestamp()) * NS) for at in calls], at=end.timestamp())
    await ledger.catch_up(log)
    daily = CostQuery(since=begin, until=end, granularity="daily", zone=zone)
    assert Counter(at.astimezone(zone).date() for at in calls) == {
        row.start.astimezone(zone).date(): row.calls for row in await ledger.costs(daily)
    }
    inside = next(pair for pair in pairwise(midnights) if not pair[0].minute and not pair[1].minute)
    hours = await ledger.costs(replace(daily, since=inside[0], until=inside[1], granularity="hourly"))
    assert [inside[0] + count * hour for count in range(24)] == [row.start for row in hours]
    late = max(divided)
    log.add([call(start_time=int((late + half).timestamp()) * NS)], at=end.timestamp())
    await ledger.catch_up(log)
    with pytest.raises(NotKept, match="Choose periods that begin and end on the hour"):
        await ledger.costs(daily)
    whole = replace(daily, since=begin.replace(minute=0), until=late + hour, granularity=TOTAL)
    [row] = await ledger.costs(whole)
    assert row.calls == 1 + sum(at < late + hour for at in calls)
