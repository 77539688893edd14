"""The records that a delivery sends, and the account of those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from exporters.errors import Rejected
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import Record
from spool.turns.fair_turns import pause_for_others

T = TypeVar("T")
U = TypeVar("U")

TURN: Final = 64  # half a millisecond; a whole delivery takes 5 to 10 ms


@dataclass(frozen=True, slots=True)
class SendTally:
    """How many records are sent, and how many are not, by reason."""

    sent: int
    shadow: int
    damaged: int

    def settlement_unless_all_rejected(
        self, *, refused: int = 0, items: int | None = None, words: str | None = None
    ) -> Settlement:
        """
        Return the outcome of every record after the destination accepted the request but rejected `refused`
        of `items` (by default one item per record).

        Raises Rejected if no item was accepted, because such a 2xx means the same as a 400.
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
class RecordBatch:
    """
    The records of a delivery to send, with their commit times. `shadow` and `damaged` count those left out:
    duplicates stored for reference, and unreadable records.
    """

    records: list[tuple[Record, float]] = field(default_factory=list)
    shadow: int = 0
    damaged: int = 0
    # positions where records of another kind begin
    boundaries: list[int] = field(default_factory=list)

    @property
    def tally(self) -> SendTally:
        return SendTally(len(self.records), self.shadow, self.damaged)

    def settlement_unless_all_rejected(
        self, *, refused: int = 0, items: int | None = None, words: str | None = None
    ) -> Settlement:
        return self.tally.settlement_unless_all_rejected(refused=refused, items=items, words=words)


def build_batch_without_shadows(delivery: Delivery, entries: Sequence[LogEntry]) -> RecordBatch:
    """
    Return the records for a destination that adds them up, without duplicates stored for reference (shadows).
    """
    return _build_batch(delivery, entries, shadows=False)


def build_batch_with_shadows(delivery: Delivery, entries: Sequence[LogEntry]) -> RecordBatch:
    """
    Return the records for a destination that stores them. Duplicates stored for reference (shadows) are
    marked.
    """
    return _build_batch(delivery, entries, shadows=True)


def boundary_nearest_middle(delivery: Delivery, batch: RecordBatch) -> int | None:
    """
    Return the number nearest to the middle at which the kind of record changes, or None if all are of one
    kind.
    """
    middle = delivery.first + delivery.count // 2
    return min(batch.boundaries, key=lambda number: abs(number - middle), default=None)


def _build_batch(delivery: Delivery, entries: Sequence[LogEntry], *, shadows: bool) -> RecordBatch:
    batch = RecordBatch()
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
    # a missing entry counts as damaged
    batch.damaged = delivery.count - batch.shadow - len(batch.records)
    return batch


async def map_with_pauses(items: Sequence[T], function: Callable[[Sequence[T]], U]) -> list[U]:
    """
    Call `function` with at most TURN items at a time, so that other tasks run in between. Return its results.
    """
    results = []
    for start in range(0, len(items), TURN):
        if start:
            await pause_for_others()
        results.append(function(items[start : start + TURN]))
    return results
