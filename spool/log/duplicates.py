"""
The duplicate window: the ids of recent records, eight bytes each.

A dict has the newest ids and the positions (topic and number in one integer) of their records. A compaction moves the
oldest of these ids into runs, which are sorted lists of ids whose calls started in the same hour. Runs of an
hour are merged.

A run never changes, so other threads may read it, and a plan of new runs can be dropped if its transaction
fails. The newest ids in runs keep their calls' positions for late reports (`spool.log.positions`).
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from spool.clock import Clock
from spool.installation import derive_secret
from spool.log.log_positions import NO_PLACES, RecentLogPositions
from spool.log.runs import IdRun, build_id_run, count_repeats, merge_sorted_ids
from spool.packed.native import NativeModule
from spool.record import AI_TELEMETRY, NS, TOPICS, Record, further_dedup_keys, request_dedup_keys

HOUR_NS = 3600 * 10**9
NEAR_NS = HOUR_NS // 4  # largest difference between the start times of two reports of a call
AHEAD_NS = HOUR_NS  # a start further ahead of the clock is ignored
DAY_HOURS = 24
_DAY_NS = DAY_HOURS * HOUR_NS
# lowest age at which a start time is believed; negative, because a sender's clock may be ahead
_TOO_FAR_AHEAD_NS = -AHEAD_NS
BATCH = 16_384  # number of ids that are sorted into one run, which takes a few milliseconds
# a smaller compaction takes a millisecond or two, so it runs before the next commit
LARGE_BATCH = 4096
HELD_BATCHES = 32  # if more batches of ids than this are in memory, moving them to runs is no longer put off
# After this time, even a few ids become runs, and the positions of ids in runs are dropped.
MAX_AGE_S = 86_400
PLACED_SHARE = 8  # one in this number of ids keeps its position, which takes 17 bytes
SHORT = 2 * BATCH  # up to this length, runs are always merged
# seconds between counts of the ids that several runs have, because their times differ too much for lookups
REPEATS_EVERY_S = 86_400

# Universal hashing by Carter and Wegman: multiply by a secret modulo a prime above 2^128. Two ids collide
# with a probability of 2^-64, even if an attacker chose them. A keyed BLAKE2b is as good and takes two and a
# half times as long.
PRIME = 2**130 - 5
MASK = 2**64 - 1

IN_A_RUN = 0  # the id is known, but its position is not in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class IdCompaction:
    """
    A plan to move the oldest ids from memory into sorted lists (runs). Store it, then pass it to
    `DuplicateIndex.apply_compaction`.
    """

    taken: int  # number of the oldest ids in memory that move
    added: Sequence[IdRun]
    # runs that were merged, expired, or exceed the limit on ids
    removed: Sequence[IdRun]
    covered_since: float
    places_before: RecentLogPositions
    places: RecentLogPositions


class IdPosition(NamedTuple):
    """
    Where a known id is: its record's position or, in epoch seconds, the earliest and latest time at which it was
    committed.
    """

    place: tuple[str, int] | None
    since: float
    until: float


class DuplicateIndex:
    """
    The known ids in memory. Only the writer's thread may call `find_log_position` and `add_ids`, while it plans or
    applies a transaction.
    """

    def __init__(
        self, secret: bytes, *, window_s: float, max_ids: int, native: NativeModule | None = None
    ) -> None:
        self.native = native
        self._factor = int.from_bytes(derive_secret(secret, "duplicates")[:16]) | 1
        self._window_s = window_s
        self._max_ids = max_ids
        self._batch = max(1, min(BATCH, max_ids // 4))
        self._max_run = max(self._batch, max_ids // 8)
        self._newest: dict[int, int] = {}  # position by id, in order of arrival
        self._hours = array("q")  # hours in the order of `_newest`
        # arrival times with the number of ids that arrived, oldest first
        self._arrivals: deque[tuple[float, int]] = deque()
        self._runs: dict[int, list[IdRun]] = {}
        self._in_runs = 0
        self._places = NO_PLACES
        self._lowest_place = 0
        self._next_key = 1
        # number of newest ids at which `check_compaction_due` looks again
        self._look_again_at = 0
        self.covered_since = 0.0
        self.folds = 0

    # -- lookup ----------------------------------------------------------------------------------------------

    def short_id(self, dedup_key: bytes) -> int:
        """Return the part of a 128-bit id that the index stores, which has eight bytes."""
        return (int.from_bytes(dedup_key) * self._factor % PRIME) & MASK

    def find_log_position(self, ids: Iterable[int], search_hours: Iterable[int], now: float) -> int | None:
        """
        Return the position (topic and number) of the record with the first known id, IN_A_RUN if the id is
        known without its position, or None if all ids are new. `search_hours`: those under which to search.
        """
        for id in ids:
            log_position = self._newest.get(id)
            if log_position is not None:
                return log_position
            for hour in search_hours:
                for run in self._runs.get(hour, ()):
                    at = id & run.mask  # inlined, because a call would cost as much as it saves
                    is_marked = run.marks[at >> 3] >> (at & 7) & 1
                    if is_marked and id in run and run.arrived_at > now - self._window_s:
                        return self._places.find_log_position(id) or IN_A_RUN
        return None

    def knows_request(self, dedup_key: bytes, now: float) -> bool:
        """
        Return whether the name of a request is known. Such names are stored under the hour of their arrival.
        """
        # the clock may have been an hour ahead
        newest = int(now * NS) // HOUR_NS + 1
        hours = range(newest, newest - 2 - int(self._window_s // 3600 + 1), -1)
        return self.find_log_position((self.short_id(dedup_key),), hours, now) is not None

    def find_id_position(self, dedup_key: bytes) -> IdPosition | None:
        id = self.short_id(dedup_key)
        log_position = self.find_log_position_in_memory(id)
        if log_position:
            return IdPosition(decode_log_position(log_position), 0.0, inf)
        runs = [run for runs in self._runs.values() for run in runs if id in run]
        if not runs:
            return None
        # by the sender's clock, a call may start an hour after its arrival
        since = min(run.hour for run in runs) * HOUR_NS // NS - AHEAD_NS // NS
        return IdPosition(None, since, max(run.arrived_at for run in runs))

    # -- adding, after the commit ----------------------------------------------------------------------------

    def add_ids(self, positions_by_id: Mapping[int, int], storage_hours: Sequence[int], now: float) -> None:
        """
        Add new ids with the positions of their records, in order of record numbers, after the records are on
        disk. `storage_hours`: the start hour of each.
        """
        if positions_by_id:
            self._newest.update(positions_by_id)
            self._hours.extend(storage_hours)
            self._arrivals.append((now, len(positions_by_id)))

    def find_log_position_in_memory(self, id: int) -> int | None:
        """
        Return the position (topic and number) of the id's record, or None if memory lacks it, even if the id is
        known.
        """
        return self._newest.get(id) or self._places.find_log_position(id)

    def is_among_newest_ids(self, id: int) -> bool:
        return id in self._newest

    def load_id_runs(
        self, runs: Iterable[IdRun], covered_since: float, log_positions: RecentLogPositions = NO_PLACES
    ) -> None:
        for run in runs:
            self._runs.setdefault(run.hour, []).append(run)
            self._in_runs += len(run.ids)
            self._next_key = max(self._next_key, run.key + 1)
        self.covered_since = covered_since
        self._places = log_positions

    def note_removed_below(self, below_number: int) -> None:
        """
        Note that records below a number are deleted, so that the next compaction forgets the positions of their ids.
        """
        self._lowest_place = encode_log_position(AI_TELEMETRY, below_number)

    def reaches_back_to(self, moment: float) -> bool:
        """Return whether memory has an id that arrived before a moment, or has no id."""
        return not self._arrivals or self._arrivals[0][0] < moment

    # -- compaction into runs -----------------------------------------------------------------------------------

    def can_compact_later(self, now: float) -> bool:
        """
        Return whether a due compaction (move of ids into sorted lists) may run in the background: there are many
        ids to move, but not too many, and none is too old.
        """
        return self._batch >= LARGE_BATCH and not self._is_over_full and not self._has_old_ids(now)

    @property
    def _is_over_full(self) -> bool:
        return len(self._newest) >= self._batch * HELD_BATCHES

    def _has_old_ids(self, now: float) -> bool:
        return bool(self._arrivals) and self._arrivals[0][0] < now - min(MAX_AGE_S, self._window_s / 2)

    def can_compaction_be_due(self, now: float) -> bool:
        """Return whether `check_compaction_due`, which takes longer, may return True."""
        return len(self._newest) >= 2 * self._batch or self._has_old_ids(now)

    def check_compaction_due(self, now: float, lowest_open_numbers: Mapping[str, int]) -> bool:
        """
        Return whether ids should be moved to sorted lists now: no report can change the records of the oldest
        batch any more, there are too many ids, or some are too old.
        """
        count = len(self._newest)
        if not count:
            return False
        if self._has_old_ids(now) or self._is_over_full:
            return True
        if count < max(2 * self._batch, self._look_again_at):
            return False
        # The check below walks over a whole batch. If reports may still change its records, the next check waits for
        # more ids.
        self._look_again_at = count + self._batch // 16
        topic, number = decode_log_position(next(islice(self._newest.values(), self._batch - 1, None)))
        return number < lowest_open_numbers.get(topic, 1)

    def plan_compaction(
        self, now: float, lowest_open_numbers: Mapping[str, int] | None = None
    ) -> IdCompaction:
        """
        Plan to move the oldest ids from the dict into sorted lists: one batch or, with `lowest_open_numbers`, every
        id of a record that reports can no longer change. The index does not change before `apply_compaction`.
        """
        return self.oldest_ids_to_compact(now, lowest_open_numbers).plan_compaction()

    def oldest_ids_to_compact(
        self,
        now: float,
        lowest_open_numbers: Mapping[str, int] | None = None,
        *,
        leaves_out_newest: bool = False,
    ) -> IdsToCompact:
        """
        Return the ids that the next compaction moves, to plan it on any thread: one batch or, with
        `lowest_open_numbers`, the ids of all closed (final) records. Records close in order of arrival, so
        these are the first ids of each topic.

        `leaves_out_newest`: leave out the newest batch, because the index may forget which record a moved id belongs
        to.
        """
        if lowest_open_numbers is None:
            count = min(self._batch, len(self._newest))
        else:
            count = self._count_oldest_closed_ids(lowest_open_numbers)
            if leaves_out_newest:
                count = min(count, max(0, len(self._newest) - self._batch))
        return IdsToCompact(
            ids=list(islice(self._newest, count)),
            places=list(islice(self._newest.values(), count)),
            hours=self._hours[:count],
            arrived_at=self._latest_arrival_of_oldest_ids(count),
            expired_at=now - self._window_s,
            max_in_runs=self._max_ids - (len(self._newest) - count),
            recent=self._places,
            recent_since=now - MAX_AGE_S,
            lowest_place=self._lowest_place,
            max_placed=self._max_ids // PLACED_SHARE,
            plan=_IdCompactionPlan(self),
            folds=self.folds,
        )

    def apply_compaction(self, compaction: IdCompaction) -> None:
        """Remove ids that a stored compaction has moved from the dict, and add the compaction's sorted lists."""
        gone = {run.key for run in compaction.removed}
        for hour in {run.hour for run in compaction.removed}:
            runs = [run for run in self._runs[hour] if run.key not in gone]
            if runs:
                self._runs[hour] = runs
            else:
                del self._runs[hour]
        for run in compaction.added:
            self._runs.setdefault(run.hour, []).append(run)
            self._next_key = max(self._next_key, run.key + 1)
        self._in_runs += sum(len(run.ids) for run in compaction.added) - sum(
            len(run.ids) for run in compaction.removed
        )
        for id in list(islice(self._newest, compaction.taken)):
            del self._newest[id]
        self._look_again_at = 0
        self._hours = self._hours[compaction.taken :]
        remaining = compaction.taken
        while remaining:
            at, count = self._arrivals.popleft()
            if count > remaining:
                self._arrivals.appendleft((at, count - remaining))
            remaining -= min(count, remaining)
        self.covered_since = compaction.covered_since
        self._places = compaction.places
        self.folds += 1

    def _count_oldest_closed_ids(self, lowest_open_numbers: Mapping[str, int]) -> int:
        count = 0
        for log_position in self._newest.values():
            topic, number = decode_log_position(log_position)
            if number >= lowest_open_numbers.get(topic, 1):
                break
            count += 1
        return count

    def _latest_arrival_of_oldest_ids(self, oldest_count: int) -> float:
        newest = 0.0
        for at, count in self._arrivals:
            if oldest_count <= 0:
                break
            newest = max(newest, at)
            oldest_count -= count
        return newest

    # -- inspection ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._newest) + self._in_runs

    def covered_window_s(self, now: float) -> float:
        """
        Return the length of the duplicate window in seconds. It is shorter than the setting if the limit on
        ids has cut it.
        """
        return min(self._window_s, max(0.0, now - self.covered_since))

    def id_runs(self) -> list[IdRun]:
        return [run for runs in self._runs.values() for run in runs]

    def id_runs_by_hour(self) -> dict[int, list[IdRun]]:
        """
        Return the sorted lists of ids by start hour. They are copies, because the index may change while the
        caller reads.
        """
        return {hour: list(runs) for hour, runs in self._runs.items()}

    def is_in_id_runs(self, id: int, hour: int) -> bool:
        return any(id in run for run in self._runs.get(hour, ()))

    @property
    def max_ids_per_run(self) -> int:
        return self._max_run

    @property
    def next_id_run_key(self) -> int:
        return self._next_key


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsToCompact:
    """
    The ids that one compaction moves into sorted lists, with the lists at that moment. `recent`: moved ids
    whose records are still known.
    """

    # plain lists of numbers, because the garbage collector would traverse tuples
    ids: Sequence[int]
    places: Sequence[int]
    hours: Sequence[int]
    arrived_at: float
    expired_at: float
    max_in_runs: int
    recent: RecentLogPositions
    recent_since: float
    lowest_place: int
    max_placed: int
    plan: _IdCompactionPlan
    folds: int  # number of earlier moves of ids into runs; after another move, this plan is invalid

    def plan_compaction(self) -> IdCompaction:
        """Plan to move the ids into sorted lists. Call this once, on any thread."""
        ordered = sorted(self.ids)
        plan = self.plan
        for hour, ids in self._group_by_hour(ordered):
            plan.add_and_merge_id_run(hour, ids, self.arrived_at)
        plan.drop_expired_runs(self.expired_at)
        plan.drop_oldest_id_runs(self.max_in_runs)
        return IdCompaction(
            taken=len(self.ids),
            added=plan.added,
            removed=plan.removed,
            covered_since=plan.covered_since,
            places_before=self.recent,
            places=self.recent.with_ids(
                *self._call_ids_and_positions(ordered),
                self.arrived_at,
                max_ids_per_block=BATCH,
                arrived_since=self.recent_since,
                lowest_position=self.lowest_place,
                max_ids=self.max_placed,
                native=plan.native,
            ),
        )

    def _group_by_hour(self, sorted_ids: Sequence[int]) -> Iterator[tuple[int, array[int]]]:
        hours = dict.fromkeys(self.hours)
        if len(hours) == 1:
            yield from zip(hours, [array("Q", sorted_ids)], strict=True)
            return
        hour_of = dict(zip(self.ids, self.hours, strict=True))
        for hour in hours:
            yield hour, array("Q", [id for id in sorted_ids if hour_of[id] == hour])

    def _call_ids_and_positions(self, sorted_ids: Sequence[int]) -> tuple[array[int], array[int]]:
        """
        Return sorted ids and positions of the calls. Other records need no position, because reports are only added
        to calls.
        """
        log_positions = {
            id: log_position
            for id, log_position in zip(self.ids, self.places, strict=True)
            if log_position != IN_A_RUN and log_position % PLACE_STEP == _CALLS
        }
        ids = [id for id in sorted_ids if id in log_positions]
        return array("Q", ids), array("Q", map(log_positions.__getitem__, ids))


