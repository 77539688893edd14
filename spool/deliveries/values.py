"""Values of deliveries: routes, numbered requests and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spool.log.values import Entry
from spool.record import Record

# States of a route.
RUNNING = "running"
PARKED = "parked"  # paused: the destination refuses the key or the address, so records wait
REFUSING = "refusing"  # the destination rejects every record, so the route tries one record at a time
ORPHANED = "orphaned"  # its destination is no longer in the configuration
ROUTE_STATES = (RUNNING, PARKED, REFUSING, ORPHANED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """
    One numbered request of a route, stored before it is first sent.

    A Struct, because making and changing dataclasses took a third of the cost of a delivery.
    """

    id: int
    route: str  # name of the route, "destination/topic"
    first: int
    last: int
    attempts: int  # number of attempts, 0 if it was never sent
    idempotency_key: str
    fence: int = 0  # how often it was taken for sending; results with an older fence are ignored
    server_errors: int = 0  # number of 5xx responses while other deliveries were accepted
    refusals: int = 0  # how often this single record was rejected alone
    refused_at: float | None = None  # time of the first rejection of this single record
    proven: bool = False  # the route had another record accepted since the first rejection
    # it was sent and may have been accepted under its idempotency key, because no response says otherwise
    ambiguous: bool = False
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    # its record, if it retries a rejected one, because the log may have deleted it
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
    """Where the records of a delivery went. The five counts add up to the delivery's count."""

    delivered: int
    refused: int = 0  # records that a partial success named as rejected
    shadow: int = 0
    # not sent because of a setting, such as usage events without a stream or telemetry with an empty path
    unmapped: int = 0
    damaged: int = 0
    words: str | None = None  # the destination's reason, if it rejected some records
    landing: Landing | None = None  # stored with the settlement of a delivery that is in a data lake

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
    """A route as operators see it."""

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
    # records that were sent without a clear response, and then again under the same key
    ambiguous: int = 0
    since: float | None = None  # when the state began; None if running or unknown
    # Records that the destination rejected within a day while it accepted others, and the newest reason. Only
    # spool.deliveries.routes sets them.
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
UNKNOWN = "unknown"  # its arrival at the destination is unknown, so an operator must settle it
DELIVERY_STATES = (OPEN, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledDelivery:
    """A delivery as operators see it until it is settled. `not_before` is 0 if it need not wait."""

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
    """A delivery with unknown outcome. `kept` is as in Delivery."""

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
