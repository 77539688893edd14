"""Readers that keep up get the entries of a commit from memory, exactly as they are stored."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spool.log.entries import codec
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import EntryBody
from spool.log.protocols import RecordLog
from spool.packed.native import NativeModule
from spool.record import AI_TELEMETRY, Inference, Record, UsageMetric
from tests.exporters.plain_spans import random_calls
from tests.exporters.spools import Spooled, record_id
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import add, call, submission
from tests.spool.test_native import module


def count_bodies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the place of each entry whose stored body is read."""
    places: list[str] = []
    check = codec.decompress_entry

    def counted(body: EntryBody, place: str) -> bytes:
        places.append(place)
        return check(body, place)

    monkeypatch.setattr(codec, "decompress_entry", counted)
    return places


async def read(
    record_log: RecordLog, first: int, last: int, native: NativeModule | None = None
) -> list[Record | None]:
    return [
        record
        for entry in await record_log.read(AI_TELEMETRY, first, last, native=native)
        for record in entry.records
    ]


def is_storable(record: Record) -> bool:
    try:
        codec.encode_records([record])
    except (OverflowError, UnicodeEncodeError):
        return False
    return True


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_reader_that_keeps_up_reads_no_bodies(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, *, is_packed: bool
) -> None:
    """
    A reader that keeps up gets entries from memory. Only the first entry is read from the storage, because nothing
    has been read before it.
    """
    opened: Any = await open_spool(hold=60)
    packed = NativeModule(module()) if is_packed else None
    places = count_bodies(monkeypatch)
    for number in range(1, 9):
        record, known_as = call(number)
        await add(opened.log, (record, known_as))
        clock.move(61)
        assert [record] == await read(opened.log, number, number, packed)
    assert ["ai-telemetry:1:1"] == places


@pytest.mark.parametrize("seed", part(range(3), every=3))
async def test_entries_in_memory_equal_those_in_the_storage(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, *, seed: int
) -> None:
    """Commits of random calls and counters, with later reports, are read the same from memory and storage."""
    opened: Any = await open_spool(hold=60)
    spooled = Spooled(log=opened.log, deliveries=opened.deliveries, clock=clock)
    chance = random.Random(seed)
    calls = [record for record in random_calls(seed, 300) if is_storable(record)]
    places = count_bodies(monkeypatch)
    done = 0
    while calls:
        part: list[Record] = [calls.pop() for _ in range(min(len(calls), chance.randrange(1, 40)))]
        for number, record in enumerate(part):
            record.id = record_id(1000 * len(calls) + number)
            if chance.random() < 0.1:
                part[number] = UsageMetric(id=record.id, source="s", name="n", value=number)
        await spooled.add(part)
        for record in part:
            if isinstance(record, Inference) and chance.random() < 0.1:
                report = Inference(id=record.id, source=record.source, user="later", team="later")
                await spooled.add([report])
        clock.move(61)
        newest = opened.log.lowest_open_number(AI_TELEMETRY) - 1
        places.clear()
        found = await read(opened.log, done + 1, newest)
        packed = await read(opened.log, done + 1, newest, NativeModule(module()))
        assert done == 0 or not places
        with monkeypatch.context() as patched:
            patched.setattr(EntryCache, "find", lambda *key: None)
            stored = await read(opened.log, done + 1, newest)
        assert newest - done == len(found)
        assert list(map(repr, stored)) == list(map(repr, found)) == list(map(repr, packed))
        done = newest


async def test_a_record_that_its_sender_changes_after_the_commit_is_read_as_it_is_stored(
    open_spool: Opener, clock: MovedClock
) -> None:
    opened: Any = await open_spool(hold=60)
    await add(opened.log, call(0))
    clock.move(61)
    await read(opened.log, 1, 1)
    record, known_as = call(1, user="first")
    kept = submission([(record, known_as)])
    await opened.log.append_submission(kept)
    record.user = "changed"
    record.id = b"changed"
    clock.move(61)
    (found,) = await read(opened.log, 2, 2)
    assert isinstance(found, Inference)
    assert ("first", known_as.id) == (found.user, found.id)
