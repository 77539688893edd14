"""The records that a delivery sends, and work on records in short steps of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from exporters.errors import Rejected
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry
from spool.record import Record
from spool.turns.fair_turns import pause

T = TypeVar("T")
U = TypeVar("U")

TURN: Final = 64  # records per step; a step takes about half a millisecond, and a whole delivery 5 to 10 ms


@dataclass(frozen=True, slots=True)
class Tally:
    """
    The number of records of a delivery that are sent, and the numbers of those that are not sent, by reason.
    """

    sent: int
    shadow: int
    damaged: int

    def settlement(
        self, *, refused: int = 0, items: int | None = None, words: str | None = None
    ) -> Settlement:
        """
        Account for every record of the delivery after the destination accepted the request but rejected
        `refused` of `items`. By default there is one item per record.

        Raises Rejected if the destination accepted no item. Such a 2xx means the same as a 400.
        """
        items = self.sent if items is None else items
        if items and refused >= items:
            reason = f": {words}" if words else ""
            raise Rejected(f"200, but {items:,} of {items:,} items are rejected{reason}", status=200)
        refused = min(refused, self.sent)
        return Settlement(
            delivered=self.sent - refused,
            refused=refused,
            shadow=self.shadow,
            damaged=self.damaged,
            words=words,
        )


@dataclass(slots=True)
class Batch:
    """The records to send, each with the time of its commit, and the number of records that are not sent."""

    records: list[tuple[Record, float]] = field(default_factory=list)
    shadow: int = 0
    damaged: int = 0
    # record numbers at which records of another kind begin
    boundaries: list[int] = field(default_factory=list)

    @property
    def tally(self) -> Tally:
        return Tally(len(self.records), self.shadow, self.damaged)

    def settlement(
        self, *, refused: int = 0, items: int | None = None, words: str | None = None
    ) -> Settlement:
        return self.tally.settlement(refused=refused, items=items, words=words)


def without_shadows(delivery: Delivery, entries: Sequence[Entry]) -> Batch:
    """
    Return the records for a destination that sums them. Duplicates kept for reference (shadows) are not sent.
    """
    return _build_batch(delivery, entries, shadows=False)


def with_shadows(delivery: Delivery, entries: Sequence[Entry]) -> Batch:
    """
    Return the records for a destination that stores them. Duplicates kept for reference (shadows) are
    sent and marked.
    """
    return _build_batch(delivery, entries, shadows=True)


def nearest_boundary(delivery: Delivery, batch: Batch) -> int | None:
    """
    Return the record number nearest to the middle at which another kind of record begins. Return None if
    there is only one kind.
    """
    middle = delivery.first + delivery.count // 2
    return min(batch.boundaries, key=lambda number: abs(number - middle), default=None)


def _build_batch(delivery: Delivery, entries: Sequence[Entry], *, shadows: bool) -> Batch:
    batch = Batch()
    kind: type[Record] | None = None
    for entry in entries:
        for number, record in enumerate(entry.records, start=entry.first):
            if record is None:
                continue
            if record.shadow and not shadows:
                batch.shadow += 1
                continue
            if kind is not type(record):
                if kind is not None:
                    batch.boundaries.append(number)
                kind = type(record)
            batch.records.append((record, entry.committed_at))
    # A record whose entry is missing counts as damaged, like a record that cannot be read.
    batch.damaged = delivery.count - batch.shadow - len(batch.records)
    return batch


async def map_in_turns(items: Sequence[T], function: Callable[[Sequence[T]], U]) -> list[U]:
    """Apply `function` to up to TURN items at a time, in order. Other tasks run in between."""
    results = []
    for start in range(0, len(items), TURN):
        if start:
            await pause()
        results.append(function(items[start : start + TURN]))
    return results
