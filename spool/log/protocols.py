"""
The seam of the durable core: the log's verbs as protocols, and the values that cross it.

`spool.sqlite` and `spool.memory` implement both protocols under one contract suite (tests/spool/contract). Whatever a
verb changes, it changes in one transaction; when it returns, a power cut takes nothing of it away (memory excepted).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from spool.identity import Identity
from spool.log.pending import Kept
from spool.record import Record, UsageMetric


@dataclass(frozen=True, slots=True)
class CounterPoint:
    """One cumulative point. The log turns it into a delta record inside the commit, from `template`."""

    series: bytes  # 16 bytes: resource, scope, name, unit, attributes and start time
    start_time: int  # 0 = the sender does not say: its first point is only a base line
    time: int
    value: int | Decimal
    template: UsageMetric  # id, value, start_time and end_time are filled by the log


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What one request (or file) adds to one topic. The terms obey the equations of spool.books."""

    topic: str
    received: int
    split: int = 0
    records: Sequence[Record] = ()
    identities: Sequence[Identity] = ()  # one per record
    points: Sequence[CounterPoint] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0  # items that wait for their other half (negative when halves found each other)
    keep: Sequence[Kept] = ()  # halves that wait from now on, each in the place of what was kept under its key
    forget: Sequence[bytes] = ()  # keys of halves that wait no more
    unrecognised: Sequence[tuple[str, ...]] = ()  # attribute names of items that look like AI and that nobody took
    before: Sequence[str] = ()  # of the last part of a request: the receipts of its other parts, which its own covers


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The proof for a sender. `records` counts new and known alike: a sender is never told which."""

    id: str  # sealed: shows neither order nor volume
    records: int
    ignored: int
    rejected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Closed records as a reader sees them: amended once and for all, numbered from `first` without gaps."""

    topic: str
    first: int
    committed_at: float  # epoch seconds
    records: Sequence[Record | None]  # None: damaged, its number is kept and counted

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One numbered request of a route; stored before it is first sent."""

    id: int
    route: str  # "destination/topic"
    first: int
    last: int
    attempts: int  # 0 when it was never sent
    idempotency_key: str
    server_errors: int = 0  # 5xx answers while others passed
    refusals: int = 0  # how often this single record was refused alone
    refused_at: float | None = None  # the first time
    proven: bool = False  # another record of the route was accepted since this one was first refused
    doubted: bool = False  # a 502 or 504 came under the present idempotency key
    last_error: str | None = None
    mark: str | None = None
    replay: bool = False
    kept: Entry | None = None  # a retried dead letter brings its record along: its entry may be gone

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Where the numbers of a delivery went; the four add up to its count."""

    delivered: int
    refused: int = 0  # a partial success named them
    shadow: int = 0
    damaged: int = 0
    words: str | None = None  # the upstream's, when it refused some


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """What the configuration says of a route."""

    name: str
    topic: str
    required: bool = True
    start: str = "oldest"  # or "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteState:
    """A route as the operator sees it. States: running, parked, refusing, orphaned."""

    name: str
    topic: str
    required: bool
    state: str
    reason: str | None
    progress: int  # lowest open number
    queued: int
    oldest_age_s: float | None
    delivered: int
    refused: int
    dead: int
    stuck: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownDelivery:
    """A delivery of which nobody knows whether it arrived; `kept` as of a Delivery."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """
    Terms by topic and by route, as spool.books names them (`ignored.reason` and `rejected.reason` in full).

    `balanced` is empty when every equation holds, else one sentence per equation that does not.
    """

    topics: Mapping[str, Mapping[str, int]]
    routes: Mapping[str, Mapping[str, int]]
    imbalances: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Figures for /metrics, /readyz and `spool status`."""

    entries: int
    bytes: int
    free_bytes: int
    max_bytes: int
    duplicate_window_s: float
    duplicate_ids: int
    writable: bool
    last_error: str | None
    alive: bool = True  # whether what commits still runs; without it nothing is ever kept again


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The [spool] section, in bytes and seconds."""

    max_bytes: int = 10 * 1024**3
    retention_s: float = 7 * 86400
    hold_s: float = 10
    duplicate_window_s: float = 7 * 86400
    duplicate_ids: int = 10_000_000
    cache_bytes: int = 16 << 20  # packed records kept for the next reader, about fifty thousand; twice at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one group commit did, for whoever counts: {(topic, term, source or reason): n}."""

    seconds: float
    flush_seconds: float
    terms: Mapping[tuple[str, str, str], int]


class Observer(Protocol):
    """Told of every commit after it is durable; must not raise and must not wait."""

    def committed(self, commit: Commit) -> None: ...


