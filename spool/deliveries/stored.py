"""The rows that engines store for deliveries, and the change that a transition makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from spool.deliveries.rules import STUCK_AFTER, TERMS, new_idempotency_key
from spool.deliveries.values import OPEN, RUNNING, DeadLetter, Delivery, LakeDelivery, PartialRefusal

NOT_STORED = 0  # id until the engine assigns one

# Counters that only increase: the first number in no delivery, accepted deliveries (which order responses
# without a clock), replayed and ambiguous records, and the terms.
COUNTS = ("next", "acceptances", "replayed", "ambiguous", *TERMS)


class StoredDelivery(Delivery, frozen=True, kw_only=True):
    """A row of an engine: a delivery with the fields that only the transition rules use."""

    id: int = NOT_STORED
    attempts: int = 0
    idempotency_key: str = field(default_factory=new_idempotency_key)
    state: str = OPEN
    not_before: float = 0.0
    # being sent: if the process crashes now, the destination may still have accepted it
    sending: bool = False
    answer: str | None = None  # last response under the current idempotency key
    same_answers: int = 0  # how many times in a row `answer` was received
    # the route's count of accepted deliveries at the last 5xx, or when this delivery was made
    passed: int
    proof: int | None = None  # the route's count of accepted deliveries when this record was first rejected
    # the route's count of accepted deliveries when this row was read; not a column
    acceptances: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return self.first, self.last

    @property
    def is_rejected_or_stuck(self) -> bool:
        """Whether this is a delivery of one rejected or stuck record, which does not count as backlog."""
        return self.count == 1 and (self.refusals > 0 or self.server_errors >= STUCK_AFTER)


def has_acceptance_since_rejection(acceptances_at_rejection: int | None, accepted_deliveries: int) -> bool:
    """
    Return whether the destination has accepted another delivery since this record was first rejected.

    `acceptances_at_rejection`: the route's count of accepted deliveries then, None without a rejection.
    `accepted_deliveries`: the count now.
    """
    return acceptances_at_rejection is not None and accepted_deliveries > acceptances_at_rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter(DeadLetter):
    """A rejected record (dead letter) as engines store it, with the fields that a retry needs."""

    id: int = NOT_STORED
    committed_at: float
    replay: bool


class StoredRoute(Struct, frozen=True, kw_only=True):
    """A route as an engine stores it, without its deliveries. `counts` has a number for each name in COUNTS."""

    name: str
    topic: str
    required: bool
    orphaned: bool = False
    state: str = RUNNING
    reason: str | None = None
    state_since: float | None = None
    counts: Mapping[str, int]

    @property
    def next_number(self) -> int:
        return self.counts["next"]

    @property
    def accepted_delivery_count(self) -> int:
        return self.counts["acceptances"]


class RouteChange(Struct, frozen=True, kw_only=True):
    """
    The changes that a transition makes to one route. Engines write them in one transaction.

    An engine without a lock must check, in that transaction, that the deliveries and the route's count of
    accepted deliveries have not changed since they were read.
    """

    route: str
    removed: Sequence[int] = ()  # ids of deliveries to delete
    changed: StoredDelivery | None = None
    added: Sequence[StoredDelivery] = ()
    counts: Mapping[str, int] = field(default_factory=dict)  # amounts to add to the route's counters
    refusal: PartialRefusal | None = None
    dead: StoredDeadLetter | None = None  # rejected record to store
    landing: LakeDelivery | None = None
    no_longer_dead: int | None = None  # id of a rejected record to delete
