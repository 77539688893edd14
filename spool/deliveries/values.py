"""Routes, numbered requests and outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spool.log.values import Entry
from spool.record import Record

RUNNING = "running"
PARKED = "parked"  # paused: the destination refuses key or address
REFUSING = "refusing"  # it rejects every record, so one is sent at a time
ORPHANED = "orphaned"  # the destination is not configured
ROUTE_STATES = (RUNNING, PARKED, REFUSING, ORPHANED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """
    A numbered request, stored before it is sent.

    A Struct, because dataclasses took a third of the time per delivery.
    """

    id: int
    route: str  # "destination/topic"
    first: int
    last: int
    attempts: int
    idempotency_key: str
    # times taken for sending; results with an older one are ignored
    fence: int = 0
    server_errors: int = 0  # 5xx responses while others were accepted
    refusals: int = 0  # rejections of this single record alone
    refused_at: float | None = None  # the first of them
    proven: bool = False  # another record was accepted since
    # an attempt may have been accepted under the key
    ambiguous: bool = False
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    # a rejected record to retry, because the log may have deleted it
    kept: Entry | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """`body` is the manifest as stored in the lake."""

    route: str
    first: int
    last: int
    edition: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The five counts add up to the delivery's."""

    delivered: int
    refused: int = 0  # rejected while others were accepted
    shadow: int = 0
    # not sent because of a setting, such as usage events without a stream
    unmapped: int = 0
    damaged: int = 0
    words: str | None = None  # the reason of rejections
    landing: Landing | None = None  # data lake row to store

    @property
    def count(self) -> int:
        return self.delivered + self.refused + self.shadow + self.unmapped + self.damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A route as it is configured."""

    name: str
    topic: str
    required: bool = True
    start: str = "oldest"  # or "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteState:
    """A route as operators see it."""

    name: str
    topic: str
    required: bool
    state: str  # of ROUTE_STATES
    reason: str | None
    progress: int  # lowest number that is not settled
    queued: int
    oldest_age_s: float | None
    delivered: int
    refused: int
    dead: int
    stuck: int
    unknown: int = 0  # with replays
    # sent without a clear response, then again under the same key
    ambiguous: int = 0
    since: float | None = None  # None if running or unknown
    # Rejected within a day while others were accepted, and the newest reason. Only spool.deliveries.routes
    # sets them.
    refused_recently: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record (dead letter) rejected twice while others were accepted."""

    id: int
    route: str
    topic: str
    number: int
    record: Record
    error: str
    status: str
    at: float


# Of a delivery that is not settled.
OPEN = "open"
UNKNOWN = "unknown"  # an operator must settle it
DELIVERY_STATES = (OPEN, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledDelivery:
    """A delivery as operators see it. `not_before` is 0 for at once."""

    id: int
    route: str
    first: int
    last: int
    state: str  # of DELIVERY_STATES
    replay: bool
    attempts: int
    not_before: float
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownDelivery:
    """A delivery as operators see it. `kept` is as in Delivery."""

    id: int
    route: str
    topic: str
    first: int
    last: int
    reason: str | None
    kept: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRefusal:
    """An accepted delivery with `count` rejected records, which are not sent again."""

    route: str
    first: int
    last: int
    count: int
    words: str | None
    at: float
