"""
Comparison of ledger and log: a call that is missing in either is named, and a recount repairs the ledger.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import HOUR_S, WIDTH
from spool.record import NS
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeLog, call

HOUR = BEGIN // HOUR_S * HOUR_S


def three_hours() -> FakeLog:
    log = FakeLog()
    for hour in range(3):
        log.add([call(start_time=(HOUR + hour * HOUR_S) * NS) for _ in range(4)], at=HOUR + hour * HOUR_S)
    return log


async def words(ledger: Ledger, log: FakeLog) -> list[str]:
    return list((await ledger.compare_and_note_differences(log)).problem_sentences())


@pytest.mark.proves("the totals differ from the log")
async def test_a_call_that_is_not_counted_is_named(ledgers: Ledgers) -> None:
    """
    The test removes a call directly from the sums of an hour whose records are all stored, and the comparison
    names the call.
    """
    log, ledger = three_hours(), await ledgers.open()
    await ledger.catch_up(log)
    assert [] == await words(ledger, log)

    def take_one(ledger_rows: LedgerRows) -> None:
        [number] = ledger_rows.dimension_set_numbers_in_period(HOUR_S, HOUR + HOUR_S)
        ledger_rows.add_sums(HOUR_S, [(HOUR + HOUR_S, number, [-1] + [0] * (WIDTH - 1))])

    await ledger._change_rows(take_one)
    [found] = await words(ledger, log)
    assert found.startswith("the totals have 3 calls for the hour from") and "4 are stored" in found
    assert "`tollhouse ledger rebuild`" in found
    await ledger.rebuild(log)
    [found] = await words(ledger, log)
    assert found.startswith("the totals were not compared, because they are being counted again")
    await ledger.catch_up(log)
    assert [] == await words(ledger, log)


async def test_an_hour_that_was_passed_over_is_named(ledgers: Ledgers) -> None:
    """
    If the ledger skipped numbers with stored records, the comparison names their hour, and a rebuild counts them.
    """
    log, ledger = three_hours(), await ledgers.open()
    await ledger.catch_up(FakeLog.of(log, upto=2))
    await ledger._change_rows(lambda rows: rows.set_state(reach=13, missed=4))
    ledger._reach = 13
    hour, passed_over = await words(ledger, log)
    assert hour.startswith("the totals have 0 calls for the hour from")
    assert passed_over.startswith(
        "the totals left out 4 record numbers, and at most 0 of them no longer have a record"
    )
    await ledger.rebuild(log)
    await ledger.catch_up(log)
    assert [] == await words(ledger, log)
    assert 0 == (await ledger.state()).missed


@pytest.mark.one_engine
async def test_record_missing_from_the_log_is_reported(ledgers: Ledgers) -> None:
    """Retention deletes the oldest whole hours, which are not compared. A damaged record is no difference."""
    log, ledger = three_hours(), await ledgers.open()
    await ledger.catch_up(log)
    log.forget_below(5)
    assert [] == await words(ledger, log)
    first, second = log.entries
    log.entries[1] = replace(second, records=[*second.records[:3], None])
    assert [] == await words(ledger, log)
    log.entries[0] = replace(first, records=first.records[:3])
    assert 2 == len(await words(ledger, log))
