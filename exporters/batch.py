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

TURN: Final = 64  # records per turn, about half a millisecond; a whole delivery takes 5 to 10 ms


@dataclass(frozen=True, slots=True)
class SendTally:
    """How many records are sent, and how many are not, by reason."""

    sent: int
    shadow: int
    damaged: int

    def settlement_unless_all_rejected(
        self, *, rejected_items: int = 0, sent_items: int | None = None, rejection_text: str | None = None
    ) -> Settlement:
        """
        Return the outcome of every record after the destination accepted the request but rejected `rejected_items`
        of `sent_items` (by default one item per record).

        Raises Rejected if no item was accepted, because such a 2xx means the same as a 400.
        """
        sent_items = self.sent if sent_items is None else sent_items
        if sent_items and rejected_items >= sent_items:
            reason = f": {rejection_text}" if rejection_text else ""
            raise Rejected(
                f"200, but {sent_items:,} of {sent_items:,} items are rejected{reason}", status=200
            )
        rejected_items = min(rejected_items, self.sent)
        return Settlement(
            delivered=self.sent - rejected_items,
            refused=rejected_items,
            shadow=self.shadow,
            damaged=self.damaged,
            words=rejection_text,
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
        self, *, rejected_items: int = 0, sent_items: int | None = None, rejection_text: str | None = None
    ) -> Settlement:
        return self.tally.settlement_unless_all_rejected(
            rejected_items=rejected_items, sent_items=sent_items, rejection_text=rejection_text
        )


def build_batch_without_duplicates(delivery: Delivery, entries: Sequence[LogEntry]) -> RecordBatch:
    """
    Return the records for a destination that adds them up, without duplicates stored for reference (shadows).
    """
    return _build_batch(delivery, entries, includes_duplicates=False)


def build_batch_with_duplicates(delivery: Delivery, entries: Sequence[LogEntry]) -> RecordBatch:
    """
    Return the records for a destination that stores them. Duplicates stored for reference (shadows) are
    marked.
    """
    return _build_batch(delivery, entries, includes_duplicates=True)


def kind_change_nearest_middle(delivery: Delivery, batch: RecordBatch) -> int | None:
    """
    Return the number nearest to the middle at which the kind of record changes, or None if all are of one
    kind.
    """
    middle = delivery.first + delivery.count // 2
    return min(batch.boundaries, key=lambda number: abs(number - middle), default=None)


def _build_batch(
    delivery: Delivery, entries: Sequence[LogEntry], *, includes_duplicates: bool
) -> RecordBatch:
    batch = RecordBatch()
    kind: type[Record] | None = None
    for entry in entries:
        for number, record in enumerate(entry.records, start=entry.first):
            if record is None:
                continue
            if record.shadow and not includes_duplicates:
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
