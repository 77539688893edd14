"""Rows of the deliveries' tables as values, and a `RouteChange` written to them. Functions of a connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from spool.deliveries import routes, rules
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
from spool.postgres.connections.standby import refused
from spool.postgres.database import Connection, Database, JoinedTransaction
from spool.postgres.deliveries import queries
from spool.postgres.log.entries import code
from spool.record import pack, unpack

Values = Mapping[str, object]
_NOT_ASKED: Values = {}


class ReadDelivery(NamedTuple):
    """A delivery, and the session that has it or had it last."""

    delivery: StoredDelivery
    owner: UUID | None


class DeliveryRows(NamedTuple):
    """Who writes; with `transaction` a standby has each change that is written, where one is needed."""

    database: Database
    me: UUID
    transaction: JoinedTransaction | None = None

    def execute(self, connection: Connection, statement: str, values: Values = _NOT_ASKED) -> Any:
        return connection.execute(self.database.sql(statement), self._named(values))

    def execute_alone(self, connection: Connection, statement: str, values: Values) -> Any:
        """A statement that writes."""
        if self.transaction is None:
            return self.execute(connection, statement, values)
        needs_standby = self.database.needs_standby
        return self.transaction.alone(
            self.database.sql(statement), self._named(values), needs_standby=needs_standby
        )

    def _named(self, values: Values) -> Values:
        return {"me": self.me, "now": self.database.now(), **values}

    def deliveries(
        self, connection: Connection, statement: str, values: Values = _NOT_ASKED
    ) -> list[ReadDelivery]:
        """Read deliveries by a statement that selects the columns of `queries.ONE`."""
        return [_delivery(row) for row in self.execute(connection, statement, values)]

    def delivery(self, connection: Connection, statement: str, values: Values) -> ReadDelivery | None:
        return next(iter(self.deliveries(connection, statement, values)), None)

    def route(self, connection: Connection, name: str) -> StoredRoute:
        """NotThere when it was never declared."""
        return routes.known(self.find_route(connection, name), name)

    def route_to_send(self, connection: Connection, name: str) -> StoredRoute:
        """
        Read a route before sending. SpoolUnavailable if a standby is required and none would have the writes
        of this delivery.
        """
        *row, standbys = self.execute(connection, queries.ROUTE_TO_SEND, {"route": name}).fetchone() or (
            None,
        )
        if row and self.database.needs_standby and not standbys:
            raise refused()
        return routes.known(route(row) if row else None, name)

    def find_route(self, connection: Connection, name: str) -> StoredRoute | None:
        row = self.execute(connection, queries.ROUTE, {"route": name}).fetchone()
        return None if row is None else route(row)

    def write(
        self,
        connection: Connection,
        change: RouteChange,
        basis: Sequence[StoredDelivery] = (),
        *,
        cut_from: StoredRoute | None = None,
        is_closed: bool = False,
    ) -> list[StoredDelivery] | None:
        """
        Carry out a change in one statement; return the added deliveries with their ids.

        None, and nothing was done, when what it was made from has changed: the deliveries of `basis`, a dead
        letter, where `cut_from` was cut to, or, with `is_closed`, that all of it is closed. What is `sending`
        afterwards is in the hand of this session.
        """
        counts = {name: n for name, n in change.counts.items() if n}
        values: dict[str, object] = {
            "ids": [one.id for one in basis],
            "fences": [one.fence for one in basis],
            "states": [one.state for one in basis],
            "route": change.route,
            "removed": list(change.removed),
            "letter": change.no_longer_dead,
            **counts,
        }
        if "next" in counts:
            assert cut_from is not None
            values |= {"was": cut_from.next, "place": code(cut_from.topic) + 1}
        if change.changed is not None:
            values |= {"id": change.changed.id}
            values |= {
                f"set_{name}": value for name, value in self._columns(change.changed, queries.CHANGED).items()
            }
        if change.added:
            added = [self._columns(one, queries.INSERTED) for one in change.added]
            values |= {f"new_{name}": [one[name] for one in added] for name in queries.INSERTED}
        if change.refusal is not None:
            values |= {f"refused_{name}": getattr(change.refusal, name) for name in queries.REFUSAL_COLUMNS}
        if change.dead is not None:
            letter = {name: getattr(change.dead, name) for name in queries.DEAD_COLUMNS[1:]}
            values |= {f"dead_{name}": value for name, value in letter.items()}
            values["dead_record"] = pack([change.dead.record])
        if change.landing is not None:
            columns = queries.LANDING_COLUMNS
            values |= {f"landed_{name}": getattr(change.landing, name) for name in columns}
        statement = queries.change(
            removed=bool(change.removed),
            changed=change.changed is not None,
            added=bool(change.added),
            counts=tuple(counts),
            is_closed=is_closed and "next" in counts,
            refusal=change.refusal is not None,
            dead=change.dead is not None,
            letter=change.no_longer_dead is not None,
            landing=change.landing is not None,
        )
        done, ids = self.execute_alone(connection, statement, values).fetchone()
        if not done:
            return None
        if change.refusal is not None:
            bound = {"route": change.route, "kept": rules.KEPT_REFUSALS}
            self.execute(connection, queries.PRUNE_REFUSALS, bound)
        return [replace(one, id=id) for one, id in zip(change.added, ids, strict=True)]

    def _columns(self, delivery: StoredDelivery, columns: Mapping[str, str]) -> dict[str, object]:
        kept = delivery.kept
        records = [] if kept is None else [record for record in kept.records if record is not None]
        others = {
            "owner": self.me if delivery.sending else None,
            "kept_at": None if kept is None else kept.committed_at,
            "kept": pack(records) if records else None,
        }
        return {name: others[name] if name in others else getattr(delivery, name) for name in columns}


def _delivery(row: tuple[Any, ...]) -> ReadDelivery:
    named: dict[str, Any] = dict(zip(queries.DELIVERY_COLUMNS, row[:-2], strict=True))
    topic, acceptances = row[-2:]
    owner = named.pop("owner")
    kept_at = named.pop("kept_at")
    packed = named.pop("kept")
    kept = None
    if packed is not None:
        kept = Entry(topic=topic, first=named["first"], committed_at=kept_at, records=unpack(packed))
    proven = is_proven(named["proof"], acceptances)
    return ReadDelivery(StoredDelivery(**named, kept=kept, acceptances=acceptances, proven=proven), owner)


def route(row: Sequence[Any]) -> StoredRoute:
    """Make a route from the columns that `queries.ROUTE` selects."""
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


def dead_letter(row: tuple[Any, ...]) -> StoredDeadLetter:
    named: dict[str, Any] = dict(zip(queries.DEAD_COLUMNS, row, strict=True))
    return StoredDeadLetter(**{**named, "record": unpack(named["record"])[0]})


def unsettled(row: tuple[Any, ...]) -> UnsettledDelivery:
    return UnsettledDelivery(**dict(zip(queries.UNSETTLED_COLUMNS, row, strict=True)))


def partial_refusals(rows: Iterator[tuple[Any, ...]]) -> list[PartialRefusal]:
    return [PartialRefusal(**dict(zip(queries.REFUSAL_COLUMNS, row, strict=True))) for row in rows]
