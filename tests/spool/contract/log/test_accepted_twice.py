"""A recount finds ids that were accepted again although they were known, and no other ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from spool import identity
from spool.identity import RecordIdentity
from spool.log import accepted_twice
from spool.log.accepted_twice import AcceptedTwiceSearch
from spool.log.duplicates import DuplicateIndex
from spool.log.protocols import RecordLog
from spool.log.values import LogEntry, Submission
from spool.record import AI_TELEMETRY, NS, UNIT_COST, USAGE_EVENTS, Inference, Record
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, add, assert_books_balance, call, submission
from tests.spool.contract.log.test_requests import send
from tests.spool.contract.open_records.test_names_told_later import report
from tests.spool.contract.test_stops import delta, keyed


async def found(record_log: RecordLog) -> Mapping[str, tuple[int, list[int]]]:
    return {
        topic: (twice.records, list(twice.numbers))
        for topic, twice in (await record_log.verify()).accepted_twice.items()
    }


def forgotten(submission: Submission) -> Submission:
    """Return the submission with identities that the log does not recognize. The records keep their ids."""
    return Submission(
        topic=submission.topic,
        received=submission.received,
        records=submission.records,
        identities=[RecordIdentity(record.id, certain=False) for record in submission.records],
    )


@pytest.mark.proves("known ids after a stop")
async def test_an_id_that_was_accepted_twice_is_found(open_spool: Opener, clock: MovedClock) -> None:
    """
    A recount finds repeated ids in each topic, among open and closed records, and in runs. The
    accounting still balances.
    """
    log = (await open_spool(hold=10)).log
    calls = submission([call(number) for number in range(5)])
    for one in (calls, keyed(USAGE_EVENTS, 1, "1"), keyed(UNIT_COST, 1, "1"), delta(1)):
        await log.append_submission(one)
    await add(log, call(9))
    assert {} == await found(log)
    for later_s in (0, 100_000):
        clock.move(later_s)
        await log.append_submission(forgotten(calls))
        await log.append_submission(forgotten(delta(1)))
        await log.append_submission(forgotten(keyed(UNIT_COST, 1, "1")))
    expected = [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    assert {AI_TELEMETRY: (12, expected[:10]), UNIT_COST: (2, [2, 3])} == await found(log)
    await assert_books_balance(log, accepted_twice=True)


def unidentified() -> tuple[Record, RecordIdentity]:
    record = Inference(id=b"", source="otel", start_time=NOON * NS)
    known_as = identity.call_identity(record)
    assert not known_as.certain
    record.id = known_as.id
    return record, known_as


async def test_what_was_accepted_rightly_is_not_named(open_spool: Opener, clock: MovedClock) -> None:
    """
    A recount does not name records without identity, corrections, added reports, shadows, counters, requests
    or ordinary repeats. It also does not name a repeat whose first id was forgotten, or whose time is far
    from the first report's.
    """
    log = (await open_spool(hold=10, duplicate_window=86_400)).log
    await add(log, *[unidentified() for _ in range(3)])
    await add(log, report(1, b"name of the call"), call(2, cost=None), call(3, shadow=True))
    await add(log, report(4, b"name of the call"), call(2, user="ada"))
    await log.append_submission(delta(1))
    await send(log, "1", "2")
    clock.move(11)
    await add(log, call(2, cost="0.5", cost_source="reported"))
    await add(log, call(2, cost="0.5", cost_source="reported"), call(1), call(3))
    await log.append_submission(delta(1))
    await send(log, "1", "2")
    clock.move(80_000)
    await add(log, call(7))
    # The ids of these two calls are in runs of other hours.
    await add(log, call(1, at=NOON + 7200), call(7, at=NOON - 9000))
    clock.move(2 * 86_400)
    await add(log, call(8))
    await add(log, call(1), call(2), call(3))
    assert {} == await found(log)
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_ids_over_the_bound_are_forgotten_rightly(open_spool: Opener, clock: MovedClock) -> None:
    """A recount does not name repeats of ids that exceeded `duplicate_ids`."""
    log = (await open_spool(duplicate_ids=16)).log
    for number in range(100):
        clock.move(10)
        await add(log, call(number))
    await add(log, *[call(number) for number in range(50)])
    assert 150 == log.next_number(AI_TELEMETRY) - 1
    assert {} == await found(log)


def entry_of(ids: list[int], first: int) -> LogEntry:
    records: list[Record | None] = [call(id)[0] for id in ids]
    return LogEntry(topic=AI_TELEMETRY, first=first, committed_at=NOON, records=records)


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Memory stays limited for any number of records. If n ids may be known, each record is compared with at
    least n/2 earlier records.
    """
    monkeypatch.setattr(accepted_twice, "CHUNK", 50)
    twice = AcceptedTwiceSearch(
        DuplicateIndex(b"k", window_s=86_400, max_ids=400), window_s=86_400, max_ids=400
    )
    entries: list[LogEntry] = []
    most = 0
    for number in range(0, 2000, 10):
        ids = list(range(number, number + 10))
        if number >= 1500:
            ids[0] = number - 145
        entries.append(entry_of(ids, number + 1))
        twice.collect_record_ids(entries[-1])
        if twice.has_max_ids:
            await asyncio.to_thread(twice.note_repeated_ids, is_end_of_topic=False)
        most = max(most, sum(map(len, twice._chunks)) + len(twice._latest))
    twice.note_repeated_ids(is_end_of_topic=True)

    async def read(topic: str, first: int, last: int) -> list[LogEntry]:
        return [one for one in entries if first <= one.first <= last]

    [(topic, judged)] = (await twice.records_accepted_twice_by_topic(read)).items()
    assert topic == AI_TELEMETRY
    assert judged.records == 50
    assert list(range(1501, 1600, 10)) == list(judged.numbers)
    assert 200 <= most <= 400
