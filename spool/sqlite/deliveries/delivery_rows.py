"""Reading and writing rows of the deliveries' tables. All functions get a connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from spool.deliveries import routes, rules, transitions
from spool.deliveries.routes import RouteBacklog
from spool.deliveries.stored import (
    COUNTS,
    RouteChange,
    StoredDeadLetter,
    StoredDelivery,
    StoredRoute,
    has_acceptance_since_rejection,
)
from spool.deliveries.values import PartialRefusal, RouteState, UnsettledDelivery
from spool.log.values import LogEntry
from spool.record import pack_records, unpack_records
from spool.sql import lake
from spool.sql.deliveries import DEAD_COLUMNS, REFUSAL_COLUMNS, ROUTE_COLUMNS, UNSETTLED_COLUMNS
from spool.sqlite.database import SqliteConnection
from spool.sqlite.deliveries import queries
from spool.sqlite.log.entries import highest_accepted_number

Values = Mapping[str, object] | tuple[object, ...]

# positional, because SQLite searches all names for each named parameter
_columns = attrgetter(*queries.INSERTED)
_changed = attrgetter(*queries.CHANGED, "id")


def read_deliveries(
    connection: sqlite3.Connection, statement: str, values: Values = ()
) -> Iterator[StoredDelivery]:
    """Yield the deliveries that a statement selects. It must select the same columns as `queries.ONE`."""
    return map(_read_delivery_row, connection.execute(statement, values))


def read_delivery(connection: sqlite3.Connection, statement: str, values: Values) -> StoredDelivery | None:
    return next(read_deliveries(connection, statement, values), None)


def _read_delivery_row(row: tuple[Any, ...]) -> StoredDelivery:
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
        entry = LogEntry(topic=topic, first=first, committed_at=kept_at, records=unpack_records(packed))
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
        proven=has_acceptance_since_rejection(proof, acceptances),
    )


def mark_sending(connection: sqlite3.Connection, delivery: StoredDelivery | None) -> StoredDelivery | None:
    """Mark a delivery as being sent. The caller has chosen it in the same transaction."""
    if delivery is None:
        return None
    change = transitions.mark_sending(delivery)
    if delivery.sending:
        write_change(connection, change)
    connection.execute(queries.TAKE, (delivery.id,))
    return change.changed


def read_route(connection: sqlite3.Connection, name: str) -> StoredRoute:
    return routes.require_route(find_route(connection, name), name)


def find_route(connection: sqlite3.Connection, name: str) -> StoredRoute | None:
    row = connection.execute(queries.ROUTE, (name,)).fetchone()
    return None if row is None else read_route_row(row)


def read_route_row(row: tuple[Any, ...]) -> StoredRoute:
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
    columns = [name for name in ROUTE_COLUMNS if name not in COUNTS]
    values = {name: getattr(new, name) for name in columns}
    connection.execute(queries.DECLARE, {**values, **new.counts})


def read_dead_letter_row(row: tuple[Any, ...]) -> StoredDeadLetter:
    columns: dict[str, Any] = dict(zip(DEAD_COLUMNS, row, strict=True))
    record = unpack_records(columns.pop("record"))[0]
    replay = bool(columns.pop("replay"))
    return StoredDeadLetter(**columns, record=record, replay=replay)


def read_unsettled_row(row: tuple[Any, ...]) -> UnsettledDelivery:
    columns: dict[str, Any] = dict(zip(UNSETTLED_COLUMNS, row, strict=True))
    return UnsettledDelivery(**{**columns, "replay": bool(columns["replay"])})


def read_refusal_row(row: tuple[Any, ...]) -> PartialRefusal:
    return PartialRefusal(**dict(zip(REFUSAL_COLUMNS, row, strict=True)))


def write_change(connection: sqlite3.Connection, change: RouteChange) -> list[StoredDelivery]:
    for removed in change.removed:
        connection.execute(queries.REMOVE, (removed,))
    if change.changed is not None:
        connection.execute(queries.CHANGE, _changed(change.changed))
    added = [_insert_delivery(connection, delivery) for delivery in change.added]
    counts = {name: n for name, n in change.counts.items() if n}
    if counts:
        connection.execute(queries.count_statement(tuple(counts)), (*counts.values(), change.route))
    if change.refusal is not None:
        values = {name: getattr(change.refusal, name) for name in REFUSAL_COLUMNS}
        connection.execute(queries.REFUSED, values)
        connection.execute(queries.PRUNE_REFUSALS, {"route": change.route, "kept": rules.KEPT_REFUSALS})
    if change.landing is not None:
        lake.insert_lake_delivery(SqliteConnection(connection), change.landing)
    if change.dead is not None:
        values = {name: getattr(change.dead, name) for name in DEAD_COLUMNS}
        connection.execute(queries.SET_ASIDE, {**values, "record": pack_records([change.dead.record])})
    if change.no_longer_dead is not None:
        connection.execute(queries.NO_LONGER_DEAD, (change.no_longer_dead,))
    return added


def _insert_delivery(connection: sqlite3.Connection, delivery: StoredDelivery) -> StoredDelivery:
    own_entry = delivery.kept
    records = [] if own_entry is None else [record for record in own_entry.records if record is not None]
    kept_at = None if own_entry is None else own_entry.committed_at
    values = (*_columns(delivery), kept_at, pack_records(records) if records else None)
    inserted = connection.execute(queries.INSERT, values).lastrowid
    assert inserted is not None
    return replace(delivery, id=inserted)


# -- what retention and the accounting need from routes --------------------------------------------------------


def accounting_counts_by_route(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    return {
        route.name: routes.route_accounting_counts(
            route, backlog, accepted=highest_accepted_number(connection, route.topic)
        )
        for route, backlog in _routes_with_backlog(connection)
    }


def route_states(connection: sqlite3.Connection, now: float) -> Sequence[RouteState]:
    return [
        routes.route_state(
            route,
            backlog,
            accepted=highest_accepted_number(connection, route.topic),
            committed_at=_read_committed_at(
                connection, route.topic, routes.lowest_unsettled_number(route, backlog)
            ),
            now=now,
        )
        for route, backlog in _routes_with_backlog(connection)
    ]


def lowest_number_needed_by_routes(connection: sqlite3.Connection, topic: str) -> int | None:
    """
    Return the lowest number that a required route of the topic needs. Return None if the topic has no route,
    and NOBODY_NEEDS if all its routes are optional.
    """
    on_topic, uncut, cut = connection.execute(queries.NEEDED, {"topic": topic}).fetchone()
    if not on_topic:
        return None
    needed: int = min(number for number in (uncut, cut, rules.NOBODY_NEEDS) if number is not None)
    return needed


def first_number_in_no_delivery(connection: sqlite3.Connection, topic: str) -> int:
    """Return the lowest number that is in no delivery of any route. Records in a delivery never change."""
    number: int = connection.execute(queries.CUT_BELOW, (topic,)).fetchone()[0]
    return number


def skip_records_on_optional_routes(connection: sqlite3.Connection, topic: str, end_number: int) -> int:
    """Skip the records below a number on optional routes. Return their number, summed over the routes."""
    total = 0
    for row in connection.execute(queries.OPTIONAL, (topic,)).fetchall():
        skipping = read_route_row(row)
        below = list(read_deliveries(connection, queries.BELOW, (skipping.name, end_number)))
        change = transitions.skip_records(skipping, below, end_number)
        write_change(connection, change)
        total += change.counts["skipped"]
    return total


def _routes_with_backlog(connection: sqlite3.Connection) -> Iterator[tuple[StoredRoute, RouteBacklog]]:
    width = len(ROUTE_COLUMNS)
    for row in connection.execute(queries.ROUTES).fetchall():
        yield read_route_row(row[:width]), RouteBacklog(*row[width:])


def _read_committed_at(connection: sqlite3.Connection, topic: str, record_number: int) -> float | None:
    row = connection.execute(queries.COMMITTED_AT, (topic, record_number)).fetchone()
    return row[0] if row else None
