"""
Recounts of the accounting from commit rows and entries, slice by slice, so that no commit waits long.

During a recount, the counted data do not change: new rows and entries are after the end of the recount, and
the caller prevents retention.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from spool.log import accounting
from spool.log.accepted_twice import AcceptedTwiceSearch
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import EntryDamage
from spool.record import TOPICS
from spool.sqlite.database import Database, is_corrupt
from spool.sqlite.log import queries
from spool.sqlite.log.entries import read_entries, read_entry_rows
from spool.sqlite.log.retention import RouteNeeds

COMMITS = 2048  # rows per slice
NUMBERS = 4096  # record numbers of a topic per slice

_NO_TERMS = accounting.pack_submission_counts([])
TermCounter = Counter[tuple[str, str]]


@dataclass(kw_only=True)
class RecountRange:
    """
    The range of records and commits to recount, and the counters as of one moment. `carried`: the part of
    each counter from deleted commits. `oldest`: first stored number by topic.
    """

    counters: TermCounter = field(default_factory=Counter)
    carried: TermCounter = field(default_factory=Counter)
    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    last_commit: int = 0
    oldest: dict[str, int] = field(default_factory=dict)


def read_recount_range(connection: sqlite3.Connection, routes: RouteNeeds) -> RecountRange:
    """Read the counters and the range in one transaction, so that counters and routes agree."""
    limits = RecountRange(routes=routes.accounting_counts_by_route(connection))
    for topic, term, n, carried in connection.execute(queries.BOOKS):
        limits.counters[topic, term] = n
        limits.carried[topic, term] = carried
    (limits.last_commit,) = connection.execute(queries.LAST_COMMIT).fetchone()
    for topic in TOPICS:
        (oldest,) = connection.execute(queries.OLDEST_NUMBER, (topic,)).fetchone()
        if oldest is not None:
            limits.oldest[topic] = oldest
    return limits


async def recount_commits(
    database: Database, recount_range: RecountRange
) -> tuple[TermCounter, list[str], list[int]]:
    """
    Add up the accounting counts of the commit rows. Return them, one sentence for each problem, and the
    commits with damaged counts.
    """
    sums: TermCounter = Counter(recount_range.carried)
    sums.update(
        {(topic, accounting.KEPT): 0 for topic, term in recount_range.counters if term == accounting.ACCEPTED}
    )
    wrong: list[str] = []
    unread: list[int] = []
    last = 0
    while last < recount_range.last_commit:
        last = await database.read(
            partial(
                _add_counts_of_commit_rows,
                after_commit=last,
                recount_range=recount_range,
                accounting_counts=sums,
                problems=wrong,
                damaged_commits=unread,
            )
        )
    return sums, wrong, unread


async def recount_log(
    database: Database, recount_range: RecountRange, accepted_twice_search: AcceptedTwiceSearch
) -> tuple[TermCounter, list[str], list[tuple[str, EntryDamage]], list[int]]:
    """
    Count records and commits again. Every entry is also passed to `accepted_twice_search`. Returns the accounting
    counts, one sentence for each problem, the damage, and the commits whose counts are damaged.
    """
    sums, wrong, unread = await recount_commits(database, recount_range)
    damage: list[tuple[str, EntryDamage]] = []
    for topic, first in recount_range.oldest.items():
        end = recount_range.counters[topic, accounting.ACCEPTED]
        counted = partial(
            _count_records_and_find_next_slice,
            topic=topic,
            recount_range=recount_range,
            accounting_counts=sums,
            problems=wrong,
            damage=damage,
            accepted_twice_search=accepted_twice_search,
        )
        while first <= end:
            first = await database.read(partial(counted, first_number=first))
            if accepted_twice_search.has_max_ids or first > end:
                await asyncio.to_thread(accepted_twice_search.note_repeated_ids, is_end_of_topic=first > end)
    return sums, wrong, damage, unread


def store_counts_of_damaged_commits(
    connection: sqlite3.Connection,
    commits: Sequence[int],
    counts_of_commits: TermCounter,
    uncounted_counts: TermCounter,
) -> None:
    """
    Empty damaged commit rows, and add their counts to those of deleted rows, so that the accounting balances.
    """
    connection.executemany(
        queries.EMPTY_TERMS, [(_NO_TERMS, zlib.crc32(_NO_TERMS), commit) for commit in commits]
    )
    for query, sums in ((queries.CARRY, counts_of_commits), (queries.COUNT, uncounted_counts)):
        connection.executemany(
            query, [{"topic": topic, "term": term, "n": n} for (topic, term), n in sums.items()]
        )


def _add_counts_of_commit_rows(
    connection: sqlite3.Connection,
    after_commit: int,
    recount_range: RecountRange,
    accounting_counts: TermCounter,
    problems: list[str],
    damaged_commits: list[int],
) -> int:
    for commit, checksum, packed in _commit_rows(connection, after_commit, recount_range, problems):
        after_commit = max(after_commit, commit)
        terms = accounting.unpack_submission_counts_if_intact(packed, checksum)
        if terms is None:
            problems.append(f"commit {commit}: its row is damaged")
            damaged_commits.append(commit)
        else:
            accounting_counts.update(accounting.sum_submission_counts(terms))
    return after_commit


def _commit_rows(
    connection: sqlite3.Connection, after_commit: int, recount_range: RecountRange, problems: list[str]
) -> Sequence[tuple[int, object, object]]:
    """
    Return the commit rows after `after_commit`. Rows of a damaged page are read one by one. If the last row
    is unreadable, an empty row replaces it, so that the caller continues after it.
    """
    try:
        return connection.execute(
            queries.COMMITS_BETWEEN, (after_commit, recount_range.last_commit, COMMITS)
        ).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
    rows: list[tuple[int, object, object]] = []
    last = min(recount_range.last_commit, after_commit + COMMITS)
    unread = []
    for commit in range(after_commit + 1, last + 1):
        try:
            rows += connection.execute(queries.COMMITS_BETWEEN, (commit - 1, commit, 1)).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            unread.append(commit)
    if unread:
        problems.append(f"commits {unread[0]} to {unread[-1]}: some of them are on a damaged page")
    if not rows or rows[-1][0] != last:
        rows.append((last, zlib.crc32(_NO_TERMS), _NO_TERMS))
    return rows


def _count_records_and_find_next_slice(
    connection: sqlite3.Connection,
    topic: str,
    first_number: int,
    recount_range: RecountRange,
    accounting_counts: TermCounter,
    problems: list[str],
    damage: list[tuple[str, EntryDamage]],
    accepted_twice_search: AcceptedTwiceSearch,
) -> int:
    """Decode and count the records of a slice. Return the start of the next slice."""
    end = recount_range.counters[topic, accounting.ACCEPTED]
    last = min(end, first_number + NUMBERS - 1)
    try:
        rows = read_entry_rows(connection, topic, first_number, last)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        problems.append(
            f"{topic}: an index page for records {first_number} to {last} is damaged: restart Tollhouse to salvage them"
        )
        return last + 1
    if rows:
        last = min(end, rows[-1].first + rows[-1].records - 1)
    damages: list[EntryDamage] = []
    for entry in read_entries(connection, topic, first_number, last, cache=EntryCache(0), damage=damages):
        if entry.first != first_number:
            problems.append(f"{topic}: numbers {first_number} to {entry.first - 1} are missing")
        accounting_counts[topic, accounting.KEPT] += len(entry.records)
        accepted_twice_search.collect_record_ids(entry)
        first_number = entry.last + 1
    if first_number <= last:
        problems.append(f"{topic}: numbers {first_number} to {last} are missing")
    damage += [(topic, damaged_range) for damaged_range in damages]
    return last + 1
