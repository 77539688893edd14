"""
The books at one instant, and recounting them from commit rows and entries, slice by slice.

What is being counted does not change under it but by retention, after which the caller counts again.
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
from spool.log import books
from spool.log.accepted_twice import TwiceAccepted
from spool.log.commits.following import by_topic
from spool.log.entries.cache import EntryCache
from spool.log.entries.codec import Damage
from spool.log.retention import log_set_aside
from spool.log.values import Books
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.postgres.log.entries import read_entries
from spool.postgres.log.finds import BookedMeanwhile, count, total, unbooked
from spool.postgres.log.retention import RouteNeeds
from spool.record import TOPICS

COMMITS = 2048  # in one slice
NUMBERS = 4096  # of a topic in one slice

TermCounter = Counter[tuple[str, str]]


class RouteTerms(Protocol):
    """What the books ask of the deliveries, at the same instant."""

    def route_terms(self, connection: Connection) -> dict[str, dict[str, int]]: ...


@dataclass(kw_only=True)
class Border:
    """What there was at one instant: the counters to be checked, and how far a recount goes."""

    counters: TermCounter = field(default_factory=Counter)
    carried: TermCounter = field(default_factory=Counter)
    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    first_commit: int = 1
    last_commit: int = 0
    kept_from: dict[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> TermCounter:
        """The records that are there, by their numbers alone."""
        sums: TermCounter = Counter()
        for topic, number in self.next.items():
            if number > 1:
                sums[topic, books.KEPT] = number - self.kept_from[topic]
        return sums


def border(database: Database, connection: Connection, routes: RouteTerms) -> Border:
    """
    Read in one snapshot: counters with the commits that are not in them yet, routes and borders belong together.
    """
    marks = connection.execute(database.sql(queries.MARKS)).fetchone()
    newest = connection.execute(database.sql(queries.NEWEST)).fetchone()
    assert marks is not None
    found = Border(
        routes=routes.route_terms(connection), first_commit=marks[1] + 1, kept_from=by_topic(marks[2])
    )
    for topic, term, n, carried in connection.execute(database.sql(queries.BOOKS)):
        found.counters[topic, term] = n
        found.carried[topic, term] = carried
    found.counters.update(total(unbooked(database, connection, limit=2**62)))
    if newest:
        found.last_commit, found.next = newest[0], by_topic(newest[1])
    return found


@dataclass(kw_only=True)
class Recount:
    """The terms as rows and entries have them, a sentence for everything that is wrong there, and damage found."""

    sums: TermCounter
    wrong: list[str] = field(default_factory=list)
    damage: list[tuple[str, Damage]] = field(default_factory=list)
    unread: dict[int, int] = field(
        default_factory=dict
    )  # commit -> checksum of a row whose terms are damaged


async def recount_commits(database: Database, found: Border) -> Recount:
    """Recount the books by commit rows alone."""
    recounted = Recount(sums=Counter(found.carried))
    last = found.first_commit - 1
    while last < found.last_commit:
        last = await database.read(partial(_commits, database, after=last, border=found, into=recounted))
    return recounted


async def recount(database: Database, found: Border, twice: TwiceAccepted) -> Recount:
    """Recount the books by commit rows and entries. `twice` gets every entry."""
    recounted = await recount_commits(database, found)
    for topic in TOPICS:
        first = found.kept_from.get(topic, 1)
        end = found.next.get(topic, 1) - 1
        if end:
            recounted.sums[topic, books.KEPT] += 0
        while first <= end:
            last = min(end, first + NUMBERS - 1)
            await database.read(
                partial(_numbers, database, topic=topic, first=first, last=last, into=recounted, twice=twice)
            )
            first = last + 1
            if twice.is_full or first > end:
                await asyncio.to_thread(twice.compare, is_last=first > end)
    return recounted


def _commits(database: Database, connection: Connection, *, after: int, border: Border, into: Recount) -> int:
    """Add one slice of commit rows; returns the last of it."""
    where = {"after": after, "until": border.last_commit, "limit": COMMITS}
    sums: TermCounter = Counter()
    wrong = []
    unread: dict[int, int] = {}
    expected = after + 1
    for commit, _, checksum, packed in connection.execute(
        database.sql(queries.COMMITS_BETWEEN), where, binary=True
    ).fetchall():
        if commit != expected:
            wrong.append(f"commits {expected} to {commit - 1}: their rows are missing")
        expected = commit + 1
        terms = books.check_terms(packed, checksum)
        if terms is None:
            wrong.append(f"commit {commit}: its row is damaged")
            unread[commit] = checksum
        else:
            sums.update(books.totals(terms))
    if expected == after + 1:
        wrong.append(f"commits {expected} to {border.last_commit}: their rows are missing")
        expected = border.last_commit + 1
    into.sums.update(sums)
    into.wrong += wrong
    into.unread |= unread
    return expected - 1


def set_aside(
    database: Database,
    connection: Connection,
    *,
    unread: Mapping[int, int],
    terms: TermCounter,
    uncounted: TermCounter,
) -> None:
    """Have damaged commit rows count nothing any more. BookedMeanwhile if others were there before."""
    empty = books.pack_terms([])
    new = {
        "terms": empty,
        "checksum": zlib.crc32(empty),
        "ids": list(unread),
        "checksums": list(unread.values()),
    }
    if connection.execute(database.sql(queries.EMPTY_TERMS), new).rowcount != len(unread):
        raise BookedMeanwhile
    for query, sums in ((queries.CARRY, terms), (queries.COUNT, uncounted)):
        if sums:
            count(database, connection, query, sums)


def _numbers(
    database: Database,
    connection: Connection,
    *,
    topic: str,
    first: int,
    last: int,
    into: Recount,
    twice: TwiceAccepted,
) -> None:
    """Count one slice of numbers, every record decoded."""
    damage: list[Damage] = []
    kept = 0
    wrong = []
    for entry in read_entries(database, connection, topic, first, last, cache=EntryCache(0), damage=damage):
        if entry.first != first:
            wrong.append(f"{topic}: numbers {first} to {entry.first - 1} are missing")
        kept += len(entry.records)
        twice.note(entry)
        first = entry.last + 1
    if first <= last:
        wrong.append(f"{topic}: numbers {first} to {last} are missing")
    into.sums[topic, books.KEPT] += kept
    into.wrong += wrong
    known = {(of, one.first) for of, one in into.damage}
    into.damage += [(topic, one) for one in damage if (topic, one.first) not in known]


# -- verifying -----------------------------------------------------------------------------------------------


RECOUNTS = 5  # of a recount under which retention removed something


class LogRoutes(RouteTerms, RouteNeeds, Protocol):
    """What the log asks of the deliveries, inside its transactions."""


class Verification:
    """Compares the books with what is kept. Nothing is removed while it counts: the caller sees to that."""

    def __init__(self, database: Database, routes: LogRoutes) -> None:
        self._database = database
        self._routes = routes

    async def books(self) -> Books:
        """Read the counters of every topic and of the routes."""
        found = await self._border()
        return books.books(books.by_topic({**found.counters, **found.kept}), found.routes)

    async def verify(
        self, twice: Callable[[], TwiceAccepted]
    ) -> tuple[Books, Sequence[tuple[str, Damage]], TwiceAccepted]:
        """
        Count again; return the books with what is wrong, the damaged entries by topic, and a new `twice` with
        what it saw.
        """
        for _ in range(RECOUNTS):
            found = await self._border()
            seen = twice()
            counted = await recount(self._database, found, seen)
            after = await self._border()
            if (after.first_commit, after.kept_from) == (found.first_commit, found.kept_from):
                break
        else:
            raise SpoolUnavailable("records were removed during every count: repeat it")
        await self._set_terms_aside(found, counted)
        verified = books.verified(found.counters, counted.sums, found.routes, counted.wrong)
        return verified, counted.damage, seen

    async def set_damaged_aside(self) -> None:
        """
        Set damaged terms aside before retention carries damaged rows forward: the numbers show what
        their commits stored.
        """
        found = await self._border()
        counted = await recount_commits(self._database, found)
        counted.sums.update(found.kept)
        await self._set_terms_aside(found, counted)

    async def _set_terms_aside(self, found: Border, counted: Recount) -> None:
        """Damaged rows are told once: the counters have what they counted. The caller keeps retention away."""
        if not counted.unread or len(counted.unread) < len(counted.wrong):
            return
        known = books.terms_of_damaged(found.counters, counted.sums, found.routes)
        if known is None:
            return
        terms, uncounted = known
        work = partial(set_aside, self._database, unread=counted.unread, terms=terms, uncounted=uncounted)
        with suppress(BookedMeanwhile):
            await self._database.transaction(work)
            log_set_aside(list(counted.unread))

    async def _border(self) -> Border:
        return await self._database.snapshot(partial(border, self._database, routes=self._routes))
