"""Which records of a delivery are sent, and how the rest are accounted for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from exporters import batch
from exporters.errors import Rejected
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, Record
from tests.exporters.spools import ROUTE, call, calls, counter


def delivery(first: int, last: int) -> Delivery:
    return Delivery(id=1, route=ROUTE, first=first, last=last, attempts=0, idempotency_key="k")


def entry(first: int, records: Sequence[Record | None]) -> LogEntry:
    return LogEntry(topic=AI_TELEMETRY, first=first, committed_at=float(first), records=records)


def test_each_number_of_a_delivery_counts_in_one_term() -> None:
    """
    Every number of the delivery counts in exactly one term: its record was sent, is a shadow, is damaged,
    or was deleted.
    """
    entries = [entry(1, [call(1), call(2, shadow=True), None]), entry(6, [call(6)])]
    sorted_out = batch.build_batch_without_duplicates(delivery(1, 8), entries)
    assert [(call(1), 1.0), (call(6), 6.0)] == sorted_out.records
    assert Settlement(
        delivered=1, refused=1, shadow=1, damaged=5, words="w"
    ) == sorted_out.settlement_unless_all_rejected(rejected_items=1, rejection_text="w")


def test_a_destination_that_keeps_gets_shadows_too() -> None:
    """At a destination that stores shadows, they count as delivered."""
    sorted_out = batch.build_batch_with_duplicates(
        delivery(1, 2), [entry(1, [call(1), call(2, shadow=True)])]
    )
    assert Settlement(delivered=2) == sorted_out.settlement_unless_all_rejected()


def test_no_more_can_be_refused_than_was_sent() -> None:
    """If an upstream reports more rejected records than were sent, the accounting still balances."""
    sorted_out = batch.build_batch_without_duplicates(delivery(1, 2), [entry(1, calls(1, 2))])
    assert Settlement(delivered=0, refused=2) == sorted_out.settlement_unless_all_rejected(
        rejected_items=99, sent_items=100
    )
    with pytest.raises(Rejected, match="200, but 2 of 2 items are rejected: why"):
        sorted_out.settlement_unless_all_rejected(rejected_items=99, rejection_text="why")


@pytest.mark.parametrize(
    ("records", "boundary"),
    [
        (calls(1, 4), None),
        ([call(1), call(2), counter(3), counter(4)], 3),
        ([call(1), counter(2), counter(3), counter(4), call(5), call(6)], 5),
        ([call(1), counter(2, shadow=True), call(3), None], None),
        ([counter(1), counter(2, shadow=True), call(3), call(4)], 3),
    ],
)
def test_a_mixed_batch_is_split_near_its_middle(
    records: Sequence[Record | None], boundary: int | None
) -> None:
    """
    A mixed batch is split at the boundary between kinds that is nearest to its middle. Shadows make no boundary.
    """
    whole = delivery(1, len(records))
    assert boundary == batch.kind_change_nearest_middle(
        whole, batch.build_batch_without_duplicates(whole, [entry(1, records)])
    )
