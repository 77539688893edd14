"""The values that the log accepts and returns: submissions, receipts, entries, accounting and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import msgspec

from spool.disks import FSYNC, DiskMount
from spool.erasure import Renaming
from spool.identity import RecordIdentity, RequestDedupKeys
from spool.log.counted_names import AmountOf
from spool.log.partial_reports import ExpectedVersion, PartialReport
from spool.log.pending_spans import SpanStep
from spool.record import Inference, Record, UsageMetric


class CounterPoint(msgspec.Struct, frozen=True, gc=False):
    """
    A point of a cumulative counter. The commit computes the increase and stores it as a record with the
    fields of `template`.
    """

    series: bytes  # a 16-byte digest of resource, scope, name, unit, attributes and start time
    start_time: int  # 0 if unknown; a first point is then only a base
    time: int
    value: int | Decimal
    template: UsageMetric  # without id, value, start_time and end_time


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """
    The data that one request or file adds to one topic. `received` and `split` together equal the counts of
    what became of it. `keep` and `forget` change the reports that wait for their other part.

    It is a Struct because a frozen dataclass takes more than three times as long per request.
    """

    topic: str
    received: int
    split: int = 0
    records: Sequence[Record] = ()
    identities: Sequence[RecordIdentity] = ()  # dedup keys, one per record
    points: Sequence[CounterPoint] = ()
    ignored: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}
    # partial reports that began to wait, minus those completed or released
    pending: int = 0
    # reports that replace the waiting report with their key
    keep: Sequence[PartialReport] = ()
    forget: Sequence[bytes] = ()  # keys of reports to delete
    # if one of these versions has changed, the submission is refused with Stale
    expects: Sequence[ExpectedVersion] = ()
    heard: Sequence[bytes] = ()  # keys of senders (spool.log.recent_senders)
    heard_by: str = ""  # the Tollhouse key under which the calls and steps arrived
    steps: Sequence[SpanStep] = ()  # spans that may link calls to agents' runs
    # dropped tags, over a limit or with a name of content or of a secret
    left_out: int = 0
    # dropped meters, because they exceed their total or any possible call
    meter_too_large: int = 0
    # attribute names of items that look like AI calls and that no dialect reads
    unrecognised: Sequence[tuple[str, ...]] = ()
    # in the last part of a request: the receipts of its earlier parts
    before: Sequence[str] = ()
    # estimates the cost again after an added report filled a count or the model
    price: Callable[[Inference], None] | None = None
    renaming: Renaming | None = None  # of erased people, for values of earlier spans
    amount_of: AmountOf | None = None  # amount of a usage event
    # only if the sender chose an idempotency key; a request that is already known adds nothing
    request: RequestDedupKeys | None = None
    # the request was known when this was made; if it is not known at the commit, the submission is refused
    # with Stale
    is_repeat: bool = False


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """
    The response to a submission. `records` includes already known records, so it does not reveal which were
    new.
    """

    id: str  # encrypted, so it reveals neither order nor volume
    records: int
    ignored: int
    rejected: int
    durability: str = FSYNC  # which failures the records survive (spool.disks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """Closed records with all reports added to them, numbered from `first` without gaps."""

    topic: str
    first: int
    committed_at: float  # epoch seconds
    records: Sequence[Record | None]  # records; None for a damaged one, which keeps its number and is counted

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def split(self, max_records: int) -> Iterator[LogEntry]:
        if len(self.records) <= max_records:
            yield self
            return
        for offset in range(0, len(self.records), max_records):
            yield replace(
                self, first=self.first + offset, records=self.records[offset : offset + max_records]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTwice:
    """
    The number of records that were stored although their ids were known, and the first of their numbers.
    """

    records: int
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccounting:
    """
    The accounting: terms of spool.log.accounting, such as `ignored.REASON`, by topic and by route.

    `imbalances`: one sentence for each equation that does not hold. Only a recount finds records that were
    stored twice.
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
    alive: bool = True  # False if the committing task has ended; nothing is stored until a restart
    mount: DiskMount | None = None  # file system that has the files
    wal_bytes: int = 0  # bytes of the write-ahead log, which is moved into the database later
    wal_problem: str = ""  # why the write-ahead log cannot be moved
    commit_s: float = 0.0  # seconds that the running commit or upkeep has taken
    waiting: int = 0  # number of submissions that wait for a commit
    cache_bytes: int = 0
    series: int = 0  # known cumulative counters at the last retention
    max_series: int = 0
    pending_spans: int = 0  # spans that may link calls to runs
    series_pushed_out: int = 0  # counters that this process dropped for lack of space
    durability: str = FSYNC  # durability of an acknowledged record, if no mount is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Figures of one commit, for metrics. `terms`: counts by (topic, term, source or reason)."""

    seconds: float
    flush_seconds: float
    terms: Mapping[tuple[str, str, str], int]
