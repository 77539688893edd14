"""
The ledger recounts missing calls by itself and exactly while their records are stored. It reports other gaps once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from spool.ledger.comparing import LedgerMender
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import DAY_S, HOUR_S, WIDTH
from spool.record import NS, Inference
from tests.spool.ledger.engines import Ledgers
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call, recount

HOUR = BEGIN // HOUR_S * HOUR_S


class Kill(BaseException):
    """Raised where the process is killed."""


def three_hours(*, start: int = HOUR) -> FakeLog:
    """Return a log with four calls per hour of two users. The last hour has a late call of the first hour."""
    log = FakeLog()
    for hour in range(3):
        at = start + hour * HOUR_S
        log.add([call(start_time=at * NS, user=f"u{n % 2}") for n in range(4)], at=at)
    log.add([call(start_time=start * NS, user="late")], at=start + 2 * HOUR_S)
    return log


def mender(ledger: Ledger, log: FakeLog) -> LedgerMender:
    return LedgerMender(ledger=ledger, log=log, clock=FakeClock(BEGIN + DAY_S))


Sums = dict[tuple[int, str | None], CostRow]


async def sums(ledger: Ledger, granularity: str = "hourly") -> Sums:
    query = CostQuery(
        since=datetime.fromtimestamp(BEGIN - DAY_S, UTC),
        until=datetime.fromtimestamp(BEGIN + 2 * DAY_S, UTC),
        granularity=granularity,
        group_by=("user",),
    )
    return {(int(row.start.timestamp()), row.group[0]): row for row in await ledger.costs(query)}


def expected(log: FakeLog) -> dict[tuple[int, str | None], int]:
    return {(hour, user): found[0] for (hour, user), found in recount(log, "user").items()}


async def calls(ledger: Ledger) -> dict[tuple[int, str | None], int]:
    return {place: row.calls for place, row in (await sums(ledger)).items()}


def take_one(ledger_rows: LedgerRows) -> None:
    number = min(ledger_rows.dimension_set_numbers_in_period(HOUR_S, HOUR + HOUR_S))
    ledger_rows.add_sums(HOUR_S, [(HOUR + HOUR_S, number, [-1] + [0] * (WIDTH - 1))])


async def test_a_call_that_is_not_counted_is_counted(
    ledgers: Ledgers, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A missing call is added to its hour and to its finished day. If the process is killed first,
    nothing has changed.
    """
    log, clock = three_hours(), FakeClock(BEGIN + 2 * DAY_S)
    ledger = await ledgers.open(clock=clock)
    await ledger.catch_up(log)
    await ledger.sum_up_and_delete_hours()
    right = await sums(ledger), await sums(ledger, "daily")
    await ledger._change_rows(take_one)
    await ledger._change_rows(lambda rows: rows.drop_days(0))
    await ledger._change_rows(lambda rows: rows.make_daily_sums_from_hours(BEGIN))
    assert right[0] != await sums(ledger)
    assert right[1] != await sums(ledger, "daily")
    before = await sums(ledger), await sums(ledger, "daily")

    class Killed(FakeLog):
        closed = False

        async def read(self, topic: str, first_number: int, last_number: int, **options: Any):  # type: ignore[no-untyped-def]
            if self.closed:
                raise Kill
            return await super().read(topic, first_number, last_number, **options)

    killed = Killed.of(log, upto=4)
    compared = await ledger.compare_and_note_differences(killed)
    assert 1 == await ledger.count_differing_periods()
    killed.closed = True
    with pytest.raises(Kill):
        await ledger.replace_period(killed, compared, compared.unexplained_differences()[0].place)
    ledger = await ledgers.open(clock=clock)
    assert before == (await sums(ledger), await sums(ledger, "daily"))
    await ledger.catch_up(log)
    assert await ledger.is_comparison_due(clock.now())
    await LedgerMender(ledger=ledger, log=log, clock=clock).compare_and_repair()
    assert right == (await sums(ledger), await sums(ledger, "daily"))
    assert not await ledger.is_comparison_due(clock.now())
    assert await ledger.count_records_lost_before_counting() == 0
    assert await ledger.count_differing_periods() == 0
    assert ["ledger_mended"] == [getattr(each, "action", "") for each in caplog.records]


