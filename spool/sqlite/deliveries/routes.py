"""
What the log and the operator ask of the routes: their terms, what they still need, and the skipping of the rest.

Functions of a connection, so that the log calls them inside its own transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from spool.deliveries import routes, rules, transitions
from spool.deliveries.routes import Backlog
from spool.deliveries.stored import StoredRoute
from spool.deliveries.values import RouteState
from spool.sqlite.deliveries import delivery_rows, queries
from spool.sqlite.log.entries import accepted


def route_terms(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """The terms of every route, `queued` among them; replays stand apart."""
    return {
        route.name: routes.terms(route, backlog, accepted=accepted(connection, route.topic))
        for route, backlog in _with_backlog(connection)
    }


def route_states(connection: sqlite3.Connection, now: float) -> Sequence[RouteState]:
    """Every route as the operator sees it."""
    return [
        routes.state(
            route,
            backlog,
            accepted=accepted(connection, route.topic),
            committed_at=_committed_at(connection, route.topic, routes.progress(route, backlog)),
            now=now,
        )
        for route, backlog in _with_backlog(connection)
    ]


def needed_from(connection: sqlite3.Connection, topic: str) -> int | None:
    """
    The lowest number that a required route still has to read; None when no route is on the topic.

    NOBODY_NEEDS when all of them may be skipped.
    """
    on_topic, uncut, cut = connection.execute(queries.NEEDED, {"topic": topic}).fetchone()
    if not on_topic:
        return None
    needed: int = min(number for number in (uncut, cut, rules.NOBODY_NEEDS) if number is not None)
    return needed


def cut_below(connection: sqlite3.Connection, topic: str) -> int:
    """The number below which some route has cut deliveries: what these hold never changes."""
    number: int = connection.execute(queries.CUT_BELOW, (topic,)).fetchone()[0]
    return number


def skip_below(connection: sqlite3.Connection, topic: str, number: int) -> int:
    """Give up what optional routes have not delivered below a number; returns the records, summed over the routes."""
    total = 0
    for row in connection.execute(queries.OPTIONAL, (topic,)).fetchall():
        route = delivery_rows.route(row)
        below = list(delivery_rows.read_deliveries(connection, queries.BELOW, (route.name, number)))
        change = transitions.skip(route, below, number)
        delivery_rows.write(connection, change)
        total += change.counts["skipped"]
    return total


def _with_backlog(connection: sqlite3.Connection) -> Iterator[tuple[StoredRoute, Backlog]]:
    width = len(queries.ROUTE_COLUMNS)
    for row in connection.execute(queries.ROUTES).fetchall():
        yield delivery_rows.route(row[:width]), Backlog(*row[width:])


def _committed_at(connection: sqlite3.Connection, topic: str, number: int) -> float | None:
    row = connection.execute(queries.COMMITTED_AT, (topic, number)).fetchone()
    return row[0] if row else None
