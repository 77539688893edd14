"""
The log on PostgreSQL: group commits under the head lock, following of other nodes, and reads of closed records.

Each node has the next numbers, known ids and open records in memory, as of the newest commit row that
it has read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

from spool.clock import Clock
from spool.disks import FSYNC
from spool.errors import SpoolError, SpoolFull, SpoolUnavailable
from spool.identity import RequestDedupKeys
from spool.log.accepted_twice import AcceptedTwiceSearch
from spool.log.commits.following import numbers_by_topic
from spool.log.commits.writer import GroupCommitWriter
from spool.log.counted_names import EventType
from spool.log.duplicates import IdPosition, RepeatedIdCounter
from spool.log.entries.codec import EntryDamage, log_damage
from spool.log.planning.plan import PlanAnswer
from spool.log.planning.planner import check_submission
from spool.log.protocols import CommitObserver
from spool.log.receipts import ReceiptIdCipher, receipt_view
from spool.log.retention import Reader
from spool.log.values import LogAccounting, LogEntry, LogStats, Receipt, Submission
from spool.log.watermarks import require_closed
from spool.packed.native import NativeModule
from spool.postgres.database import Connection, Database
from spool.postgres.log import commit_findings, queries, store
from spool.postgres.log.commits import CommitAttemptWriter, GroupCommits, Move, Versions, build_no_op_writer
from spool.postgres.log.confirmed import ConfirmedCommits
from spool.postgres.log.entries import lowest_stored_number, read_entries, topic_code
from spool.postgres.log.id_compaction import NodeIdCompactor
from spool.postgres.log.memory import DatabaseClock, NodeMemory, PostgresWatermarks
from spool.postgres.log.recount import AccountingVerifier, LogRoutes
from spool.postgres.log.retention import LogSpace, PostgresRetention
from spool.postgres.log.upkeep import LogFollower, LogUpkeep, Trim, trim_nothing
from spool.settings import LOCAL, PLATFORM, REPLICATED, SpoolSettings

# decoded entries for readers, about nine thousand records; at most twice as much memory
CACHE_BYTES = 16 << 20
STATS_S = 5.0  # seconds for the database to report how much is stored

_log = logging.getLogger(__name__)


class PostgresLog:
    """
    One node's access to a log to which several nodes append.

    `versions` queries the versions of waiting partial reports. `move` makes the writes to other tables that
    belong to a commit. `trim` deletes some expired data outside the log in a transaction of its own, and is
    called until nothing is left. Retention deletes nothing that a reader still needs. `confirmed` stores
    confirmed commits outside the database.
    """

    def __init__(
        self,
        database: Database,
        *,
        settings: SpoolSettings,
        clock: Clock,
        secret: bytes,
        routes: LogRoutes,
        observer: CommitObserver | None = None,
        versions: Versions = lambda connection, keys: dict,
        move: Move = build_no_op_writer,
        trim: Trim = trim_nothing,
        durability: str = REPLICATED,
        node: UUID | None = None,
        cache_bytes: int = CACHE_BYTES,
        native: NativeModule | None = None,
        confirmed: ConfirmedCommits | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._routes = routes
        self._sealer = ReceiptIdCipher(secret)
        # durability that receipts report
        self._proof = FSYNC if durability == LOCAL else REPLICATED
        self._counted = (0, 0)  # entries and bytes at the last query of their number
        self.readers: list[Reader] = []
        self._clock = DatabaseClock(database, clock)
        self._repeated = RepeatedIdCounter(clock)
        self._horizon = PostgresWatermarks(self._clock)
        self._verification = AccountingVerifier(database, routes)
        self._retention = PostgresRetention(
            database,
            routes,
            set_aside=self._verification.recount_damaged_commits_before_deletion,
            max_bytes=settings.max_bytes,
            retention_s=settings.retention_s,
        )
        room = LogSpace(database, self._retention, clock, max_bytes=settings.max_bytes)
        self._memory = NodeMemory(
            database,
            settings=settings,
            secret=secret,
            clock=self._clock,
            horizon=self._horizon,
            room=room,
            cache_bytes=cache_bytes,
            native=native,
            confirmed=confirmed,
        )
        self._folds = folds = NodeIdCompactor(database, self._memory, self._clock)
        attempts = CommitAttemptWriter(
            database,
            memory=self._memory,
            clock=self._clock,
            room=room,
            sealer=self._sealer,
            versions=versions,
            move=move,
            hold_s=settings.hold,
            proof=self._proof,
            node=node or uuid4(),
            in_two_steps=durability != PLATFORM,
            needs_standby=durability == REPLICATED,
        )
        self._commits = GroupCommits(
            database,
            attempts,
            memory=self._memory,
            horizon=self._horizon,
            folds=folds,
            observer=observer,
            wait_s=settings.commit_wait,
        )
        self._upkeep = LogUpkeep(
            database,
            clock=clock,
            database_clock=self._clock,
            retention=self._retention,
            retention_s=settings.retention_s,
            max_series=settings.max_series,
            memory=self._memory,
            folds=folds,
            commits=self._commits,
            room=room,
            readers=self.readers,
            trim=trim,
        )

    async def open(self) -> None:
        await self._memory.load()
        await self._commits.confirm_loaded_commits_on_standby()
        self._writer = GroupCommitWriter(
            self._commit_group,
            self._begin_partitions_or_retry_commit,
            gather_s=self._settings.commit_gather,
            wait_s=self._settings.commit_wait,
            max_waiting=self._settings.waiting_submissions,
            answers_in_time=True,
            storage_name="the database",
        )
        self._follower = LogFollower(
            self._database, memory=self._memory, horizon=self._horizon, commits=self._commits
        )

    def add_reader(self, reader: Reader) -> None:
        """
        Add a reader. Retention preserves the entries that it needs.

        Call this before the reader's first read.
        """
        self.readers.append(reader)

    # -- appending -------------------------------------------------------------------------------------------

    async def append_submission(self, submission: Submission) -> Receipt:
        check_submission(submission)
        return await self._writer.append_submission(submission)

    async def _commit_group(self, group: Sequence[Submission]) -> Sequence[PlanAnswer]:
        try:
            return await self._commits.commit(group)
        except SpoolFull:
            if not await self._upkeep.delete_unneeded_entries():
                raise
            return await self._commits.commit(group)

    async def _begin_partitions_or_retry_commit(self) -> bool:
        """
        Begin a new partition of the log tables if the current one is full. After a failed commit, try an
        empty commit every second; when it succeeds, the readiness check passes again.
        """
        if self._commits.last_error is not None:
            with suppress(SpoolError):
                await self._commits.make_empty_commit()
            return self._commits.last_error is not None
        await self._upkeep.begin_partitions_if_full()
        return False

    async def read_foreign_commits(self) -> None:
        """Read commits of other nodes, including every commit before this call."""
        await self._memory.read_foreign_commits()

    @property
    def commit_problem(self) -> str | None:
        return self._commits.last_error

    async def close_due_records(self) -> None:
        await self._commits.close_due_records()

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
        if not includes_open_records and self._memory.lowest_open_numbers[topic] <= min(
            last_number, self.lowest_open_number(topic) - 1
        ):
            await self._commits.close_due_records()
        closed = self._memory.lowest_open_numbers[topic]
        if must_be_closed:
            require_closed(last_number, closed)
        last_number = min(last_number, (self.next_number(topic) if includes_open_records else closed) - 1)
        damage: list[EntryDamage] = []
        entries = await self._database.read(
            partial(
                read_entries,
                self._database,
                topic=topic,
                first_number=first_number,
                last_number=last_number,
                cache=self._memory.read_cache,
                damage=damage,
                whole=must_be_closed,
                native=native,
            )
        )
        if damage:
            await self._set_entries_aside(topic, damage)
        return entries

    async def _set_entries_aside(self, topic: str, damage: Sequence[EntryDamage]) -> None:
        """
        Mark damaged entries, so that they are never read again. The records of each are counted and logged
        only once.
        """
        log_damage(topic, damage)
        damaged = sorted({damaged_range.first: damaged_range.records for damaged_range in damage}.items())
        facts = {
            "topic": topic_code(topic),
            "name": topic,
            "firsts": [first for first, _ in damaged],
            "records": [records for _, records in damaged],
        }
        await self._database.run(
            lambda connection: connection.execute(
                self._database.fill_in_table_names(queries.MARK_DAMAGED), facts
            )
        )

    def lowest_open_number(self, topic: str) -> int:
        return self._horizon.lowest_open_number(topic)

    def next_number(self, topic: str) -> int:
        return numbers_by_topic(self._memory.following.last.next)[topic]

    async def newest_number(self, topic: str) -> int:
        await self.read_foreign_commits()
        return self.next_number(topic)

    def knows_request(self, request: RequestDedupKeys) -> bool:
        return self._memory.index.knows_request(request.body, self._clock.now())

    def find_id_position(self, id: bytes) -> IdPosition | None:
        return self._memory.index.find_id_position(id)

    def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        return self._horizon.watermark_changes(topic)

    async def describe_receipt(self, receipt_id: str) -> Mapping[str, object]:
        return await receipt_view(
            receipt_id,
            self._sealer,
            find_counts_of_commit=lambda commit: self._database.read(
                partial(store.read_commit_terms, self._database, commit=commit)
            ),
            lowest_open_number=self.lowest_open_number,
            read_lowest_stored_number=lambda topic: self._database.read(
                partial(lowest_stored_number, self._database, topic=topic)
            ),
        )

    async def unrecognised_items(self) -> Sequence[Mapping[str, object]]:
        await commit_findings.add_all_commits_to_accounting(self._database)
        return await self._database.read(
            partial(commit_findings.read_unrecognised_attribute_names, self._database)
        )

    async def event_types(self) -> Sequence[EventType]:
        await commit_findings.add_all_commits_to_accounting(self._database)
        return await self._database.read(partial(commit_findings.read_event_types, self._database))

    async def list_conflicts(self) -> Sequence[Mapping[str, object]]:
        await commit_findings.add_all_commits_to_accounting(self._database)
        return (
            await self._database.read(partial(commit_findings.read_report_conflicts, self._database))
        ).json_rows()

    # -- accounting ------------------------------------------------------------------------------------------

    async def books(self) -> LogAccounting:
        return await self._verification.read_log_accounting()

    async def verify(self) -> LogAccounting:
        def new_repeats() -> AcceptedTwiceSearch:
            settings = self._settings
            window_s, max_ids = settings.duplicate_window, settings.duplicate_ids
            return AcceptedTwiceSearch(self._memory.index, window_s=window_s, max_ids=max_ids)

        async with self._upkeep.lock:
            verified, damage, seen = await self._verification.recount_and_verify(new_repeats)
        for topic in {topic for topic, _ in damage}:
            await self._set_entries_aside(
                topic, [damaged_range for damaged_topic, damaged_range in damage if damaged_topic == topic]
            )
        return replace(
            verified,
            accepted_twice=await seen.records_accepted_twice_by_topic(
                partial(self.read, includes_open_records=True)
            ),
        )

    async def stats(self) -> LogStats:
        def read_log_counts(connection: Connection) -> tuple[int, int]:
            newest = connection.execute(self._database.fill_in_table_names(queries.NEWEST)).fetchone()
            marks = connection.execute(self._database.fill_in_table_names(queries.MARKS)).fetchone()
            assert marks is not None
            return (newest[3] if newest else 0) - marks[3], self._retention.used_bytes(connection)

        away = None
        try:
            async with asyncio.timeout(STATS_S):
                self._counted = await self._database.snapshot(read_log_counts)
        # this process works, and a restart would not help
        except (SpoolUnavailable, TimeoutError) as error:
            away = str(error) or "the database does not respond"
        entries, used = self._counted
        trouble = away or self._commits.last_error
        return LogStats(
            entries=entries,
            bytes=used,
            free_bytes=max(0, self._settings.max_bytes - used),
            max_bytes=self._settings.max_bytes,
            duplicate_window_s=self._memory.index.covered_window_s(self._clock.now()),
            duplicate_ids=len(self._memory.index),
            series=self._upkeep.series,
            max_series=self._settings.max_series,
            series_pushed_out=self._upkeep.series_pushed_out,
            pending_spans=len(self._memory.following.planner.spans),
            writable=trouble is None and self._writer.is_alive and used < self._settings.max_bytes,
            last_error=trouble,
            alive=self._writer.is_alive,
            commit_s=self._writer.running_s,
            waiting=self._writer.waiting_count,
            cache_bytes=self._memory.read_cache.bytes + self._memory.write_cache.bytes,
            durability=self._proof,
        )

    # -- upkeep ----------------------------------------------------------------------------------------------

    async def count_repeated_ids(self) -> int:
        return await self._repeated.cached_repeated_id_count(self._memory.index)

    async def run_retention(self) -> int:
        return await self._upkeep.run_retention()

    def note_settled_deliveries(self) -> None:
        """Do nothing: a settled delivery needs no note here."""

    async def close(self) -> None:
        """Close the log. Nothing else is saved, because the commit rows contain the whole state in memory."""
        await self._writer.close()
        await self._folds.wait_for_compaction()
        await self._follower.close()
        await self._memory.write_confirmed_commits()
