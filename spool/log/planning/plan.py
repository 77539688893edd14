"""
Plan of one group commit. It contains everything that the commit will write, and is complete before the first write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spool.errors import KeyEnded, KeyReused, Stale
from spool.log import books
from spool.log.books import Terms
from spool.log.conflicts import Conflicts
from spool.log.counted_names import EventSum
from spool.log.counters import SeriesState
from spool.log.entries.cache import CommittedEntry
from spool.log.partial_reports import PartialReport
from spool.log.values import Receipt
from spool.record import Record

Answer = Receipt | Stale  # result of a submission: a receipt or the reason for its refusal

_STALE = (
    "the data that this submission was made from changed meanwhile, so nothing of it was stored. Retry it"
)
_ENDED = "the key of this submission was deleted, disabled or replaced meanwhile, so nothing of it was stored"
_REUSED = "the idempotency key of this submission was used for another body, so nothing of it was stored"


class PlanReader(Protocol):
    """Reader of the stored data that a plan needs."""

    def read_record(self, topic: str, number: int) -> Record | None:
        """Return a stored record with its added reports. Return None if it is deleted or damaged."""
        ...

    def read_series(self, series: bytes) -> SeriesState | None: ...

    def series_known_since(self) -> float:
        """
        Return when the newest of the series that were dropped for lack of space was last reported. 0 if
        none was dropped.
        """
        ...

    def partial_report(self, key: bytes) -> int:
        """
        Return the version of the waiting report under a key (spool.log.partial_reports). Return 0 if there
        is no report.
        """
        ...


@dataclass(kw_only=True)
class Plan:
    """All rows and changes that one commit writes."""

    at: float
    first: dict[str, int]  # first number that this commit assigns, by topic
    records: dict[str, list[Record]] = field(default_factory=dict)
    amendments: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    series: dict[bytes, SeriesState] = field(default_factory=dict)
    # waiting reports to store, by key; None deletes the report
    partial_reports: dict[bytes, PartialReport | None] = field(default_factory=dict)
    conflicts: Conflicts = field(default_factory=Conflicts)
    unrecognised: Counter[tuple[str, ...]] = field(default_factory=Counter)
    event_types: dict[str, EventSum] = field(default_factory=dict)
    # senders that reported calls, by the Tollhouse key that sent the calls
    heard: dict[str, set[bytes]] = field(default_factory=dict)
    span_rows: list[PartialReport] = field(default_factory=list)  # new spans that link calls to runs
    gone_spans: list[bytes] = field(default_factory=list)  # keys of rows of such spans to delete
    # positions of refused submissions in the group; nothing of these submissions is stored
    stale: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)  # the refused submissions whose Tollhouse key has ended
    # the refused submissions whose idempotency key was used for another body
    reused: set[int] = field(default_factory=set)
    submissions: list[Terms] = field(default_factory=list)  # terms of the stored submissions, in order
    observed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ids: dict[int, int] = field(default_factory=dict)  # new ids, each with the place of its record
    # hours under which the new ids are filed, in the same order
    hours: list[int] = field(default_factory=list)
    # New names of records of earlier commits, with places and hours. This commit does not write these records.
    apart: list[tuple[int, int, int]] = field(default_factory=list)
    entries: list[CommittedEntry] = field(default_factory=list)  # the records as they were written

    def next_numbers(self) -> dict[str, int]:
        return {topic: self.first[topic] + len(records) for topic, records in self.records.items() if records}

    def term_sums(self) -> Counter[tuple[str, str]]:
        return books.sum_terms(self.submissions)

    def build_answers(self, receipts: Sequence[Receipt]) -> Sequence[Answer]:
        """
        Return the results in the order of the group. Each is a receipt, or the error for a refused submission.
        """
        rest = iter(receipts)
        places = range(len(receipts) + len(self.stale))
        return [self._refusal_at(index) if index in self.stale else next(rest) for index in places]

    def _refusal_at(self, index: int) -> Stale:
        if index in self.reused:
            return KeyReused(_REUSED)
        return KeyEnded(_ENDED) if index in self.ended else Stale(_STALE)
