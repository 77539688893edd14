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
from spool.record import Inference, Record, UsageMetric


class CounterPoint(msgspec.Struct, frozen=True, gc=False):
    """
    One cumulative point of a counter. Inside the commit, the log fills `template` to make a delta record.
    """

    series: bytes  # 16 bytes: resource, scope, name, unit, attributes and start time
    start_time: int  # 0 if unknown: then the first point only sets the base
    time: int
    value: int | Decimal
    template: UsageMetric  # the log fills in id, value, start_time and end_time


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """
    The records and counts that one request or file adds to one topic. Its counts obey the
    equations of spool.log.books.

    A Struct, because each request makes one and a frozen dataclass takes more than three times as long.
    """

    topic: str
    received: int
    split: int = 0
    records: Sequence[Record] = ()
    identities: Sequence[Identity] = ()  # dedup keys, one per record
    points: Sequence[CounterPoint] = ()
    ignored: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}
    pending: int = 0  # partial reports that began to wait, minus those that were completed or released
    # reports that wait from now on; each replaces the report under its key
    keep: Sequence[PartialReport] = ()
    forget: Sequence[bytes] = ()  # keys of waiting reports to delete
    # versions this was made from; if one has changed, only this submission of the group is refused, with Stale
    expects: Sequence[Expectation] = ()
    heard: Sequence[bytes] = ()  # senders that reported calls, as keys of spool.log.heard
    heard_by: str = ""  # the Tollhouse key that sent these calls
    left_out: int = 0  # tags that were dropped: over a limit, or with a name of content or of a secret
    # meters that were dropped: larger than their total, or larger than any call can use
    meter_too_large: int = 0
    unrecognised: Sequence[
        tuple[str, ...]
    ] = ()  # attribute names of items that look like AI calls and match no dialect
    before: Sequence[str] = ()  # receipts of the request's earlier parts, set on its last part
    # estimates a record again after an added report filled a count or the model
    price: Callable[[Inference], None] | None = None
    amount_of: AmountOf | None = None  # returns the amount of a usage event
    # names of the request, if its sender chose an idempotency key; a known request adds nothing
    request: RequestNames | None = None
    # the request was already known when this was made; if it is unknown at the commit, this is refused with Stale
    is_repeat: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """
    The acknowledgement for a sender. `records` includes known records, so a sender never learns which were new.
    """

    id: str  # sealed id, which reveals neither order nor volume
    records: int
    ignored: int
    rejected: int
    durability: str = FSYNC  # level of durability that the records have reached: spool.disks


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Closed records as a reader sees them: all added reports applied, numbered from `first` without gaps."""

    topic: str
    first: int
    committed_at: float  # commit time in epoch seconds
    records: Sequence[Record | None]  # None for a damaged record, which keeps its number and is counted

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def parts(self, most: int) -> Iterator[Entry]:
        """Split the entry into entries of at most `most` records."""
        if len(self.records) <= most:
            yield self
            return
        for offset in range(0, len(self.records), most):
            yield replace(self, first=self.first + offset, records=self.records[offset : offset + most])


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTwice:
    """
    Records of a topic that were accepted although their ids were known. `numbers` has the first of them.
    """

    records: int
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """
    The accounting: terms by topic and by route. spool.log.books defines the terms, such as `ignored.REASON`.

    `imbalances` has one sentence for each equation that does not hold. Records that were accepted twice do
    not disturb the balance, so only a recount finds them.
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
    alive: bool = True  # False if the task that commits has ended; then nothing can be stored until a restart
    mount: Mount | None = None  # the file system that holds the files, None if unknown
    wal_bytes: int = 0  # size of the write-ahead log, from which commits are moved into the file later
    wal_problem: str = ""  # why the write-ahead log cannot be moved into the file
    commit_s: float = 0.0  # seconds that the running commit or upkeep has taken so far
    waiting: int = 0  # number of submissions that wait for the running commit
    cache_bytes: int = 0  # bytes of memory for the entries that were read last
    series: int = 0  # cumulative counters that are known, counted by the last retention run
    max_series: int = 0
    series_pushed_out: int = 0  # counters that this process forgot for lack of space
    durability: str = FSYNC  # level of durability of an acknowledgement, if no mount states it


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Result of one group commit, for metrics: {(topic, term, source or reason): n}."""

    seconds: float
    flush_seconds: float
    terms: Mapping[tuple[str, str, str], int]
