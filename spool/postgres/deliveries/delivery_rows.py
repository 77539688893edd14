"""Reading and writing rows of the deliveries' tables. All functions get a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

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
from spool.errors import SpoolUnavailable
from spool.log.commits.following import numbers_by_topic
from spool.log.values import LogEntry
from spool.postgres.connections.standby import no_standby_error
from spool.postgres.database import Connection, Database, PipelinedTransaction
from spool.postgres.deliveries import queries
from spool.postgres.log import queries as log_queries
from spool.postgres.log.entries import highest_accepted_number, read_committed_at, topic_code
from spool.record import pack_records, unpack_records
from spool.sql.deliveries import DEAD_COLUMNS, REFUSAL_COLUMNS, ROUTE_COLUMNS, UNSETTLED_COLUMNS
from spool.sql.lake import LANDING

Values = Mapping[str, object]
_NOT_ASKED: Values = {}


class DeliveryAndOwner(NamedTuple):
    """A delivery as read. `owner`: the session that sends it, or sent it last."""

    delivery: StoredDelivery
    owner: UUID | None


class DeliveryRowAccess(NamedTuple):
    """
    Reads and writes rows for the session `me`. If a standby is required and `transaction` is given, each
    change is confirmed.
    """

    database: Database
    me: UUID
    transaction: PipelinedTransaction | None = None

    def execute(self, connection: Connection, statement: str, values: Values = _NOT_ASKED) -> Any:
        return connection.execute(
            self.database.fill_in_table_names(statement), self._add_session_values(values)
        )

    def execute_as_whole_transaction(self, connection: Connection, statement: str, values: Values) -> Any:
        """
        Run the statement. If the field `transaction` is set, the statement is committed separately, and a
        required standby confirms it.
        """
        if self.transaction is None:
            return self.execute(connection, statement, values)
        needs_standby = self.database.needs_standby
        return self.transaction.run_as_whole_transaction(
            self.database.fill_in_table_names(statement),
            self._add_session_values(values),
            needs_standby=needs_standby,
        )

    def _add_session_values(self, values: Values) -> Values:
        return {"me": self.me, "now": self.database.now_unless_database_clock(), **values}

    def read_deliveries(
        self, connection: Connection, statement: str, values: Values = _NOT_ASKED
    ) -> list[DeliveryAndOwner]:
        """
        Return the deliveries that a statement selects. It must select the columns of a delivery, then topic
        and acceptances of its route.
        """
        return [_read_delivery_row(row) for row in self.execute(connection, statement, values)]

    def read_delivery(
        self, connection: Connection, statement: str, values: Values
    ) -> DeliveryAndOwner | None:
        return next(iter(self.read_deliveries(connection, statement, values)), None)

    def read_route(self, connection: Connection, name: str) -> StoredRoute:
        return routes.require_route(self.find_route(connection, name), name)

    def read_route_and_check_standby(self, connection: Connection, name: str) -> StoredRoute:
        """Return the route. Raises SpoolUnavailable if a standby is required but none is configured."""
        *row, standbys = self.execute(connection, queries.ROUTE_TO_SEND, {"route": name}).fetchone() or (
            None,
        )
        if row and self.database.needs_standby and not standbys:
            raise no_standby_error()
        return routes.require_route(read_route_row(row) if row else None, name)

    def find_route(self, connection: Connection, name: str) -> StoredRoute | None:
        row = self.execute(connection, queries.ROUTE, {"route": name}).fetchone()
        return None if row is None else read_route_row(row)

    def write_change_if_rows_unchanged(
        self,
        connection: Connection,
        change: RouteChange,
        expected_deliveries: Sequence[StoredDelivery] = (),
        *,
        expected_route: StoredRoute | None = None,
        needs_closed_records: bool = False,
    ) -> list[StoredDelivery] | None:
        """
        Write a change in one statement. Return the added deliveries with their ids.

        Write nothing and return None if other rows are stored than expected: `expected_deliveries`, a rejected
        record to delete, and the next number of `expected_route`. With `needs_closed_records`, all its records
        must also be closed. Deliveries that it marks as `sending` are assigned to this session.
        """
        counts = {name: n for name, n in change.counts.items() if n}
        values: dict[str, object] = {
            "ids": [delivery.id for delivery in expected_deliveries],
            "fences": [delivery.fence for delivery in expected_deliveries],
            "states": [delivery.state for delivery in expected_deliveries],
            "route": change.route,
            "removed": list(change.removed),
            "letter": change.no_longer_dead,
            **counts,
        }
        if "next" in counts:
            assert expected_route is not None
            values |= {"was": expected_route.next_number, "place": topic_code(expected_route.topic) + 1}
        if change.changed is not None:
            values |= {"id": change.changed.id}
            values |= {
                f"set_{name}": value
                for name, value in self._column_values(change.changed, queries.CHANGED).items()
            }
        if change.added:
            added = [self._column_values(delivery, queries.INSERTED) for delivery in change.added]
            values |= {f"new_{name}": [delivery[name] for delivery in added] for name in queries.INSERTED}
        if change.refusal is not None:
            values |= {f"refused_{name}": getattr(change.refusal, name) for name in REFUSAL_COLUMNS}
        if change.dead is not None:
            letter = {name: getattr(change.dead, name) for name in DEAD_COLUMNS[1:]}
            values |= {f"dead_{name}": value for name, value in letter.items()}
            values["dead_record"] = pack_records([change.dead.record])
        if change.landing is not None:
            values |= {
                f"landed_{name}": value for name, value in LANDING.stored_values(change.landing).items()
            }
        statement = queries.change_statement(
            removed=bool(change.removed),
            changed=change.changed is not None,
            added=bool(change.added),
            counts=tuple(counts),
            is_closed=needs_closed_records and "next" in counts,
            refusal=change.refusal is not None,
            dead=change.dead is not None,
            letter=change.no_longer_dead is not None,
            landing=change.landing is not None,
        )
        is_written, ids = self.execute_as_whole_transaction(connection, statement, values).fetchone()
        if not is_written:
            return None
        if change.refusal is not None:
            bound = {"route": change.route, "kept": rules.KEPT_REFUSALS}
            self.execute(connection, queries.PRUNE_REFUSALS, bound)
        return [replace(delivery, id=id) for delivery, id in zip(change.added, ids, strict=True)]

    def _column_values(self, delivery: StoredDelivery, columns: Mapping[str, str]) -> dict[str, object]:
        own_entry = delivery.kept
        records = [] if own_entry is None else [record for record in own_entry.records if record is not None]
        converted = {
            "owner": self.me if delivery.sending else None,
            "kept_at": None if own_entry is None else own_entry.committed_at,
            "kept": pack_records(records) if records else None,
        }
        return {name: converted[name] if name in converted else getattr(delivery, name) for name in columns}


def _read_delivery_row(row: tuple[Any, ...]) -> DeliveryAndOwner:
    columns: dict[str, Any] = dict(zip(queries.DELIVERY_COLUMNS, row[:-2], strict=True))
    topic, acceptances = row[-2:]
    owner = columns.pop("owner")
    kept_at = columns.pop("kept_at")
    packed = columns.pop("kept")
    own_entry = None
    if packed is not None:
        own_entry = LogEntry(
            topic=topic, first=columns["first"], committed_at=kept_at, records=unpack_records(packed)
        )
    proven = has_acceptance_since_rejection(columns["proof"], acceptances)
    return DeliveryAndOwner(
        StoredDelivery(**columns, kept=own_entry, acceptances=acceptances, proven=proven), owner
    )


def read_route_row(row: Sequence[Any]) -> StoredRoute:
    name, topic, required, orphaned, state, reason, since, *counts = row
    return StoredRoute(
        name=name,
        topic=topic,
        required=required,
        orphaned=orphaned,
        state=state,
        reason=reason,
        state_since=since,
        counts=dict(zip(COUNTS, counts, strict=True)),
    )


def read_dead_letter_row(row: tuple[Any, ...]) -> StoredDeadLetter:
    columns: dict[str, Any] = dict(zip(DEAD_COLUMNS, row, strict=True))
    return StoredDeadLetter(**{**columns, "record": unpack_records(columns["record"])[0]})


def read_unsettled_row(row: tuple[Any, ...]) -> UnsettledDelivery:
    return UnsettledDelivery(**dict(zip(UNSETTLED_COLUMNS, row, strict=True)))


def read_refusal_rows(rows: Iterator[tuple[Any, ...]]) -> list[PartialRefusal]:
    return [PartialRefusal(**dict(zip(REFUSAL_COLUMNS, row, strict=True))) for row in rows]


# -- routes --------------------------------------------------------------------------------------------------


NOBODY = UUID(int=0)


class PostgresRoutes:
    def __init__(self, database: Database) -> None:
        self._session = DeliveryRowAccess(database, NOBODY)
        self._database = database

    def accounting_counts_by_route(self, connection: Connection) -> dict[str, dict[str, int]]:
        """Return the counters of each route by name. Replays are not counted."""
        return {
            route.name: routes.route_accounting_counts(
                route, backlog, accepted=highest_accepted_number(self._database, connection, route.topic)
            )
            for route, backlog in self._routes_with_backlog(connection)
        }

    def route_states(self, connection: Connection, now: float) -> Sequence[RouteState]:
        return [
            routes.route_state(
                route,
                backlog,
                accepted=highest_accepted_number(self._database, connection, route.topic),
                committed_at=read_committed_at(
                    self._database, connection, route.topic, routes.lowest_unsettled_number(route, backlog)
                ),
                now=now,
            )
            for route, backlog in self._routes_with_backlog(connection)
        ]

    def lowest_number_needed_by_routes(self, connection: Connection, topic: str) -> int | None:
        """
        Return the lowest number that a required route of the topic needs, or NOBODY_NEEDS if all its routes
        are optional.
        """
        on_topic, uncut, cut = self._session.execute(connection, queries.NEEDED, {"topic": topic}).fetchone()
        if not on_topic:
            return None
        needed: int = min(number for number in (uncut, cut, rules.NOBODY_NEEDS) if number is not None)
        return needed

    def skip_records_on_optional_routes(
        self, connection: Connection, first_kept_numbers: Mapping[str, int]
    ) -> Mapping[str, int]:
        """
        Skip records below these numbers on optional routes. Return how many were skipped, by topic.

        If a route changed meanwhile, raises SpoolUnavailable, which must end the transaction.
        """
        where = {"topics": list(first_kept_numbers), "numbers": list(first_kept_numbers.values())}
        locked = {id for (id,) in self._session.execute(connection, queries.GIVEN_UP, where)}
        self._session.execute(connection, queries.LOCK_ROUTES)
        totals = dict.fromkeys(first_kept_numbers, 0)
        for topic, number in first_kept_numbers.items():
            for row in self._session.execute(connection, queries.OPTIONAL, {"topic": topic}).fetchall():
                totals[topic] += self._skip_records_below(connection, read_route_row(row), number, locked)
        return totals

    def _skip_records_below(
        self, connection: Connection, route: StoredRoute, below_number: int, locked: set[int]
    ) -> int:
        where = {"route": route.name, "number": below_number}
        below = [row.delivery for row in self._session.read_deliveries(connection, queries.BELOW, where)]
        change = transitions.skip_records(route, below, below_number)
        if not any(change.counts.values()) and not change.removed:
            return 0
        is_moved = not locked.issuperset(delivery.id for delivery in below)
        if (
            is_moved
            or self._session.write_change_if_rows_unchanged(connection, change, below, expected_route=route)
            is None
        ):
            raise SpoolUnavailable(
                f"{route.name} sent records while its oldest ones were being skipped; try again"
            )
        return change.counts["skipped"]

    def _routes_with_backlog(self, connection: Connection) -> Iterator[tuple[StoredRoute, RouteBacklog]]:
        width = len(ROUTE_COLUMNS)
        for row in self._session.execute(connection, queries.ROUTES).fetchall():
            yield read_route_row(row[:width]), RouteBacklog(*row[width:])


# -- choosing what to send -----------------------------------------------------------------------------------


@dataclass
class NextDeliveryChooser:
    """
    The choice of the next delivery of a route. `where`: parameters of statements. `unsent`: deliveries that
    this process took but did not send, because no standby had their rows: id -> number of the attempt
    (`fence`).
    """

    session: DeliveryRowAccess
    connection: Connection
    route: StoredRoute
    where: Mapping[str, object]
    unsent: Mapping[int, int] = field(default_factory=dict)
    has_moved: bool = field(default=False)

    def read_value(self, statement: str) -> Any:
        return self.session.execute(self.connection, statement, self.where).fetchone()[0]

    def find_delivery(self, statement: str, *, now: float = inf) -> DeliveryAndOwner | None:
        return self.session.read_delivery(self.connection, statement, {**self.where, "at": now})

    @cached_property
    def closed_below(self) -> int:
        row = self.session.execute(self.connection, log_queries.NEWEST).fetchone()
        return numbers_by_topic(row[2])[self.route.topic] if row else 1

    def take_delivery(self, read_delivery: DeliveryAndOwner | None) -> StoredDelivery | None:
        if read_delivery is None:
            return None
        delivery = read_delivery.delivery
        if read_delivery.owner == self.session.me and self.unsent.get(delivery.id) == delivery.fence:
            delivery = replace(delivery, sending=False)
        change = transitions.mark_sending(delivery)
        return change.changed if self._write_if_unchanged(change, delivery) is not None else None

    def make_and_take_next_delivery(
        self, *, max_records: int, below_record_number: int | None = None
    ) -> StoredDelivery | None:
        """
        Make and take a new delivery of closed (final) records below `below_record_number`. Return None if there
        are none, or if MAX_WAITING deliveries wait already.
        """
        closed = (
            self.closed_below if below_record_number is None else min(self.closed_below, below_record_number)
        )
        if self.route.next_number >= closed:
            return None
        waiting = self.read_value(queries.WAITING)
        change = transitions.make_next_delivery(
            self.route, waiting=waiting, lowest_open_number=closed, max_records=max_records
        )
        if change is None:
            return None
        written = self.session.write_change_if_rows_unchanged(
            self.connection, change, expected_route=self.route, needs_closed_records=True
        )
        self.has_moved |= written is None
        return written[0] if written else None

    def split_off_and_take_last_record(self, batch: StoredDelivery) -> StoredDelivery | None:
        change = transitions.split_delivery(batch, batch.last, reason=batch.last_error)
        rest, single = change.added
        added = [rest, replace(single, sending=True, fence=1)]
        change = RouteChange(route=change.route, removed=change.removed, added=added, counts=change.counts)
        written = self._write_if_unchanged(change, batch)
        return written[-1] if written else None

    def _write_if_unchanged(
        self, change: RouteChange, expected_delivery: StoredDelivery
    ) -> list[StoredDelivery] | None:
        written = self.session.write_change_if_rows_unchanged(self.connection, change, [expected_delivery])
        self.has_moved |= written is None
        return written


def take_due_delivery(
    choice: NextDeliveryChooser, *, now: float, max_records: int, below_record_number: int | None = None
) -> StoredDelivery | None:
    """Take the next delivery: the oldest due one, else a new one, else one of a replay."""
    candidate = choice.find_delivery(queries.DUE, now=now)
    if candidate is not None and not candidate.delivery.replay:
        return choice.take_delivery(candidate)
    cut = choice.make_and_take_next_delivery(max_records=max_records, below_record_number=below_record_number)
    return cut if cut is not None or choice.has_moved else choice.take_delivery(candidate)


def take_untried_single_record_delivery(choice: NextDeliveryChooser, *, now: float) -> StoredDelivery | None:
    """
    Take a delivery of one record that was not rejected yet when sent alone. If there is none, split a record
    off a batch, or begin a new delivery.
    """
    single = choice.find_delivery(queries.FRESH_SINGLE, now=now)
    if single is not None:
        return choice.take_delivery(single)
    batch = choice.find_delivery(queries.NEWEST_BATCH)
    if batch is not None:
        return choice.split_off_and_take_last_record(batch.delivery)
    return choice.make_and_take_next_delivery(max_records=1)


def take_suspect_delivery(choice: NextDeliveryChooser, *, now: float) -> StoredDelivery | None:
    return None if choice.has_moved else choice.take_delivery(choice.find_delivery(queries.SUSPECT, now=now))
