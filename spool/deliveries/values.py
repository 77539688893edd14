"""Values of deliveries: routes, numbered requests and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spool.log.values import Entry
from spool.record import Record

# States of a route.
RUNNING = "running"
PARKED = "parked"  # paused: the destination refuses the key or the address, so records wait
REFUSING = "refusing"  # the destination rejects every record, so the route sends one record at a time
ORPHANED = "orphaned"  # the route's destination is no longer in the configuration
ROUTE_STATES = (RUNNING, PARKED, REFUSING, ORPHANED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """
    One numbered request of a route, stored before it is first sent.

    A Struct, because creating and changing dataclasses took a third of the time per delivery.
    """

    id: int
    route: str  # name of the route, "destination/topic"
    first: int
    last: int
    attempts: int  # number of attempts; 0 if the delivery was never sent
    idempotency_key: str
    # number of times that a worker took the delivery for sending; results with an older fence are ignored
    fence: int = 0
    server_errors: int = 0  # number of 5xx responses while the destination accepted other deliveries
    refusals: int = 0  # number of times that this single record was rejected alone
    refused_at: float | None = None  # time of the first rejection of this single record
    proven: bool = False  # the destination accepted another record of the route after the first rejection
    # an attempt may have been accepted under the idempotency key, because no response says otherwise
    ambiguous: bool = False
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    # the record itself if the delivery retries a rejected record, because the log may have deleted the entry
    kept: Entry | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A delivery in a data lake. `body` is its manifest as stored there."""

    route: str
    first: int
    last: int
    edition: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Outcomes of the records of a delivery. The five counts add up to the delivery's count."""

    delivered: int
    refused: int = 0  # records that the destination rejected while it accepted the others (a partial success)
    shadow: int = 0
    # records not sent because of a setting, such as usage events without a stream or telemetry with an empty path
    unmapped: int = 0
    damaged: int = 0
    words: str | None = None  # the destination's reason, if it rejected some records
    landing: Landing | None = None  # data lake row to store with the settlement

    @property
    def count(self) -> int:
        return self.delivered + self.refused + self.shadow + self.unmapped + self.damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A route as configured."""

    name: str
    topic: str
    required: bool = True
    start: str = "oldest"  # "oldest" or "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteState:
    """State of a route, with the figures that operators see."""

    name: str
    topic: str
    required: bool
    state: str  # one of ROUTE_STATES
    reason: str | None
    progress: int  # lowest record number that is not settled
    queued: int
    oldest_age_s: float | None
    delivered: int
    refused: int
    dead: int
    stuck: int
    unknown: int = 0  # records whose arrival is unknown, including those of replays
    # records that were sent without a clear response, and then sent again under the same key
    ambiguous: int = 0
    since: float | None = None  # when the state began; None if running or unknown
    # Number of records that the destination rejected within the last day while it accepted others, and the
    # newest reason. Only spool.deliveries.routes sets them.
    refused_recently: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A rejected record (dead letter). The destination rejected it twice while it accepted others."""

    id: int
    route: str
    topic: str
    number: int
    record: Record
    error: str
    status: str
    at: float


# The states of a delivery that is not settled.
OPEN = "open"
UNKNOWN = "unknown"  # nobody knows whether the delivery arrived, so an operator must settle it
DELIVERY_STATES = (OPEN, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledDelivery:
    """An unsettled delivery as operators see it. `not_before` is 0 if it may be sent at once."""

    id: int
    route: str
    first: int
    last: int
    state: str  # one of DELIVERY_STATES
    replay: bool
    attempts: int
    not_before: float
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownDelivery:
    """A delivery with unknown outcome, as operators see it. `kept` is as in Delivery."""

    id: int
    route: str
    topic: str
    first: int
    last: int
    reason: str | None
    kept: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRefusal:
    """An accepted delivery with `count` rejected records, none of which is sent again."""

    route: str
    first: int
    last: int
    count: int
    words: str | None
    at: float