class Log(Protocol):
    """Append only, many readers."""

    repeated_ids: int  # ids that are known more than once, too far apart in time for a look-up; counted now and then

    async def append(self, submission: Submission) -> Receipt:
        """Keep it: returns after the flush that holds it. SpoolFull or SpoolUnavailable: nothing was kept."""
        ...

    async def read(self, topic: str, first: int, last: int) -> Sequence[Entry]:
        """Closed records with first <= number <= last, cut to that range, amended, in order."""
        ...

    def closed_below(self, topic: str) -> int:
        """Every record with a lower number is closed. Numbers begin at 1."""
        ...

    def changes(self, topic: str) -> AsyncIterator[int]:
        """`closed_below` now, and again whenever it has grown: what a reader waits on."""
        ...

    async def receipt(self, receipt_id: str) -> Mapping[str, object]:
        """What became of a submission; NotThere for an id that this log did not seal."""
        ...

    async def unrecognised(self) -> Sequence[Mapping[str, object]]:
        """Shapes that look like AI and that no dialect took: {names, count, last_seen}."""
        ...

    async def conflicts(self) -> Sequence[Mapping[str, object]]:
        """Reports of one call that disagreed: {first_source, second_source, count, first, second, ...}."""
        ...

    async def books(self) -> Books: ...

    async def verify(self) -> Books:
        """Recount from commit rows and entries; does not trust the running counters and says where they differ."""
        ...

    async def stats(self) -> Stats: ...

    async def retain(self) -> int:
        """Delete what age and space allow, count it; returns the entries removed."""
        ...

    async def close(self) -> None:
        """Finish the commits in hand, flush, release the directory."""
        ...


class Deliveries(Protocol):
    """The routes' side of the log: numbered requests with their own progress."""

    async def declare(self, routes: Sequence[RouteSpec]) -> None:
        """
        The configuration's routes: new ones begin where `start` says, missing ones become orphaned.

        Nothing is in hand afterwards, and everything that waited is due.
        """
        ...

    async def due(self, route: str, *, now: float, max_records: int) -> Delivery | None:
        """The oldest delivery of a route that may be sent now and is not in hand, else a new one; None: nothing due."""
        ...

    async def probe(self, route: str, *, now: float, max_suspects: int) -> Delivery | None:
        """
        One single record for a route that refuses: one that was never refused alone while fewer than `max_suspects`
        were, cut from what waits if need be; else the oldest refused one that is due. None: neither.
        """
        ...

    async def next_due_at(self, route: str) -> float | None:
        """When the earliest waiting delivery may be sent again."""
        ...

    async def mark(self, delivery: Delivery, mark: str) -> None:
        """Keep what a file destination needs to undo a half-written delivery, before it writes."""
        ...

    async def settle(self, delivery: Delivery, settlement: Settlement) -> None: ...

    async def split(self, delivery: Delivery, *, reason: str, at: int | None = None, refused: bool = False) -> None:
        """
        The parent goes, two children with new keys come; `at` is the first number of the second (default: half).

        `refused`: the destination refused the parent, which is the first refusal of every record in it.
        """
        ...

    async def set_aside(self, delivery: Delivery, *, error: str, status: str) -> None:
        """Copy the single record to the dead letters and settle its delivery."""
        ...

    async def retry(
        self,
        delivery: Delivery,
        *,
        reason: str,
        not_before: float,
        new_key: bool,
        refused_at: float | None = None,
        server_error: bool = False,
    ) -> None: ...

    async def unknown(self, delivery: Delivery, *, reason: str) -> None:
        """Nobody knows whether it arrived and it must not be sent twice: settled by hand."""
        ...

    async def unknowns(self) -> Sequence[UnknownDelivery]:
        """What waits to be settled by hand, oldest first; its entries are kept as long as it does."""
        ...

    async def resolve(self, id: int, *, sent: bool) -> UnknownDelivery:
        """An operator knows: it arrived, or it is to be sent again. NotThere when no such delivery waits."""
        ...

    async def set_state(self, route: str, state: str, reason: str | None) -> None: ...

    async def routes(self) -> Sequence[RouteState]: ...

    async def drop(self, route: str) -> int:
        """Forget an orphaned route; its queue is counted as discarded. NotAllowed while it is configured."""
        ...

    async def dead(self, *, route: str | None = None) -> Sequence[DeadLetter]: ...

    async def partial_refusals(self, *, route: str | None = None) -> Sequence[PartialRefusal]:
        """What partial successes named, newest first; the newest of each route are kept."""
        ...

    async def dead_retry(self, ids: Sequence[int]) -> int: ...

    async def dead_discard(self, ids: Sequence[int]) -> int: ...

    async def replay(self, route: str, *, since: float, until: float, dry_run: bool) -> int:
        """New deliveries with new keys for settled numbers committed in [since, until); returns the records."""
        ...
