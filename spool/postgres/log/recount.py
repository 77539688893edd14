"""
The accounting at one moment, and its recount from commit rows and entries, slice by slice.

During a recount, only retention can change the counted data. If that happens, the caller counts again.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from spool.errors import SpoolUnavailable
from spool.log import accounting
from spool.log.accepted_twice import AcceptedTwiceSearch
from spool.log.commits.following import numbers_by_topic
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import EntryDamage
from spool.log.retention import log_damaged_commits
from spool.log.values import LogAccounting
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.postgres.log.commit_findings import (
    AccountedMeanwhile,
    add_accounting_counts,
    read_commits_not_yet_in_accounting,
    sum_counts_of_commits,
)
from spool.postgres.log.entries import read_entries
from spool.postgres.log.retention import RouteNeeds
from spool.record import TOPICS

COMMITS = 2048  # commit rows per slice
NUMBERS = 4096  # numbers of a topic per slice

TermCounter = Counter[tuple[str, str]]


class RouteCounters(Protocol):
    """Reads the counters of routes in the same snapshot as the accounting."""

    def accounting_counts_by_route(self, connection: Connection) -> dict[str, dict[str, int]]: ...


@dataclass(kw_only=True)
class RecountRange:
    """
    The range of records and commits to recount, and the counters as of one moment. `carried`: the part of the
    counters that is from deleted commits.
    """

    counters: TermCounter = field(default_factory=Counter)
    carried: TermCounter = field(default_factory=Counter)
    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    first_commit: int = 1
    last_commit: int = 0
    kept_from: dict[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)

    @property
    def stored_record_counts(self) -> TermCounter:
        """Return how many records each topic stores, computed from record numbers."""
        sums: TermCounter = Counter()
        for topic, number in self.next.items():
            if number > 1:
                sums[topic, accounting.KEPT] = number - self.kept_from[topic]
        return sums


def read_counters_and_recount_range(
    database: Database, connection: Connection, routes: RouteCounters
) -> RecountRange:
    """
    Read the counters and the range to recount in one snapshot, so that counters, uncounted commits and routes
    agree.
    """
    marks = connection.execute(database.fill_in_table_names(queries.MARKS)).fetchone()
    newest = connection.execute(database.fill_in_table_names(queries.NEWEST)).fetchone()
    assert marks is not None
    limits = RecountRange(
        routes=routes.accounting_counts_by_route(connection),
        first_commit=marks[1] + 1,
        kept_from=numbers_by_topic(marks[2]),
    )
    for topic, term, n, carried in connection.execute(database.fill_in_table_names(queries.BOOKS)):
        limits.counters[topic, term] = n
        limits.carried[topic, term] = carried
    limits.counters.update(
        sum_counts_of_commits(read_commits_not_yet_in_accounting(database, connection, max_commits=2**62))
    )
    if newest:
        limits.last_commit, limits.next = newest[0], numbers_by_topic(newest[1])
    return limits


@dataclass(kw_only=True)
class Recount:
    """The result of a recount. `wrong` has one sentence for each problem."""

    sums: TermCounter
    wrong: list[str] = field(default_factory=list)
    damage: list[tuple[str, EntryDamage]] = field(default_factory=list)
    # commits with damaged terms -> checksum of the row
    unread: dict[int, int] = field(default_factory=dict)


async def recount_commits(database: Database, recount_range: RecountRange) -> Recount:
    recounted = Recount(sums=Counter(recount_range.carried))
    last = recount_range.first_commit - 1
    while last < recount_range.last_commit:
        last = await database.read(
            partial(_add_counts_of_commits, database, after=last, recount_range=recount_range, into=recounted)
        )
    return recounted


async def recount_log(
    database: Database, recount_range: RecountRange, accepted_twice_search: AcceptedTwiceSearch
) -> Recount:
    """
    Count all records and commits within the range again. Every entry is also passed to the search
    `accepted_twice_search`.
    """
    recounted = await recount_commits(database, recount_range)
    for topic in TOPICS:
        first = recount_range.kept_from.get(topic, 1)
        end = recount_range.next.get(topic, 1) - 1
        if end:
            recounted.sums[topic, accounting.KEPT] += 0
        while first <= end:
            last = min(end, first + NUMBERS - 1)
            await database.read(
                partial(
                    _count_records,
                    database,
                    topic=topic,
                    first_number=first,
                    last_number=last,
                    into=recounted,
                    accepted_twice_search=accepted_twice_search,
                )
            )
            first = last + 1
            if accepted_twice_search.has_max_ids or first > end:
                await asyncio.to_thread(accepted_twice_search.note_repeated_ids, is_end_of_topic=first > end)
    return recounted


def _add_counts_of_commits(
    database: Database, connection: Connection, *, after: int, recount_range: RecountRange, into: Recount
) -> int:
    where = {"after": after, "until": recount_range.last_commit, "limit": COMMITS}
    sums: TermCounter = Counter()
    wrong = []
    unread: dict[int, int] = {}
    expected = after + 1
    for commit, _, checksum, packed in connection.execute(
        database.fill_in_table_names(queries.COMMITS_BETWEEN), where, binary=True
    ).fetchall():
        if commit != expected:
            wrong.append(f"commits {expected} to {commit - 1}: their rows are missing")
        expected = commit + 1
        terms = accounting.unpack_submission_counts_if_intact(packed, checksum)
        if terms is None:
            wrong.append(f"commit {commit}: its row is damaged")
            unread[commit] = checksum
        else:
            sums.update(accounting.sum_submission_counts(terms))
    if expected == after + 1:
        wrong.append(f"commits {expected} to {recount_range.last_commit}: their rows are missing")
        expected = recount_range.last_commit + 1
    into.sums.update(sums)
    into.wrong += wrong
    into.unread |= unread
    return expected - 1


def store_counts_of_damaged_commits(
    database: Database,
    connection: Connection,
    *,
    damaged_commits: Mapping[int, int],
    counts_of_commits: TermCounter,
    uncounted_counts: TermCounter,
) -> None:
    """
    Empty damaged commit rows, and add their counts to those of deleted rows, so that the accounting balances.
    Raises AccountedMeanwhile if another process has already done so.
    """
    empty = accounting.pack_submission_counts([])
    new = {
        "terms": empty,
        "checksum": zlib.crc32(empty),
        "ids": list(damaged_commits),
        "checksums": list(damaged_commits.values()),
    }
    if connection.execute(database.fill_in_table_names(queries.EMPTY_TERMS), new).rowcount != len(
        damaged_commits
    ):
        raise AccountedMeanwhile
    for query, sums in ((queries.CARRY, counts_of_commits), (queries.COUNT, uncounted_counts)):
        if sums:
            add_accounting_counts(database, connection, query, sums)


def _count_records(
    database: Database,
    connection: Connection,
    *,
    topic: str,
    first_number: int,
    last_number: int,
    into: Recount,
    accepted_twice_search: AcceptedTwiceSearch,
) -> None:
    damage: list[EntryDamage] = []
    record_count = 0
    wrong = []
    for entry in read_entries(
        database, connection, topic, first_number, last_number, cache=EntryCache(0), damage=damage
    ):
        if entry.first != first_number:
            wrong.append(f"{topic}: numbers {first_number} to {entry.first - 1} are missing")
        record_count += len(entry.records)
        accepted_twice_search.collect_record_ids(entry)
        first_number = entry.last + 1
    if first_number <= last_number:
        wrong.append(f"{topic}: numbers {first_number} to {last_number} are missing")
    into.sums[topic, accounting.KEPT] += record_count
    into.wrong += wrong
    known = {(damaged_topic, damaged_range.first) for damaged_topic, damaged_range in into.damage}
    into.damage += [
        (topic, damaged_range) for damaged_range in damage if (topic, damaged_range.first) not in known
    ]


# -- verification --------------------------------------------------------------------------------------------


RECOUNTS = 5  # attempts, because retention may delete records during each of them


class LogRoutes(RouteCounters, RouteNeeds, Protocol):
    """The counters of routes, and the records that they still need, read inside a transaction of the log."""


class AccountingVerifier:
    """
    A comparison of the accounting with the stored data. Meanwhile, the caller must keep retention of this
    process from deleting rows.
    """

    def __init__(self, database: Database, routes: LogRoutes) -> None:
        self._database = database
        self._routes = routes

    async def read_log_accounting(self) -> LogAccounting:
        limits = await self._read_recount_range()
        return accounting.check_accounting(
            accounting.accounting_counts_by_topic({**limits.counters, **limits.stored_record_counts}),
            limits.routes,
        )

    async def recount_and_verify(
        self, new_repeated_acceptances: Callable[[], AcceptedTwiceSearch]
    ) -> tuple[LogAccounting, Sequence[tuple[str, EntryDamage]], AcceptedTwiceSearch]:
        """
        Return the accounting with its problems, the damaged entries by topic, and the new search for ids
        accepted `new_repeated_acceptances`.
        """
        for _ in range(RECOUNTS):
            limits = await self._read_recount_range()
            seen = new_repeated_acceptances()
            counted = await recount_log(self._database, limits, seen)
            after = await self._read_recount_range()
            if (after.first_commit, after.kept_from) == (limits.first_commit, limits.kept_from):
                break
        else:
            raise SpoolUnavailable("records were deleted during every recount: try again")
        await self._take_damaged_commits_out_of_accounting(limits, counted)
        verified = accounting.check_recounted_accounting(
            limits.counters, counted.sums, limits.routes, counted.wrong
        )
        return verified, counted.damage, seen

    async def recount_damaged_commits_before_deletion(self) -> None:
        """
        Before retention deletes damaged commit rows, compute their accounting counts from the stored records,
        and store them with the counts of deleted rows.
        """
        limits = await self._read_recount_range()
        counted = await recount_commits(self._database, limits)
        counted.sums.update(limits.stored_record_counts)
        await self._take_damaged_commits_out_of_accounting(limits, counted)

    async def _take_damaged_commits_out_of_accounting(
        self, recount_range: RecountRange, counted: Recount
    ) -> None:
        """
        Store the counts of damaged commit rows with those of deleted rows, so that the damage is reported
        only once. The caller must prevent retention.
        """
        if not counted.unread or len(counted.unread) < len(counted.wrong):
            return
        known = accounting.counts_of_damaged_commits_and_uncounted_part(
            recount_range.counters, counted.sums, recount_range.routes
        )
        if known is None:
            return
        terms, uncounted = known
        work = partial(
            store_counts_of_damaged_commits,
            self._database,
            damaged_commits=counted.unread,
            counts_of_commits=terms,
            uncounted_counts=uncounted,
        )
        with suppress(AccountedMeanwhile):
            await self._database.transaction(work)
            log_damaged_commits(list(counted.unread))

    async def _read_recount_range(self) -> RecountRange:
        return await self._database.snapshot(
            partial(read_counters_and_recount_range, self._database, routes=self._routes)
        )
