"""Readers of packed records get the same amended records in the same entries and ranges as other readers."""

from __future__ import annotations

from typing import Any

from spool.packed.native import NativeModule
from spool.packed.records import PackedRecords
from spool.record import AI_TELEMETRY, UsageMetric
from tests.exporters.spools import Spooled, call, record_id
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.test_native import module


async def test_packed_records_are_those_that_others_read(open_spool: Opener, clock: MovedClock) -> None:
    """
    Readers of packed records get the same records as other readers, for any range. In between are a later
    report that fills a record, and a counter.
    """
    opened: Any = await open_spool(hold=60)
    spooled = Spooled(log=opened.log, deliveries=opened.deliveries, clock=clock)
    counter = UsageMetric(id=record_id(99), source="claude_code", name="tokens", value=5)
    await spooled.add([*[call(number) for number in range(1, 20)], counter])
    await spooled.add([call(number) for number in range(30, 40)])
    await spooled.add([call(7, user="told-later"), call(33, team="told-later"), call(50)])
    clock.move(3600)
    native = NativeModule(module())
    for first, last in ((1, 31), (5, 8), (7, 7), (20, 20), (19, 24)):
        plain = await spooled.log.read(AI_TELEMETRY, first, last)
        packed = await spooled.log.read(AI_TELEMETRY, first, last, native=native)
        assert [(one.first, one.committed_at, list(one.records)) for one in plain] == [
            (one.first, one.committed_at, list(one.records)) for one in packed
        ]
    found = [record for entry in plain for record in entry.records]
    assert 6 == len(found)
    whole = await spooled.log.read(AI_TELEMETRY, 1, 31, native=native)
    told = [record for entry in whole for record in entry.records if "told-later" in repr(record)]
    assert 2 == len(told)
    assert all(isinstance(entry.records, PackedRecords) for entry in whole)


async def test_where_many_records_are_no_plain_calls_all_are_decoded(open_spool: Opener) -> None:
    """If an entry has only counters, readers of packed records get decoded records."""
    opened: Any = await open_spool()
    spooled = Spooled(log=opened.log, deliveries=opened.deliveries, clock=MovedClock())
    counters = [UsageMetric(id=record_id(n), source="s", name="n", value=n) for n in range(1, 9)]
    await spooled.add(counters)
    [entry] = await spooled.log.read(AI_TELEMETRY, 1, 8, native=NativeModule(module()))
    assert counters == list(entry.records)
