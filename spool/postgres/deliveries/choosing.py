"""
Which delivery a route sends next, taken in the same step. Functions of a connection, whose statements stand alone.

Whoever finds that another one was faster says so in `DeliveryChoice.has_moved`, and is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

from msgspec.structs import replace

from spool.deliveries import transitions
from spool.deliveries.stored import RouteChange, StoredDelivery, StoredRoute
from spool.log.commits.following import by_topic
from spool.postgres.database import Connection
from spool.postgres.deliveries import queries
from spool.postgres.deliveries.delivery_rows import DeliveryRows, ReadDelivery
from spool.postgres.log import queries as log_queries


@dataclass
class DeliveryChoice:
    """
    `where` names the route and what this session sends. `unsent` are those that it took and did not
    send, as no standby had that, by id with their fence.
    """

    session: DeliveryRows
    connection: Connection
    route: StoredRoute
    where: Mapping[str, object]
    unsent: Mapping[int, int] = field(default_factory=dict)
    has_moved: bool = field(default=False)

    def value(self, statement: str) -> Any:
        return self.session.execute(self.connection, statement, self.where).fetchone()[0]

    def found(self, statement: str, *, at: float = inf) -> ReadDelivery | None:
        return self.session.delivery(self.connection, statement, {**self.where, "at": at})

    @cached_property
    def closed(self) -> int:
        """The number below which the newest commit says that all is closed."""
        row = self.session.execute(self.connection, log_queries.NEWEST).fetchone()
        return by_topic(row[2])[self.route.topic] if row else 1

    def take(self, found: ReadDelivery | None) -> StoredDelivery | None:
        """Have it in this session's hand."""
        if found is None:
            return None
        delivery = found.delivery
        if found.owner == self.session.me and self.unsent.get(delivery.id) == delivery.fence:
            delivery = replace(delivery, sending=False)
        change = transitions.take(delivery)
        return change.changed if self._is_written(change, delivery) is not None else None

    def cut(self, *, max_records: int, below: int | None = None) -> StoredDelivery | None:
        """A new delivery, taken; None when there is nothing to cut, or enough waits."""
        closed = self.closed if below is None else min(self.closed, below)
        if self.route.next >= closed:
            return None
        waiting = self.value(queries.WAITING)
        change = transitions.cut(self.route, waiting=waiting, closed_below=closed, max_records=max_records)
        if change is None:
            return None
        written = self.session.write(self.connection, change, cut_from=self.route, is_closed=True)
        self.has_moved |= written is None
        return written[0] if written else None

    def split_off(self, batch: StoredDelivery) -> StoredDelivery | None:
        """The last record of a batch as a delivery of its own, taken."""
        change = transitions.split(batch, batch.last, reason=batch.last_error)
        rest, single = change.added
        added = [rest, replace(single, sending=True, fence=1)]
        change = RouteChange(route=change.route, removed=change.removed, added=added, counts=change.counts)
        written = self._is_written(change, batch)
        return written[-1] if written else None

    def _is_written(self, change: RouteChange, basis: StoredDelivery) -> list[StoredDelivery] | None:
        written = self.session.write(self.connection, change, [basis])
        self.has_moved |= written is None
        return written


def due(
    choice: DeliveryChoice, *, at: float, max_records: int, below: int | None = None
) -> StoredDelivery | None:
    """The oldest of the backlog that may be sent now, else a new one, else one of a replay."""
    found = choice.found(queries.DUE, at=at)
    if found is not None and not found.delivery.replay:
        return choice.take(found)
    cut = choice.cut(max_records=max_records, below=below)
    return cut if cut is not None or choice.has_moved else choice.take(found)


def fresh_single(choice: DeliveryChoice, *, at: float) -> StoredDelivery | None:
    """A single record that was never refused alone, made of a batch or of the log if need be."""
    single = choice.found(queries.FRESH_SINGLE, at=at)
    if single is not None:
        return choice.take(single)
    batch = choice.found(queries.NEWEST_BATCH)
    if batch is not None:
        return choice.split_off(batch.delivery)
    return choice.cut(max_records=1)


def suspect(choice: DeliveryChoice, *, at: float) -> StoredDelivery | None:
    """The oldest single record that may be tried again, and what must go whole."""
    return None if choice.has_moved else choice.take(choice.found(queries.SUSPECT, at=at))
