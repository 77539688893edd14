"""Runs of known ids, and the index over them."""

from __future__ import annotations

import random
from array import array

import pytest

from spool.log.commits.id_compaction import UncompactedCommits
from spool.log.duplicates import (
    DuplicateIndex,
    decode_log_position,
    encode_log_position,
    id_storage_and_search_hours,
    id_storage_and_search_hours_by_start,
)
from spool.log.runs import IdRun, build_id_run, count_repeats, merge_sorted_ids, pack_ids, unpack_ids
from spool.record import AI_TELEMETRY, NS, TOPICS, UNIT_COST, Inference
from tests.rounds import IS_LONG, part

NOON = 1_790_000_000
HOUR = 3600


def run_of(count: int, seed: int = 0) -> array[int]:
    noise = random.Random(seed)
    return array("Q", sorted(noise.getrandbits(64) for _ in range(count)))


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_marks_never_hide_an_id(count: int) -> None:
    """Marks are a filter in front of a run. Every id of the run passes it, and most other ids do not."""
    ids = run_of(count)
    run = build_id_run(1, 0, 0.0, ids)
    assert all(run.marks[(id & run.mask) >> 3] >> (id & run.mask & 7) & 1 for id in ids)
    strangers = run_of(2000, seed=1)
    passed = sum(run.marks[(id & run.mask) >> 3] >> (id & run.mask & 7) & 1 for id in strangers)
    assert passed < 0.25 * len(strangers)
    assert not any(id in run for id in strangers)


def test_a_merge_is_sorted_and_whole() -> None:
    one, other = run_of(1000), run_of(300, seed=1)
    assert sorted([*one, *other]) == list(merge_sorted_ids(one, other))
    assert list(one) == list(merge_sorted_ids(one, array("Q")))


def test_repeats_are_counted_over_all_runs() -> None:
    """
    An id that is in two runs counts as repeated, because its reports were too far apart for a lookup to join them.
    """
    one, other = run_of(1000), run_of(300, seed=1)
    again = array("Q", sorted([*other, *one[:7], one[0]]))
    assert 0 == count_repeats([one, other])
    assert 8 == count_repeats([one, again])


def test_packed_run_is_read_back_or_refused() -> None:
    """A packed run with a changed byte is refused."""
    ids = run_of(100)
    data, checksum = pack_ids(ids)
    assert ids == unpack_ids(data, checksum)
    assert unpack_ids(data[:-1] + bytes([data[-1] ^ 1]), checksum) is None


def test_places_hold_topic_and_number() -> None:
    for topic in TOPICS:
        assert (topic, 1 << 50) == decode_log_position(encode_log_position(topic, 1 << 50))


@pytest.mark.parametrize(
    ("start_s", "end_s", "hour", "near"),
    [
        (HOUR * 100 + 1800, None, 100, [100]),
        (HOUR * 100 + 60, None, 100, [100, 99]),
        (HOUR * 100 + 3599, None, 100, [100, 101]),
        (HOUR * 99 + 1800, None, 99, [99, 100]),
        (HOUR * 10 + 1800, HOUR * 11, 10, list(range(10, 35))),
        (HOUR * 10 + 60, None, 10, list(range(9, 35))),
        (HOUR * 10 + 3599, None, 10, list(range(10, 35))),
        (None, None, 100, list(range(100, 75, -1))),
        (HOUR * 102, None, 100, list(range(100, 75, -1))),
        (None, HOUR * 102, 100, list(range(100, 75, -1))),
        (None, HOUR * 100 + 1, 100, list(range(100, 75, -1))),
        (None, HOUR * 98 + 5, 98, list(range(100, 73, -1))),
        (None, HOUR * 40 + 5, 40, list(range(64, 15, -1))),
        (-HOUR * 5 + 1800, None, -5, list(range(-5, 20))),
    ],
)
def test_hours_of_a_record(start_s: int | None, end_s: int | None, hour: int, near: list[int]) -> None:
    """
    A lookup covers a quarter of an hour before and after the call, and for a report without a start also the
    day after the start. If the start is unknown or not believed, the lookup covers the day before and after
    the end or arrival.
    """
    times = [None if time_s is None else time_s * NS for time_s in (start_s, end_s)]
    record = Inference(id=b"", source="langfuse", start_time=times[0], end_time=times[1])
    kept, looked = id_storage_and_search_hours(record, HOUR * 100 * NS + 5)
    assert hour == kept
    assert list(looked) == near


