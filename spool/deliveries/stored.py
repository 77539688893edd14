"""Deliveries, rejected records and routes as engines store them, and the change that a transition makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from spool.deliveries.rules import STUCK_AFTER, TERMS, new_key
from spool.deliveries.values import OPEN, RUNNING, DeadLetter, Delivery, Landing, PartialRefusal

NOT_STORED = 0  # id of a new delivery or rejected record until the engine assigns one

# Counters of a route, which only increase: the first number in no delivery, the accepted deliveries (they
# order responses independently of the clock), replayed records, records that became ambiguous, and the terms.
COUNTS = ("next", "acceptances", "replayed", "ambiguous", *TERMS)


class StoredDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery with the fields that only the rules use."""

    id: int = NOT_STORED
    attempts: int = 0
    idempotency_key: str = field(default_factory=new_key)
    state: str = OPEN
    not_before: float = 0.0
    # a worker is sending the delivery; after a crash, the destination may have accepted it
    sending: bool = False
    answer: str | None = None  # the last response under the present key
    same_answers: int = 0  # number of times in a row that the destination sent `answer`
    # the route's count of accepted deliveries when the last 5xx arrived, or when this delivery was made
    passed: int
    proof: int | None = None  # the route's count of accepted deliveries when the record was first rejected
    # the route's count of accepted deliveries when this row was read; not a column of deliveries
    acceptances: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return self.first, self.last

    @property
    def waits_apart(self) -> bool:
        """Return True for a rejected or stuck single record. Such a record does not hold up the backlog."""
        return self.count == 1 and (self.refusals > 0 or self.server_errors >= STUCK_AFTER)


def is_proven(proof: int | None, acceptances: int) -> bool:
    """Return True if the destination accepted another delivery of the route after the first rejection."""
    return proof is not None and acceptances > proof


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter(DeadLetter):
    """A rejected record with the fields that its retry needs."""

    id: int = NOT_STORED
    committed_at: float
    replay: bool


class StoredRoute(Struct, frozen=True, kw_only=True):
    """A route without its deliveries. `counts` has all of COUNTS."""

    name: str
    topic: str
    required: bool
    orphaned: bool = False
    state: str = RUNNING
    reason: str | None = None
    state_since: float | None = None
    counts: Mapping[str, int]

    @property
    def next(self) -> int:
        """The lowest number that is in no delivery."""
        return self.counts["next"]

    @property
    def acceptances(self) -> int:
        return self.counts["acceptances"]


class RouteChange(Struct, frozen=True, kw_only=True):
    """
    Changes that a transition makes to one route. An engine writes all of them in one transaction, or none.

    An engine without a lock between reading and writing must check when it writes: the deliveries to delete
    or change, and the route's count of accepted deliveries, must be the same as when it read them.
    """

    route: str
    removed: Sequence[int] = ()  # ids of the deliveries to delete
    changed: StoredDelivery | None = None
    added: Sequence[StoredDelivery] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # name of a count -> amount to add to it
    refusal: PartialRefusal | None = None
    dead: StoredDeadLetter | None = None  # record to store as a rejected record
    landing: Landing | None = None  # row to store for a delivery that is in a data lake
    no_longer_dead: int | None = None  # id of a rejected record to delete
