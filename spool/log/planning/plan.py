"""The plan of a group commit: everything that it will write, complete before the first write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spool.errors import KeyEnded, KeyReused, Stale
from spool.log import accounting
from spool.log.accounting import SubmissionCounts
from spool.log.conflicts import Conflicts
from spool.log.counted_names import EventSum
from spool.log.counters import SeriesState
from spool.log.entries.cache import CommittedEntry
from spool.log.partial_reports import PartialReport
from spool.log.values import Receipt
from spool.record import Record

PlanAnswer = Receipt | Stale  # a receipt, or why the submission is refused

_STALE = (
    "the data that this submission was made from changed meanwhile, so nothing of it was stored. Retry it"
)
_ENDED = "the key of this submission was deleted, disabled or replaced meanwhile, so nothing of it was stored"
_REUSED = "the idempotency key of this submission was used for another body, so nothing of it was stored"


class CommitPlanReader(Protocol):
    def read_record(self, topic: str, record_number: int) -> Record | None:
        """Return a record with the reports added to it, or None if it is deleted or damaged."""
        ...

    def read_series(self, series: bytes) -> SeriesState | None: ...

    def dropped_series_last_reported_at(self) -> float:
        """
        Return when the newest counter series that was dropped for lack of space last reported, or 0 if none
        was dropped.
        """
        ...

    def partial_report_version(self, key: bytes) -> int:
        """Return the version of the waiting report (spool.log.partial_reports), or 0 if there is none."""
        ...


@dataclass(kw_only=True)
class CommitPlan:
    at: float
    first: dict[str, int]  # first assigned number by topic
    records: dict[str, list[Record]] = field(default_factory=dict)
    amendments: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    series: dict[bytes, SeriesState] = field(default_factory=dict)
    # partial reports by key; None deletes
    partial_reports: dict[bytes, PartialReport | None] = field(default_factory=dict)
    conflicts: Conflicts = field(default_factory=Conflicts)
    unrecognised: Counter[tuple[str, ...]] = field(default_factory=Counter)
    event_types: dict[str, EventSum] = field(default_factory=dict)
    # senders of calls, by Tollhouse key
    heard: dict[str, set[bytes]] = field(default_factory=dict)
    span_rows: list[PartialReport] = field(default_factory=list)  # rows of spans that link calls to runs
    gone_spans: list[bytes] = field(default_factory=list)  # keys of span rows to delete
    # positions of refused submissions, of which nothing is stored
    stale: set[int] = field(default_factory=set)
    # positions of submissions whose Tollhouse key has ended
    ended: set[int] = field(default_factory=set)
    # positions of submissions whose idempotency key had another body
    reused: set[int] = field(default_factory=set)
    # counts of the stored submissions, in order
    submissions: list[SubmissionCounts] = field(default_factory=list)
    observed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    # short ids of the calls, each with the position of its record
    ids: dict[int, int] = field(default_factory=dict)
    # hours under which the ids are filed, in the same order
    hours: list[int] = field(default_factory=list)
    # Ids that this commit adds to records of earlier commits: id, position of the record, hour.
    apart: list[tuple[int, int, int]] = field(default_factory=list)
    entries: list[CommittedEntry] = field(default_factory=list)

    def next_numbers(self) -> dict[str, int]:
        return {topic: self.first[topic] + len(records) for topic, records in self.records.items() if records}

    def accounting_counts(self) -> Counter[tuple[str, str]]:
        return accounting.sum_submission_counts(self.submissions)

    def build_answers(self, receipts: Sequence[Receipt]) -> Sequence[PlanAnswer]:
        rest = iter(receipts)
        places = range(len(receipts) + len(self.stale))
        return [
            self._stale_error_of_submission(index) if index in self.stale else next(rest) for index in places
        ]

    def _stale_error_of_submission(self, submission_index: int) -> Stale:
        if submission_index in self.reused:
            return KeyReused(_REUSED)
        return KeyEnded(_ENDED) if submission_index in self.ended else Stale(_STALE)
