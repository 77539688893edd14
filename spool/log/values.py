"""The values that cross the seam of the log: what is submitted, what is read, what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import msgspec

from spool.disks import FSYNC, Mount
from spool.identity import Identity, RequestNames
from spool.log.counted_names import AmountOf
from spool.log.partial_reports import Expectation, PartialReport
from spool.record import Inference, Record, UsageMetric


class CounterPoint(msgspec.Struct, frozen=True, gc=False):
    """One cumulative point. The log turns it into a delta record inside the commit, from `template`."""

    series: bytes  # 16 bytes: resource, scope, name, unit, attributes and start time
    start_time: int  # 0 when unknown: then the first point is only a base line
    time: int
    value: int | Decimal
    template: UsageMetric  # id, value, start_time and end_time are filled by the log


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """
    What one request (or file) adds to one topic. The terms obey the equations of spool.log.books.

    A Struct: there is one for each request, and a frozen dataclass takes more than three times as long to make.
    """

    topic: str
    received: int
    split: int = 0
    records: Sequence[Record] = ()
    identities: Sequence[Identity] = ()  # one per record
    points: Sequence[CounterPoint] = ()
    ignored: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}
    pending: int = 0  # partial reports that began to wait, less those that were completed or released
    keep: Sequence[PartialReport] = ()  # wait from now on, each in the place of what was kept under its key
    forget: Sequence[bytes] = ()  # keys of partial reports that wait no more
    expects: Sequence[Expectation] = ()  # else it is refused with Stale, alone of its group
    heard: Sequence[bytes] = ()  # who told calls: see spool.log.heard
    heard_by: str = ""  # the key that brought these calls
    left_out: int = 0  # tags that were not kept: over a bound, or under a name of content or of a secret
    meter_too_large: int = 0  # meters that were not kept: more than what they are a part of, or than any call
    unrecognised: Sequence[
        tuple[str, ...]
    ] = ()  # attribute names of items like AI calls that match no dialect
    before: Sequence[str] = ()  # of the last part of a request: the receipts of its other parts
    # estimates anew what these records add counts or a model to
    price: Callable[[Inference], None] | None = None
    amount_of: AmountOf | None = None  # of a usage event
    # its sender chose a key: a known request adds nothing, the key has one body
    request: RequestNames | None = None
    is_repeat: bool = False  # the request was known when this was made: else it is refused with Stale


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The proof for a sender. `records` counts new and known ones together: a sender never learns which."""

    id: str  # sealed: shows neither order nor volume
    records: int
    ignored: int
    rejected: int
    durability: str = FSYNC  # what it has survived: spool.disks


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

    def parts(self, most: int) -> Iterator[Entry]:
        """The same records as entries of at most so many."""
        if len(self.records) <= most:
            yield self
            return
        for place in range(0, len(self.records), most):
            yield replace(self, first=self.first + place, records=self.records[place : place + most])


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTwice:
    """Records of a topic whose ids were known when they were accepted, and the numbers of the first of them."""

    records: int
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """
    Terms by topic and by route, as spool.log.books names them (`ignored.reason` and `rejected.reason` in full).

    `imbalances` is empty when every equation holds, else one sentence per equation that does not. The books balance
    whatever was accepted twice: only a recount looks for that.
    """

    topics: Mapping[str, Mapping[str, int]]
    routes: Mapping[str, Mapping[str, int]]
    imbalances: Sequence[str]
    accepted_twice: Mapping[str, AcceptedTwice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
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
    mount: Mount | None = None  # where the files lie; None where it cannot be known
    wal_bytes: int = 0  # of the log beside the file, from which a commit is moved into the file later
    wal_problem: str = ""  # why it cannot be moved
    commit_s: float = 0.0  # how long the running commit or upkeep has taken so far
    waiting: int = 0  # submissions behind it
    cache_bytes: int = 0  # memory of the entries that were read last
    series: int = 0  # cumulative counters that are known, as counted by the last retention
    max_series: int = 0
    series_pushed_out: int = 0  # forgotten for want of room, by this process
    durability: str = FSYNC  # what an answer has survived, where no mount says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one group commit did, for metrics: {(topic, term, source or reason): n}."""

    seconds: float
    flush_seconds: float
    terms: Mapping[tuple[str, str, str], int]
