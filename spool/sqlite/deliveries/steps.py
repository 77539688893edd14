"""
What happens to deliveries inside a transaction: cut, split, dug up, counted. Functions of a connection.

`where` names the route and says which of its deliveries are in hand, as the statements want it.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

from spool.deliveries import rules
from spool.deliveries.rules import TERMS
from spool.deliveries.values import Delivery
from spool.errors import NotAllowed, NotThere
from spool.sqlite.deliveries import queries, rows


def next_number(connection: sqlite3.Connection, route: str) -> tuple[int, int]:
    """The lowest number that no delivery was cut for, and how many deliveries were accepted so far."""
    row = connection.execute(queries.NEXT, (route,)).fetchone()
    if row is None:
        raise NotThere(f"there is no route {route}")
    return row[0], row[1]


def next_due_at(connection: sqlite3.Connection, where: dict[str, Any]) -> float | None:
    at: float | None = connection.execute(queries.NEXT_DUE_AT, where).fetchone()[0]
    return at


def cut(connection: sqlite3.Connection, where: dict[str, Any], *, closed: int, max_records: int) -> Delivery | None:
    """A new delivery from the lowest number that none was cut for; None when there is none, or too many wait."""
    route = where["route"]
    first, acceptances = next_number(connection, route)
    if first >= closed or connection.execute(queries.WAITING_BATCHES, where).fetchone()[0] >= rules.MAX_WAITING:
        return None
    last = min(first + max_records, closed) - 1
    connection.execute(queries.MOVE_NEXT, (last + 1, route))
    return insert(connection, route, (first, last), passed=acceptances)


def fresh_single(connection: sqlite3.Connection, where: dict[str, Any], closed: int) -> Delivery | None:
    single = rows.delivery(connection, queries.FRESH_SINGLE, where)
    if single is not None:
        return single
    batch = rows.delivery(connection, queries.NEWEST_BATCH, where)
    if batch is None:
        return cut(connection, where, closed=closed, max_records=1)
    second = split(connection, batch.id, batch.last, reason=batch.last_error, refused=False)
    return None if second is None else rows.one(connection, batch.route, second)


def split(
    connection: sqlite3.Connection, delivery_id: int, second: int, *, reason: str | None, refused: bool
) -> int | None:
    """The id of the second child; None when the parent was skipped meanwhile."""
    row = connection.execute(queries.REMOVE, (delivery_id,)).fetchone()
    if row is None:
        return None
    route, first, last, replay, proof = row
    _, acceptances = next_number(connection, route)
    child = partial(
        insert,
        connection,
        route,
        passed=acceptances,
        proof=acceptances if refused else proof,
        last_error=reason,
        replay=bool(replay),
    )
    child((first, second - 1))
    return child((second, last)).id


def insert(
    connection: sqlite3.Connection,
    route: str,
    span: rules.Range,
    *,
    passed: int,
    proof: int | None = None,
    last_error: str | None = None,
    replay: bool = False,
    kept_at: float | None = None,
    kept: bytes | None = None,
) -> Delivery:
    values = {
        "route": route,
        "first": span[0],
        "last": span[1],
        "key": rules.new_key(),
        "passed": passed,
        "proof": proof,
        "last_error": last_error,
        "replay": replay,
        "kept_at": kept_at,
        "kept": kept,
    }
    inserted = connection.execute(queries.INSERT, values).lastrowid
    assert inserted is not None
    return rows.one(connection, route, inserted)


def dig_up(connection: sqlite3.Connection, letter: int) -> int:
    """A dead letter becomes a delivery again, with its record beside it; the number of letters that were there."""
    row = connection.execute(queries.UNBURY, (letter,)).fetchone()
    if row is None:
        return 0
    route, number, committed_at, record, replay = row
    try:
        _, acceptances = next_number(connection, route)
    except NotThere as error:
        raise NotAllowed(f"{error} any more: its dead letters can only be discarded") from error
    insert(
        connection, route, (number, number), passed=acceptances, replay=bool(replay), kept_at=committed_at, kept=record
    )
    if not replay:
        add(connection, route, dead=-1)
    return 1


def add(connection: sqlite3.Connection, route: str, **terms: int) -> None:
    changed = {term: n for term, n in terms.items() if n}
    assert changed.keys() <= set(TERMS)
    if changed:
        connection.execute(queries.add(list(changed)), (*changed.values(), route))