def test_the_index_never_forgets_within_its_bounds() -> None:
    """Every added id is found, whatever the folds and merges, and other ids are not."""
    index = DuplicateIndex(b"k" * 32, window_s=7 * 86_400, max_ids=100_000)
    noise = random.Random(5)
    known = [
        (noise.randbytes(16), NOON - noise.randrange(6 * HOUR)) for _ in range(60_000 if IS_LONG else 20_000)
    ]
    for begin in range(0, len(known), 700):
        part = known[begin : begin + 700]
        ids = {
            index.short_id(id): encode_log_position(AI_TELEMETRY, begin + offset + 1)
            for offset, (id, _) in enumerate(part)
        }
        index.add_ids(ids, [start // HOUR for _, start in part], NOON + begin)
        while index.check_compaction_due(NOON + begin, {AI_TELEMETRY: begin - 5000}):
            index.apply_compaction(index.plan_compaction(NOON + begin))

    def found(id: bytes, start: int) -> int | None:
        _, hours = id_storage_and_search_hours_by_start(start * NS, NOON * NS)
        return index.find_log_position((index.short_id(id),), hours, NOON + len(known))

    assert all(found(id, start + noise.randrange(-900, 901)) is not None for id, start in known)
    assert not any(found(noise.randbytes(16), start) is not None for _, start in known[:5000])
    assert len(known) == len(index)
    assert len(index.id_runs()) <= 4 * 8


def test_a_fold_that_is_thrown_away_changes_nothing() -> None:
    index = DuplicateIndex(b"k" * 32, window_s=1000, max_ids=100)
    ids = [bytes([number]) * 16 for number in range(60)]
    index.add_ids(
        {index.short_id(id): encode_log_position(AI_TELEMETRY, 1) for id in ids}, [NOON // HOUR] * 60, NOON
    )
    index.plan_compaction(NOON)
    assert len(index) == 60
    assert len(index.id_runs()) == 0


def test_a_fold_is_planned_while_ids_are_added() -> None:
    """While a fold is planned, newly added ids are in no run, but lookups find them."""
    index = DuplicateIndex(b"k" * 32, window_s=1000, max_ids=100)
    ids = [bytes([number]) * 16 for number in range(40)]

    def add(first: int, last: int) -> None:
        numbers = range(first, last)
        index.add_ids(
            {index.short_id(ids[n]): encode_log_position(AI_TELEMETRY, n + 1) for n in numbers},
            [NOON // HOUR] * len(numbers),
            NOON,
        )

    add(0, 30)
    oldest = index.oldest_ids_to_compact(NOON)
    add(30, 40)
    index.apply_compaction(oldest.plan_compaction())
    assert len(oldest.ids) == 25
    assert len(index) == 40
    assert len(index.id_runs()) == 1
    assert 1 == index.folds
    _, hours = id_storage_and_search_hours_by_start(NOON * NS, NOON * NS)
    assert all(index.find_log_position((index.short_id(id),), hours, NOON) is not None for id in ids)


def test_two_installations_know_ids_by_different_numbers() -> None:
    """
    The number of an id depends on the installation's secret, so a sender that chooses ids cannot cause collisions.
    """
    one, other = (DuplicateIndex(key * 32, window_s=1, max_ids=10) for key in (b"a", b"b"))
    ids = [random.Random(number).randbytes(16) for number in range(1000)]
    assert 1000 == len({one.short_id(id) for id in ids})
    assert not {one.short_id(id) for id in ids} & {other.short_id(id) for id in ids}
    assert all(0 <= one.short_id(id) < 2**64 for id in ids)


def test_a_loaded_run_is_searched_without_marks() -> None:
    """A run from disk has no marks, but all its ids are found."""
    index = DuplicateIndex(b"k" * 32, window_s=1000, max_ids=100)
    id = b"x" * 16
    index.load_id_runs([IdRun(7, NOON // HOUR, NOON, array("Q", [index.short_id(id)]))], 0.0)
    _, hours = id_storage_and_search_hours_by_start(NOON * NS, NOON * NS)
    assert 0 == index.find_log_position((index.short_id(id),), hours, NOON)
    assert index.find_log_position((index.short_id(id),), hours, NOON + 1001) is None


def test_a_fold_gives_each_hour_its_run() -> None:
    index = DuplicateIndex(b"secret", window_s=HOUR, max_ids=100)
    ids = {id: encode_log_position(AI_TELEMETRY, id + 1) for id in (4, 1, 2, 3, 0)}
    index.add_ids(ids, [NOON // HOUR + id % 2 for id in ids], NOON)
    assert [[0, 2, 4], [1, 3]] == [
        list(run.ids) for run in index.oldest_ids_to_compact(NOON).plan_compaction().added
    ]


@pytest.mark.parametrize("seed", part(range(3), every=3))
def test_folds_equal_the_plain_rule(seed: int) -> None:
    """
    After each fold, the runs of an hour have its ids, marks have their bits, and calls keep their places. Some
    folds are so small that their places join the block before.
    """
    chance = random.Random(seed)
    index = DuplicateIndex(b"k" * 32, window_s=HOUR, max_ids=1_000_000)
    hour_of, places = dict[int, int](), dict[int, int]()
    for number in range(12):
        ids = {
            chance.getrandbits(64): chance.choice(
                (0, encode_log_position(AI_TELEMETRY, at), encode_log_position(UNIT_COST, at))
            )
            for at in range(1, chance.choice((2, 300, 9000)))
        }
        hours = [NOON // HOUR + chance.randrange(1 + number % 3) for _ in ids]
        index.add_ids(ids, hours, NOON)
        hour_of.update(zip(ids, hours, strict=True))
        places.update({id: at for id, at in ids.items() if at and decode_log_position(at)[0] == AI_TELEMETRY})
        index.apply_compaction(index.plan_compaction(NOON, dict.fromkeys(TOPICS, 10_000)))
        for hour, runs in index.id_runs_by_hour().items():
            assert sorted(id for id in hour_of if hour_of[id] == hour) == sorted(
                id for run in runs for id in run.ids
            )
            assert all(list(run.ids) == sorted(run.ids) and run.marks == plain_marks(run) for run in runs)
        assert places == {id: at for id in hour_of if (at := index.find_log_position_in_memory(id))}


def plain_marks(run: IdRun) -> bytes:
    marks = bytearray((run.mask + 1) // 8)
    for id in run.ids:
        marks[(id & run.mask) // 8] |= 1 << (id & run.mask) % 8
    return bytes(marks)


def test_id_rows_are_deleted_once_sorted_lists_have_all_ids() -> None:
    """
    When all ids of a commit are in runs, the rows stored for them are deleted. Commits of one kind of record
    do not delete rows of another kind.
    """
    unfolded = UncompactedCommits()
    unfolded.note_commit(2, {AI_TELEMETRY: 1})
    unfolded.note_commit(3, {AI_TELEMETRY: 3, UNIT_COST: 1})
    unfolded.note_commit(0, {UNIT_COST: 2})
    unfolded.note_commit(1, {UNIT_COST: 7})
    seen = [unfolded.first_uncompacted_number_by_kind(taken) for taken in range(7)]
    assert 2 * [{AI_TELEMETRY: 1, UNIT_COST: 1}] == seen[:2]
    assert 3 * [{AI_TELEMETRY: 3, UNIT_COST: 1}] == seen[2:5]
    assert [{UNIT_COST: 7}, {}] == seen[5:]
    unfolded.note_compacted_ids(3)
    assert [{AI_TELEMETRY: 3, UNIT_COST: 1}, {UNIT_COST: 7}] == [
        unfolded.first_uncompacted_number_by_kind(n) for n in (0, 2)
    ]
    unfolded.note_compacted_ids(2)
    assert {UNIT_COST: 7} == unfolded.first_uncompacted_number_by_kind()
