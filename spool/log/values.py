"""Values that the log accepts and returns: submissions, receipts, entries, accounting and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import msgspec

from spool.disks import FSYNC, Mount
from spool.identity import Identity, RequestNames
from spool.log.counted_names import AmountOf
from spool.log.partial_reports import Expectation, PartialReport
from spool.log.pending_spans import SpanStep
from spool.record import Inference, Record, UsageMetric


class CounterPoint(msgspec.Struct, frozen=True, gc=False):
    """
    One cumulative point of a counter. During the commit, the log computes the increase and fills in `template`.
    """

    series: bytes  # 16 bytes: resource, scope, name, unit, attributes and start time
    start_time: int  # 0 if unknown; the first point of the series is then only the base for the next point
    time: int
    value: int | Decimal
    template: UsageMetric  # the log fills in id, value, start_time and end_time


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """
    The records and counts that one request or file adds to one topic. Its counts obey the
    equations of spool.log.books.

    A Struct, because each request creates one, and a frozen dataclass would take more than three times as long.
    """

    topic: str
    received: int
    split: int = 0
    records: Sequence[Record] = ()
    identities: Sequence[Identity] = ()  # dedup keys, one per record
    points: Sequence[CounterPoint] = ()
    ignored: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}
    # number of partial reports that began to wait, minus the number that were completed or released
    pending: int = 0
    # reports that wait from now on; each of them replaces the waiting report with the same key
    keep: Sequence[PartialReport] = ()
    forget: Sequence[bytes] = ()  # keys of waiting reports to delete
    # versions on which this submission is based; if one of them has changed, the submission is refused with Stale
    expects: Sequence[Expectation] = ()
    heard: Sequence[bytes] = ()  # keys of the senders that reported calls (spool.log.heard)
    heard_by: str = ""  # the Tollhouse key that sent these calls and steps
    steps: Sequence[SpanStep] = ()  # spans that may link calls to the runs of agents
    # number of tags that were dropped, because of a limit or because the name is one of content or of a secret
    left_out: int = 0
    # number of meters that were dropped, because they exceed their total or any possible call
    meter_too_large: int = 0
    # attribute names of items that look like AI calls and that no dialect reads
    unrecognised: Sequence[tuple[str, ...]] = ()
    # receipts of the earlier parts of the same request; only the last part has them
    before: Sequence[str] = ()
    # function that estimates a record again after an added report filled a count or the model
    price: Callable[[Inference], None] | None = None
    amount_of: AmountOf | None = None  # function that returns the amount of a usage event
    # names of the request, if its sender chose an idempotency key; a request with a known name adds nothing
    request: RequestNames | None = None
    # the request was known when this submission was made; if it is unknown at the commit, it is refused with Stale
    is_repeat: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """
    The acknowledgement for a sender. `records` includes records that were already known, so it does not
    reveal which were new.
    """

    id: str  # encrypted id, which reveals neither order nor volume
    records: int
    ignored: int
    rejected: int
    durability: str = FSYNC  # what the records survive (spool.disks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """
    Closed records as a reader sees them. All added reports are applied. Numbers begin at `first` and
    have no gaps.
    """

    topic: str
    first: int
    committed_at: float  # commit time in epoch seconds
    records: Sequence[Record | None]  # None for a damaged record, which keeps its number and is still counted

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def split(self, most: int) -> Iterator[Entry]:
        """Split the entry into entries of at most `most` records."""
        if len(self.records) <= most:
            yield self
            return
        for offset in range(0, len(self.records), most):
            yield replace(self, first=self.first + offset, records=self.records[offset : offset + most])


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTwice:
    """
    Records of a topic that were accepted although their ids were known. `numbers` has the first of
    their record numbers.
    """

    records: int
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """
    The accounting: terms by topic and by route. spool.log.books defines the terms, such as `ignored.REASON`.

    `imbalances` has one sentence for each equation that does not hold. Records that were accepted twice do
    not disturb the equations, so only a recount finds them.
    """

    topics: Mapping[str, Mapping[str, int]]
    routes: Mapping[str, Mapping[str, int]]
    imbalances: Sequence[str]
    accepted_twice: Mapping[str, AcceptedTwice] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """Figures for /metrics, /readyz and `tollhouse spool status`."""

    entries: int
    bytes: int
    free_bytes: int
    max_bytes: int
    duplicate_window_s: float
    duplicate_ids: int
    writable: bool
    last_error: str | None
    alive: bool = True  # False if the task that commits has ended; nothing can be stored then until a restart
    mount: Mount | None = None  # the file system that holds the files, None if unknown
    wal_bytes: int = 0  # size of the write-ahead log, whose commits are moved into the database file later
    wal_problem: str = ""  # why the commits in the write-ahead log cannot be moved into the database file
    commit_s: float = 0.0  # seconds for which the running commit or upkeep has been running
    waiting: int = 0  # number of submissions that wait for the running commit
    cache_bytes: int = 0  # bytes of memory that the cache of entries uses
    series: int = 0  # number of known cumulative counters, counted by the last retention run
    max_series: int = 0
    pending_spans: int = 0  # number of spans that may link calls to the runs of agents
    series_pushed_out: int = 0  # number of counters that this process dropped for lack of space
    durability: str = FSYNC  # what an acknowledged record survives, if no mount is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Result of one group commit, for metrics: {(topic, term, source or reason): n}."""

    seconds: float
    flush_seconds: float
    terms: Mapping[tuple[str, str, str], int]
