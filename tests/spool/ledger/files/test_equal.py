"""The files of facts give the answers of the stored sums, to the last digit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zlib import compress
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from spool.errors import NotKept
from spool.ledger.costs import periods_of_query
from spool.ledger.files.folder import DELTA
from spool.ledger.files.writer import FactWriter
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import MAX_TOKENS
from spool.ledger.verdicts import counted_time_us
from spool.ledger.work import UNITS, WorkUnitHasher
from spool.record import CALL_UNIT, Correction, Inference, RecalculationEntry, UsageMetric
from tests.rounds import IS_LONG, examples, part
from tests.spool.ledger.engines import MEMORY, Ledgers
from tests.spool.ledger.files.histories import (
    DAY,
    GROUPS,
    LISTED,
    SPREAD,
    opened_prices,
    random_log,
    random_query,
)
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog

HASHER = WorkUnitHasher(b"0" * 32)
QUERIES = 40 if IS_LONG else 12


async def both(tmp_path: Path, log: FakeLog, request: pytest.FixtureRequest) -> tuple[Ledger, FactWriter]:
    ledger = await Ledgers.of(MEMORY, request, tmp_path).open(
        clock=FakeClock(BEGIN + SPREAD + DAY), tags=LISTED
    )
    ledger.digests = HASHER
    await ledger.catch_up(log)
    writer = FactWriter(tmp_path / "facts", HASHER, opened_prices, listed=LISTED)
    return ledger, writer


def comparable(rows: list[CostRow], query: CostQuery) -> list[CostRow]:
    """Return rows without meters of zero and fields that the query does not ask for, which may have any value."""
    rows = [
        msgspec.structs.replace(row, meters={name: units for name, units in row.meters.items() if units})
        for row in rows
    ]
    if not query.measures:
        return rows
    asked = {"start", "group", "cost", "reported", "estimated", "saved", "calls", "charges", "converted"}
    asked |= {"unconverted", "metered", "meters", *query.measures}
    kept: list[CostRow] = []
    for row in rows:
        others = {name: 0 for name in CostRow.__struct_fields__ if name not in asked}
        kept.append(msgspec.structs.replace(row, **{**others, "latency": ()}))
    return kept


@pytest.mark.parametrize("seed", part(range(examples(60)), every=4))
async def test_answers_are_those_of_the_stored_sums(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """At any time between two parts, with files of all kinds."""
    chance = random.Random(seed)
    log = random_log(chance, charges=seed % 3 == 0)
    ledger, writer = await both(tmp_path, log, request)
    rates: Mapping[str, int] = {"EUR": 2 * 10**12, "USD": 10**12 // 3}
    ledger.rates = lambda of, to, day: rates.get(of) if day % (2 * DAY) == 0 else None
    for entry in log.entries:
        writer.add_entries([entry])
        if chance.random() < 0.3:
            writer.write_parts()
        if chance.random() < 0.3:
            writer.merge_next(BEGIN + chance.choice((SPREAD, 90 * DAY)))
    state = await ledger.state()
    snapshot = writer.snapshot()
    asked = 0
    for _ in range(QUERIES):
        query = random_query(chance)
        if chance.random() < 0.2:
            query = replace(query, currency="EUR")
        if query.unit_of_work is not None and (seed % 3 == 0 or query.currency != "USD"):
            continue
        try:
            want = list(await ledger.costs(query))
        except NotKept:  # half-hour zones, which stored hours refuse: see below
            continue
        found = snapshot.costs(query, rates=ledger.rates)
        assert comparable(found, query) == comparable(want, query), (seed, query)
        asked += bool(want)
    snapshot.close()
    writer.write_parts()
    assert asked
    assert (writer.manifest.absurd, writer.manifest.damaged) == (state.absurd, state.damaged)
    writer.close()


BOOK = PriceBook.load().with_override(PriceOverride(model="acme-large", input=Decimal(2), output=Decimal(4)))


@pytest.mark.parametrize("seed", part(range(examples(30)), every=6))
async def test_a_recalculation_gives_the_estimates_of_the_stored_sums(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With a price for one size and all hours. Units of work differ: the stored ones move cost between them."""
    chance, log = random.Random(seed), FakeLog()
    entries = random_log(chance, entries=6).entries
    ledger, _ = await both(tmp_path, log, request)
    ledger.books.open = PriceBook.decode_rate_card_and_overrides
    card, own = BOOK.encode_rate_card_and_overrides()
    made = RecalculationEntry(
        id=b"r" * 16, since=int(BEGIN - 90 * DAY), price_list=compress(card), own_prices=own
    )
    for place, entry in enumerate(entries):
        log.add(entry.records, at=entry.committed_at)
        await ledger.catch_up(log)
        if place == 3:
            await ledger.reprice(log, BOOK, since=datetime.fromtimestamp(made.since, UTC))
            log.add([made], at=entry.committed_at)
    await ledger.catch_up(log)
    writer = FactWriter(tmp_path / "priced", HASHER, PriceBook.decode_rate_card_and_overrides, listed=LISTED)
    writer.add_entries(log.entries)
    assert DELTA in {file.kind for file in writer.manifest.files.values()}
    snapshot = writer.snapshot()
    for _ in range(QUERIES):
        query = random_query(chance, groups=[name for name in GROUPS if name not in UNITS])
        try:
            want = list(await ledger.costs(query))
        except NotKept:
            continue
        assert comparable(snapshot.costs(query), query) == comparable(want, query), (seed, query)
    snapshot.close()
    writer.close()


