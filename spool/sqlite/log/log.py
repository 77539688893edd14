"""The log on SQLite: group commits, reads of closed records, accounting and retention."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from spool.clock import Clock, SteadyClock, conservative_now_for_deletion
from spool.disks import FSYNC, DiskMount
from spool.errors import EntryUnreadable, SpoolDamaged, SpoolError, SpoolFull, SpoolUnavailable
from spool.identity import RequestDedupKeys
from spool.log import accounting, counted_names
from spool.log.accepted_twice import AcceptedTwiceSearch
from spool.log.commits.id_compaction import IdCompactor, UncompactedCommits
from spool.log.commits.writer import GroupCommitWriter, GroupOvertaken, IndexOutOfStep
from spool.log.counted_names import EventType
from spool.log.duplicates import DuplicateIndex, IdCompaction, IdPosition, RepeatedIdCounter
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import EntryDamage, log_damage
from spool.log.partial_reports import SPANS
from spool.log.planning.plan import CommitPlan, PlanAnswer
from spool.log.planning.planner import CommitPlanner, check_submission
from spool.log.protocols import CommitObserver, notify_observer
from spool.log.receipts import ReceiptIdCipher, receipt_view
from spool.log.retention import ROOM, DrainRate, Reader, log_damaged_commits, lowest_needed_number
from spool.log.values import Commit, LogAccounting, LogEntry, LogStats, Receipt, Submission
from spool.log.watermarks import LogWatermarks, OpenRecords, require_closed
from spool.packed.native import NativeModule
from spool.record import AI_TELEMETRY, TOPICS
from spool.settings import SpoolSettings
from spool.sqlite import partial_reports
from spool.sqlite.damage import notes
from spool.sqlite.database import WAL_BYTES, Database, is_corrupt
from spool.sqlite.log import queries, store
from spool.sqlite.log.entries import forget_removed_entries, lowest_stored_number, read_entries
from spool.sqlite.log.health import LogHealth
from spool.sqlite.log.recount import (
    RecountRange,
    TermCounter,
    read_recount_range,
    recount_commits,
    recount_log,
    store_counts_of_damaged_commits,
)
from spool.sqlite.log.recovery_notes import RecoveryNoteWriter
from spool.sqlite.log.retention import (
    FileSpace,
    Retention,
    RouteNeeds,
    delete_excess_counter_series,
    delete_old_counter_series,
    is_used_space_at_least,
    measure_space,
)
from spool.sqlite.reserve import SIZE as RESERVE
from spool.sqlite.reserve import DiskReserve
from spool.sqlite.streams import delete_some_old_totals

# decoded entries for readers, about nine thousand records; at most twice as much memory
CACHE_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class SqliteLog:
    """The log in one file with one writer. Retention deletes nothing that a reader still needs."""

    def __init__(
        self,
        database: Database,
        *,
        settings: SpoolSettings,
        clock: Clock,
        secret: bytes,
        reserve: DiskReserve,
        rest: RecoveryNoteWriter,
        mount: DiskMount | None,
        routes: RouteNeeds,
        observer: CommitObserver | None = None,
        cache_bytes: int = CACHE_BYTES,
        native: NativeModule | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._routes = routes
        self._observer = observer
        self._sealer = ReceiptIdCipher(secret)
        self._index = DuplicateIndex(
            secret, window_s=settings.duplicate_window, max_ids=settings.duplicate_ids, native=native
        )
        self._planner = CommitPlanner(self._index, hold_s=settings.hold, max_spans=settings.pending_spans)
        self._unfolded = UncompactedCommits()
        self._names = 0  # number of commits that have added ids to earlier records
        self._horizon = LogWatermarks(hold_s=settings.hold, clock=clock)
        self._native = native
        self._read_cache = EntryCache(cache_bytes)
        self._write_cache = EntryCache(cache_bytes)
        self._drain = DrainRate()
        self._health = LogHealth(database, reserve, clock, self._retry_after_s)
        self._rest = rest
        self._retention = Retention(
            database,
            routes,
            set_aside=self._set_damaged_aside,
            max_bytes=settings.max_bytes,
            retention_s=settings.retention_s,
        )
        # held by a commit, or by a move of ids into runs, because both read and change the known ids
        self._turn = asyncio.Lock()
        self._folds = IdCompactor(self._turn, self._store_background_compaction)
        # held by retention or a recount, so that no entry is deleted while it is counted
        self._upkeep = asyncio.Lock()
        self._no_room_at = float("-inf")
        self._repeated = RepeatedIdCounter(clock)
        self._series = 0
        self._series_pushed_out = 0  # counters deleted for lack of space
        self._mount = mount
        self._durability = mount.flush_durability if mount else FSYNC
        self.readers: list[Reader] = []

    async def open(self) -> None:
        """Open the log. On a full disk, only reading works."""
        if self._mount and self._mount.warning:
            _log.warning(
                "the data directory: %s", self._mount.warning, extra={"action": "storage_not_durable"}
            )
        self._health.restore_disk_reserve()
        numbers, newest = await self._database.run(self._load_state)
        self._planner.set_next_numbers(numbers)
        self._horizon.set_watermarks_at_start(numbers, newest)
        self._writer = GroupCommitWriter(
            self._commit_group,
            self._try_recovery,
            gather_s=self._settings.commit_gather,
            wait_s=self._settings.commit_wait,
            max_waiting=self._settings.waiting_submissions,
        )
        self._rest.start_writing()

    def _load_state(self, connection: sqlite3.Connection) -> tuple[Mapping[str, int], Sequence[OpenRecords]]:
        last = connection.execute(queries.LAST_COMMITTED_AT).fetchone()
        if last and isinstance(self._clock, SteadyClock):
            self._clock.start_no_earlier_than_last_commit(last[0])
        self._unfolded, self._names = store.load_ids_into_index(connection, self._index)
        self._planner.load_spans(partial_reports.find_reports(connection, (), key_prefixes=[SPANS]).values())
        now, hold = self._clock.now(), self._settings.hold
        newest = store.commits_with_records_in_no_delivery(connection, self._routes, now - hold, now + hold)
        return store.next_record_numbers_by_topic(connection), newest

    def add_reader(self, reader: Reader) -> None:
        """
        Add a reader. Retention keeps the entries that it needs. Entries below its position count as closed,
        so reports no longer change what it read before a restart.

        Call this before the reader's first read.
        """
        self.readers.append(reader)
        for topic in TOPICS:
            self._horizon.close_below(
                topic, min(reader(topic) or 1, self._planner.next_numbers.get(topic, 1))
            )

    # -- appending -------------------------------------------------------------------------------------------

    def append_submission(self, submission: Submission) -> Coroutine[Any, Any, Receipt]:
        check_submission(submission)
        return self._writer.append_submission(submission)

    async def _commit_group(self, group: Sequence[Submission]) -> Sequence[PlanAnswer]:
        if self._health.files_gone:
            self._health.check_files()
        if self._health.last_error is not None:
            await self._health.run_test_commit()
        try:
            return await self._commit_once(group)
        except SpoolFull:
            if not await self._make_room():
                raise
            if not self._health.is_well:
                await self._health.run_test_commit()
            return await self._commit_once(group)

    async def _commit_once(self, group: Sequence[Submission]) -> Sequence[PlanAnswer]:
        with self._translate_write_errors():
            async with self._turn:
                now = self._clock.now()
                if self._index.can_compaction_be_due(now):
                    await self._compact_due_ids()
                    now = self._clock.now()
                answers = await self._store_group(group, now)
                self._health.check_files()
                return answers

    async def _store_group(self, group: Sequence[Submission], now: float) -> Sequence[PlanAnswer]:
        began = time.perf_counter()
        closed_below = self._horizon.pause_watermarks()
        # the compiled module reads packed records, which need no copies
        copies = self._native is None and self._read_cache.needs_entries_of_new_commits
        try:
            plan, answers = await self._database.transaction(
                partial(
                    self._write_group,
                    group=group,
                    lowest_open_numbers=closed_below,
                    now=now,
                    caches_copies=copies,
                )
            )
        except BaseException:
            self._horizon.resume_watermarks_after_commit()
            raise
        try:
            numbers = self._planner.apply_plan_and_return_next_numbers(plan)
            first = {topic: plan.first[topic] for topic in numbers}
            if plan.apart:
                self._names += 1
                first[store.NAMES] = self._names
            self._unfolded.note_commit(len(plan.ids), first)
            self._horizon.resume_watermarks_after_commit(numbers)
        except Exception as error:
            raise IndexOutOfStep(answers) from error
        self._read_cache.add_committed(plan.entries)
        self._rest.note_change()
        if self._observer:
            seconds, flush_seconds = time.perf_counter() - began, self._database.last_commit_seconds
            notify_observer(
                self._observer, Commit(seconds=seconds, flush_seconds=flush_seconds, terms=plan.observed)
            )
        return answers

    def _write_group(
        self,
        connection: sqlite3.Connection,
        group: Sequence[Submission],
        lowest_open_numbers: Mapping[str, int],
        now: float,
        caches_copies: bool,
    ) -> tuple[CommitPlan, Sequence[PlanAnswer]]:
        # The write-ahead log counts as used space if it cannot be moved into the file.
        wal_excess = max(0, self._database.wal_bytes() - WAL_BYTES)
        if is_used_space_at_least(connection, self._settings.max_bytes - wal_excess):
            raise self._drain.spool_full_error()
        reader = store.SqliteCommitPlanReader(connection, self._write_cache)
        check = self._raise_if_lighter_party_waits if self._writer.may_give_way else None
        plan = self._planner.plan_group(group, reader, lowest_open_numbers, now, check)
        commit = store.write_commit_plan(
            connection, plan, self._names + 1, check, caches_copies=caches_copies
        )
        receipts = [
            terms.build_receipt(self._sealer.encrypt_receipt_id(commit, index), self._durability)
            for index, terms in enumerate(plan.submissions)
        ]
        if check is not None:
            check()
        return plan, plan.build_answers(receipts)

    def _raise_if_lighter_party_waits(self) -> None:
        if self._writer.is_overtaken:
            raise GroupOvertaken

    # -- between commits -------------------------------------------------------------------------------------

    async def _try_recovery(self) -> bool:
        """
        After a failure, make a test commit. Return True while the log is not well; the caller then repeats
        this every second.
        """
        if self._health.last_error is None:
            return False
        with suppress(SpoolError):  # the error is already logged, and the next call tries again
            try:
                await self._health.run_test_commit()
            except SpoolFull:
                await self._make_room()
        return not self._health.is_well

    async def _compact_due_ids(self) -> None:
        """
        Move a batch of ids to sorted lists if enough have gathered, in the background if commits need not
        wait. The caller must hold the lock `_turn`.
        """
        now = conservative_now_for_deletion(self._clock)
        while self._index.check_compaction_due(now, self._horizon.lowest_open_number_by_topic()):
            if self._index.can_compact_later(now):
                self._folds.start_compaction(
                    lambda: self._index, partial(self._index.oldest_ids_to_compact, now)
                )
                return
            await self._store_compaction(self._index.plan_compaction(now))

    async def _compact_closed_ids(self, *, but_newest: bool = False) -> None:
        """
        Move the ids of records that reports can no longer change to sorted lists. Planning may take long, so
        commits continue meanwhile.
        """
        is_kept = False
        while not is_kept:
            async with self._turn:
                now = conservative_now_for_deletion(self._clock)
                oldest = self._index.oldest_ids_to_compact(
                    now, self._horizon.lowest_open_number_by_topic(), leaves_out_newest=but_newest
                )
            compaction = await asyncio.to_thread(oldest.plan_compaction)
            async with self._turn:
                # if another compaction was faster, some of these ids are already in runs, and this plan is dropped
                is_kept = self._index.folds == oldest.folds
                if is_kept:
                    await self._store_compaction(compaction)

    async def _store_compaction(self, compaction: IdCompaction) -> None:
        names = self._unfolded.first_uncompacted_number_by_kind(compaction.taken).get(store.NAMES)
        write = partial(
            store.write_compaction,
            compaction=compaction,
            first_uncompacted_numbers=self._first_open_or_uncompacted_number_by_topic(compaction.taken),
            first_kept_added_ids_number=names,
        )
        await self._database.transaction(write)
        self._index.apply_compaction(compaction)
        self._unfolded.note_compacted_ids(compaction.taken)

    def _first_open_or_uncompacted_number_by_topic(self, newly_compacted_id_count: int = 0) -> dict[str, int]:
        closed = self._horizon.lowest_open_number_by_topic()
        first_unfolded = self._unfolded.first_uncompacted_number_by_kind(newly_compacted_id_count)
        return {
            topic: min(closed.get(topic, 1), first_unfolded.get(topic, closed.get(topic, 1)))
            for topic in TOPICS
        }

    async def _store_background_compaction(self, compaction: IdCompaction) -> None:
        with self._translate_write_errors():
            await self._store_compaction(compaction)

    async def _make_room(self) -> bool:
        """
        Delete entries that no reader needs. Return False if neither this call nor another within a second
        deleted any.
        """
        now = self._clock.monotonic()
        if now - self._no_room_at < 1 or self._upkeep.locked():
            return False
        async with self._upkeep:
            with self._translate_write_errors():
                removed = await self._remove_entries(wanted=0 if self._health.is_well else RESERVE)
        if not removed:
            self._no_room_at = now
        return removed > 0

    async def _remove_entries(self, *, wanted: int = 0) -> int:
        now = conservative_now_for_deletion(self._clock)
        short = wanted or await self._database.read(self._retention.is_short_of_room)
        if wanted:  # disk space is short: store the sorted ids without the positions of records
            self._index.note_removed_below(self.next_number(AI_TELEMETRY))
        if short or self._index.reaches_back_to(now - self._settings.retention_s):
            # an entry may be deleted only when its ids are in runs
            await self._compact_closed_ids()
        removed = await self._retention.delete_expired_or_excess_entries(
            now, self._lowest_kept_number_by_topic, wanted_bytes=wanted
        )
        if wanted or removed:
            self._index.note_removed_below(
                await self._database.read(partial(lowest_stored_number, topic=AI_TELEMETRY))
            )
        if removed:
            await self._database.read(partial(forget_removed_entries, cache=self._read_cache))
            await self._database.run(partial(forget_removed_entries, cache=self._write_cache))
        progress = await self._database.read(self._retention.reader_progress_over_all_topics)
        self._drain.add_sample(self._clock.monotonic(), progress)
        await self._rest.write_note()
        return removed

    def _lowest_kept_number_by_topic(self) -> dict[str, int]:
        """
        Return by topic the lowest number that must stay. Its record is open, its id is in no sorted list, or
        a reader needs it.
        """
        return {
            topic: lowest_needed_number(topic, first, self.readers)
            for topic, first in self._first_open_or_uncompacted_number_by_topic().items()
        }

    def _retry_after_s(self) -> int:
        return self._drain.retry_after_s(ROOM)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(
        self,
        topic: str,
        first_number: int,
        last_number: int,
        *,
        includes_open_records: bool = False,
        must_be_closed: bool = False,
        native: NativeModule | None = None,
    ) -> Sequence[LogEntry]:
        with self._translate_errors():
            closed = self.lowest_open_number(topic)
            if must_be_closed:
                require_closed(last_number, closed)
            last_number = min(last_number, (self.next_number(topic) if includes_open_records else closed) - 1)
            damage: list[EntryDamage] = []
            entries = await self._database.read(
                partial(
                    read_entries,
                    topic=topic,
                    first_number=first_number,
                    last_number=last_number,
                    cache=self._read_cache,
                    damage=damage,
                    native=native,
                )
            )
            if damage:
                await self._set_entries_aside(topic, damage)
            return entries

    async def _set_entries_aside(self, topic: str, damage: Sequence[EntryDamage]) -> None:
        log_damage(topic, damage)

        def mark_damaged_entries(connection: sqlite3.Connection) -> None:
            for damage_part in damage:
                if connection.execute(queries.MARK_DAMAGED, (topic, damage_part.first)).rowcount:
                    count = {"topic": topic, "term": accounting.DAMAGED, "n": damage_part.records}
                    connection.execute(queries.COUNT, count)

        try:
            await self._database.transaction(mark_damaged_entries)
        except sqlite3.Error as error:  # if the mark for the damage cannot be stored, reading continues
            _log.error("a damaged entry could not be marked: %s", error, extra={"action": "entry_not_marked"})

    def lowest_open_number(self, topic: str) -> int:
        return self._horizon.lowest_open_number(topic)

    def next_number(self, topic: str) -> int:
        return self._planner.next_numbers.get(topic, 1)

    async def newest_number(self, topic: str) -> int:
        return self.next_number(topic)

    def knows_request(self, request: RequestDedupKeys) -> bool:
        return self._index.knows_request(request.body, self._clock.now())

    def find_id_position(self, id: bytes) -> IdPosition | None:
        return self._index.find_id_position(id)

    def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        return self._horizon.watermark_changes(topic)

    async def describe_receipt(self, receipt_id: str) -> Mapping[str, object]:
        with self._translate_errors():
            return await receipt_view(
                receipt_id,
                self._sealer,
                find_counts_of_commit=lambda commit: self._database.read(
                    partial(store.read_counts_of_commit, commit=commit)
                ),
                lowest_open_number=self.lowest_open_number,
                read_lowest_stored_number=lambda topic: self._database.read(
                    partial(lowest_stored_number, topic=topic)
                ),
            )

    async def unrecognised_items(self) -> Sequence[Mapping[str, object]]:
        with self._translate_errors():
            rows = await self._database.read(lambda connection: connection.execute(queries.SHAPES).fetchall())
            return [counted_names.unrecognised_names_json_row(*row) for row in rows]

    async def event_types(self) -> Sequence[EventType]:
        with self._translate_errors():
            rows = await self._database.read(
                lambda connection: connection.execute(queries.EVENT_TYPES).fetchall()
            )
            return [
                EventType(type=type, count=count, amount=store.decode_amount(text), last_seen=last_seen)
                for type, count, text, last_seen in rows
            ]

    async def list_conflicts(self) -> Sequence[Mapping[str, object]]:
        with self._translate_errors():
            return (await self._database.read(store.read_conflicts)).json_rows()

    # -- accounting ------------------------------------------------------------------------------------------

    async def books(self) -> LogAccounting:
        """Return the counts of all topics and routes, read in one transaction so that they agree."""
        with self._translate_errors():
            limits, kept_counts = await self._database.transaction(
                lambda connection: (
                    read_recount_range(connection, self._routes),
                    store.count_stored_records(connection),
                )
            )
            return accounting.check_accounting(
                accounting.accounting_counts_by_topic({**limits.counters, **kept_counts}), limits.routes
            )

    async def verify(self) -> LogAccounting:
        twice_accepted = AcceptedTwiceSearch(
            self._index, window_s=self._settings.duplicate_window, max_ids=self._settings.duplicate_ids
        )
        with self._translate_errors():
            async with self._upkeep:
                limits = await self._database.transaction(
                    lambda connection: read_recount_range(connection, self._routes)
                )
                sums, wrong, damage, unread = await recount_log(self._database, limits, twice_accepted)
                is_set_aside = await self._take_damaged_commits_out_of_accounting(limits, sums, unread, wrong)
            verified = accounting.check_recounted_accounting(limits.counters, sums, limits.routes, wrong)
            # A salvage will repair rows or numbers that contradict each other.
            if not is_set_aside and (wrong or (verified.imbalances and not damage)):
                notes.mark_damaged(self._database.path.parent, EntryUnreadable(verified.imbalances[0]))
            for topic in {topic for topic, _ in damage}:
                await self._set_entries_aside(
                    topic,
                    [damaged_range for damaged_topic, damaged_range in damage if damaged_topic == topic],
                )
            accepted_twice = await twice_accepted.records_accepted_twice_by_topic(
                partial(self.read, includes_open_records=True)
            )
            return replace(verified, accepted_twice=accepted_twice)

    async def _set_damaged_aside(self) -> None:
        limits, kept_counts = await self._database.transaction(
            lambda connection: (
                read_recount_range(connection, self._routes),
                store.count_stored_records(connection),
            )
        )
        sums, wrong, unread = await recount_commits(self._database, limits)
        await self._take_damaged_commits_out_of_accounting(
            limits, Counter({**sums, **kept_counts}), unread, wrong
        )

    async def _take_damaged_commits_out_of_accounting(
        self,
        recount_range: RecountRange,
        accounting_counts: TermCounter,
        commits: Sequence[int],
        problems: Sequence[str],
    ) -> bool:
        if not commits or len(commits) < len(problems):
            return False
        known = accounting.counts_of_damaged_commits_and_uncounted_part(
            recount_range.counters, accounting_counts, recount_range.routes
        )
        if known is None:
            return False
        try:
            await self._database.transaction(
                lambda connection: store_counts_of_damaged_commits(connection, commits, *known)
            )
        except sqlite3.Error as error:
            _log.error(
                "damaged commits could not be excluded: %s", error, extra={"action": "commits_not_set_aside"}
            )
            return False
        log_damaged_commits(commits)
        return True

    def watch_file(self, name: str, is_in_place: Callable[[], bool]) -> None:
        """Check that a file is in its place before each commit. If it is not, nothing is stored."""
        self._health.files[name] = is_in_place

    def _last_problem(self) -> str | None:
        try:
            self._health.check_files()
        except SpoolUnavailable as error:
            return str(error)
        return self._health.last_error

    async def stats(self) -> LogStats:
        with self._translate_errors():

            def count_entries(connection: sqlite3.Connection) -> tuple[int, FileSpace]:
                (entries,) = connection.execute(queries.ENTRIES).fetchone()
                return entries, measure_space(connection)

            entries, room = await self._database.read(count_entries)
            trouble = self._last_problem()
            used = room.used + max(0, self._database.wal_bytes() - WAL_BYTES)
            return LogStats(
                entries=entries,
                bytes=used,
                free_bytes=max(0, self._settings.max_bytes - used),
                max_bytes=self._settings.max_bytes,
                duplicate_window_s=self._index.covered_window_s(self._clock.now()),
                duplicate_ids=len(self._index),
                series=self._series,
                max_series=self._settings.max_series,
                series_pushed_out=self._series_pushed_out,
                pending_spans=len(self._planner.spans),
                writable=trouble is None and self._writer.is_alive and used < self._settings.max_bytes,
                last_error=trouble,
                mount=self._mount,
                wal_bytes=self._database.wal_bytes(),
                wal_problem=self._database.checkpoint_problem,
                alive=self._writer.is_alive,
                commit_s=max(self._writer.running_s, self._database.busy_s),
                waiting=self._writer.waiting_count,
                cache_bytes=self._read_cache.bytes + self._write_cache.bytes,
            )

    # -- upkeep ----------------------------------------------------------------------------------------------

    async def count_repeated_ids(self) -> int:
        return await self._repeated.cached_repeated_id_count(self._index)

    async def run_retention(self) -> int:
        """
        Delete old entries. Disk errors are only logged, because the next run repeats the work and readiness
        reports them.
        """
        async with self._upkeep:
            try:
                with self._translate_errors():
                    return await self._run_retention()
            except SpoolUnavailable as error:
                _log.error(
                    "retention failed and will be repeated: %s", error, extra={"action": "retention_failed"}
                )
                return 0

    async def _run_retention(self) -> int:
        now = conservative_now_for_deletion(self._clock)
        removed = await self._remove_entries()
        await self._delete_old_series(now)
        while await self._database.transaction(
            partial(delete_some_old_totals, now=now, settings=self._settings)
        ):
            pass
        return removed

    async def _delete_old_series(self, now: float) -> None:
        while await self._database.transaction(partial(delete_old_counter_series, now=now)):
            pass
        count = await self._database.read(
            lambda connection: connection.execute(queries.COUNT_SERIES).fetchone()
        )
        self._series = count[0]
        while (excess := self._series - self._settings.max_series) > 0:
            pushed_out = await self._database.transaction(
                partial(delete_excess_counter_series, now=now, excess_series_count=excess)
            )
            self._series -= pushed_out
            self._series_pushed_out += pushed_out

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """
        Raise the storage's errors for SQLite's. A damaged file is marked, so that the next start salvages it.
        """
        try:
            yield
        except sqlite3.Error as error:
            if is_corrupt(error):
                notes.mark_damaged(self._database.path.parent, error)
                raise SpoolDamaged(
                    f"spool.sqlite is damaged ({error}): restart to salvage what can be read"
                ) from error
            raise SpoolUnavailable(f"the spool cannot be read or written: {error}") from error

    @contextmanager
    def _translate_write_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._health.note_failure(error) from error

    def note_settled_deliveries(self) -> None:
        """Note that deliveries were settled, so that few of them are repeated after a salvage."""
        self._rest.note_change()

    async def close(self) -> None:
        """
        Commit the waiting submissions and move ids to stored lists, so that the next start reads little.

        The newest ids are not moved, because late reports may still correct their records after the start.
        """
        await self._writer.close()
        await self._folds.wait_for_compaction()
        await self._rest.stop_writing()
        # skip: the dead writer may have stored records that memory does not know, so the next start reads them
        if self._writer.has_died:
            return
        try:
            # written first, because the next step may find damage, and the next start then needs the note
            await self._rest.write_note()
            await self._compact_closed_ids(but_newest=True)
        except sqlite3.Error as error:  # the next start reads the ids from the entries
            _log.warning("known ids were not saved in runs: %s", error, extra={"action": "ids_not_folded"})
