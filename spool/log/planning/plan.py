"""What one group commit writes, worked out before anything is written, and what working it out reads."""

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
from spool.log.partial_reports import PartialReport
from spool.log.values import Receipt
from spool.record import Record

Answer = Receipt | Stale  # what becomes of a submission

_STALE = "what this was made from was changed meanwhile: nothing of it was kept"
_ENDED = "the key of this submission was deleted, disabled or replaced meanwhile: nothing of it was kept"
_REUSED = "the idempotency key of this submission stands for another body: nothing of it was kept"


class PlanReader(Protocol):
    """What a plan reads of what is already kept."""

    def record(self, topic: str, number: int) -> Record | None:
        """A kept record with its amendments; None when it is gone or damaged."""
        ...

    def series(self, series: bytes) -> SeriesState | None: ...

    def series_known_since(self) -> float:
        """When a series was last reported of all that were forgotten for want of room; 0 when none was."""
        ...

    def partial_report(self, key: bytes) -> int:
        """The version of what waits under a key (spool.log.partial_reports); 0 when nothing does."""
        ...


@dataclass(kw_only=True)
class Plan:
    """Everything that one commit writes."""

    at: float
    first: dict[str, int]  # by topic: the first number that this commit gives
    records: dict[str, list[Record]] = field(default_factory=dict)
    amendments: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    series: dict[bytes, SeriesState] = field(default_factory=dict)
    partial_reports: dict[bytes, PartialReport | None] = field(default_factory=dict)  # None: it waits no more
    conflicts: Conflicts = field(default_factory=Conflicts)
    unrecognised: Counter[tuple[str, ...]] = field(default_factory=Counter)
    event_types: dict[str, EventSum] = field(default_factory=dict)
    heard: dict[str, set[bytes]] = field(default_factory=dict)  # who told calls, by the key that brought them
    stale: set[int] = field(default_factory=set)  # places in the group of those that nothing is kept of
    ended: set[int] = field(default_factory=set)  # those among them whose key has ended
    reused: set[int] = field(
        default_factory=set
    )  # those among them whose idempotency key stands for another body
    submissions: list[Terms] = field(default_factory=list)  # of the others, in their order
    observed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ids: dict[int, int] = field(default_factory=dict)  # new ids and their places
    hours: list[int] = field(default_factory=list)  # of the new ids, in their order
    # Of the new ids those of records of earlier commits, which are not written now; with places and hours.
    apart: list[tuple[int, int, int]] = field(default_factory=list)

    def next_numbers(self) -> dict[str, int]:
        return {topic: self.first[topic] + len(records) for topic, records in self.records.items() if records}

    def sums(self) -> Counter[tuple[str, str]]:
        return books.totals(self.submissions)

    def answers(self, receipts: Sequence[Receipt]) -> Sequence[Answer]:
        """The receipts of `submissions` in the order of the group, with an error in the place of what was stale."""
        rest = iter(receipts)
        places = range(len(receipts) + len(self.stale))
        return [self._refusal(place) if place in self.stale else next(rest) for place in places]

    def _refusal(self, place: int) -> Stale:
        if place in self.reused:
            return KeyReused(_REUSED)
        return KeyEnded(_ENDED) if place in self.ended else Stale(_STALE)
