"""The memory cache of recently read entries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from spool.log.entries import codec
from spool.log.entries.cache import RAW_BYTES, EntryCache
from spool.log.values import Entry
from spool.record import AI_TELEMETRY, TOPICS, Inference, Record
from spool.settings import SpoolSettings
from spool.sqlite import open_spool
from spool.sqlite.log import log
from spool.sqlite.log.entries import read_entries
from tests.exporters.spools import Spooled, calls
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, everything


async def test_entries_that_retention_removed_are_let_go(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remaining entries stay in both caches, that of readers and that of repeats."""
    caches = []

    def made(max_bytes: int) -> EntryCache:
        caches.append(EntryCache(max_bytes))
        return caches[-1]

    monkeypatch.setattr(log, "EntryCache", made)
    spool = await start(retention=60, late_window=0)
    for number in range(10):
        await add(spool.log, call(number))
        # this repeated report makes the log look up the stored record
        await add(spool.log, call(number, output_tokens=7))
    clock.move(120)
    await add(spool.log, call(10, at=clock.now()))
    assert 11 == len(await everything(spool.log))
    assert 11 == max(len(cache) for cache in caches)
    assert 10 == await spool.log.retain()
    assert 1 == len(await everything(spool.log))
    assert [0, 1] == sorted(len(cache) for cache in caches)
    assert [0, 1] == sorted(cache.bytes > 0 for cache in caches)


async def test_the_cache_is_bounded_with_what_records_take_beside_their_bytes(start: Starter) -> None:
    """
    An entry of many small records counts for more than its bytes. The entry that was read last stays,
    whatever its size.
    """
    spool = await start()
    await add(spool.log, *(call(number) for number in range(100)))
    await add(spool.log, call(100))
    cache = EntryCache(0)
    await spool.database.read(partial(read_entries, topic=AI_TELEMETRY, first=1, last=100, cache=cache))
    assert len(cache) == 1
    assert cache.bytes > 100 * RAW_BYTES
    await spool.database.read(partial(read_entries, topic=AI_TELEMETRY, first=1, last=101, cache=cache))
    assert len(cache) == 1
    assert cache.bytes < 100 * RAW_BYTES


@pytest.mark.parametrize("removed", ["for room", "all", "for the same anew"])
async def test_what_had_to_go_before_it_was_decoded_takes_no_room(removed: str) -> None:
    """
    The counted bytes equal those of the cached entries, even if an entry is dropped before its records are decoded.
    """
    record, _ = call(1)
    ((_, packed),) = codec.cut([record])
    cache = EntryCache(0 if removed == "for room" else 1 << 20)
    entries = [cache.put(TOPICS[0], first, codec.raws(packed), packed) for first in range(6)]
    if removed == "all":
        cache.clear()
    if removed == "for the same anew":
        for first in range(6):
            cache.put(TOPICS[0], first, codec.raws(packed), packed)
    before = cache.bytes
    for entry in entries[:-1]:
        assert [record] == cache.records(entry, 0, 1)
    assert before == cache.bytes


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    decoded: list[int] = []
    decode = codec.record

    def counted(raw: msgspec.Raw) -> Record:
        decoded.append(1)
        return decode(raw)

    monkeypatch.setattr(codec, "record", counted)
    return decoded


def numbers(entries: Sequence[Entry]) -> list[int | None]:
    records = (record for entry in entries for record in entry.records)
    return [record.input_tokens for record in records if isinstance(record, Inference)]


async def test_records_are_decoded_once_for_all_readers(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Records are decoded once, whether entries are read whole or in parts, in any order. A read of a part
    decodes only that part.
    """
    spool = await start(hold=0)
    await Spooled(log=spool.log, deliveries=spool.deliveries, clock=clock).add(calls(1, 100))
    decoded = count_decoded(monkeypatch)
    assert [40, 41] == numbers(await spool.log.read(AI_TELEMETRY, 40, 41))
    assert 2 == len(decoded)
    for _ in range(3):
        assert list(range(1, 101)) == numbers(await spool.log.read(AI_TELEMETRY, 1, 100))
    assert 100 == len(decoded)


async def test_the_memory_of_what_was_read_is_bounded(
    tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit, the least recently read entries are dropped."""
    spool = await open_spool(tmp_path, settings=SpoolSettings(hold=0), clock=clock, cache_bytes=10_000)
    for first in range(1, 1001, 10):
        await Spooled(log=spool.log, deliveries=spool.deliveries, clock=clock).add(calls(first, first + 9))
    decoded = count_decoded(monkeypatch)
    assert list(range(1, 1001)) == numbers(await spool.log.read(AI_TELEMETRY, 1, 1000))
    assert 1000 == len(decoded)
    assert 0 < (await spool.log.stats()).cache_bytes <= 10_000
    await spool.log.read(AI_TELEMETRY, 991, 1000)
    assert 1000 == len(decoded)
    await spool.log.read(AI_TELEMETRY, 1, 10)
    assert 1010 == len(decoded)
    await spool.close()
