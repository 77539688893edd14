"""The memory cache of recently read entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from spool.log.entries import codec
from spool.log.entries.cache import (
    RAW_BYTES,
    UNREAD_SHARE,
    CachedEntry,
    CommittedEntry,
    EntryCache,
    build_committed_entries,
)
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, TOPICS, USAGE_EVENTS, Inference, Record
from spool.settings import SpoolSettings
from spool.sqlite.log import log, store
from spool.sqlite.log.entries import read_entries
from spool.sqlite.spool import open_spool
from tests.exporters.spools import Spooled, calls
from tests.integration.spool.conftest import Starter
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, everything


async def test_entries_that_retention_removed_are_let_go(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If retention deletes entries, both caches forget them, that of readers and that of repeats. Remaining entries
    stay in both.
    """
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
    assert 10 == await spool.log.run_retention()
    assert 1 == len(await everything(spool.log))
    assert [0, 1] == sorted(len(cache) for cache in caches)
    assert [0, 1] == sorted(cache.bytes > 0 for cache in caches)


async def test_cache_limit_counts_memory_beyond_the_bytes_of_records(start: Starter) -> None:
    """
    An entry of many small records counts for more than its bytes. The entry that was read last stays,
    whatever its size.
    """
    spool = await start()
    await add(spool.log, *(call(number) for number in range(100)))
    await add(spool.log, call(100))
    cache = EntryCache(0)
    await spool.database.read(
        partial(read_entries, topic=AI_TELEMETRY, first_number=1, last_number=100, cache=cache)
    )
    assert len(cache) == 1
    assert cache.bytes > 100 * RAW_BYTES
    await spool.database.read(
        partial(read_entries, topic=AI_TELEMETRY, first_number=1, last_number=101, cache=cache)
    )
    assert len(cache) == 1
    assert cache.bytes < 100 * RAW_BYTES


@pytest.mark.parametrize("removed", ["for room", "for the same anew"])
async def test_counted_cache_bytes_equal_those_of_cached_entries(removed: str) -> None:
    """
    The counted bytes equal those of the cached entries, even if an entry is dropped before its records are decoded.
    """
    record, _ = call(1)
    ((_, packed),) = codec.pack_in_slices([record])
    cache = EntryCache(0 if removed == "for room" else 1 << 20)
    entries = [cache.put_entry(TOPICS[0], first, codec.split_records(packed), packed) for first in range(6)]
    if removed == "for the same anew":
        for first in range(6):
            cache.put_entry(TOPICS[0], first, codec.split_records(packed), packed)
    before = cache.bytes
    for entry in entries[:-1]:
        assert [record] == cache.decode_records(entry, 0, 1)
    assert before == cache.bytes


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    decoded: list[int] = []
    decode = codec.decode_record

    def counted(raw: msgspec.Raw) -> Record:
        decoded.append(1)
        return decode(raw)

    monkeypatch.setattr(codec, "decode_record", counted)
    return decoded


def numbers(entries: Sequence[LogEntry]) -> list[int | None]:
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
    """Beyond the limit, the entries that were read first are dropped."""
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


def committed(first: int, records: int = 100) -> list[CommittedEntry]:
    calls: list[Record] = [call(number)[0] for number in range(first, first + records)]
    return list(build_committed_entries(AI_TELEMETRY, first, calls, caches_copies=True))


def firsts(cache: EntryCache) -> list[int]:
    return sorted(cache.entries(AI_TELEMETRY))


def find(cache: EntryCache, entry: CommittedEntry) -> CachedEntry | None:
    return cache.find(entry.topic, entry.first, entry.body.checksum)


async def test_unread_entries_have_a_share_of_the_cache_and_are_not_replaced() -> None:
    """
    If readers do not keep up, newer entries are not added. Entries that a reader has reached or left out make room.
    """
    entries = [entry for number in range(8) for entry in committed(1 + 100 * number)]
    size = max(entry.cached.size for entry in entries)
    cache = EntryCache(int(4.5 * size / UNREAD_SHARE))
    find(cache, entries[0])
    cache.add_committed(entries[:6])
    assert not find(cache, entries[4])
    assert not find(cache, entries[5])
    assert all(find(cache, entry) is entry.cached for entry in entries[:4])
    cache.add_committed(entries[4:8])
    assert 7 == len(cache)
    assert not find(cache, entries[0])  # read first
    assert find(cache, entries[6])  # entries 4 and 5 are left out
    assert [101, 201, 301, 401, 501, 601] == firsts(cache)
    assert cache.bytes == sum(entry.cached.size for entry in entries[1:])


async def test_cache_without_readers_stores_no_entries() -> None:
    """A gateway that neither delivers nor counts, because another one does, stores no entries for readers."""
    entries = committed(1)
    cache = EntryCache(1 << 20)
    assert not cache.needs_entries_of_new_commits
    cache.add_committed(entries)
    assert 0 == len(cache)
    cache.find(USAGE_EVENTS, 1, 0)
    cache.add_committed(entries)  # nobody reads this topic, so its entries are not cached
    assert 0 == len(cache) == cache.bytes


async def test_an_entry_is_found_only_if_the_storage_has_the_same_bytes() -> None:
    """
    The cache returns an entry only if the storage has the same bytes. A number may be assigned again after a failed
    commit or by another gateway, for other records.
    """
    (entry,), (other,) = committed(1), committed(1, records=99)
    cache = EntryCache(1 << 20)
    assert not find(cache, entry)
    cache.add_committed([entry])
    assert find(cache, entry) is entry.cached
    assert not find(cache, other)


async def test_a_commit_that_was_rolled_back_is_not_read(
    start: Starter, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    After a commit was rolled back, its records are not read from the cache. The next commit gets the same numbers,
    and readers see its records.
    """
    spool = await start(hold=60)
    await add(spool.log, call(0))
    clock.move(61)
    assert 1 == len(await everything(spool.log))
    with monkeypatch.context() as patched:
        patched.setattr(store, "accounting", None)  # the entries are written by then
        with pytest.raises(AttributeError):
            await add(spool.log, call(1, user="lost"))
    record, known_as = call(2, user="kept")
    await add(spool.log, (record, known_as))
    clock.move(61)
    assert [record] == (await everything(spool.log))[1:]


async def test_an_entry_that_is_set_aside_is_not_read_from_the_cache(
    start: Starter, clock: MovedClock
) -> None:
    """
    An entry that is set aside is no longer read from the cache. Readers get committed records until `verify` finds
    that the storage has lost them.
    """
    spool = await start(hold=60)
    for number in range(3):
        await add(spool.log, call(number))
        clock.move(61)
        assert number + 1 == len(await everything(spool.log))

    def damage(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE entries SET body = zeroblob(9) WHERE first = 3")

    await spool.database.transaction(damage)
    assert None not in await everything(spool.log)
    await spool.log.verify()
    assert 1 == (await spool.log.books()).topics[AI_TELEMETRY]["damaged"]
    assert [None] == (await everything(spool.log))[2:]
