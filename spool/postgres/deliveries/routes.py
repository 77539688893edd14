"""
What the log and the operator ask of the routes: their terms, what they still need, and the skipping of the rest.

Methods take a connection, so that the log calls them inside its own transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from spool.deliveries import routes, rules, transitions
from spool.deliveries.routes import Backlog
from spool.deliveries.stored import StoredRoute
from spool.deliveries.values import RouteState
from spool.errors import SpoolUnavailable
from spool.postgres.database import Connection, Database
from spool.postgres.deliveries import delivery_rows, queries
from spool.postgres.deliveries.delivery_rows import DeliveryRows
from spool.postgres.log.entries import accepted, committed_at

NOBODY = UUID(int=0)


class PostgresRoutes:
    """Asked by the log; it sends no delivery."""

    def __init__(self, database: Database) -> None:
        self._session = DeliveryRows(database, NOBODY)
        self._database = database

    def route_terms(self, connection: Connection) -> dict[str, dict[str, int]]:
        """The terms of every route, `queued` among them; replays stand apart."""
        return {
            route.name: routes.terms(
                route, backlog, accepted=accepted(self._database, connection, route.topic)
            )
            for route, backlog in self._with_backlog(connection)
        }

    def states(self, connection: Connection, now: float) -> Sequence[RouteState]:
        """Every route as the operator sees it."""
        return [
            routes.state(
                route,
                backlog,
                accepted=accepted(self._database, connection, route.topic),
                committed_at=committed_at(
                    self._database, connection, route.topic, routes.progress(route, backlog)
                ),
                now=now,
            )
            for route, backlog in self._with_backlog(connection)
        ]

    def needed_from(self, connection: Connection, topic: str) -> int | None:
        """
        The lowest number that a required route still has to read; None when no route is on the topic.

        NOBODY_NEEDS when all of them may be skipped.
        """
        on_topic, uncut, cut = self._session.execute(connection, queries.NEEDED, {"topic": topic}).fetchone()
        if not on_topic:
            return None
        needed: int = min(number for number in (uncut, cut, rules.NOBODY_NEEDS) if number is not None)
        return needed

    def skip_below(self, connection: Connection, numbers: Mapping[str, int]) -> Mapping[str, int]:
        """
        Give up what optional routes have not delivered below a number of their topic; returns the records by
        topic, summed over the routes.

        SpoolUnavailable, for the transaction to end with, when somebody moved a route meanwhile.
        """
        where = {"topics": list(numbers), "numbers": list(numbers.values())}
        locked = {id for (id,) in self._session.execute(connection, queries.GIVEN_UP, where)}
        self._session.execute(connection, queries.LOCK_ROUTES)
        totals = dict.fromkeys(numbers, 0)
        for topic, number in numbers.items():
            for row in self._session.execute(connection, queries.OPTIONAL, {"topic": topic}).fetchall():
                totals[topic] += self._skip(connection, delivery_rows.route(row), number, locked)
        return totals

    def _skip(self, connection: Connection, route: StoredRoute, number: int, locked: set[int]) -> int:
        where = {"route": route.name, "number": number}
        below = [one.delivery for one in self._session.deliveries(connection, queries.BELOW, where)]
        change = transitions.skip(route, below, number)
        if not any(change.counts.values()) and not change.removed:
            return 0
        is_moved = not locked.issuperset(each.id for each in below)
        if is_moved or self._session.write(connection, change, below, cut_from=route) is None:
            raise SpoolUnavailable(f"{route.name} was sent from while its oldest records were given up")
        return change.counts["skipped"]

    def _with_backlog(self, connection: Connection) -> Iterator[tuple[StoredRoute, Backlog]]:
        width = len(queries.ROUTE_COLUMNS)
        for row in self._session.execute(connection, queries.ROUTES).fetchall():
            yield delivery_rows.route(row[:width]), Backlog(*row[width:])
