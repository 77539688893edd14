"""
The log on PostgreSQL: appends in groups under the head, follows what other nodes commit, reads what is closed.

Numbers, known ids and what is open are in the memory of every node, as of the newest commit row that it followed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from uuid import UUID, uuid4

from spool.clock import Clock
from spool.disks.mounts import FSYNC
from spool.errors import EntryUnreadable, NotThere, SpoolError, SpoolFull, SpoolUnavailable
from spool.log import books
from spool.log.commits.following import SOONER_S, CommitRow, Following, by_topic
from spool.log.commits.writer import GroupWriter, IndexOutOfStep
from spool.log.duplicates import DuplicateIndex, Fold, Whereabouts
from spool.log.event_types import EventType
from spool.log.expectations import expected_keys
from spool.log.observation import notify
from spool.log.plan import Answer, Plan, check
from spool.log.protocols import Observer
from spool.log.receipts import Sealer
from spool.log.retention import DrainRate, Reader, lowest_needed
from spool.log.runs import count_repeats
from spool.log.values import Books, Commit, Entry, LogStats, Receipt, Submission
from spool.postgres.database import CommitUnknown, Connection, Database, LockWaited, Unconfirmed
from spool.postgres.log import finds, queries, store
from spool.postgres.log.entries import Damage, Shelf, code, oldest, read_entries
from spool.postgres.log.finds import BookedMeanwhile
from spool.postgres.log.recount import RouteTerms, border, recount
from spool.postgres.log.retention import PostgresRetention, RemovedMeanwhile, RouteNeeds, drop_old_series
from spool.record import TOPICS
from spool.settings import LOCAL, REPLICATED, SpoolSettings

CACHE_BYTES = 16 << 20  # records kept for the next reader, about nine thousand decoded ones; twice at most
FOLLOW_S = 0.1  # between looks at what other nodes committed
BOOK_S = 2.0  # between two countings of commits into the books, about
STOPPED_S = 3.0  # in an append that is not waiting for the standby
STATS_S = 5.0  # what the database is given to say how much it keeps
TICK_S = 1.0  # what is overdue for so long is closed by an empty commit, if nobody commits
LOOK_AGAIN_S = 0.1  # of a reader that waits: the clock is a parameter and may jump
STEP_S = 0.02  # what closes within this time is one change
FIRST_REPEATS_S = 3600  # after a start: a look for ids that came again beyond what a lookup covers
REPEATS_EVERY_S = 86_400  # and between two of them
RECOUNTS = 5  # of a recount under which retention removed something

_log = logging.getLogger(__name__)

Move = Callable[[Connection, Plan], None]
Trim = Callable[[Connection, float], bool]
Versions = Callable[[Connection, Sequence[bytes]], Mapping[bytes, int]]


class LogRoutes(RouteTerms, RouteNeeds, Protocol):
    """What the log asks of the deliveries, inside its transactions."""


class MemoryIsAhead(SpoolUnavailable):
    """The newest commit that is known is not in the database: another server, or an older state of it, answers."""


@dataclass
class _Attempt:
    """One commit of a group, until it is known whether it stands."""

    row: CommitRow
    plan: Plan
    answers: Sequence[Answer]
    ended: float  # when everything but COMMIT was done


@dataclass
class _Group:
    """A group that is being committed, with what was tried so far."""

    submissions: Sequence[Submission]
    wait: bool = True
    attempts: list[_Attempt] = field(default_factory=list)
    stands: _Attempt | None = None  # an earlier attempt of which the outcome was unknown


class PostgresLog:
    """
    Several nodes append to one log, each with this.

    `versions` are those of waiting reports, and `moves` is what else changes with a commit, in its transaction. `trim`
    removes some of what has had its time beside the log, in transactions of its own, until there is nothing left.
    Retention removes nothing that a reader still needs.
    """

    def __init__(
        self,
        database: Database,
        *,
        settings: SpoolSettings,
        clock: Clock,
        secret: bytes,
        routes: LogRoutes,
        observer: Observer | None = None,
        versions: Versions = lambda connection, keys: {},
        moves: Sequence[Move] = (),
        trim: Trim = lambda connection, now: False,
        durability: str = REPLICATED,
        node: UUID | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._secret = secret
        self._routes = routes
        self._observer = observer
        self._versions = versions
        self._moves = moves
        self._trim = trim
        self._durability = durability
        self._node = node or uuid4()
        self._sealer = Sealer(secret)
        self._read_shelf, self._write_shelf = Shelf(cache_bytes), Shelf(cache_bytes)
        self._drain = DrainRate()
        self._retention = PostgresRetention(
            database, routes, max_bytes=settings.max_bytes, retention_s=settings.retention
        )
        self._turn = asyncio.Lock()  # of a commit, a fold or following: all read and change the memory
        self._upkeep = asyncio.Lock()
        self._moved = asyncio.Event()
        self._has_resting = False  # readers that wait until they are told
        self._closing = asyncio.Event()
        self._no_room_at = float("-inf")
        self._repeats_at = clock.monotonic() + FIRST_REPEATS_S
        self._freed = 0  # bytes of the log before its oldest period
        self._period_bytes = 0  # of the log before the period in hand
        self._shown: dict[str, int] = {}
        self._failed: str | None = None
        self._counted = (0, 0)  # entries and bytes, when they were last asked for
        self.repeated_ids = 0
        self.readers: list[Reader] = []

    async def open(self) -> None:
        """Read what is kept, then take submissions."""
        await self._load()
        self._writer = GroupWriter(
            self._commit,
            self._between,
            gather_s=self._settings.commit_gather,
            wait_s=self._settings.commit_wait,
            max_waiting=self._settings.waiting_submissions,
        )
        self._follower = asyncio.create_task(self._run(), name="follow other nodes")

    async def _load(self) -> None:
        index = DuplicateIndex(
            self._secret, window_s=self._settings.duplicate_window, max_ids=self._settings.duplicate_ids
        )
        hold_s = self._settings.hold
        loaded = await self._database.snapshot(partial(store.load, self._database, index=index, hold_s=hold_s))
        self._following = loaded.following
        self._runs_seq: int | None = loaded.seq
        self._noted_at(loaded.now)
        self._read_shelf.clear()
        self._write_shelf.clear()
        self._freed = await self._database.read(self._retention.freed)
        self._wake()

    def add_reader(self, reader: Reader) -> None:
        """Before anything is read: retention keeps what a reader needs."""
        self.readers.append(reader)

    # -- time --------------------------------------------------------------------------------------------------------

    def _noted_at(self, now: float) -> None:
        """The database's clock counts, and between two answers of it our timer."""
        self._noted = now, self._clock.monotonic()

    def _now(self) -> float:
        moved = self._database.now()
        if moved is not None:
            return moved
        at, timer = self._noted
        return at + self._clock.monotonic() - timer

    # -- appending ---------------------------------------------------------------------------------------------------

    async def append(self, submission: Submission) -> Receipt:
        check(submission)
        return await self._writer.append(submission)

    async def _commit(self, group: Sequence[Submission]) -> Sequence[Answer]:
        try:
            return await self._commit_once(group)
        except SpoolFull:
            if not await self._make_room():
                raise
            return await self._commit_once(group)

    async def _commit_once(self, group: Sequence[Submission]) -> Sequence[Answer]:
        async with self._turn:
            await self._fold_what_is_due()
            return await self._keep(_Group(group))

    async def _keep(self, group: _Group) -> Sequence[Answer]:
        """
        Commit a group; only after it the memory is updated.

        When the connection is lost at COMMIT, or the standby does not confirm, the next attempt looks whether the last
        one stands: then its own commit, an empty one, is the proof that it does so for good.
        """
        began = time.perf_counter()
        until = began + self._settings.commit_wait
        while True:
            try:
                attempt = await self._database.append.transaction(partial(self._write, group=group))
            except MemoryIsAhead as error:
                _log.warning("%s: everything is read again", error, extra={"action": "memory_reloaded"})
                await self._load()
            except (CommitUnknown, Unconfirmed) as error:
                _log.warning("a commit is looked up: %s", error, extra={"action": "commit_unknown"})
                self._failed = str(error)
            except LockWaited as error:
                _log.warning("another node has the head for long: %s", error, extra={"action": "head_held"})
                await self._end_stopped()
            except SpoolUnavailable as error:
                self._failed = str(error)
                if not group.attempts:
                    raise
                await asyncio.sleep(min(0.2, max(0.0, until - time.perf_counter())))
            else:
                break
            if time.perf_counter() > until:
                raise SpoolUnavailable("the database did not confirm the commit in time (spool.commit_wait)")
        self._failed = None
        if attempt is None:
            return ()
        self._apply(attempt)
        kept = group.stands or attempt
        if self._observer and group.submissions:
            done = time.perf_counter()
            commit = Commit(seconds=done - began, flush_seconds=done - attempt.ended, terms=kept.plan.observed)
            notify(self._observer, commit)
        return kept.answers

    async def _end_stopped(self) -> None:
        """End the session of a process that stopped while it had the head: its group did not happen."""
        seconds = {"seconds": STOPPED_S}
        ended = await self._database.control.read(
            lambda connection: connection.execute(self._database.sql(queries.END_STOPPED), seconds).fetchall()
        )
        if ended:
            _log.error("the session of a node that had stopped was ended", extra={"action": "session_ended"})

    def _apply(self, attempt: _Attempt) -> None:
        try:
            self._following.committed(attempt.row, attempt.plan)
            self._following.confirmed = attempt.row.id
        except Exception as error:
            raise IndexOutOfStep(attempt.answers) from error
        self._wake_resting()

    def _write(self, connection: Connection, group: _Group) -> _Attempt | None:
        """On the connection's thread: plan and write under the head. What can fail is done before COMMIT."""
        following = self._following
        points = {point.series for one in group.submissions for point in one.points}
        head = store.take_head(self._database, connection, following.last, series=sorted(points), wait=group.wait)
        if head is None:
            return None
        self._check_standby(head.standbys)
        self._catch_up(following, head.rows)
        self._noted_at(head.now)
        group.stands = self._standing(connection, group)
        submissions = () if group.stands else group.submissions
        if submissions:
            self._check_room(connection)
        now = following.time_of_next(head.now)
        closed = following.closed_at(now, durable=following.durable)
        keys = expected_keys(submissions)
        reader = store.PostgresPlanReader(
            self._database,
            connection,
            self._write_shelf,
            series=head.series,
            versions=self._versions(connection, keys) if keys else {},
        )
        plan = following.planner.plan(submissions, reader, by_topic(closed), now)
        row = store.write(
            self._database,
            connection,
            plan,
            reader,
            following,
            period=head.period,
            closed=closed if self._settings.hold else None,
            node=self._node,
        )
        for move in self._moves:
            move(connection, plan)
        receipts = [
            terms.receipt(self._sealer.seal(row.id, place), self._proof) for place, terms in enumerate(plan.submissions)
        ]
        attempt = _Attempt(row, plan, plan.answers(receipts), time.perf_counter())
        group.attempts.append(attempt)
        return attempt

    @property
    def _proof(self) -> str:
        """What a receipt says that the records have survived."""
        return FSYNC if self._durability == LOCAL else REPLICATED

    def _check_standby(self, standbys: str) -> None:
        if self._durability == REPLICATED and not standbys:
            raise SpoolUnavailable(
                "the standby is gone: synchronous_standby_names is empty. Mend it, or set storage.durability"
            )

    def _check_room(self, connection: Connection) -> None:
        used = self._following.last.size - self._freed
        if used >= self._settings.max_bytes:
            self._freed = self._retention.freed(connection)  # another node may have removed a period
            if self._following.last.size - self._freed >= self._settings.max_bytes:
                raise self._drain.spool_full()

    def _standing(self, connection: Connection, group: _Group) -> _Attempt | None:
        """The earlier attempt that stands, though its COMMIT was not answered."""
        for attempt in group.attempts:
            where = {"id": attempt.row.id, "token": attempt.row.token}
            if connection.execute(self._database.sql(queries.STANDS), where).fetchone():
                return attempt
        return None

    # -- following ---------------------------------------------------------------------------------------------------

    def _catch_up(self, following: Following, rows: Iterable[CommitRow]) -> None:
        """MemoryIsAhead when the row that was followed last is not the first of these."""
        rows = iter(rows)
        last = following.last
        if last.id:
            found = next(rows, None)
            if found is None or (found.id, found.token) != (last.id, last.token):
                raise MemoryIsAhead(f"commit {last.id} is not in the database")
        for row in rows:
            following.follow(row)

    async def follow(self) -> None:
        """Know everything that was committed before this was called."""
        async with self._turn:
            try:
                await self._follow()
            except MemoryIsAhead as error:
                _log.warning("%s: everything is read again", error, extra={"action": "memory_reloaded"})
                await self._load()

    async def _follow(self) -> None:
        following = self._following
        last = following.last

        def work(connection: Connection) -> float:
            rows, now = store.rows_since(self._database, connection, last)
            self._catch_up(following, rows)
            return now

        self._noted_at(await self._database.read(work))
        if following.last.id != last.id:
            self._wake_resting()

    async def close_what_is_due(self) -> None:
        """
        Have the newest commit row say what is closed by now: whoever acts upon numbers asks that row.

        The first of two empty commits proves that what is to be closed outlives the loss of the machine.
        """
        for _ in range(2):
            async with self._turn:
                if not self._is_overdue():
                    return
                await self._keep(_Group(()))

    def _is_overdue(self) -> bool:
        now, last = self._now(), self._following.last
        return self._following.closed_at(now) != last.closed or last.at > now + SOONER_S

    async def _run(self) -> None:
        """Follow other nodes; close what is due when nobody commits; count commits into the books."""
        books_at = time.monotonic() + BOOK_S
        overdue_since: float | None = None
        is_away = False
        while not self._closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await self._closing.wait()
                    return
            try:
                await self.follow()
                now = time.monotonic()
                if not self._is_overdue():
                    overdue_since = None
                elif overdue_since is None:
                    overdue_since = now + TICK_S * random.random()
                elif now > overdue_since:
                    async with self._turn:
                        await self._keep(_Group((), wait=False))
                    overdue_since = now + TICK_S
                if now > books_at:
                    books_at = now + BOOK_S * (0.5 + random.random())
                    await self._book()
                is_away = False
            except SpoolError as error:
                if not is_away:
                    _log.error("other nodes cannot be followed: %s", error, extra={"action": "following_failed"})
                is_away = True
            except Exception:  # noqa: BLE001 - following must outlive whatever it meets
                _log.exception("following failed", extra={"action": "following_failed"})

    # -- between commits ---------------------------------------------------------------------------------------------

    async def _between(self) -> bool:
        """
        After every group: a period that is full is followed by the next. After one that failed, every second until it
        succeeds: an empty commit, so that readiness knows when commits work again.
        """
        if self._failed is not None:
            with suppress(SpoolError):
                async with self._turn:
                    await self._keep(_Group(()))
            return self._failed is not None
        if self._following.last.size - self._period_bytes >= self._retention.period_bytes:
            self._period_bytes = self._following.last.size
            try:
                await self._retention.begin_period(self._now())
            except SpoolUnavailable as error:
                _log.warning("a new period did not begin: %s", error, extra={"action": "period_not_begun"})
        return False

    async def _fold_what_is_due(self) -> None:
        """
        Newest ids become runs. The caller has the turn.

        Closed ones, as an open record is found by its id; what other nodes kept a moment ago is among the newest, too.
        """
        now, closed = self._now(), by_topic(self._following.last.closed)
        while self._following.index.due(now, closed):
            if not await self._fold(partial(self._following.index.fold, now, closed)):
                await self._fold(partial(self._following.index.fold, now))

    async def _fold_all(self) -> None:
        """
        Every closed id becomes part of a stored run, whoever stored runs last: if another node did, everything is read
        again first.
        """
        async with self._turn:
            for _ in range(2):
                if self._runs_seq is None:
                    await self._load()
                index, closed = self._following.index, by_topic(self._following.last.closed)
                await self._fold(partial(index.fold, self._now(), closed))
                if self._runs_seq is not None:
                    return

    async def _fold(self, plan: Callable[[], Fold]) -> int:
        """
        How many ids became runs. These are stored by one node at a time; the others merge their own in memory alone.
        """
        following, seq = self._following, self._runs_seq
        fold = await asyncio.to_thread(plan)
        if seq is not None:
            commit = following.folded_through(fold.taken)
            write = partial(store.write_fold, self._database, fold=fold, commit=commit, seq=seq)
            self._runs_seq = seq + 1 if await self._database.transaction(write) else None
        following.index.folded(fold)
        following.folded(fold.taken)
        return fold.taken

    # -- room --------------------------------------------------------------------------------------------------------

    async def _make_room(self) -> bool:
        """Remove entries that no reader needs before their time; False when none went, now or a second ago."""
        now = self._clock.monotonic()
        if now - self._no_room_at < 1 or self._upkeep.locked():
            return False
        async with self._upkeep:
            try:
                removed = await self._remove()
            except RemovedMeanwhile:
                return True
        if not removed:
            self._no_room_at = now
        return removed > 0

    async def _remove(self) -> int:
        """What age and space allow. The caller has the upkeep."""
        await self.follow()
        await self.close_what_is_due()
        await self._book()
        now = self._now()
        if await self._database.read(self._retention.short_of_room):
            await self._retention.begin_period(now)
            async with self._turn:
                await self._keep(_Group(()))  # the newest row always stays: its period must not be one that is to go
            await self._fold_all()
            await self._book()
        elif self._following.index.reaches_back_to(now - self._settings.retention):
            await self._fold_all()
        removed = await self._retention.run(now, self._limits)
        self._freed = await self._database.read(self._retention.freed)
        self._drain.note(self._clock.monotonic(), await self._database.snapshot(self._retention.progress))
        return removed

    def _limits(self) -> dict[str, int]:
        """By topic, the lowest number that must stay: it is open, or a reader needs it."""
        closed = by_topic(self._following.last.closed)
        return {topic: lowest_needed(topic, closed[topic], self.readers) for topic in TOPICS}

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read(self, topic: str, first: int, last: int, *, with_open: bool = False) -> Sequence[Entry]:
        if not with_open and last >= by_topic(self._following.last.closed)[topic]:
            await self.close_what_is_due()
        closed = by_topic(self._following.last.closed)[topic]
        last = min(last, (self.next_number(topic) if with_open else closed) - 1)
        damage: list[Damage] = []
        entries = await self._database.read(
            partial(
                read_entries,
                self._database,
                topic=topic,
                first=first,
                last=last,
                shelf=self._read_shelf,
                damage=damage,
            )
        )
        if damage:
            await self._set_aside(topic, damage)
        return entries

    async def _set_aside(self, topic: str, damage: Sequence[Damage]) -> None:
        """Mark damaged entries once, count and log their records."""
        for one in damage:
            _log.error(
                "an entry is damaged and set aside",
                extra={"action": "entry_damaged", "topic": topic, "first": one.first, "records": one.records,
                       "reason": one.reason},
            )  # fmt: skip
        found = sorted({one.first: one.records for one in damage}.items())
        facts = {
            "topic": code(topic),
            "name": topic,
            "firsts": [first for first, _ in found],
            "records": [records for _, records in found],
        }
        await self._database.run(lambda connection: connection.execute(self._database.sql(queries.MARK_DAMAGED), facts))

    def closed_below(self, topic: str) -> int:
        closed = by_topic(self._following.closed_at(self._now()))[topic]
        self._shown[topic] = max(closed, self._shown.get(topic, 1))
        return self._shown[topic]

    def next_number(self, topic: str) -> int:
        return by_topic(self._following.last.next)[topic]

    def whereabouts(self, id: bytes) -> Whereabouts | None:
        return self._following.index.whereabouts(id)

    async def changes(self, topic: str) -> AsyncIterator[int]:
        seen = 0
        while True:
            closed = self.closed_below(topic)
            if closed > seen:
                seen = closed
                yield closed
            else:
                await self._wait()

    async def _wait(self) -> None:
        closes_at = self._following.closes_at()
        timeout = None if closes_at is None else min(LOOK_AGAIN_S, max(STEP_S, closes_at - self._now()))
        self._has_resting |= timeout is None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._moved.wait()

    def _wake_resting(self) -> None:
        """
        There are new commits. Readers with a time to look again need no word of them.

        What is followed moves on another thread: whether all was closed before says nothing of who waits.
        """
        if self._has_resting:
            self._wake()

    def _wake(self) -> None:
        """Readers that wait look again; later ones wait for the next move."""
        self._has_resting = False
        self._moved.set()
        self._moved = asyncio.Event()

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        commit, index = self._sealer.open(receipt_id)
        found = await self._database.read(partial(store.read_commit, self._database, commit=commit))
        if found is None:
            raise NotThere(books.NO_LONGER_KEPT)
        committed_at, submissions = found
        if submissions is None or index >= len(submissions):
            raise EntryUnreadable("the row of this receipt's commit is damaged")
        terms = submissions[index]
        oldest_kept = await self._database.read(partial(oldest, self._database, topic=terms.topic))
        view = books.receipt_view(
            receipt_id,
            terms,
            committed_at=committed_at,
            closed_below=self.closed_below(terms.topic),
            oldest=oldest_kept,
        )
        return books.whole_view(view, [await self.receipt(part) for part in terms.before])

    async def unrecognised(self) -> Sequence[Mapping[str, object]]:
        await self._book()
        return await self._database.read(partial(finds.read_shapes, self._database))

    async def event_types(self) -> Sequence[EventType]:
        await self._book()
        return await self._database.read(partial(finds.read_event_types, self._database))

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        await self._book()
        return (await self._database.read(partial(finds.read_conflicts, self._database))).rows()

    # -- the books ---------------------------------------------------------------------------------------------------

    async def _book(self) -> None:
        """Count into the books what is not there yet."""
        with suppress(BookedMeanwhile):
            while await self._database.transaction(partial(finds.book, self._database)):
                pass

    async def books(self) -> Books:
        """The running counters."""
        found = await self._database.snapshot(partial(border, self._database, routes=self._routes))
        return books.books(books.by_topic({**found.counters, **found.kept}), found.routes)

    async def verify(self) -> Books:
        async with self._upkeep:
            for _ in range(RECOUNTS):
                found = await self._database.snapshot(partial(border, self._database, routes=self._routes))
                counted = await recount(self._database, found)
                after = await self._database.snapshot(partial(border, self._database, routes=self._routes))
                if (after.first_commit, after.kept_from) == (found.first_commit, found.kept_from):
                    break
        verified = books.verified(found.counters, counted.sums, found.routes, counted.wrong)
        for topic in {topic for topic, _ in counted.damage}:
            await self._set_aside(topic, [one for of, one in counted.damage if of == topic])
        return verified

    async def stats(self) -> LogStats:
        def count(connection: Connection) -> tuple[int, int]:
            newest = connection.execute(self._database.sql(queries.NEWEST)).fetchone()
            marks = connection.execute(self._database.sql(queries.MARKS)).fetchone()
            assert marks is not None
            return (newest[3] if newest else 0) - marks[3], self._retention.used(connection)

        away = None
        try:
            async with asyncio.timeout(STATS_S):
                self._counted = await self._database.snapshot(count)
        except (SpoolUnavailable, TimeoutError) as error:  # this process lives, and ends nothing by a restart
            away = str(error) or "the database does not answer"
        entries, used = self._counted
        return LogStats(
            entries=entries,
            bytes=used,
            free_bytes=max(0, self._settings.max_bytes - used),
            max_bytes=self._settings.max_bytes,
            duplicate_window_s=self._following.index.covers_s(self._now()),
            duplicate_ids=len(self._following.index),
            writable=away is None and self._failed is None and self._writer.alive and used < self._settings.max_bytes,
            last_error=away or self._failed,
            alive=self._writer.alive,
            commit_s=self._writer.in_hand_s,
            waiting=self._writer.waiting,
            cache_bytes=self._read_shelf.bytes + self._write_shelf.bytes,
            durability=self._proof,
        )

    # -- upkeep ------------------------------------------------------------------------------------------------------

    async def retain(self) -> int:
        """Never raises for errors of the database: the next run finds the same work, and readiness reports them."""
        async with self._upkeep:
            try:
                return await self._retain()
            except (SpoolUnavailable, RemovedMeanwhile) as error:
                _log.error("retention stopped half way: %s", error, extra={"action": "retention_failed"})
                return 0

    async def _retain(self) -> int:
        removed = await self._remove()
        now = self._now()
        await self._retention.begin_period(now)
        await self._database.transaction(partial(drop_old_series, self._database, now=now))
        while await self._database.transaction(lambda connection: self._trim(connection, now)):
            pass
        if self._clock.monotonic() >= self._repeats_at:
            self._repeats_at = self._clock.monotonic() + REPEATS_EVERY_S
            runs = [run.ids for run in self._following.index.runs()]
            self.repeated_ids = await asyncio.to_thread(count_repeats, runs)
        return removed

    def settled(self) -> None:
        """Nothing follows a settlement here."""

    async def close(self) -> None:
        """Commit what waits. What is in memory alone is in the commit rows too."""
        await self._writer.close()
        self._closing.set()
        await asyncio.wait([self._follower])
