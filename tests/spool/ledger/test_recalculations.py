"""
Recalculations of estimates, and changes of the chosen tags. Each call has the estimate of the newest recalculation
after it was counted, and the tags by which it was counted, whatever arrives later: the sums are those of a ledger that
counted the final calls once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import pytest
from msgspec.structs import replace

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from gateway.intake.reversals import reversal_record as reversal
from spool.errors import NotKept
from spool.ledger.comparing import LedgerMender
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import TagList
from spool.ledger.queries import CostQuery
from spool.ledger.sums import WIDTH
from spool.ledger.tag_lists import MOST_LISTS, TagLists
from spool.ledger.work import WorkLimits
from spool.log.amendments import replace_fields
from spool.log.planning.corrections import (
    correction_subtracting_duplicate,
    correction_with_runs_and_values,
    late_report_correction,
    merge_correction,
)
from spool.record import NS, Correction, Inference, Record, UsageMetric
from tests.rounds import IS_LONG, as_proof, part
from tests.spool.ledger.engines import ENGINES, MEMORY, POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAY = 24 * HOUR
SEEDS = 1000 if IS_LONG else 1
EVER: Any = {
    "since": datetime.fromtimestamp(BEGIN - 400 * DAY, UTC),
    "until": datetime.fromtimestamp(BEGIN + 400 * DAY, UTC),
}
# limits under which no unit expires
LIMITS = WorkLimits(retention_s=1000.0 * DAY, retention_units_s=1000.0 * DAY)
GROUPS = (
    ("request_model", "team", "status", "cost_source"),
    ("session",),
    ("run",),
    ("repository",),
    ("repository", "request_model", "cost_source"),
    ("tag:service", "tag:zone", "request_model", "cost_source"),
    ("repository", "tag:zone"),
    (),
)
TAGS = ("service", "zone")
# models by the form of their price: one price, a higher one for large inputs, another one at night, none in most books
PLAIN, TIERED, NIGHTLY, RARE = "acme-plain", "acme-tiered", "acme-nightly", "acme-rare"
# models with a fee for each search, and with a higher price that begins within a size class of the totals
METERED, ODD = "acme-metered", "acme-odd"
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
        METERED: [{"meters": {"web_searches": str(10 * price)}}],
        ODD: [{"tiers": [{"above": LARGE - 1, **cost(2 * price)}]}],
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
    return PriceBook.decode_rate_card_and_overrides(msgspec.json.encode(card), b"{}")


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
        is_dear |= call.request_model == ODD and (call.input_tokens or 0) > LARGE - 1
        searches = Decimal(call.meters.get("web_searches", 0)) * 10 * self.price / 1000
        return Decimal((call.input_tokens or 0) * self.price * (1 + is_dear)) / 10**6 + searches


@dataclass
class Counted:
    call: Inference
    number: int
    tags: Sequence[str]  # the chosen tags by which the call is counted
    corrections: int = 0


@dataclass
class CountedMetric:
    metric: UsageMetric
    number: int
    tags: Sequence[str]


def as_counted(tags: Mapping[str, str], chosen: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in tags.items() if name not in TAGS or name in chosen}


class Calls:
    """A ledger, its log, and the calls by hand."""

    def __init__(self, ledgers: Ledgers, chance: random.Random) -> None:
        self._ledgers, self.chance = ledgers, chance
        self.clock, self.log = FakeClock(BEGIN + 100 * DAY), FakeLog()
        self.calls: list[Counted] = []
        self.metrics: list[CountedMetric] = []
        self.made: list[Made] = []
        self.ledger: Ledger
        self._gateways: list[Ledger] = []
        self._hours: list[tuple[int, int]] = []  # number and hour of each record
        self._kept_from = 1

    async def open(self) -> None:
        tags = self.chance.choice((TAGS, TAGS[:1], TAGS[1:], ()))
        self.ledger = await self._ledgers.open(clock=self.clock, work=LIMITS, tags=tags, chunk=5)
        self._gateways = [*self._gateways[-1:], self.ledger]

    async def _count(self, *records: Record) -> None:
        number = self.log.lowest_open_number()
        self._hours += [
            (number + index, (each.start_time or 0) // NS // HOUR * HOUR)
            for index, each in enumerate(records)
        ]
        self.log.add(records, at=self.clock.at)
        await self.ledger.catch_up(self.log)

    async def add(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            number = self.log.lowest_open_number()
            new = self._new_call(number)
            await self._count(new)
            self.calls.append(Counted(new, number, self.ledger.tags))

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
            tags=self._tags(),
            **self._measured(is_cached=chance.random() < 0.1),
        )

    def _tags(self) -> dict[str, str]:
        choice = self.chance.choice
        tags = {"service": choice("ab"), "zone": choice("ns"), "repository": choice(("shop", "site", ""))}
        return {name: value for name, value in tags.items() if value}

    async def count_tokens(self) -> None:
        """Count a counter, or take one back."""
        if self.metrics and self.chance.random() < 0.5:
            one = self.metrics.pop(self.chance.randrange(len(self.metrics)))
            await self._count(reversal(one.metric, one.number, self.clock.at))
            return
        number, at = self.log.lowest_open_number(), int(self.clock.at - self.chance.randrange(DAY)) * NS
        metric = UsageMetric(
            id=number.to_bytes(16, "big"), source="claude_code", name="claude_code.token.usage", token_type="input",
            value=self.chance.randrange(1, 99), start_time=at, end_time=at, tags=self._tags(),
        )  # fmt: skip
        await self._count(metric)
        self.metrics.append(CountedMetric(metric, number, self.ledger.tags))

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
                return late_report_correction(
                    one.call, one.corrections, one.call, fields, replaces_cost=False, now_ns=now
                )
            case 1:
                reported = {"cost": f"0.{self.chance.randrange(1, 99)}", "cost_source": "reported"}
                return late_report_correction(
                    one.call, one.corrections, one.call, reported, replaces_cost=True, now_ns=now
                )
            case _:
                run = {"run": f"r{self.chance.randrange(4)}"}
                return correction_with_runs_and_values(one.call, one.corrections, run, now_ns=now)

    async def join(self) -> None:
        """Two records turn out to be one call: the first one gets the tokens, and the later one no longer counts."""
        found = self._correctable()
        if len(found) < 2:
            return
        first, later = sorted(self.chance.sample(found, 2), key=lambda each: each.number)
        now = int(self.clock.at) * NS
        fields = {"input_tokens": later.call.input_tokens}
        change = merge_correction(first.call, first.corrections, later.call, fields, now_ns=now)
        gone = correction_subtracting_duplicate(
            later.call, later.corrections, first.call.id, later.call, now_ns=now
        )
        if change is not None:
            first.call, first.corrections = change.after, first.corrections + 1
        self.calls.remove(later)
        await self._count(*([change] if change else []), gone)

    async def recalculate(self) -> None:
        hourly = int((await self.ledger.hourly_sums_start()).timestamp())
        day = int(self.clock.at // DAY) * DAY
        since = self.chance.choice((BEGIN - 300 * DAY, day - 75 * DAY, day - DAY, day - DAY + 7 * HOUR))
        price, has_rare = self.chance.randrange(1, 9), self.chance.random() < 0.4
        await self.ledger.reprice(
            self.log, book_of(price, has_rare=has_rare), since=datetime.fromtimestamp(since, UTC)
        )
        self.made.append(Made(price, has_rare, since, self.log.lowest_open_number(), hourly))

    async def restart(self) -> None:
        """Start again, perhaps with other tags."""
        await self.open()

    async def take_over(self) -> None:
        """Let another gateway count, which may have other tags."""
        # the ledger that is opened reads how far the other one has counted
        self.ledger = await self._gateways[0].load()
        self._gateways.reverse()

    async def rebuild(self) -> None:
        """Count again, perhaps with a restart meanwhile."""
        hourly = int((await self.ledger.hourly_sums_start()).timestamp())
        rebuilt = await self.ledger.rebuild(self.log)
        border = max((end(hour, hourly) for number, hour in self._hours if number < rebuilt.first), default=0)
        if (await self.ledger.state()).rebuilding:
            self._tagged(rebuilt.first, border)
        if self.chance.random() < 0.5:
            await self.ledger._count_next_records(self.log, self.log.lowest_open_number())
            await self.chance.choice((self.restart, self.take_over))()
            state = await self.ledger.state()
            if state.rebuilding:
                self._tagged(state.reach, border)
        await self.ledger.catch_up(self.log)

    def _tagged(self, first: int, border: int) -> None:
        """Note that the records from a number on are counted again in the hours from a time on."""
        hours = dict(self._hours)
        counted: list[Counted | CountedMetric] = [*self.calls, *self.metrics]
        for each in counted:
            if each.number >= first and hours[each.number] >= border:
                each.tags = self.ledger.tags

    async def repair(self) -> None:
        """Lose a call of each hour, and count the hours again."""

        def lose(rows: Any) -> None:
            for start in rows.period_starts(HOUR, 0):
                rows.add_sums(
                    HOUR,
                    [
                        (
                            start,
                            min(rows.dimension_set_numbers_in_period(HOUR, start)),
                            [-1, *[0] * (WIDTH - 1)],
                        )
                    ],
                )

        if (
            await self.ledger._read_rows(lambda rows: len(rows.period_starts(HOUR, 0)))
            and self._kept_from == 1
        ):
            await self.ledger._change_rows(lose)
            await LedgerMender(ledger=self.ledger, log=self.log, clock=self.clock).compare_and_repair()

    async def age(self) -> None:
        """Sum up finished days, and delete the hours of old ones."""
        self.clock.at += self.chance.choice((0, DAY, 65 * DAY))
        await self.ledger.sum_up_and_delete_hours()

    async def forget(self) -> None:
        """Delete the oldest records, as retention does."""
        self._kept_from = max(self._kept_from, self.log.lowest_open_number() - 30)
        self.log.forget_below(self._kept_from)

    def final(self) -> list[Record]:
        """Return the records as they are in the end, each with its estimate and the tags by which it is counted."""
        return [
            *(
                replace(self._recalculated(each), tags=as_counted(each.call.tags, each.tags))
                for each in self.calls
            ),
            *(replace(each.metric, tags=as_counted(each.metric.tags, each.tags)) for each in self.metrics),
        ]

    def _recalculated(self, one: Counted) -> Inference:
        for made in reversed(self.made):
            if one.number < made.reach and (estimate := made.estimate(one.call)) is not None:
                source = "reported" if one.call.cost is not None else "estimated"
                return replace_fields(one.call, {"estimated_cost": f"{estimate:f}", "cost_source": source})
        return one.call

    async def check(self) -> None:
        counted = await Ledgers(MEMORY, Path(), None).open(clock=self.clock, work=LIMITS, tags=TAGS)
        log = FakeLog()
        log.add(self.final(), at=self.clock.at)
        await counted.catch_up(log)
        for by in GROUPS:
            assert await sums_of(counted, by) == await sums_of(self.ledger, by)
        await counted.close()
        assert [] == (await self.ledger.compare_and_note_differences(self.log)).problem_sentences()


def end(hour: int, hourly_since: int) -> int:
    """Return the end of the stored period that contains an hour."""
    width = HOUR if hour >= hourly_since else DAY
    return hour // width * width + width


async def sums_of(ledger: Ledger, dimensions: Sequence[str]) -> dict[Any, Any]:
    rows = await ledger.costs(CostQuery(**EVER, granularity=TOTAL, group_by=tuple(dimensions)))
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
    [
        *((SQLITE, seed) for seed in range(SEEDS)),
        *(as_proof((POSTGRES, seed)) for seed in range(0, SEEDS, 6)),
    ],
)
@pytest.mark.usefixtures("unflushed")
async def test_every_order_gives_the_sums_of_the_final_calls(calls: Calls) -> None:
    """
    Every order gives the sums of the final calls: late reports, costs, runs, merged calls, recalculations, other
    tags, rebuilds and repairs.
    """
    happenings: Sequence[Callable[[], Any]] = (
        calls.correct, calls.correct, calls.join, calls.recalculate, calls.recalculate, calls.restart,
        calls.rebuild, calls.repair, calls.age, calls.forget, calls.take_over, calls.count_tokens,
    )  # fmt: skip
    for _ in range(12):
        await calls.add()
        for happen in calls.chance.choices(happenings, k=3):
            await happen()
        await calls.check()


class MeteredCalls(Calls):
    """Calls that only their records can price: with searches, or of a size class with two prices."""

    def _new_call(self, number: int) -> Inference:
        model = self.chance.choice((METERED, METERED, ODD, ODD, PLAIN))
        meters = {"web_searches": self.chance.choice((0, 1, 50, 100))} if model == METERED else {}
        fields = {"request_model": model, "meters": {name: many for name, many in meters.items() if many}}
        made = replace_fields(super()._new_call(number), fields)
        # few hours, so that a sum has several calls
        at = int(self.clock.at) - self.chance.choice((0, 0, HOUR, 70 * DAY))
        return replace_fields(made, {"start_time": at * NS, "team": "ads", "tags": {}})


@pytest.mark.parametrize(
    ("engine", "seed"),
    # the first seed left a sum without calls, which a recalculation listed as kept
    part([*((SQLITE, (39 + seed) % 60) for seed in range(60)), (POSTGRES, 0), (POSTGRES, 1)], every=62),
)
@pytest.mark.usefixtures("unflushed")
async def test_recalculate_and_rebuild_lead_to_the_sums_of_the_calls(
    engine: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    With meters and with two prices in a size class, recalculations, a rebuild and a count by hand are equal for
    sessions, runs and all other dimensions, and a recalculation with unchanged prices changes nothing.
    """
    ledgers = Ledgers.of(engine, request, tmp_path)
    made = MeteredCalls(ledgers, random.Random(seed))
    await made.open()
    for _ in range(6):
        await made.add()
        for happen in made.chance.choices(
            (made.recalculate, made.recalculate, made.correct, made.rebuild, made.age), k=2
        ):
            await happen()
        await made.recalculate()
        await made.check()
        last = made.made[-1]
        since = datetime.fromtimestamp(last.since, UTC)
        again = await made.ledger.reprice(made.log, book_of(last.price, has_rare=last.has_rare), since=since)
        assert (0, 0, 0) == (again.rows, again.kept_units, again.kept_sizes)
        made.made.append(last)
        await made.check()
    await ledgers.close()


