"""
Cost of the duplicate check in microseconds per lookup and bytes per id, compared with a plain set of
the same ids.

`TOLLHOUSE_PROOFS=1` fills a whole window of ten million ids over seven days; the default is a small round.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

import pytest

from spool.identity import RecordIdentity
from spool.log.duplicates import DuplicateIndex, encode_log_position, id_storage_and_search_hours_by_start
from spool.record import AI_TELEMETRY, NS
from tests.rounds import IS_LONG

pytestmark = pytest.mark.bench

IDS = 10_000_000 if IS_LONG else 200_000
DAYS = 7
BEGIN = 1_790_000_000
GROUP = 8192
LOOKUPS = 100_000 if IS_LONG else 20_000
TARGET_BYTES = 100 * 2**20
MOST_SETS = 220  # limit as a multiple of a Python set's time, generous for a busy machine; measured: 22


def start_of(number: int) -> int:
    """Spread calls evenly over the window."""
    return (BEGIN + number * DAYS * 86_400 // IDS) * NS


def id_of(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def filled() -> DuplicateIndex:
    index = DuplicateIndex(b"k" * 32, window_s=DAYS * 86_400, max_ids=IDS)
    for begin in range(0, IDS, GROUP):
        numbers = range(begin, min(IDS, begin + GROUP))
        now = start_of(numbers[-1]) / NS
        ids = {
            index.short_id(id_of(number)): encode_log_position(AI_TELEMETRY, number + 1) for number in numbers
        }
        index.add_ids(ids, [start_of(number) // (3600 * NS) for number in numbers], now)
        while index.check_compaction_due(now, {AI_TELEMETRY: IDS}):
            index.apply_compaction(index.plan_compaction(now))
    return index


def best_us(work: Callable[[], object], times: int) -> float:
    """Return processor microseconds per call, the best of five rounds because noise only adds time."""
    rounds = []
    for _ in range(5):
        began = time.thread_time()
        work()
        rounds.append(time.thread_time() - began)
    return min(rounds) / times * 1e6


def bytes_of(index: DuplicateIndex) -> int:
    """
    Return the bytes of runs and their marks by their buffers. The newest ids are a dict, at a measured
    150 bytes each.
    """
    runs = index.id_runs()
    in_runs = sum(len(run.ids) for run in runs)
    return sum(8 * len(run.ids) + len(run.marks) for run in runs) + 150 * (len(index) - in_runs)


def test_bench_duplicates() -> None:
    """
    Live traffic with one repeat in five, from anywhere in the window, stays within the target per record.
    """
    gc.collect()
    index = filled()
    now = BEGIN + DAYS * 86_400
    numbers = random.Random(1).sample(range(IDS), LOOKUPS)
    new = [(RecordIdentity(id_of(IDS + number)), now * NS) for number in numbers]
    known = [(RecordIdentity(id_of(number)), start_of(number)) for number in numbers]
    plain = {identity.id for identity, _ in known}

    def look_up(asked: list[tuple[RecordIdentity, int]]) -> int:
        found = 0
        for identity, start in asked:
            _, hours = id_storage_and_search_hours_by_start(start, now * NS)
            found += index.find_log_position((index.short_id(identity.id),), hours, now) is not None
        return found

    def look_up_in_a_set(asked: list[tuple[RecordIdentity, int]]) -> int:
        return sum(identity.id in plain for identity, _ in asked)

    assert look_up(known) == LOOKUPS
    assert look_up(new) == 0
    set_us = best_us(lambda: look_up_in_a_set(new), LOOKUPS)
    new_us, known_us = best_us(lambda: look_up(new), LOOKUPS), best_us(lambda: look_up(known), LOOKUPS)
    mixed_us = 0.8 * new_us + 0.2 * known_us
    per_id = bytes_of(index) / len(index)
    print(
        f"\nduplicates: {len(index):,} ids in {len(index.id_runs())} runs: {mixed_us:.2f} us a record "
        f"(new {new_us:.2f}, known {known_us:.2f}), {mixed_us / set_us:.1f} x a set of {LOOKUPS:,} "
        f"({set_us:.3f} us); "
        f"{per_id:.1f} bytes an id, {bytes_of(index) / 2**20:.1f} MiB"
    )
    assert mixed_us <= MOST_SETS * set_us
    if IS_LONG:
        assert bytes_of(index) <= TARGET_BYTES
