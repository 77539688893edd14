"""Rows of the deliveries' tables as values, and a `RouteChange` written to them. Functions of a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from spool.deliveries import routes, rules, transitions
from spool.deliveries.stored import (
    COUNTS,
    RouteChange,
    StoredDeadLetter,
    StoredDelivery,
    StoredRoute,
    is_proven,
)
from spool.deliveries.values import PartialRefusal, UnsettledDelivery
from spool.log.values import Entry
from spool.record import pack, unpack
from spool.sqlite.deliveries import queries

Values = Mapping[str, object] | tuple[object, ...]

# By place: SQLite looks for each name of a statement among all that it has.
_columns = attrgetter(*queries.INSERTED)
_changed = attrgetter(*queries.CHANGED, "id")


def read_deliveries(
    connection: sqlite3.Connection,
    statement: str,
    values: Values = (),
) -> Iterator[StoredDelivery]:
    """Read deliveries by a statement that selects the columns of `queries.ONE`."""
    return map(_delivery, connection.execute(statement, values))


def read_delivery(connection: sqlite3.Connection, statement: str, values: Values) -> StoredDelivery | None:
    return next(read_deliveries(connection, statement, values), None)


def _delivery(row: tuple[Any, ...]) -> StoredDelivery:
    (
        id,
        route,
        first,
        last,
        replay,
        fence,
        state,
        not_before,
        attempts,
        key,
        ambiguous,
        server_errors,
        passed,
        refusals,
        refused_at,
        proof,
        last_error,
        mark,
        sending,
        answer,
        same_answers,
        kept_at,
        packed,
        topic,
        acceptances,
    ) = row
    entry = None
    if packed is not None:
        entry = Entry(topic=topic, first=first, committed_at=kept_at, records=unpack(packed))
    return StoredDelivery(
        id=id,
        route=route,
        first=first,
        last=last,
        replay=bool(replay),
        fence=fence,
        state=state,
        not_before=not_before,
        attempts=attempts,
        idempotency_key=key,
        ambiguous=bool(ambiguous),
        server_errors=server_errors,
        passed=passed,
        refusals=refusals,
        refused_at=refused_at,
        proof=proof,
        last_error=last_error,
        mark=mark,
        sending=bool(sending),
        answer=answer,
        same_answers=same_answers,
        kept=entry,
        acceptances=acceptances,
        proven=is_proven(proof, acceptances),
    )


def take(connection: sqlite3.Connection, delivery: StoredDelivery | None) -> StoredDelivery | None:
    """Note on disk that it is about to be sent, in the transaction that chose it."""
    if delivery is None:
        return None
    change = transitions.take(delivery)
    if delivery.sending:
        write(connection, change)
    connection.execute(queries.TAKE, (delivery.id,))
    return change.changed


def read_route(connection: sqlite3.Connection, name: str) -> StoredRoute:
    """NotThere when it was never declared."""
    return routes.known(find_route(connection, name), name)


def find_route(connection: sqlite3.Connection, name: str) -> StoredRoute | None:
    row = connection.execute(queries.ROUTE, (name,)).fetchone()
    return None if row is None else route(row)


def route(row: tuple[Any, ...]) -> StoredRoute:
    """Make a route from the columns that `queries.ROUTE` selects."""
    name, topic, required, orphaned, state, reason, since, *counts = row
    return StoredRoute(
        name=name,
        topic=topic,
        required=bool(required),
        orphaned=bool(orphaned),
        state=state,
        reason=reason,
        state_since=since,
        counts=dict(zip(COUNTS, counts, strict=True)),
    )


def add_route(connection: sqlite3.Connection, new: StoredRoute) -> None:
    columns = [name for name in queries.ROUTE_COLUMNS if name not in COUNTS]
    values = {name: getattr(new, name) for name in columns}
    connection.execute(queries.DECLARE, {**values, **new.counts})


def dead_letter(row: tuple[Any, ...]) -> StoredDeadLetter:
    named: dict[str, Any] = dict(zip(queries.DEAD_COLUMNS, row, strict=True))
    record = unpack(named.pop("record"))[0]
    replay = bool(named.pop("replay"))
    return StoredDeadLetter(**named, record=record, replay=replay)


def unsettled(row: tuple[Any, ...]) -> UnsettledDelivery:
    named: dict[str, Any] = dict(zip(queries.UNSETTLED_COLUMNS, row, strict=True))
    return UnsettledDelivery(**{**named, "replay": bool(named["replay"])})


def partial_refusal(row: tuple[Any, ...]) -> PartialRefusal:
    return PartialRefusal(**dict(zip(queries.REFUSAL_COLUMNS, row, strict=True)))


def write(connection: sqlite3.Connection, change: RouteChange) -> list[StoredDelivery]:
    """Carry out a change in the caller's transaction; return the added deliveries with their ids."""
    for removed in change.removed:
        connection.execute(queries.REMOVE, (removed,))
    if change.changed is not None:
        connection.execute(queries.CHANGE, _changed(change.changed))
    added = [_insert(connection, delivery) for delivery in change.added]
    counts = {name: n for name, n in change.counts.items() if n}
    if counts:
        connection.execute(queries.count(tuple(counts)), (*counts.values(), change.route))
    if change.refusal is not None:
        values = {name: getattr(change.refusal, name) for name in queries.REFUSAL_COLUMNS}
        connection.execute(queries.REFUSED, values)
        connection.execute(queries.PRUNE_REFUSALS, {"route": change.route, "kept": rules.KEPT_REFUSALS})
    if change.landing is not None:
        landing = change.landing
        values = {name: getattr(landing, name) for name in queries.LANDING_COLUMNS}
        connection.execute(queries.LANDED, values)
    if change.dead is not None:
        values = {name: getattr(change.dead, name) for name in queries.DEAD_COLUMNS}
        connection.execute(queries.SET_ASIDE, {**values, "record": pack([change.dead.record])})
    if change.no_longer_dead is not None:
        connection.execute(queries.NO_LONGER_DEAD, (change.no_longer_dead,))
    return added


def _insert(connection: sqlite3.Connection, delivery: StoredDelivery) -> StoredDelivery:
    kept = delivery.kept
    records = [] if kept is None else [record for record in kept.records if record is not None]
    kept_at = None if kept is None else kept.committed_at
    values = (*_columns(delivery), kept_at, pack(records) if records else None)
    inserted = connection.execute(queries.INSERT, values).lastrowid
    assert inserted is not None
    return replace(delivery, id=inserted)