def states_by_hand(log: FakeLog) -> dict[int, tuple[float, Inference]]:
    """Return the final state of each call that counts, with its time, by record number."""
    states: dict[int, tuple[float, Inference]] = {}
    for entry in log.entries:
        for number, record in enumerate(entry.records, entry.first):
            if isinstance(record, Inference) and not record.shadow:
                states[number] = counted_time_us(record, entry.committed_at) / 1e6, record
            elif isinstance(record, Correction):
                at = states[record.corrects_number or 0][0]
                if record.after.shadow:
                    del states[record.corrects_number or 0]
                elif (record.after.output_tokens or 0) <= MAX_TOKENS:
                    states[record.corrects_number or 0] = at, record.after
    return {
        number: (at, call)
        for number, (at, call) in states.items()
        if max(call.input_tokens or 0, call.output_tokens or 0) <= MAX_TOKENS
    }


@pytest.mark.parametrize("seed", part(range(examples(60)), every=3))
def test_half_hour_zones_are_counted_by_hand(seed: int, tmp_path: Path) -> None:
    """The days of Nepal and the hours of Lord Howe Island, whose clock moves by half an hour, in October."""
    log = random_log(random.Random(seed))
    writer = FactWriter(tmp_path, HASHER, opened_prices, listed=LISTED)
    writer.add_entries(log.entries)
    snapshot = writer.snapshot()
    states = states_by_hand(log).values()
    for zone_name, granularity in (("Asia/Kathmandu", "daily"), ("Australia/Lord_Howe", "hourly")):
        zone = ZoneInfo(zone_name)
        since = datetime.fromtimestamp(BEGIN - 5 * DAY, zone).replace(hour=0)
        query = CostQuery(
            since=since,
            until=since + timedelta(days=40),
            granularity=granularity,
            zone=zone,
            group_by=["source"],
        )
        calls = Counter[datetime]()
        for row in snapshot.costs(query):
            calls[row.start] += row.calls
        want = Counter[datetime]()
        periods = list(periods_of_query(query))
        for at, _ in states:
            want.update([start for start, end in periods if start.timestamp() <= at // 1 < end.timestamp()])
        counters = Counter[datetime]()
        for entry in log.entries:
            for record in entry.records:
                if isinstance(record, UsageMetric) and record.unit == CALL_UNIT:
                    at = counted_time_us(record, entry.committed_at) / 1e6
                    for start, end in periods:
                        if start.timestamp() <= at < end.timestamp():
                            counters[start] += int(record.value)
        want.update(counters)
        assert {k: n for k, n in calls.items() if n} == {k: n for k, n in want.items() if n}, zone_name
    snapshot.close()
    writer.close()
