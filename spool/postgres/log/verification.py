"""The books of the log, read and counted again: what each topic and route should have, and has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from spool.errors import SpoolUnavailable
from spool.log import books
from spool.log.accepted_twice import TwiceAccepted
from spool.log.commits.carrying import log_set_aside
from spool.log.entries.damage import Damage
from spool.log.values import Books
from spool.postgres.database import Database
from spool.postgres.log.finds import BookedMeanwhile
from spool.postgres.log.recount import (
    Border,
    Recount,
    RouteTerms,
    border,
    recount,
    recount_commits,
    set_aside,
)
from spool.postgres.log.retention import RouteNeeds

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
