"""The values that cross the seam of the deliveries: routes, numbered requests and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from spool.log.values import Entry
from spool.record import Record

# The states of a route.
RUNNING = "running"
PARKED = "parked"  # the destination refuses the key or the address: its data waits
REFUSING = "refusing"  # the destination refuses every record: one single record at a time is tried
ORPHANED = "orphaned"  # its destination left the configuration
ROUTE_STATES = (RUNNING, PARKED, REFUSING, ORPHANED)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """
    One numbered request of a route; stored before it is first sent.

    A Struct: one is made or changed several times on its way, and a dataclass took a third of what that costs.
    """

    id: int
    route: str  # "destination/topic"
    first: int
    last: int
    attempts: int  # 0 when it was never sent
    idempotency_key: str
    fence: int = 0  # how often it was taken to be sent: what an earlier taker says of it changes nothing
    server_errors: int = 0  # 5xx answers while others passed
    refusals: int = 0  # how often this single record was refused alone
    refused_at: float | None = None  # the first time
    proven: bool = False  # another record of the route was accepted since this one was first refused
    # it may have been taken under its idempotency key: sent, and no answer said otherwise
    ambiguous: bool = False
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    kept: Entry | None = None  # a retried dead letter brings its record along: its entry may be gone

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A delivery in a lake. `body` is its manifest, as it is in the lake."""

    route: str
    first: int
    last: int
    edition: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Where the numbers of a delivery went; the five add up to its count."""

    delivered: int
    refused: int = 0  # a partial success named them
    shadow: int = 0
    # not sent because of a setting: usage events without a stream, telemetry whose path is empty
    unmapped: int = 0
    damaged: int = 0
    words: str | None = None  # the upstream's, when it refused some
    landing: Landing | None = None  # kept with it, of a delivery that is in a lake

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
    """A route as the operator sees it."""

    name: str
    topic: str
    required: bool
    state: str  # one of ROUTE_STATES
    reason: str | None
    progress: int  # lowest open number
    queued: int
    oldest_age_s: float | None
    delivered: int
    refused: int
    dead: int
    stuck: int
    unknown: int = 0  # records whose arrival is not known, those of replays among them
    # records that were sent without a clear answer so far, and then again under the same key
    ambiguous: int = 0
    since: float | None = None  # when it began to stand so; None while it runs, and where that is not known
    # Records that the destination rejected within a day while it accepted others, and the newest reason. Filled only by
    # spool.deliveries.routes.
    refused_recently: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that the upstream refused twice while it took others."""

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
UNKNOWN = "unknown"  # whether it arrived is not known: it waits to be settled by hand
DELIVERY_STATES = (OPEN, UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledDelivery:
    """A delivery as the operator sees it until it is settled. `not_before` is 0 where nothing is waited for."""

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
    """A delivery whose outcome is unknown; `kept` as of a Delivery."""

    id: int
    route: str
    topic: str
    first: int
    last: int
    reason: str | None
    kept: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRefusal:
    """A delivery that was accepted but for `count` of its records; nothing of it is sent again."""

    route: str
    first: int
    last: int
    count: int
    words: str | None
    at: float