@pytest.mark.proves("the totals differ from the log")
async def test_numbers_that_were_passed_over_are_counted(ledgers: Ledgers) -> None:
    """
    After the recount nothing is missing and the report is complete. Records that arrive meanwhile count once.
    """
    log, ledger = three_hours(), await ledgers.open()
    gone = FakeLog.of(log, upto=4)
    gone.entries[1] = replace(gone.entries[1], first=7, records=gone.entries[1].records[2:])
    await ledger.catch_up(gone)
    assert await ledger.count_records_lost_before_counting() == 2
    assert bool(await ledger.start_of_complete_hours())
    compared = await ledger.compare_and_note_differences(log)
    log.add([call(start_time=(HOUR + HOUR_S) * NS, user="newest")], at=HOUR + 3 * HOUR_S)
    await ledger.catch_up(log)
    assert await ledger.replace_period(log, compared, compared.unexplained_differences()[0].place)
    assert expected(log) == await calls(ledger)
    await mender(ledger, log).compare_and_repair()
    assert expected(log) == await calls(ledger)
    assert await ledger.count_records_lost_before_counting() == 0
    assert await ledger.start_of_complete_hours() == 0


@pytest.mark.one_engine
async def test_hour_with_a_damaged_record_stays_and_is_logged_once(
    ledgers: Ledgers, caplog: pytest.LogCaptureFixture
) -> None:
    """
    An hour with a damaged record stays unchanged, because that record may have been counted. An hour that
    retention has deleted stays unchanged as well. The difference is logged once.
    """
    log, ledger = three_hours(), await ledgers.open()
    gone = FakeLog.of(log, upto=4)
    gone.entries[1] = replace(gone.entries[1], first=7, records=gone.entries[1].records[2:])
    await ledger.catch_up(gone)
    log.forget_below(5)
    log.entries[0] = replace(log.entries[0], records=[*log.entries[0].records[:3], None])
    before = await sums(ledger)
    keeper = mender(ledger, log)
    caplog.set_level(logging.WARNING)
    caplog.clear()
    for _ in range(2):
        await keeper.compare_and_repair()
        assert not await ledger.is_comparison_due(BEGIN + DAY_S)
    assert before == await sums(ledger)
    assert 1 == await ledger.count_differing_periods()
    assert ["ledger_differs"] == [getattr(each, "action", "") for each in caplog.records]


async def test_deleted_numbers_are_searched_for_once(ledgers: Ledgers) -> None:
    """The ledger searches for deleted numbers once, and again only if it skips further numbers."""
    log, ledger = three_hours(), await ledgers.open()
    log.forget_below(5)
    await ledger.catch_up(log)
    assert await ledger.is_comparison_due(BEGIN)
    await mender(ledger, log).compare_and_repair()
    assert 4 == await ledger.count_records_lost_before_counting()
    assert not await ledger.is_comparison_due(BEGIN + DAY_S)
    assert await ledger.is_comparison_due(BEGIN + 2 * DAY_S)  # a comparison is due once a day
    log.add([call(start_time=(HOUR + 2 * HOUR_S) * NS) for _ in range(2)], at=HOUR + 2 * HOUR_S)
    kept = log.entries.pop()
    log.add([call()], at=HOUR + 2 * HOUR_S)
    log.entries[-1] = replace(log.entries[-1], first=kept.last + 1)
    await ledger.catch_up(log)
    assert 6 == await ledger.count_records_lost_before_counting()
    log.entries.insert(-1, kept)
    await mender(ledger, log).compare_and_repair()
    assert 4 == await ledger.count_records_lost_before_counting()


async def test_hour_with_a_wrong_meter_is_counted_again(ledgers: Ledgers) -> None:
    """
    An hour has the right number of calls but a wrong number of web searches. The searches in stored records
    are counted again, once.
    """
    log, ledger = three_hours(), await ledgers.open()
    for entry in log.entries:
        for record in entry.records:
            assert isinstance(record, Inference)
            record.meters = {"web_searches": 2}
    await ledger.catch_up(log)
    assert () == tuple((await ledger.compare_and_note_differences(log)).problem_sentences())

    def forget(ledger_rows: LedgerRows) -> None:
        [number, *_] = sorted(ledger_rows.dimension_set_numbers_in_period(HOUR_S, HOUR + HOUR_S))
        ledger_rows.add_meters(HOUR_S, [(HOUR + HOUR_S, number, {"web_searches": -1_500_000})])

    await ledgers.store.change(forget)
    [difference] = (await ledger.compare_and_note_differences(log)).unexplained_differences()
    assert difference.kept == difference.counted == 4
    assert ": source=litellm, provider=openai, " in difference.describe()
    assert " has web_searches 2.5 instead of 4" in difference.describe()
    await mender(ledger, log).compare_and_repair()
    assert () == tuple((await ledger.compare_and_note_differences(log)).problem_sentences())
