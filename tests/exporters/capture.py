"""An exporter that stores its deliveries in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from exporters import batch as batches
from exporters.errors import SendError
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import Record


class Capture:
    """
    Answer each delivery with the next item of `answers`. An item None accepts the delivery, and so does every
    attempt after the last item.
    """

    in_flight = 1

    def __init__(self, *, answers: Iterable[SendError | None] = (), max_records: int = 1000) -> None:
        self.max_records = max_records
        self.deliveries: list[Delivery] = []  # all deliveries that were tried, in order
        self.records: list[Record] = []  # all records that the exporter sent and this receiver accepted
        self._answers = deque(answers)

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        self.deliveries.append(delivery)
        answer = self._answers.popleft() if self._answers else None
        if answer is not None:
            raise answer
        batch = batches.build_batch_without_duplicates(delivery, entries)
        self.records += [record for record, _ in batch.records]
        return batch.settlement_unless_all_rejected()

    async def close(self) -> None: ...
