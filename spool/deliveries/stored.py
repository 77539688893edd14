"""Deliveries, dead letters and routes as engines store them, and the change that a transition makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from spool.deliveries.rules import STUCK_AFTER, TERMS, new_key
from spool.deliveries.values import OPEN, RUNNING, DeadLetter, Delivery, Landing, PartialRefusal

NOT_STORED = 0  # the id of a new delivery or dead letter until the engine gives it one

# The integers of a route that only ever have something added: how far it is cut, how many deliveries were
# accepted (the order of answers, whatever the clock does), how many records were replayed, how many became
# ambiguous, and its terms.
COUNTS = ("next", "acceptances", "replayed", "ambiguous", *TERMS)


class StoredDelivery(Delivery, frozen=True, kw_only=True):
    """A delivery with what only the rules look at."""

    id: int = NOT_STORED
    attempts: int = 0
    idempotency_key: str = field(default_factory=new_key)
    state: str = OPEN
    not_before: float = 0.0
    sending: bool = False  # being sent by a worker: after a crash it may have been taken
    answer: str | None = None  # the last one under the present key
    same_answers: int = 0  # how often it came in a row
    passed: int  # the route's acceptances at the last 5xx, or when the delivery was made
    proof: int | None = None  # the route's acceptances at the first refusal
    acceptances: int = 0  # of the route when this was read; no column of its own

    @property
    def span(self) -> tuple[int, int]:
        return self.first, self.last

    @property
    def waits_apart(self) -> bool:
        """True for a refused or stuck single record, which is waited for apart from the backlog."""
        return self.count == 1 and (self.refusals > 0 or self.server_errors >= STUCK_AFTER)


def is_proven(proof: int | None, acceptances: int) -> bool:
    """True if another delivery of the route was accepted since the first refusal."""
    return proof is not None and acceptances > proof


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter(DeadLetter):
    """A dead letter with what its retry needs."""

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
        """The lowest number that no delivery was cut for."""
        return self.counts["next"]

    @property
    def acceptances(self) -> int:
        return self.counts["acceptances"]


class RouteChange(Struct, frozen=True, kw_only=True):
    """
    What a transition does to one route. An engine writes all of it in one transaction, or nothing.

    An engine that holds no lock between reading and writing writes it on the condition that the deliveries it
    removes or changes, and the route's acceptances, are still as they were read.
    """

    route: str
    removed: Sequence[int] = ()  # ids of deliveries
    changed: StoredDelivery | None = None
    added: Sequence[StoredDelivery] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # added to those of the route
    refusal: PartialRefusal | None = None
    dead: StoredDeadLetter | None = None  # a record that is set aside
    landing: Landing | None = None  # of a delivery that is in a lake
    no_longer_dead: int | None = None  # the id of a dead letter
