"""The values that describe routes, numbered requests and outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spool.log.values import LogEntry
from spool.record import Record

RUNNING = "running"
PARKED = "parked"  # paused, because the destination refuses the key or the address
REFUSING = "refusing"  # the destination rejects every record, so one record is sent at a time
ORPHANED = "orphaned"  # the destination is no longer configured
ROUTE_STATES = (RUNNING, PARKED, REFUSING, ORPHANED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """
    A numbered request of a route, stored before it is sent. It covers the records `first` to `last`.

    It is a Struct because dataclasses took a third of the time per delivery.
    """

    id: int
    route: str  # "destination/topic"
    first: int
    last: int
    attempts: int
    idempotency_key: str
    # how often the delivery was taken for sending; results with an older number are ignored
    fence: int = 0
    server_errors: int = 0  # 5xx responses while other deliveries were accepted
    refusals: int = 0  # how often this record was rejected when it was sent alone
    refused_at: float | None = None  # when this record was first rejected while it was sent alone
    proven: bool = False  # whether another record was accepted since the rejection
    # whether an earlier attempt may have been accepted under the same key
    ambiguous: bool = False
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    # the rejected record that this delivery retries; stored here, because the log may have deleted it
    kept: LogEntry | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeDelivery:
    """
    A file written to a data lake for one delivery. `edition`: the life of the log. `body`: the manifest of
    the delivery, as stored in the lake.
    """

    route: str
    first: int
    last: int
    edition: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """
    The outcome of a delivery. The five counts add up to its number of records. `shadow`: duplicates that are
    stored only for reference, and not sent. `words`: the receiver's reason for rejections.
    """

    delivered: int
    refused: int = 0  # records rejected while others of the delivery were accepted
    shadow: int = 0
    # records not sent because of a setting, such as usage events without a stream
    unmapped: int = 0
    damaged: int = 0
    words: str | None = None  # the receiver's reason for rejections
    landing: LakeDelivery | None = None  # the row to store about a file in a data lake

    @property
    def count(self) -> int:
        return self.delivered + self.refused + self.shadow + self.unmapped + self.damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    name: str
    topic: str
    required: bool = True
    start: str = "oldest"  # or "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteState:
    """A route with its counters, as operators see it."""

    name: str
    topic: str
    required: bool
    state: str  # of ROUTE_STATES
    reason: str | None
    progress: int  # lowest record number that is not settled
    queued: int
    oldest_age_s: float | None
    delivered: int
    refused: int
    dead: int
    stuck: int
    unknown: int = 0  # records of deliveries with unknown outcome, including replays
    # records sent without a clear response, then again under the same key
    ambiguous: int = 0
    since: float | None = None  # when the state began; None if the route runs or the time is unknown
    # Records rejected within a day while others were accepted, and the newest reason. Only
    # spool.deliveries.routes sets them.
    refused_recently: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter: a record that a receiver rejected twice while it accepted other records."""

    id: int
    route: str
    topic: str
    number: int
    record: Record
    error: str
    status: str
    at: float


# States of a delivery that is not settled.
OPEN = "open"
UNKNOWN = "unknown"  # the outcome is unknown, and an operator must decide it
DELIVERY_STATES = (OPEN, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledDelivery:
    """
    A delivery that is not settled, as operators see it. `not_before`: epoch seconds, 0 if it is due at once.
    """

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
    """
    A delivery with unknown outcome, as operators see it. `kept`: a rejected record to retry, because the log
    may have deleted it.
    """

    id: int
    route: str
    topic: str
    first: int
    last: int
    reason: str | None
    kept: LogEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRefusal:
    """The records rejected from one accepted delivery: `count` of them. They are not sent again."""

    route: str
    first: int
    last: int
    count: int
    words: str | None
    at: float
