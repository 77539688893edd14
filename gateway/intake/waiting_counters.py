"""
Counters that wait for calls of the same program before they are counted.

A coding assistant reports the same tokens as events and as counters, in any order. If a program has not reported
calls yet, its counters wait. If a call arrives before the waiting time ends, they become shadows. Otherwise they
count. An agent's span that sums up another program waits in the same way. Waiting counters are stored in the commit
of their submission and deleted in that of their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from secrets import token_bytes

import msgspec
from msgspec.structs import replace

from gateway.intake.reversals import CountedCounterGroup, RetractableCounters
from gateway.intake.shadows import CallReporters, ReportedCallers, reporters_of_record
from spool.clock import Clock, elapsed_s
from spool.erasure import Renaming, rename_person, time_of_new_call
from spool.errors import SpoolError
from spool.identity import RecordIdentity
from spool.log.partial_reports import (
    COUNTED,
    COUNTERS,
    ExpectedVersion,
    PartialReport,
    PartialReports,
    report_version,
)
from spool.log.protocols import RecordLog
from spool.log.values import CounterPoint, Receipt, Submission
from spool.loops import failure_logger, for_each_item, log_failure, repeat
from spool.record import AI_TELEMETRY, NS, AiRecord
from spool.shares import HeldByKey, UsedAmountByOwner, entries_to_remove
from spool.turns.fair_turns import pause_for_others


class CounterGroup(msgspec.Struct, array_like=True):
    """
    Counters of one reporter, or agents' spans that sum up one run, that arrived together.

    This is also the stored format, so new fields may only be added at the end.
    """

    records: list[AiRecord] = []
    identities: list[RecordIdentity] = []
    points: list[CounterPoint] = []
    key: str = ""  # name of the sender's key

    @property
    def count(self) -> int:
        return len(self.records) + len(self.points)

    def add_group(self, other: CounterGroup) -> None:
        self.records += other.records
        self.identities += other.identities
        self.points += other.points

    def records_and_point_templates(self) -> Iterable[AiRecord]:
        yield from self.records
        for point in self.points:
            yield point.template


class WaitingGroup(msgspec.Struct, frozen=True, gc=False):
    """
    A `CounterGroup` that waits. It is packed, because its content is needed only when it is released.

    Tens of thousands may exist. If they were tuples, each round of the garbage collector would take about 25
    ms.
    """

    reporters: CallReporters
    at: float
    items: int
    body: bytes
    key: str = ""  # name of the sender's key
    # True if the group must stay in order, because a cumulative point is lost if a later point was counted
    # first
    has_points: bool = False
    version: int = 0  # version of the group when it was read, because other processes may release it as well

    @classmethod
    def from_counters(
        cls, group: CounterGroup, reporters: CallReporters, at: float, body: bytes, version: int = 0
    ) -> WaitingGroup:
        return cls(reporters, at, group.count, body, group.key, bool(group.points), version)


class _ReporterQueue(msgspec.Struct, gc=False):
    """The number and the queue of the waiting groups with the same reporters."""

    groups: int = 0
    queue: str | None = None  # name of the key in whose queue the points wait; None if none waited yet


class WaitingGroups(dict[bytes, WaitingGroup]):
    """Waiting groups by key, in order of arrival. Change the dict only with `add` and `remove`."""

    def __init__(self) -> None:
        super().__init__()
        self.items_held = 0  # number of counters in all waiting groups
        self.bytes_held = 0
        # Keys of the waiting groups by Tollhouse key, which has a limit of its own. OrderedDicts, because a
        # dict finds its first key slowly after many removals.
        self._queues: dict[str, OrderedDict[bytes, None]] = {}
        self._queue_items = UsedAmountByOwner[str]()
        self._queue_bytes = UsedAmountByOwner[str]()
        self._of_reporters: dict[CallReporters, _ReporterQueue] = {}

    @property
    def held_by_sender_key(self) -> HeldByKey:
        return HeldByKey(self._queue_items, self._queue_bytes)

    def has_group_with_reporters(self, reporters: CallReporters) -> bool:
        return reporters in self._of_reporters

    def group_keys_from_fullest_queue(self, *, by_bytes: bool) -> Iterator[bytes]:
        """
        Yield the keys of waiting groups to remove. Each is of the Tollhouse key that has the most waiting
        counters (or bytes) at that step, so that no key displaces counters of another.
        """
        if by_bytes:
            return entries_to_remove(
                self._queue_bytes, self._queues.__getitem__, lambda key: len(self[key].body)
            )
        return entries_to_remove(self._queue_items, self._queues.__getitem__, lambda key: self[key].items)

    def add(self, key: bytes, group: WaitingGroup) -> None:
        self[key] = group
        waits = self._of_reporters.get(group.reporters)
        if waits is None:
            waits = self._of_reporters[group.reporters] = _ReporterQueue()
        waits.groups += 1
        if group.has_points and waits.queue is None:
            waits.queue = group.key
        queue = self._wait_queue_name(group, waits)
        names = self._queues.get(queue)
        if names is None:
            names = self._queues[queue] = OrderedDict()
        names[key] = None
        self._change_waiting_amounts(queue, group.items, len(group.body))

    def remove(self, key: bytes, group: WaitingGroup) -> None:
        del self[key]
        waits = self._of_reporters[group.reporters]
        waits.groups -= 1
        if not waits.groups:
            del self._of_reporters[group.reporters]
        queue = self._wait_queue_name(group, waits)
        names = self._queues[queue]
        del names[key]
        if not names:
            del self._queues[queue]
        self._change_waiting_amounts(queue, -group.items, -len(group.body))

    def _wait_queue_name(self, group: WaitingGroup, reporter_queue: _ReporterQueue) -> str:
        return reporter_queue.queue if group.has_points and reporter_queue.queue is not None else group.key

    def _change_waiting_amounts(self, queue: str, items: int, bytes: int) -> None:
        self._queue_items.add_use(queue, items)
        self._queue_bytes.add_use(queue, bytes)
        self.items_held += items
        self.bytes_held += bytes


LOOK_S = 5.0
# maximum counters per commit, which takes a few milliseconds; with half as many, each writes 1.4 times the
# bytes
MOST_AT_ONCE = 256
TURN = 32  # counters decoded between two turns of the event loop
LOOKED_AT = 32  # groups checked between two turns of the event loop

_log = logging.getLogger(__name__)


class WaitingCounters:
    """
    The waiting counters, in order of arrival. Counters of one reporter never overtake each other.

    Above `max_items` or `max_bytes`, the oldest counters of the key with the most counters stop waiting: they
    are counted or marked as repeats.
    """

    def __init__(
        self,
        record_log: RecordLog,
        shadows: ReportedCallers,
        clock: Clock,
        *,
        wait_s: float,
        max_items: int,
        max_bytes: int,
        renaming: Callable[[], Renaming | None] = lambda: None,
    ) -> None:
        """
        Create the empty table. `renaming` returns the function that renames people who were erased while
        counters waited.
        """
        self._log = record_log
        self._renaming = renaming
        self._shadows = shadows
        self._clock = clock
        self._wait_s = wait_s
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._waiting = WaitingGroups()
        self._last_key = 0
        self._one_pass_at_a_time = asyncio.Lock()
        # lock that is held while waiting counters are recorded or counted ones are reversed
        self._one_commit_at_a_time = asyncio.Lock()
        self._take_backs = RetractableCounters(
            record_log, shadows, clock, max_items=max_items, one_commit_at_a_time=self._one_commit_at_a_time
        )
        self._shared: PartialReports | None = None
        self._hold_s = 0.0
        # number of waiting counters by key when they were last counted, if several processes share the
        # storage
        self._counted: Mapping[str, int] = {}

    def __len__(self) -> int:
        return self._waiting.items_held

    @property
    def waiting_by_key(self) -> HeldByKey:
        """Return the waiting counters by key, empty if several processes share the storage."""
        return HeldByKey() if self._shared is not None else self._waiting.held_by_sender_key

    @property
    def counted_by_key(self) -> HeldByKey:
        """
        Return the counters of the last hour that were counted and can be reversed, by key. If several
        processes share the storage, only the process that releases counters knows them.
        """
        return HeldByKey(self._take_backs.held_by_sender_key if self._shared is None else self._counted)

    async def load_waiting_counters(self, stored_reports: PartialReports, *, record_hold_s: float) -> None:
        """
        Load waiting counters. Their records may stay open for `record_hold_s` from now on.

        From a shared storage nothing is loaded, because the process that releases counters reads it.
        """
        if stored_reports.is_shared:
            self._shared, self._hold_s = stored_reports, record_hold_s
            return
        reports = await stored_reports.load()
        waiting_reports = [report for report in reports if report.key.startswith(COUNTERS)]
        counted = [report for report in reports if report.key.startswith(COUNTED)]
        await self._load_waiting_and_counted_groups(waiting_reports, counted, record_hold_s=record_hold_s)
        for report in (*waiting_reports, *counted):
            number = report.key[len(COUNTERS if report in waiting_reports else COUNTED) :]
            self._last_key = max(self._last_key, int.from_bytes(number))
        await self._look_up_calls_of_reporters()

    async def _load_waiting_and_counted_groups(
        self,
        waiting_reports: Sequence[PartialReport],
        counted_reports: Sequence[PartialReport],
        *,
        record_hold_s: float,
    ) -> None:
        damaged = await self._take_backs.load_stored(counted_reports, record_hold_s=record_hold_s)
        for report in sorted(waiting_reports):  # sort by key, which orders the groups by arrival
            try:
                group = _groups.decode(report.body)
                reporters = reporters_of_record(next(iter(group.records_and_point_templates())))
            except (msgspec.DecodeError, UnicodeDecodeError, StopIteration, KeyError):
                damaged += 1
                continue
            waiting = WaitingGroup.from_counters(
                group, reporters, report.at, report.body, report_version(report)
            )
            self._waiting.add(report.key, waiting)
        if damaged:
            damage = {"action": "waiting_counters_damaged"}
            _log.error("%d groups of waiting counters cannot be read", damaged, extra=damage)

    async def append_or_hold(
        self, submission: Submission, undecided_by_position: Mapping[int, AiRecord], *, key: str = ""
    ) -> Receipt:
        """
        Append a submission as `RecordLog.append_submission` does, but let counters and agents' spans wait if they may
        repeat calls.

        `undecided_by_position` has the records that may repeat calls. `key` is the name of the sender's key.
        """
        groups, rest = self._split_off_waiting_groups(submission, undecided_by_position)
        if not groups:
            return await self._log.append_submission(rest)
        now = self._clock.now()
        waiting: dict[bytes, WaitingGroup] = {}
        for reporters, group in groups.items():
            group.key = key
            waiting[COUNTERS + self._next_key()] = WaitingGroup.from_counters(
                group, reporters, now, _encode(group)
            )
        rest = replace(
            rest,
            pending=rest.pending + sum(counter.items for counter in waiting.values()),
            keep=[
                *rest.keep,
                *(PartialReport(key, counter.at, counter.body) for key, counter in waiting.items()),
            ],
        )
        # The counters of a cancelled request that was committed wait like all others.
        appending = asyncio.ensure_future(self._log.append_submission(rest))
        appending.add_done_callback(lambda task: self._add_after_commit(task, waiting))
        receipt = await asyncio.shield(appending)
        # shield() lets the release finish even if the request that waits for it is cancelled
        if self._is_over_full:
            await asyncio.shield(
                asyncio.ensure_future(self._release_and_log_failure(self._record_counters_above_limit()))
            )
        return receipt

    async def record_due_and_reverse_repeated_counters(self, *, releases_all: bool = False) -> int:
        """
        Record the counters that waited long enough or need not wait, and reverse those whose reporter has
        reported calls since.

        A request that exceeds the limit of waiting counters does not wait until this ends.
        """
        released = 0
        async with self._one_pass_at_a_time:
            is_more = True
            while is_more:
                is_more = await self._read_longest_waiting_and_check_for_more()
                for keys in _keys_per_commit(await self._groups_due_for_recording(releases_all=releases_all)):
                    async with self._one_commit_at_a_time:
                        released += await self._record_groups_or_each_alone(keys)
                released += await self._record_counters_above_limit()
                is_more = is_more and not self._waiting
            await self._take_backs.reverse_counters_that_repeat_calls()
            async with self._one_commit_at_a_time:
                await self._take_backs.delete_old_entries()
        return released

    async def _record_counters_above_limit(self) -> int:
        released = 0
        async with self._one_commit_at_a_time:
            while self._is_over_full:
                released += await self._record_groups_of_counters(self._keys_above_limit())
        return released

    async def _read_longest_waiting_and_check_for_more(self) -> bool:
        """
        Read the longest waiting counters and the known reporters from a shared storage. Return whether more
        wait.
        """
        if self._shared is None:
            return False
        self._waiting = WaitingGroups()
        now = self._clock.now()
        stored = await self._shared.oldest_reports(COUNTERS, before_time=now, max_reports=MOST_AT_ONCE)
        counted = await self._shared.oldest_reports(
            COUNTED, before_time=now, max_reports=self._take_backs.max_items
        )
        self._take_backs.forget_all()
        await self._load_waiting_and_counted_groups(stored, counted, record_hold_s=self._hold_s)
        self._counted = dict(self._take_backs.held_by_sender_key)
        await self._look_up_calls_of_reporters()
        return len(stored) == MOST_AT_ONCE

    async def _look_up_calls_of_reporters(self) -> None:
        """Look up reporters, because their calls may have arrived before the start or at another process."""
        reporters = (reporter for group in self._waiting.values() for reporter in group.reporters)
        await self._shadows.load_reporters_from_storage((*reporters, *self._take_backs.reporters()))

    async def run(self) -> None:
        try:
            await repeat(
                self._wait_and_record,
                every_s=0.0,
                failed="counters must wait longer",
                action="release_put_off",
                retry_s=LOOK_S,
            )
        finally:
            # forget these numbers, because another process releases the counters from now on
            self._counted = {}

    async def _wait_and_record(self) -> None:
        await asyncio.sleep(min(LOOK_S, self._wait_s) or LOOK_S)
        await self.record_due_and_reverse_repeated_counters()

    @property
    def _is_over_full(self) -> bool:
        waiting = self._waiting
        return waiting.items_held > self._max_items or waiting.bytes_held > self._max_bytes

    async def _release_and_log_failure(self, releasing: Awaitable[int]) -> None:
        """
        Release counters. If the storage fails, they keep waiting, and the request that exceeded the limit is
        not refused.
        """
        try:
            await releasing
        except SpoolError as error:
            _log.warning("counters must wait longer: %s", error, extra={"action": "release_put_off"})

    def _split_off_waiting_groups(
        self, submission: Submission, undecided_by_position: Mapping[int, AiRecord]
    ) -> tuple[dict[CallReporters, CounterGroup], Submission]:
        groups: dict[CallReporters, CounterGroup] = {}
        waits: set[int] = set()
        for position, record in undecided_by_position.items():
            reporters = reporters_of_record(record)
            if not self._mark_record_if_it_repeats_calls(record, reporters):
                group = groups.setdefault(reporters, CounterGroup())
                group.records.append(record)
                group.identities.append(submission.identities[position])
                waits.add(position)
        points = []
        for point in submission.points:
            reporters = reporters_of_record(point.template)
            if self._mark_record_if_it_repeats_calls(point.template, reporters):
                points.append(point)
            else:
                groups.setdefault(reporters, CounterGroup()).points.append(point)
        if not groups:
            return groups, submission
        stays = [position for position in range(len(submission.records)) if position not in waits]
        records = [submission.records[position] for position in stays]
        identities = [submission.identities[position] for position in stays]
        return groups, replace(submission, records=records, identities=identities, points=points)

    def _mark_record_if_it_repeats_calls(self, record: AiRecord, reporters: CallReporters) -> bool:
        """
        Return whether a counter repeats reported calls. While counters of the same reporter wait, calls are
        not searched, so that this counter waits as well and is recorded after them.
        """
        if not record.shadow and not self._waiting.has_group_with_reporters(reporters):
            record.shadow = self._shadows.has_any_reported_calls(reporters, self._clock.now())
        return record.shadow

    def _add_after_commit(self, done: asyncio.Future[Receipt], waiting: dict[bytes, WaitingGroup]) -> None:
        if self._shared is None and not done.cancelled() and done.exception() is None:
            for key, group in waiting.items():
                self._waiting.add(key, group)

    def _keys_above_limit(self) -> list[bytes]:
        items = self._waiting.items_held - self._max_items
        byte_count = self._waiting.bytes_held - self._max_bytes
        due_keys: list[bytes] = []
        count = 0
        for key in self._waiting.group_keys_from_fullest_queue(by_bytes=items <= 0):
            if count >= MOST_AT_ONCE or (items <= 0 and byte_count <= 0):
                break
            group = self._waiting[key]
            due_keys.append(key)
            count += group.items
            items -= group.items
            byte_count -= len(group.body)
        return sorted(due_keys)  # sort by key, which orders the groups by arrival

    async def _groups_due_for_recording(self, *, releases_all: bool) -> dict[bytes, WaitingGroup]:
        now = self._clock.now()
        due_groups: dict[bytes, WaitingGroup] = {}
        # reporters with an older group that still waits, so their later groups must wait as well
        held_back: set[CallReporters] = set()
        for count, (key, group) in enumerate(list(self._waiting.items()), start=1):
            # while this pauses, other tasks may add groups and record the oldest ones
            if count % LOOKED_AT == 0:
                await pause_for_others()
            has_waited = releases_all or elapsed_s(group.at, now) >= self._wait_s
            if group.reporters in held_back:
                continue
            if has_waited or self._shadows.has_any_reported_calls(group.reporters, group.at):
                due_groups[key] = group
            else:
                held_back.add(group.reporters)
        return due_groups

    async def _record_groups_or_each_alone(self, keys: Sequence[bytes]) -> int:
        """
        Record groups in one commit, or, if one of them fails, in a commit for each. A failed group keeps waiting.
        """
        try:
            return await self._record_groups_of_counters(keys)
        except SpoolError:
            raise
        except Exception as error:  # noqa: BLE001 - a group that fails costs only itself
            log_failure("counters are recorded one by one", error, action="release_put_off")
        released = 0

        async def record(key: bytes) -> None:
            nonlocal released
            released += await self._record_groups_of_counters([key])

        log = failure_logger("counters must wait longer", action="release_put_off", name=bytes.hex)
        await for_each_item(keys, record, log)
        return released

    async def _record_groups_of_counters(self, keys: Iterable[bytes]) -> int:
        """
        Record the groups of waiting counters under these keys, and return the number of records. Groups that
        were recorded before are skipped.

        The caller holds the lock for commits.
        """
        due_groups = {key: self._waiting[key] for key in keys if key in self._waiting}
        if not due_groups:
            return 0
        everything = CounterGroup()
        counted_of: dict[str, CountedCounterGroup] = {}
        read = 0
        for waiting in due_groups.values():
            if read >= TURN:
                read = 0
                await pause_for_others()
            read += waiting.items
            group = _groups.decode(waiting.body)
            reporters = waiting.reporters
            have_heard = self._shadows.has_any_reported_calls(reporters, waiting.at)
            if renaming := self._renaming():
                arrived_ns = int(waiting.at * NS)
                for record in group.records_and_point_templates():
                    rename_person(record, renaming, time_of_new_call(record, arrived_ns=arrived_ns))
                reporters = reporters_of_record(next(iter(group.records_and_point_templates())))
                have_heard = have_heard or self._shadows.has_any_reported_calls(reporters, waiting.at)
            if have_heard:
                for record in group.records_and_point_templates():
                    record.shadow = True
            else:
                counted = counted_of.get(group.key)
                if counted is None:
                    counted = counted_of[group.key] = self._take_backs.new_counted_group(group.key)
                counted.add_counters(reporters, group.records, group.points)
            everything.add_group(group)
        await pause_for_others()
        now, old = self._clock.now(), self._take_backs.keys_of_old_and_excess_groups()
        reports = {
            self._take_backs.to_partial_report(self._next_key(), counted, now): counted
            for counted in counted_of.values()
            if counted.count
        }
        receipt = await self._log.append_submission(
            Submission(
                topic=AI_TELEMETRY,
                received=0,
                records=everything.records,
                identities=everything.identities,
                points=everything.points,
                pending=-everything.count,
                keep=[*reports],
                forget=[*due_groups, *old],
                expects=[ExpectedVersion(key, waiting.version) for key, waiting in due_groups.items()]
                if self._shared
                else (),
            )
        )
        for key, waiting in due_groups.items():
            self._waiting.remove(key, waiting)
        self._take_backs.remove_entries(old)
        for report, counted in reports.items():
            self._take_backs.remember_counted_group(report, counted, receipt)
        return everything.count

    def _next_key(self) -> bytes:
        self._last_key += 1
        if self._shared is None:
            return self._last_key.to_bytes(8)
        self._last_key = max(self._last_key, int(self._clock.now() * NS))
        return self._last_key.to_bytes(8) + token_bytes(8)


def _keys_per_commit(groups: Mapping[bytes, WaitingGroup]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    items = 0
    for key, group in groups.items():
        part.append(key)
        items += group.items
        if items >= MOST_AT_ONCE:
            yield part
            part, items = [], 0
    if part:
        yield part


_encode = msgspec.msgpack.Encoder().encode
_groups = msgspec.msgpack.Decoder(CounterGroup)