async def test_units_with_meters_have_the_cost_of_their_calls(ledgers: Ledgers) -> None:
    """A recalculation gives each session its own tokens and searches. Without the records, the whole sum stays."""
    clock, log = FakeClock(BEGIN + HOUR), FakeLog()
    ledger = await ledgers.open(clock=clock)
    first, dearer = book_of(1), book_of(2)
    calls = [("A", 100), ("B", 0), ("B", 0), ("C", 50)]
    records = [
        call(
            provider="acme", request_model=METERED, input_tokens=10**6, session=session,
            meters={"web_searches": searches} if searches else {},
        )
        for session, searches in calls
    ]  # fmt: skip
    for record in records:
        record.estimated_cost = first.estimate_record(record)
    log.add(records)
    await ledger.catch_up(log)
    # a search costs 0.01, or 0.02 afterwards
    assert {"A": "2", "B": "2", "C": "1.5"} == await costs_of_sessions(ledger)
    changed = await ledger.reprice(log, dearer, since=EVER["since"])
    assert ("5.5", "11") == (changed.before, changed.after)
    assert {"A": "4", "B": "4", "C": "3"} == await costs_of_sessions(ledger)
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()

    log.add([call(provider="acme", request_model=PLAIN, estimated_cost=None, cost_source="none")])
    await ledger.catch_up(log)
    log.forget_below(5)
    kept = await ledger.reprice(log, first, since=EVER["since"])
    assert 1 == kept.kept_units
    assert {"A": "4", "B": "4", "C": "3"} == await costs_of_sessions(ledger)


