"""The shelf of entries: what it counts is what it keeps."""

from __future__ import annotations

import pytest

from spool.log.entries import codec
from spool.postgres.log.entries import Shelf
from spool.record import TOPICS
from tests.spool.contract.examples import call

ENTRIES = 6


@pytest.mark.parametrize("removed", ["for room", "all", "for the same anew"])
def test_what_had_to_go_before_it_was_decoded_takes_no_room(removed: str) -> None:
    record, _ = call(1)
    ((_, packed),) = codec.cut([record])
    shelf = Shelf(0 if removed == "for room" else 1 << 20)
    entries = [shelf.put(TOPICS[0], first, codec.raws(packed), len(packed)) for first in range(ENTRIES)]
    if removed == "all":
        shelf.clear()
    if removed == "for the same anew":
        for first in range(ENTRIES):
            shelf.put(TOPICS[0], first, codec.raws(packed), len(packed))
    before = shelf.bytes
    for entry in entries[:-1]:
        assert [record] == shelf.records(entry, 0, 1)
    assert before == shelf.bytes
