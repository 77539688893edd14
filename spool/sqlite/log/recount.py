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

from spool.log import books
from spool.log.accepted_twice import RepeatedAcceptances
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import EntryDamage
from spool.record import TOPICS
from spool.sqlite.database import Database, is_corrupt
from spool.sqlite.log import queries
from spool.sqlite.log.entries import read_entries, read_entry_rows
from spool.sqlite.log.retention import RouteNeeds

COMMITS = 2048  # rows per slice
NUMBERS = 4096  # record numbers of a topic per slice

_NO_TERMS = books.pack_terms([])
TermCounter = Counter[tuple[str, str]]


@dataclass(kw_only=True)
class RecountBorder:
    """
    The range of records and commits to recount, and the counters as of one moment. `carried`: their part of
    deleted commits. `oldest`: first stored number by topic.
    """

    counters: TermCounter = field(default_factory=Counter)
    carried: TermCounter = field(default_factory=Counter)
    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    last_commit: int = 0
    oldest: dict[str, int] = field(default_factory=dict)


def read_border(connection: sqlite3.Connection, routes: RouteNeeds) -> RecountBorder:
    """Read the counters and the range in one transaction, so that counters and routes agree."""
    limits = RecountBorder(routes=routes.route_terms(connection))
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
    database: Database, border: RecountBorder
) -> tuple[TermCounter, list[str], list[int]]:
    """
    Add up the accounting counts of the commit rows. Return them, one sentence for each problem, and the
    commits with damaged counts.
    """
    sums: TermCounter = Counter(border.carried)
    sums.update({(topic, books.KEPT): 0 for topic, term in border.counters if term == books.ACCEPTED})
    wrong: list[str] = []
    unread: list[int] = []
    last = 0
    while last < border.last_commit:
        last = await database.read(
            partial(_add_commit_terms, begin=last, border=border, sums=sums, wrong=wrong, unread=unread)
        )
    return sums, wrong, unread


async def recount_log(
    database: Database, border: RecountBorder, twice: RepeatedAcceptances
) -> tuple[TermCounter, list[str], list[tuple[str, EntryDamage]], list[int]]:
    """
    Count records and commits again. Every entry is also passed to the search `twice`. Returns the accounting
    counts, one sentence for each problem, the damage, and the commits whose counts are damaged.
    """
    sums, wrong, unread = await recount_commits(database, border)
    damage: list[tuple[str, EntryDamage]] = []
    for topic, first in border.oldest.items():
        end = border.counters[topic, books.ACCEPTED]
        counted = partial(
            _count_records, topic=topic, border=border, sums=sums, wrong=wrong, damage=damage, twice=twice
        )
        while first <= end:
            first = await database.read(partial(counted, first=first))
            if twice.is_full or first > end:
                await asyncio.to_thread(twice.collect_repeated_ids, is_last=first > end)
    return sums, wrong, damage, unread


def carry_damaged_terms(
    connection: sqlite3.Connection, commits: Sequence[int], terms: TermCounter, uncounted: TermCounter
) -> None:
    """
    Empty damaged commit rows, and add their counts to those of deleted rows, so that the accounting balances.
    """
    connection.executemany(
        queries.EMPTY_TERMS, [(_NO_TERMS, zlib.crc32(_NO_TERMS), commit) for commit in commits]
    )
    for query, sums in ((queries.CARRY, terms), (queries.COUNT, uncounted)):
        connection.executemany(
            query, [{"topic": topic, "term": term, "n": n} for (topic, term), n in sums.items()]
        )


def _add_commit_terms(
    connection: sqlite3.Connection,
    begin: int,
    border: RecountBorder,
    sums: TermCounter,
    wrong: list[str],
    unread: list[int],
) -> int:
    for commit, checksum, packed in _commit_rows(connection, begin, border, wrong):
        begin = max(begin, commit)
        terms = books.unpack_terms_if_intact(packed, checksum)
        if terms is None:
            wrong.append(f"commit {commit}: its row is damaged")
            unread.append(commit)
        else:
            sums.update(books.sum_terms(terms))
    return begin


def _commit_rows(
    connection: sqlite3.Connection, begin: int, border: RecountBorder, wrong: list[str]
) -> Sequence[tuple[int, object, object]]:
    """
    Return the next rows. Rows of a damaged page are read one by one. Even if the last row of the range is
    unreadable, the result has an empty row for it.
    """
    try:
        return connection.execute(queries.COMMITS_BETWEEN, (begin, border.last_commit, COMMITS)).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
    rows: list[tuple[int, object, object]] = []
    last = min(border.last_commit, begin + COMMITS)
    unread = []
    for commit in range(begin + 1, last + 1):
        try:
            rows += connection.execute(queries.COMMITS_BETWEEN, (commit - 1, commit, 1)).fetchall()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            unread.append(commit)
    if unread:
        wrong.append(f"commits {unread[0]} to {unread[-1]}: some of them are on a damaged page")
    if not rows or rows[-1][0] != last:
        rows.append((last, zlib.crc32(_NO_TERMS), _NO_TERMS))
    return rows


def _count_records(
    connection: sqlite3.Connection,
    topic: str,
    first: int,
    border: RecountBorder,
    sums: TermCounter,
    wrong: list[str],
    damage: list[tuple[str, EntryDamage]],
    twice: RepeatedAcceptances,
) -> int:
    """Decode and count the records of a slice. Return the start of the next slice."""
    end = border.counters[topic, books.ACCEPTED]
    last = min(end, first + NUMBERS - 1)
    try:
        rows = read_entry_rows(connection, topic, first, last)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        wrong.append(
            f"{topic}: an index page for records {first} to {last} is damaged: restart Tollhouse to salvage them"
        )
        return last + 1
    if rows:
        last = min(end, rows[-1].first + rows[-1].records - 1)
    damages: list[EntryDamage] = []
    for entry in read_entries(connection, topic, first, last, cache=EntryCache(0), damage=damages):
        if entry.first != first:
            wrong.append(f"{topic}: numbers {first} to {entry.first - 1} are missing")
        sums[topic, books.KEPT] += len(entry.records)
        twice.collect_ids(entry)
        first = entry.last + 1
    if first <= last:
        wrong.append(f"{topic}: numbers {first} to {last} are missing")
    damage += [(topic, damaged_range) for damaged_range in damages]
    return last + 1