async def costs_of_sessions(ledger: Ledger) -> dict[str, str]:
    rows = await ledger.costs(CostQuery(**EVER, granularity=TOTAL, group_by=("session",)))
    names = {ledger.digests.digest_of_id("session", name): name for name in "ABC"}
    return {names[row.group[0]]: row.cost for row in rows if row.group[0] in names}


@pytest.mark.parametrize("later", [0, 70 * DAY], ids=["hours", "days"])
async def test_a_sum_over_several_prices_keeps_its_estimate(later: int) -> None:
    """
    A sum that covers several prices keeps its estimate. Here the model costs twice as much from 00:30 to 16:30.
    Without new prices, a recalculation changes nothing, also if only the sum of the day is stored. An own price
    without times applies to it.
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
        list_prices.price_record(each)
    log.add(made, at=clock.at)
    await ledger.catch_up(log)
    before = await sums_of(ledger, ())
    clock.at += later
    await ledger.sum_up_and_delete_hours()
    ever = datetime.fromtimestamp(BEGIN - DAY, UTC)
    kept = await ledger.reprice(log, list_prices, since=ever)
    assert (0, 1 if later else 2) == (kept.rows, kept.unpriced)
    assert before == await sums_of(ledger, ())
    own = PriceOverride(model="deepseek-*", input=Decimal(10_000), output=Decimal(0), cache_read=Decimal(0))
    assert "5" == (await ledger.reprice(log, list_prices.with_override(own), since=ever)).after
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    assert "5" == (await sums_of(ledger, ()))[()][2]
    await ledger.close()


def zones_of_each_offset(months: Sequence[int]) -> dict[tuple[float, ...], ZoneInfo]:
    """Return a zone of tzdata for each distinct set of beginnings of these months of 2026."""
    zones = map(ZoneInfo, sorted(available_timezones()))
    return {tuple(first_of(month, zone).timestamp() for month in months): zone for zone in zones}


def first_of(month: int, zone: ZoneInfo) -> datetime:
    return datetime(2026, month, 1, tzinfo=zone)


@pytest.mark.parametrize("ledgers", part(ENGINES, every=2), indirect=True)
async def test_months_in_every_time_zone(ledgers: Ledgers) -> None:
    """
    After a recalculation, each zone of tzdata gets the months of its calls, also if a price changes within a day. A
    month that begins within an hour is refused.
    """
    chance, clock, log = random.Random(1), FakeClock(BEGIN + 40 * DAY), FakeLog()
    ledger = await ledgers.open(clock=clock)
    borders = [int(first_of(month, ZoneInfo("UTC")).timestamp()) for month in (9, 10)]
    starts = [border + minutes * 60 for border in borders for minutes in range(-960, 960, 30)]
    starts += [chance.randrange(borders[0] + DAY, int(clock.at)) for _ in range(500)]
    calls = [
        call(provider="acme", request_model=chance.choice((PLAIN, NIGHTLY)), start_time=start * NS,
             input_tokens=chance.randrange(10**6), estimated_cost="0.5")
        for start in starts
    ]  # fmt: skip
    log.add(calls, at=clock.at)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    made = Made(price=3, has_rare=False, since=BEGIN - 99 * DAY, reach=log.lowest_open_number(), hourly=0)
    await ledger.reprice(log, book_of(made.price), since=datetime.fromtimestamp(made.since, UTC))
    answered = refused = 0
    for (september, october, november), zone in zones_of_each_offset((9, 10, 11)).items():
        query = CostQuery(since=first_of(9, zone), until=first_of(11, zone), granularity="monthly", zone=zone)
        if september % HOUR or october % HOUR:
            with pytest.raises(
                NotKept, match=r"whole-hour offset from UTC\. Your period splits a stored sum at 2026"
            ):
                await ledger.costs(query)
            refused += 1
            continue
        expected = {}
        for begin, end in ((september, october), (october, november)):
            inside = [each for each in calls if begin <= (each.start_time or 0) / NS < end]
            estimates = [made.estimate(each) for each in inside]
            cost = sum(Decimal("0.5") if each is None else each for each in estimates)
            expected[begin] = len(inside), sum(each.input_tokens or 0 for each in inside), cost
        found = {
            row.start.timestamp(): (row.calls, row.input_tokens, Decimal(row.cost))
            for row in await ledger.costs(query)
        }
        assert expected == found, zone
        answered += 1
    assert answered > 25 and refused > 5


BY_TAGS = ("tag:service", "tag:zone")


def tagged(number: int) -> Inference:
    return call(id=number.to_bytes(16, "big"), tags={"service": "a", "zone": "n"}, input_tokens=number)


def late(one: Inference) -> Correction:
    found = late_report_correction(
        one, 0, one, {"input_tokens": 5000}, replaces_cost=False, now_ns=BEGIN * NS
    )
    assert found is not None
    return found


async def tokens_by_tags(ledger: Ledger) -> dict[Any, tuple[int, int]]:
    return {group: (row[0], row[1]) for group, row in (await sums_of(ledger, BY_TAGS)).items()}


async def test_a_late_report_counts_by_the_tags_of_its_call(ledgers: Ledgers) -> None:
    """A tag is chosen between a call and its late report. A rebuild counts both by the present tags."""
    log, one = FakeLog(), tagged(7)
    ledger = await ledgers.open(tags=("service",))
    log.add([one])
    await ledger.catch_up(log)
    ledger = await ledgers.open(tags=TAGS)
    log.add([late(one), tagged(8)])
    await ledger.catch_up(log)
    assert {("a", None): (1, 5000), ("a", "n"): (1, 8)} == await tokens_by_tags(ledger)
    assert [] == (await ledger.compare_and_note_differences(log)).problem_sentences()
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    assert {("a", "n"): (2, 5008)} == await tokens_by_tags(ledger)
    assert 1 == len(await ledger._read_rows(lambda rows: rows.tag_lists()))


def test_the_oldest_lists_of_tags_are_forgotten() -> None:
    """
    The number of stored lists of tags is bounded, also if gateways count by different tags in turn. The oldest
    lists are forgotten, and older calls then have the oldest list that is left.
    """
    lists = TagLists()
    for number in range(1, MOST_LISTS + 3):
        made = lists.tag_list_to_add((f"tag {number}",), first_record_number=number)
        assert made is not None
        lists = lists.with_list(made)
    assert MOST_LISTS == len(lists.lists)
    assert ("tag 3",) == lists.tags_at(1, 0) == lists.tags_at(3, 0)
    assert (f"tag {MOST_LISTS + 2}",) == lists.tags_at(MOST_LISTS + 2, 0)


def test_one_list_of_tags_decides_all_numbers_after_a_rebuild() -> None:
    """After a rebuild, one list of tags decides all numbers. A list for the next number does not replace it."""
    lists = TagLists().with_list(TagList(1, 0, ("one",))).with_list(TagList(7, 0, ("one",)))
    assert 1 == len(lists.lists)
    lists = lists.with_list(TagList(7, 0, ("two",)))
    assert (("one",), ("two",)) == (lists.tags_at(6, 0), lists.tags_at(7, 0))


async def test_numbers_of_a_restored_log_count_by_the_present_tags(ledgers: Ledgers) -> None:
    """
    If the log loses its last calls and gives their numbers to other ones, these count by the present tags. Their
    late reports have the same tags.
    """
    log = FakeLog()
    for number, tags in enumerate((("service",), ("service",), TAGS), start=1):
        log.add([tagged(number)])
        await (await ledgers.open(tags=tags)).catch_up(log)
    restored = FakeLog()
    restored.add([tagged(1)])
    ledger = await ledgers.open(tags=TAGS)
    await ledger._restart_at_replaced_log(restored.lowest_open_number())
    new = tagged(9)
    restored.add([new])
    await ledger.catch_up(restored)
    before = await tokens_by_tags(ledger)
    restored.add([late(new)])
    await ledger.catch_up(restored)
    assert {**before, ("a", "n"): (2, 5003)} == await tokens_by_tags(ledger)