class _IdCompactionPlan:
    """The sorted lists of an index after a compaction, which moves ids from the index's dict into the lists."""

    def __init__(self, index: DuplicateIndex) -> None:
        self._runs = index.id_runs_by_hour()
        self.native = index.native
        self._max_run = index.max_ids_per_run
        self._next_key = index.next_id_run_key
        self.added: list[IdRun] = []
        self.removed: list[IdRun] = []
        self.covered_since = index.covered_since

    def add_and_merge_id_run(self, hour: int, sorted_ids: array[int], arrived_at: float) -> None:
        """
        Add a sorted list of ids. It is merged with lists of its hour that are less than twice as long, so
        that an hour has few lists.
        """
        for run in sorted(self._runs.get(hour, ()), key=lambda run: len(run.ids)):
            merged_count = len(run.ids) + len(sorted_ids)
            if merged_count > self._max_run or (len(run.ids) >= 2 * len(sorted_ids) and merged_count > SHORT):
                break
            sorted_ids = merge_sorted_ids(run.ids, sorted_ids, self.native)
            arrived_at = max(arrived_at, run.arrived_at)
            self.removed.append(run)
        self.added.append(build_id_run(self._next_key, hour, arrived_at, sorted_ids, self.native))
        self._next_key += 1

    def drop_expired_runs(self, before_time: float) -> None:
        self._drop_id_runs([run for run in self._remaining_id_runs() if run.arrived_at <= before_time])

    def drop_oldest_id_runs(self, max_ids: int) -> None:
        """
        Drop the sorted lists that are oldest by their newest id, until at most `max_ids` ids remain.
        Duplicates of older calls are then no longer recognized.
        """
        kept_runs = self._remaining_id_runs()
        count = sum(len(run.ids) for run in kept_runs)
        if count <= max_ids:
            return
        dropped = []
        for run in sorted(kept_runs, key=lambda run: run.arrived_at):
            if count <= max_ids:
                break
            count -= len(run.ids)
            dropped.append(run)
            self.covered_since = max(self.covered_since, run.arrived_at)
        self._drop_id_runs(dropped)

    def _remaining_id_runs(self) -> list[IdRun]:
        gone = {run.key for run in self.removed}
        return [run for run in chain(*self._runs.values(), self.added) if run.key not in gone]

    def _drop_id_runs(self, runs: Sequence[IdRun]) -> None:
        drop = {run.key for run in runs}
        new = {run.key for run in self.added}
        self.added = [run for run in self.added if run.key not in drop]
        self.removed += [run for run in runs if run.key not in new]


