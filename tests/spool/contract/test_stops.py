"""
After any kind of stop, the next start knows everything that was known. For all topics, orders and numbers of
commits, a repeat adds nothing and a used idempotency key still identifies its body.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spool.engines import POSTGRES, SQLITE, load_engine, open_storage
from spool.errors import KeyReused
from spool.identity import (
    RecordIdentity,
    build_request_dedup_keys,
    dedup_key_of_metric_point,
    dedup_key_of_request_item,
)
from spool.log import duplicates
from spool.log.protocols import RecordLog
from spool.log.values import Submission
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    NS,
    TOKEN_UNIT,
    TOPICS,
    UNIT_COST,
    USAGE_EVENTS,
    HourlyBillingFile,
    KeyedRecord,
    UnitCostOperation,
    UsageEvent,
    UsageMetric,
)
from spool.settings import SpoolSettings
from spool.storage import Storage, StorageOptions
from spool.streams import ALLOCATION, SUM
from spool.transfer import backups
from spool.transfer.copying import copy_storage
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import NOON, assert_books_balance, call, submission, topic_terms
from tests.spool.contract.open_records.test_names_told_later import report
from tests.spool.postgres_cluster import Schema

CLOSED, KILLED, RESTORED, COPIED = "closed", "killed", "restored", "copied"
STOPS = [
    (SQLITE, CLOSED),
    (POSTGRES, CLOSED),
    (SQLITE, RESTORED),
    (SQLITE, COPIED),
    (SQLITE, KILLED),
    (POSTGRES, KILLED),
]
BATCH = 8
# Numbers of reports of the first and of the second topic, below and above the size of a batch.
SIZES = [(1, 2), (3, 2), (2 * BATCH + 5, 2)]
RETENTION_S, HOLD_S = 3600, 10


class Installation:
    """A storage that a test stops in some way and starts again, several times."""

    def __init__(self, options: StorageOptions, schemas: Callable[[], Schema] | None) -> None:
        self._options = options
        self._schemas = schemas
        self._root = options.directory
        self._lives = 0
        self._open: list[Storage] = []

    @property
    def log(self) -> RecordLog:
        return self._open[-1].log

    async def start(self) -> None:
        self._open.append(await open_storage(self._options, engine=self._options.storage.engine))

    async def stop_and_start(self, stop: str) -> None:
        self._lives += 1
        place = self._root / f"life-{self._lives}"
        if stop == RESTORED:
            backup = self._root / f"backup-{self._lives}"
            await backups.back_up(self._open[-1].copy, backup, version="1", made_at="", records={})
            backups.flush_and_rename_draft(
                backups.unpack_backup(backup, backups.read_checked_manifest(backup), place), place
            )
        elif stop == KILLED and self._options.storage.engine == SQLITE:
            killed(self._options.directory, place)
        elif stop == KILLED:
            place.mkdir()
        else:
            place = await self.close()
        await self.start_again(stop, place)

    async def start_again(self, stop: str, place: Path | None = None) -> None:
        """Start again. If the way to stop is COPIED, start on a copy of the directory."""
        place = place or self._options.directory
        if stop == COPIED:
            place = await self._copied_there_and_back()
        self._options = replace(self._options, directory=place)
        await self.start()

    async def _copied_there_and_back(self) -> Path:
        assert self._schemas is not None
        node, back = (self._root / f"{name}-{self._lives}" for name in ("node", "back"))
        node.mkdir()
        storage = self._schemas().settings(node)
        assert storage.secret_file is not None
        storage.secret_file.unlink()
        database = replace(self._options, directory=node, storage=storage)
        files = replace(self._options, directory=back)
        for source, target in ((self._options, database), (database, files)):
            ends = [load_engine(one.storage.engine) for one in (source, target)]
            await copy_storage(source, ends[0], target, ends[1])
        return back

    async def close(self) -> Path:
        """Close everything and return the directory of the last storage."""
        while self._open:
            await self._open.pop().close()
        return self._options.directory


@pytest.fixture
async def installation(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    """
    An installation for the engine and the kind of stop of the test, with batches of few ids unless a test
    needs the usual size.
    """
    engine, stop = request.getfixturevalue("ends")
    directory = tmp_path / "data"
    directory.mkdir()
    options = StorageOptions(
        directory=directory, settings=SpoolSettings(hold=HOLD_S, retention=RETENTION_S), clock=clock
    )
    if engine == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        options = replace(options, storage=schema.settings(directory))
    monkeypatch.setattr(duplicates, "BATCH", BATCH)
    one = Installation(options, request.getfixturevalue("unmade_schemas") if stop == COPIED else None)
    await one.start()
    yield one
    await one.close()


def keyed(topic: str, key: int, body: str) -> Submission:
    """Return a request of one record under an idempotency key."""
    names = build_request_dedup_keys("sender", topic, f"key {key}", body.encode())
    id = dedup_key_of_request_item(names, 0)
    record: KeyedRecord
    if topic == UNIT_COST:
        record = UnitCostOperation(
            id=id, stream="calls", stream_type=ALLOCATION, operation=SUM, start_time=NOON * NS, granularity="DAILY",
            element_name=f"x{key}", value=body,
        )  # fmt: skip
    elif topic == BILLING_DATA:
        record = HourlyBillingFile(
            id=id, connection_id="c", month="2026-09", operation="sum", body=b'{"data": []}'
        )
    else:
        record = UsageEvent(id=id, source="app", event_id=str(key), event_type="page", start_time=NOON * NS)
    return Submission(
        topic=topic, received=1, records=[record], identities=[RecordIdentity(id)], request=names
    )


def sent(topic: str, number: int) -> Submission:
    return submission([call(number)]) if topic == AI_TELEMETRY else keyed(topic, number, "1")


async def accepted(record_log: RecordLog) -> dict[str, int]:
    return {topic: (await topic_terms(record_log, topic)).get("accepted", 0) for topic in TOPICS}


Reports = Mapping[str, int]  # number of reports per topic, one topic after the other


async def send(record_log: RecordLog, reports: Reports) -> None:
    for topic, count in reports.items():
        for number in range(count):
            await record_log.append_submission(sent(topic, number))


async def assert_all_is_known(record_log: RecordLog, reports: Reports) -> None:
    """Assert that a repeat of everything adds nothing, and that another body under a used key is refused."""
    before = await accepted(record_log)
    await send(record_log, reports)
    for topic, count in reports.items():
        if topic != AI_TELEMETRY:
            for number in range(count):
                with pytest.raises(KeyReused):
                    await record_log.append_submission(keyed(topic, number, "2"))
    assert before == await accepted(record_log)


PAIRS = [*permutations(TOPICS, 2)]
CASES = [*product(STOPS, PAIRS, SIZES)]


@pytest.mark.proves("known ids after a stop")
@pytest.mark.parametrize(("ends", "topics", "sizes"), part(CASES, every=74))
async def test_what_a_stop_knew_the_start_knows(
    installation: Installation,
    clock: MovedClock,
    ends: tuple[str, str],
    topics: tuple[str, str],
    sizes: tuple[int, int],
) -> None:
    """
    All ids are known after one stop, after a second stop, and after retention deleted the entries. An entry
    is deleted only when its ids are stored elsewhere.
    """
    reports = dict(zip(topics, sizes, strict=True))
    await send(installation.log, reports)
    clock.move(HOLD_S + 1)
    for _ in range(2):
        await installation.stop_and_start(ends[1])
        await assert_all_is_known(installation.log, reports)
    clock.move(RETENTION_S + 1)
    while await installation.log.run_retention():
        pass
    await assert_all_is_known(installation.log, reports)
    await installation.stop_and_start(ends[1])
    await assert_all_is_known(installation.log, reports)
    assert dict.fromkeys(TOPICS, 0) | reports == await accepted(installation.log)
    await assert_books_balance(installation.log)


def delta(number: int) -> Submission:
    """Return a counter that states the increase since its last report."""
    id = dedup_key_of_metric_point(b"series", NOON * NS, (NOON + number) * NS)
    record = UsageMetric(id=id, source="otel", name="tokens", unit=TOKEN_UNIT, value=5, start_time=NOON * NS)
    return submission([(record, RecordIdentity(id))])


def named(number: int, *names: bytes, **fields: Any) -> Submission:
    return submission([report(number, *names, **fields)])


EVERY_KIND: dict[str, list[Submission]] = {
    "a call": [submission([call(1)])],
    "a counter": [delta(1), delta(2)],
    "a name that a report told later": [
        named(1, b"first name......"),
        named(2, b"first name......", b"later name......"),
    ],
    "the name that was told later": [named(3, b"later name......")],
    "a late correction": [
        submission([call(4, cost=None)]),
        submission([call(4, cost="0.5", cost_source="reported")]),
    ],
    "an event": [keyed(USAGE_EVENTS, 1, "1")],
    "a unit cost": [keyed(UNIT_COST, 1, "1")],
    "a billing drop": [keyed(BILLING_DATA, 1, "1")],
}
# a call reported under this name is a separate call unless the name is known
STATED_AGAIN = {"the name that was told later"}
ENDS_ONCE = part([*product(STOPS, [False, True])], every=5)


@pytest.mark.parametrize(("ends", "is_reversed"), ENDS_ONCE)
async def test_nothing_of_any_kind_counts_again_after_a_stop(
    installation: Installation, clock: MovedClock, ends: tuple[str, str], is_reversed: bool
) -> None:
    """
    After a stop, no call, counter, further name, late correction, event, unit cost or billing drop counts
    again, in either order.
    """
    kinds = [kind for kind in EVERY_KIND if kind not in STATED_AGAIN]
    for kind in reversed(kinds) if is_reversed else kinds:
        for one in EVERY_KIND[kind]:
            await installation.log.append_submission(one)
            clock.move(HOLD_S + 1)
    before = await accepted(installation.log)
    for _ in range(2):
        await installation.stop_and_start(ends[1])
        for kind, submissions in EVERY_KIND.items():
            for one in submissions:
                await installation.log.append_submission(one)
            assert before == await accepted(installation.log), kind
        await assert_books_balance(installation.log)


@pytest.mark.parametrize("ends", [STOPS[0], pytest.param(STOPS[1], marks=pytest.mark.proof)])
@pytest.mark.parametrize("seed", part(range(9), every=9))
async def test_whatever_came_before_a_stop_is_known_after_it(
    installation: Installation, clock: MovedClock, ends: tuple[str, str], seed: int
) -> None:
    """Reports of all topics arrive in random order, mixed with later names, folds and retention."""
    chance = random.Random(seed)
    known: list[Submission] = []
    for number in range(150):
        kind = chance.choices(["new", "again", "name", "time", "retention", "stop"], [60, 8, 8, 12, 4, 4])[0]
        if kind == "new":
            topic = chance.choice(TOPICS)
            many = [call(1000 * number + each) for each in range(chance.choice([1, 1, 3 * BATCH]))]
            known.append(submission(many) if topic == AI_TELEMETRY else keyed(topic, number, "1"))
            await installation.log.append_submission(known[-1])
        elif kind == "name":
            name = f"name {number}".ljust(16).encode()
            known += [named(number, name), named(number + 500, name, name[::-1])]
            for one in known[-2:]:
                await installation.log.append_submission(one)
        elif kind == "again" and known:
            await installation.log.append_submission(chance.choice(known))
        elif kind == "time":
            clock.move(chance.choice([1, HOLD_S + 1, RETENTION_S // 2]))
        elif kind == "retention":
            await installation.log.run_retention()
        elif kind == "stop":
            await installation.stop_and_start(chance.choice([CLOSED, KILLED]))
            before = await accepted(installation.log)
            for one in known:
                await installation.log.append_submission(one)
            assert before == await accepted(installation.log)
    await assert_books_balance(installation.log)


@pytest.mark.proof
@pytest.mark.parametrize("ends", [(SQLITE, CLOSED)])
async def test_more_ids_than_a_batch_are_known_after_a_stop(
    installation: Installation, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, str]
) -> None:
    """
    With batches of their real size, a part of the calls is in runs, and the event is among the newest ids.
    All of them are known after a stop.
    """
    monkeypatch.undo()
    await installation.stop_and_start(CLOSED)
    calls = [call(number) for number in range(duplicates.BATCH + 2000)]
    event = keyed(USAGE_EVENTS, 1, "1")
    parts = [
        submission(calls[:5000]),
        event,
        *(submission(calls[at : at + 4000]) for at in range(5000, len(calls), 4000)),
    ]
    for one in parts:
        await installation.log.append_submission(one)
    clock.move(HOLD_S + 1)
    for _ in range(2):
        await installation.stop_and_start(CLOSED)
        for one in parts:
            await installation.log.append_submission(one)
        assert [len(calls), 1] == list((await accepted(installation.log)).values())[:2]


@pytest.mark.parametrize("ends", [(SQLITE, CLOSED)])
async def test_a_recount_names_what_counted_twice(
    installation: Installation, clock: MovedClock, ends: tuple[str, str]
) -> None:
    """
    A recount names calls that counted twice because a start skipped ids. The test causes this by setting the stored
    position of all topics too high.
    """
    reports = {USAGE_EVENTS: 1, AI_TELEMETRY: 2, UNIT_COST: 1}
    await send(installation.log, reports)
    clock.move(HOLD_S + 1)
    directory = await installation.close()
    with closing(sqlite3.connect(directory / "spool.sqlite")) as connection, connection:
        left = {"through": {**reports, USAGE_EVENTS: 0}, "covered_since": 0.0}
        connection.execute("UPDATE facts SET value = ? WHERE name = 'ids'", (msgspec.msgpack.encode(left),))
    await installation.start_again(CLOSED)
    await send(installation.log, reports)
    for _ in range(2):
        verified = await installation.log.verify()
        assert [] == list(verified.imbalances)
        assert {AI_TELEMETRY: [3, 4], UNIT_COST: [2]} == {
            topic: list(twice.numbers) for topic, twice in verified.accepted_twice.items()
        }
        await installation.stop_and_start(CLOSED)
