"""
People who are erased while the clocks of senders are up to two days wrong. A call that is stored is erased, whatever
its start. A call that arrives later is erased if it began before.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.configuration.sections import Config
from gateway.devices.states import device_revoker
from gateway.intake.attribution import RecordAttributor
from spool.deliveries.values import RouteSpec
from spool.erasing import AGAIN_AFTER_S, continue_due_erasures, erase_from_storage
from spool.erasure import new_erasure
from spool.identity import RecordIdentity
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.listing import ListQuery, SortField
from spool.log.values import Submission
from spool.people import ERASED
from spool.record import (
    AI_TELEMETRY,
    NS,
    USAGE_EVENTS,
    Correction,
    Inference,
    Record,
    UsageEvent,
    UsageMetric,
)
from spool.storage import Storage, StorageOptions
from tests.integration.receivers.test_second_names import rows_of
from tests.moved_clock import MovedClock
from tests.rounds import as_proof, part
from tests.spool.contract.conftest import EVERY_ENGINE
from tests.spool.contract.examples import NOON
from tests.spool.contract.test_erasing import ROOT, people_of, use_people
from tests.spool.ledger_log import call
from tests.spool.postgres_cluster import Schema
from tests.stored_files import contents_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NAME, OTHER = "canary-login-7q", "bob"
HOUR_S = 3600
TWO_DAYS_S = 48 * HOUR_S
ROUTE = f"up/{AI_TELEMETRY}"
FRAME = bytes.fromhex("28b52ffd")  # how compressed bytes begin
ALWAYS: Any = {
    "since": datetime.fromtimestamp(NOON, UTC) - timedelta(days=30),
    "until": datetime.fromtimestamp(NOON, UTC) + timedelta(days=300),
    "granularity": TOTAL,
}


async def send(storage: Storage, record: Record) -> None:
    """Store a record as the intake does."""
    people = people_of(storage)
    attributor = RecordAttributor(Config(), persons=people.persons)
    attributor._people = people
    topic = AI_TELEMETRY
    if isinstance(record, UsageEvent):
        attributor.apply_to_event(record, {})
        topic = USAGE_EVENTS
    elif isinstance(record, Inference | UsageMetric):
        attributor.apply_person_name_settings(record)
    submission = Submission(
        topic=topic,
        received=1,
        records=[record],
        identities=[RecordIdentity(record.id)],
        renaming=attributor.erased_name_renaming,
    )
    await storage.log.append_submission(submission)


def made(number: int, at: float | None, **fields: Any) -> Inference:
    start = None if at is None else int(at * NS)
    return call(id=number.to_bytes(16, "big"), **{"user": NAME, "start_time": start, **fields})


async def erase(storage: Storage, clock: MovedClock) -> tuple[str, Any]:
    """Erase the person. Return the pseudonym and the result."""
    erasure = new_erasure([people_of(storage).erasure_digest(NAME)], clock.now())
    done = await erase_from_storage(storage, erasure, revoke_device=device_revoker(""), actor=ROOT)
    return erasure.names[people_of(storage).erasure_digest(NAME)], done


async def calls_by_user(storage: Storage) -> Mapping[str | None, int]:
    """Return the calls of each name in the totals, after a comparison of the totals with the records."""
    await storage.ledger.catch_up(storage.log)
    compared = await storage.ledger.compare_and_note_differences(storage.log)
    assert (0, 0, True) == (len(compared.differences), compared.missed, compared.is_done)
    rows = await storage.ledger.costs(CostQuery(**ALWAYS, group_by=("user",)))
    return {row.group[0]: row.calls for row in rows if row.calls}


async def names(storage: Storage) -> Mapping[bytes, set[str | None]]:
    """Return the names in all records about each call or event, by its id."""
    found: dict[bytes, set[str | None]] = {}
    for topic in (AI_TELEMETRY, USAGE_EVENTS):
        last = await storage.log.newest_number(topic) - 1
        for entry in await storage.log.read(topic, 1, last, includes_open_records=True) if last else ():
            for record in entry.records:
                if isinstance(record, Correction):
                    stated = {record.before.user, record.after.user} - {None}
                    found.setdefault(record.corrects, set()).update(stated)
                elif record is not None:
                    name = getattr(record, "user", None) or getattr(record, "subject", None)
                    found.setdefault(record.id, set()).add(name)
    return {id: stated - {None} or {None} for id, stated in found.items()}


def places(options: StorageOptions) -> Iterator[bytes]:
    """Yield everything that is stored and contains the name: files, rows and decompressed entries."""
    stored = [*contents_of(options.directory).values()]
    for file in options.directory.glob("*.sqlite"):
        with sqlite3.connect(file) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
                stored += [
                    b"\0".join(each if isinstance(each, bytes) else str(each).encode() for each in row)
                    for row in rows
                ]
        connection.close()
    if options.storage.dsn_file is not None:
        dsn = options.storage.dsn_file.read_text().strip()
        stored += rows_of(Schema(dsn=dsn, name=options.storage.schema))
    for content in stored:
        frame = content.find(FRAME)
        try:
            inside = b"" if frame < 0 else zstd.ZstdDecompressor().decompress(content[frame:])
        except zstd.ZstdError:  # a whole file, whose frames are in pages
            inside = b""
        yield from (each for each in (content, inside) if NAME.encode() in each)


@pytest.mark.parametrize("ahead_s", [as_proof(HOUR_S), TWO_DAYS_S])
async def test_every_stored_call_is_erased_whatever_its_start(
    storage: Storage, options: StorageOptions, clock: MovedClock, ahead_s: int
) -> None:
    """
    Each kind of record, of a sender whose clock is ahead: calls, counters, events, corrections, records that a
    destination refused, and their retries. A late report or a repeat brings no name back. Totals and records agree,
    also after the totals are counted again. A later call keeps the name, and the second pass counts it.
    """
    use_people(storage)
    at = clock.now() + ahead_s
    await storage.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY, required=True)])
    for number in (1, 2):
        await send(storage, made(number, at))
    for _ in range(2):
        delivery = await storage.deliveries.take_due_delivery(ROUTE, now=clock.now(), max_records=1)
        assert delivery is not None
        await storage.deliveries.set_aside(delivery, error="400", status="400")
    first, _ = await storage.deliveries.dead_letters()
    await storage.deliveries.retry_dead_letters([first.id])
    await send(storage, made(3, at, output_tokens=None))
    await send(storage, made(3, at, output_tokens=9))
    await send(storage, made(4, at, user=None, output_tokens=None))
    metric = UsageMetric(
        id=b"m" * 16, source="gemini_cli", name="tokens", user=NAME, start_time=int(at * NS), value=5
    )
    await send(storage, metric)
    event = UsageEvent(id=b"e" * 16, source="app", event_type="click", subject=NAME, start_time=int(at * NS))
    await send(storage, event)
    assert 3 == (await calls_by_user(storage))[NAME]
    pseudonym, done = await erase(storage, clock)
    assert 3 + 1 + 1 + 1 + 2 == done.records.records
    assert 0 == done.records.later
    assert ({}, True) == (done.found.rows, done.found.searched_bytes > 1000)
    assert [] == [*places(options)]
    assert {ERASED: 3, None: 1} == await calls_by_user(storage)
    clock.move(60)
    for start in (at, None):
        await send(storage, made(3, start, output_tokens=9, reasoning_tokens=4))
        await send(storage, made(4, start, output_tokens=9))
        await send(storage, made(1, start))
    assert {ERASED: 4} == await calls_by_user(storage)
    assert {frozenset((pseudonym,))} == {*map(frozenset, (await names(storage)).values())}
    assert [] == [*places(options)]
    await send(storage, made(5, clock.now() + 60))
    await storage.ledger.rebuild(storage.log)
    assert {ERASED: 4, NAME: 1} == await calls_by_user(storage)
    clock.move(AGAIN_AFTER_S)
    assert 1 == await continue_due_erasures(storage, clock, device_revoker(""))
    assert {ERASED: 4, NAME: 1} == await calls_by_user(storage)
    assert storage.registry is not None
    query = ListQuery(sort=SortField("id"), order="desc", identity="id", limit=9)
    [row] = [
        row for row in (await storage.registry.audit_page(query)).rows if row.action == "person.erase.search"
    ]
    assert row.after is not None
    assert (0, 1) == (row.after["renamed_records"], row.after["later_records"])
    assert "entries" in str(row.after["rows_with_name"])
    await erase(storage, clock)
    assert [] == [*places(options)]


class History:
    """
    A random history of one person, and the name of each call as counted by hand. `calls`: the start of each call
    and the name that its records must have.
    """

    def __init__(self, storage: Storage, clock: MovedClock, chance: random.Random) -> None:
        self.storage, self.clock, self.chance = storage, clock, chance
        self.starts: dict[int, float] = {}
        self.sent_at: dict[int, float] = {}
        self.named: dict[int, str | None] = {}
        self.nameless: dict[int, list[str]] = {}  # the erasures of each call without a name
        self.erasures: list[tuple[float, str]] = []

    def name_of_new(self, start: float | None) -> str:
        erased = (pseudonym for at, pseudonym in self.erasures if start is not None and start < at)
        return next(erased, NAME)

    async def step(self) -> None:
        steps = (self.call,) * 4 + (
            self.nameless_call,
            self.report,
            self.repeat,
            self.set_aside,
            self.rebuild,
        )
        await self.chance.choice(steps)()
        self.clock.move(self.chance.randint(1, 2 * HOUR_S))

    def start(self) -> float:
        return self.clock.now() + self.chance.choice((0, 1, 1)) * self.chance.randint(-TWO_DAYS_S, TWO_DAYS_S)

    async def call(self) -> None:
        number, start = len(self.named) + 1, self.start()
        id, start_time = number.to_bytes(16, "big"), int(start * NS)
        kind = self.chance.choice(("call", "call", "metric", "event"))
        record: Record = made(number, start, output_tokens=None)
        if kind == "metric":
            record = UsageMetric(
                id=id, source="gemini_cli", name="tokens", user=NAME, start_time=start_time, value=5
            )
        elif kind == "event":
            record = UsageEvent(id=id, source="app", event_type="click", subject=NAME, start_time=start_time)
        else:
            self.starts[number], self.sent_at[number] = start, self.clock.now()
        self.named[number] = self.name_of_new(start)
        await send(self.storage, record)

    async def nameless_call(self) -> None:
        number, start = len(self.named) + 1, self.start()
        self.starts[number], self.named[number], self.nameless[number] = start, None, []
        self.sent_at[number] = self.clock.now()
        await send(self.storage, made(number, start, user=None, output_tokens=None))

    def recent_call(self) -> int | None:
        """Return a call whose reports the log still joins."""
        now = self.clock.now()
        recent = [
            number
            for number, start in self.starts.items()
            if start > now - 20 * HOUR_S and self.sent_at[number] > now - 3 * HOUR_S
        ]
        return self.chance.choice(recent) if recent else None

    async def report(self) -> None:
        """Report more of a call, late, under the name."""
        number = self.recent_call()
        if number is None:
            return
        start = self.starts[number]
        await send(self.storage, made(number, start, output_tokens=self.chance.randint(1, 99)))
        if self.named[number] is None:
            erased = (
                pseudonym
                for at, pseudonym in self.erasures
                if pseudonym in self.nameless[number] or self.starts[number] < at
            )
            # a report that adds no count is no correction, so only the first one names the call
            self.named[number] = next(erased, NAME)

    async def repeat(self) -> None:
        number = self.recent_call()
        if number is not None and self.named[number] is not None:
            await send(self.storage, made(number, self.starts[number], output_tokens=None))

    async def set_aside(self) -> None:
        now = self.clock.now()
        delivery = await self.storage.deliveries.take_due_delivery(ROUTE, now=now, max_records=1)
        if delivery is not None:
            await self.storage.deliveries.set_aside(delivery, error="400", status="400")
            letters = await self.storage.deliveries.dead_letters()
            if self.chance.random() < 0.3:
                await self.storage.deliveries.retry_dead_letters([letters[0].id])

    async def rebuild(self) -> None:
        await self.storage.ledger.catch_up(self.storage.log)
        await self.storage.ledger.rebuild(self.storage.log)

    async def erase(self) -> None:
        at = self.clock.now()
        pseudonym, _ = await erase(self.storage, self.clock)
        self.erasures.append((at, pseudonym))
        self.named = {number: pseudonym if name == NAME else name for number, name in self.named.items()}
        for own in self.nameless.values():
            own.append(pseudonym)

    async def check(self) -> None:
        found = await names(self.storage)
        expected = {number.to_bytes(16, "big"): {name} for number, name in self.named.items()}
        assert expected == found
        counted = Counter(
            ERASED if name and name != NAME else name
            for number, name in self.named.items()
            if number in self.starts
        )
        assert counted == await calls_by_user(self.storage)


@pytest.mark.parametrize("seed", [0, *map(as_proof, range(1, 40))])
@pytest.mark.parametrize("options", part(EVERY_ENGINE, every=3), indirect=True)
async def test_random_histories_of_wrong_clocks(
    storage: Storage, options: StorageOptions, clock: MovedClock, seed: int
) -> None:
    """
    Five erasures among random calls with clocks from -2 to +2 days, late reports, repeats, refused records and
    rebuilds: after each erasure and each second pass, every record and every total has the name as counted by hand.
    26 hours after the last one, no byte has the name.
    """
    use_people(storage)
    await storage.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY, required=True)])
    history = History(storage, clock, random.Random(seed))
    for _ in range(5):
        for _ in range(6):
            await history.step()
        await history.check()
        await history.erase()
        await history.check()
        await continue_due_erasures(storage, clock, device_revoker(""))
        await history.check()
    clock.move(AGAIN_AFTER_S + 1)
    await continue_due_erasures(storage, clock, device_revoker(""))
    await history.check()
    assert [] == [*places(options)]