class RepeatedIdCounter:
    """
    The number of ids that are in several sorted lists, because the start times of their reports differ too
    much for a lookup to find. It is counted again at most once a day.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_at = float("-inf")
        self._count = 0

    async def cached_repeated_id_count(self, index: DuplicateIndex) -> int:
        if self._clock.monotonic() >= self._due_at:
            self._due_at = self._clock.monotonic() + REPEATS_EVERY_S
            runs = [run.ids for run in index.id_runs()]
            self._count = await asyncio.to_thread(count_repeats, runs)
        return self._count


def id_storage_and_search_hours(record: Record, now_ns: int) -> tuple[int, Iterable[int]]:
    """
    Return the hour under which the record's id is stored, and the hours under which the call may already be
    known.
    """
    if record.start_time is not None:
        return id_storage_and_search_hours_by_start(record.start_time, now_ns)
    return id_storage_and_search_hours_by_end(getattr(record, "end_time", None), now_ns)


class SearchHoursCache:
    """
    A cache of the hours under which an id is stored and searched, at one time of day. Starts within the same
    quarter of an hour have the same hours.
    """

    def __init__(self, now_ns: int) -> None:
        self._now_ns = now_ns
        self._known: dict[int, tuple[int, Iterable[int]]] = {}

    def id_storage_and_search_hours(self, record: Record) -> tuple[int, Iterable[int]]:
        start = record.start_time
        if start is None or start > self._now_ns + AHEAD_NS:
            return id_storage_and_search_hours(record, self._now_ns)
        quarter = start // NEAR_NS
        hours = self._known.get(quarter)
        if hours is None:
            hours = self._known[quarter] = id_storage_and_search_hours_by_start(start, self._now_ns)
        return hours


def dedup_keys_with_storage_hours(record: Record, now_ns: int) -> Iterator[tuple[bytes, int]]:
    hour, _ = id_storage_and_search_hours(record, now_ns)
    yield record.id, hour
    for name in further_dedup_keys(record):
        yield name, hour
    for name in request_dedup_keys(record):
        yield name, now_ns // HOUR_NS


def id_storage_and_search_hours_by_start(start_time: int, now_ns: int) -> tuple[int, Iterable[int]]:
    age = now_ns - start_time
    if age < _TOO_FAR_AHEAD_NS:
        return id_storage_and_search_hours_by_end(None, now_ns)
    hour, into = divmod(start_time, HOUR_NS)
    past = age + into  # time since the beginning of the call's hour
    # an earlier report without a start is filed under its end or arrival
    if past >= HOUR_NS:
        first = hour - 1 if into < NEAR_NS else hour
        later = past // HOUR_NS if past < _DAY_NS else DAY_HOURS
        return hour, range(first, hour + later + 1)
    if into < NEAR_NS:
        return hour, (hour, hour - 1)
    if into >= HOUR_NS - NEAR_NS:
        return hour, (hour, hour + 1)
    return hour, (hour,)


def id_storage_and_search_hours_by_end(end_time: int | None, now_ns: int) -> tuple[int, Iterable[int]]:
    arrival = now_ns // HOUR_NS
    if end_time is None or now_ns - end_time < _TOO_FAR_AHEAD_NS:
        end_time = now_ns
    hour = end_time // HOUR_NS
    # an earlier report without any time is filed under its arrival
    last = max(hour, min(arrival, hour + DAY_HOURS))
    return hour, range(last, hour - DAY_HOURS - 1, -1)


_TOPIC_CODES = {topic: code for code, topic in enumerate(TOPICS)}
_CALLS = _TOPIC_CODES[AI_TELEMETRY]
PLACE_STEP = len(TOPICS)  # difference between the positions of successive numbers of a topic


def encode_log_position(topic: str, record_number: int) -> int:
    """Encode topic and number as one int, because memory has one for each record."""
    return record_number * PLACE_STEP + _TOPIC_CODES[topic]


def decode_log_position(value: int) -> tuple[str, int]:
    number, code = divmod(value, PLACE_STEP)
    return TOPICS[code], number
