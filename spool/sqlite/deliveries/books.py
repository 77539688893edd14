"""
What the log asks of the routes: their terms, what they still need, and the skipping of what they may miss.

Functions of a connection, so that the log calls them inside its own transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from spool.deliveries import rules
from spool.deliveries.rules import TERMS
from spool.deliveries.values import RouteState
from spool.sqlite.deliveries import queries
from spool.sqlite.log.entries import accepted


def route_terms(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """The terms of every route and its `queued`; replays stand apart."""
    return {
        row["name"]: {**{term: row[term] for term in TERMS}, "queued": _queued(connection, row)}
        for row in _rows(connection, queries.ROUTES)
    }


def needed_from(connection: sqlite3.Connection, topic: str) -> int | None:
    """
    The lowest number that a required route still has to read; None when no route is on the topic.

    NOBODY_NEEDS when all of them may be skipped.
    """
    routes, uncut, cut = connection.execute(queries.NEEDED, {"topic": topic}).fetchone()
    if not routes:
        return None
    needed: int = min(number for number in (uncut, cut, rules.NOBODY_NEEDS) if number is not None)
    return needed


def skip_below(connection: sqlite3.Connection, topic: str, number: int) -> int:
    """Give up what optional routes have not delivered below a number; how many records that was, route by route."""
    total = 0
    for route, uncut, acceptances in connection.execute(queries.OPTIONAL, (topic,)).fetchall():
        skipped = max(0, number - uncut)
        for first, last, replay in connection.execute(queries.BELOW, (route, number)).fetchall():
            if not replay:
                skipped += min(last, number - 1) - first + 1
            if last >= number:  # other records than before: another request
                values = {"route": route, "first": number, "last": last, "key": rules.new_key(), "passed": acceptances}
                empty = dict.fromkeys(("proof", "last_error", "kept_at", "kept"))
                connection.execute(queries.INSERT, {**empty, **values, "replay": replay})
        if skipped:
            connection.execute(queries.SKIP, (skipped, number, route))
        total += skipped
    return total


def route_states(connection: sqlite3.Connection, now: float) -> Sequence[RouteState]:
    """Every route as the operator sees it."""
    return [_state(connection, row, now) for row in _rows(connection, queries.ROUTES)]


def _state(connection: sqlite3.Connection, row: sqlite3.Row, now: float) -> RouteState:
    queued = _queued(connection, row)
    progress = row["next"] if row["oldest"] is None else min(row["oldest"], row["next"])
    return RouteState(
        name=row["name"],
        topic=row["topic"],
        required=bool(row["required"]),
        state=row["state"],
        reason=row["reason"],
        progress=progress,
        queued=queued,
        oldest_age_s=_age_s(connection, row, progress, now) if queued else None,
        delivered=row["delivered"],
        refused=row["refused_upstream"],
        dead=row["dead"],
        stuck=row["stuck"],
    )


def _queued(connection: sqlite3.Connection, row: sqlite3.Row) -> int:
    waiting: int = row["waiting"]
    uncut: int = accepted(connection, row["topic"]) + 1 - row["next"]
    return waiting + uncut


def _age_s(connection: sqlite3.Connection, row: sqlite3.Row, progress: int, now: float) -> float | None:
    committed = connection.execute(queries.COMMITTED_AT, (row["topic"], progress)).fetchone()
    times = [at for at in (row["kept_at"], committed and committed[0]) if at is not None]
    return max(0.0, now - min(times)) if times else None


def _rows(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(statement, values).fetchall()
