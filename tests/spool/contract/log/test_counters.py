"""Counters: cumulative points become deltas once, in the commit that stores the state of their series."""

from __future__ import annotations

import pytest

from spool import identity
from spool.log.protocols import RecordLog
from spool.record import NS, UsageMetric
from spool.sqlite.log import retention as sqlite_retention
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import (
    NOON,
    Observed,
    add,
    assert_books_balance,
    everything,
    point,
    topic_terms,
)


def shown(record: object) -> tuple[object, ...]:
    """Return the value and interval of a delta, in seconds after NOON."""
    assert isinstance(record, UsageMetric)
    assert record.start_time is not None and record.end_time is not None
    return record.value, record.start_time / NS - NOON, record.end_time / NS - NOON


@pytest.mark.rule
@pytest.mark.parametrize(
    ("points", "deltas", "ignored"),
    [
        ([(100, 60, 0)], [(100, 0, 60)], {}),
        ([(100, 60, 0), (130, 120, 0)], [(100, 0, 60), (30, 60, 120)], {}),
        ([(100, 60, 0), (100, 120, 0), (101, 180, 0)], [(100, 0, 60), (1, 120, 180)], {"unchanged": 1}),
        ([(100, 60, -NOON), (130, 120, -NOON)], [(30, 60, 120)], {"base_line": 1}),
        ([(100, 60, 0), (5, 120, 90)], [(100, 0, 60), (5, 90, 120)], {}),
        ([(100, 60, 0), (5, 120, 0)], [(100, 0, 60), (5, 60, 120)], {}),
        ([(100, 60, 0), (120, 60, 0), (110, 30, 0)], [(100, 0, 60)], {"late": 2}),
        ([(0, 60, 0), (7, 120, 0)], [(7, 60, 120)], {"unchanged": 1}),
        ([(100, 60, 0), (0, 120, 0), (3, 180, 0)], [(100, 0, 60), (3, 120, 180)], {"unchanged": 1}),
    ],
    ids=[
        "first",
        "difference",
        "unchanged",
        "base line",
        "later start",
        "fall",
        "late",
        "zero",
        "fall to zero",
    ],
)
@pytest.mark.parametrize("together", [True, False])
async def test_points_become_deltas(
    log: RecordLog,
    points: list[tuple[int, int, int]],
    deltas: object,
    ignored: dict[str, int],
    together: bool,
) -> None:
    """
    Each case of the table of metric normalization gives the same result in one commit and in separate commits.
    """
    given = [point(value, at=NOON + at, since=NOON + since) for value, at, since in points]

    for batch in [given] if together else [[one] for one in given]:
        await add(log, points=batch)

    assert deltas == [shown(record) for record in await everything(log)]
    terms = await topic_terms(log)
    assert ignored == {term.partition(".")[2]: n for term, n in terms.items() if term.startswith("ignored.")}
    await assert_books_balance(log)


@pytest.mark.rule
async def test_a_delta_is_known_by_series_start_and_time(log: RecordLog) -> None:
    """The id of a delta is a hash that every installation computes equally."""
    await add(log, points=[point(5, at=NOON + 60, series=b"q" * 16)])
    (record,) = await everything(log)
    assert record is not None
    assert identity.dedup_key_of_metric_point(b"q" * 16, NOON * NS, (NOON + 60) * NS) == record.id


async def test_money_is_exact_and_small_change_adds_up(log: RecordLog) -> None:
    """Money is plain decimal text. Amounts below 10^-12 wait until they have grown."""
    tiny = "0.0000000000004"
    values = ["0.1", "0.30", "0.3" + tiny[3:], "0.3000000000008", "0.3000000000012"]
    for place, value in enumerate(values):
        await add(log, points=[point(value, at=NOON + 60 + place, unit="USD")])

    found = [record.value for record in await everything(log) if isinstance(record, UsageMetric)]
    assert ["0.1", "0.2", "0.000000000001"] == found


@pytest.mark.rule
async def test_what_is_no_number_changes_nothing(log: RecordLog, observed: Observed) -> None:
    """A point that is not finite is ignored, and the series continues."""
    await add(
        log, points=[point("10", at=NOON + 60), point("NaN", at=NOON + 70), point("Infinity", at=NOON + 80)]
    )
    await add(log, points=[point(12, at=NOON + 90)])
    assert [(10, 0, 60), (2, 60, 90)] == [shown(record) for record in await everything(log)]
    assert 2 == observed.terms["ignored", "not_finite"]


async def test_a_repeated_export_counts_once(log: RecordLog) -> None:
    export = [point(100, at=NOON + 60), point(7, at=NOON + 60, series=b"t" * 16)]
    for _ in range(3):
        await add(log, points=export)
    assert [100, 7] == [shown(record)[0] for record in await everything(log)]
    assert 4 == (await topic_terms(log))["ignored.late"]


async def test_a_series_is_forgotten_a_month_after_its_last_point(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Stored state is limited by age: a process that is silent for a month is forgotten, but a reporting one is not.
    """
    # A transaction deletes at most two of the six old series.
    monkeypatch.setattr(sqlite_retention, "SERIES", 2)
    log = (await open_spool()).log
    others = [point(100, at=NOON + 1, series=bytes([name]) * 16) for name in b"tuvwxy"]
    await add(log, points=[point(100, at=NOON + 1), *others])
    clock.move(20 * 86_400)
    await add(log, points=[point(101, at=NOON + 2)])
    clock.move(20 * 86_400)
    await log.run_retention()
    again = [point(5, at=NOON + 3, series=bytes([name]) * 16) for name in b"tuvwxy"]
    await add(log, points=[point(103, at=NOON + 3), *again])
    await log.run_retention()
    assert [2, 5, 5, 5, 5, 5, 5] == [shown(record)[0] for record in await everything(log)]


async def test_a_series_that_was_forgotten_for_want_of_room_never_counts_whole_again(
    open_spool: Opener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Over `spool.max_series`, the log forgets the series that were silent longest, and counts them. The next
    point of a forgotten series adds nothing, because it is only the base for later points. If a series
    started after that, its first point counts whole.
    """
    # A transaction deletes at most two of the three excess series.
    monkeypatch.setattr(sqlite_retention, "SERIES", 2)
    log = (await open_spool(max_series=2)).log
    names = [bytes([name]) * 16 for name in b"tuvwx"]
    for name in names[:2]:
        await add(log, points=[point(100, at=NOON + 1, series=name)])
        clock.move(10)
    await log.run_retention()
    stats = await log.stats()
    assert stats.series == 2
    assert stats.max_series == 2
    assert stats.series_pushed_out == 0
    # the oldest series is still known, because at the limit no series is forgotten
    await add(log, points=[point(101, at=NOON + 2, series=names[0])])
    for name in names[2:]:
        await add(log, points=[point(100, at=NOON + 1, series=name)])
        clock.move(10)
    await log.run_retention()
    stats = await log.stats()
    assert stats.series == 2
    assert stats.max_series == 2
    assert stats.series_pushed_out == 3

    for at in (40, 100):
        await add(log, points=[point(100 + at, at=NOON + at, series=name) for name in names[:2]])
    await add(log, points=[point(7, at=NOON + 110, since=NOON + 50, series=b"y" * 16)])
    counted = [shown(record)[0] for record in await everything(log)]
    assert [100, 100, 1, 100, 100, 100, 60, 60, 7] == counted
    assert 2 == (await topic_terms(log))["ignored.forgotten"]
    await assert_books_balance(log)


async def test_room_that_was_short_long_ago_says_nothing_of_a_series(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    Thirty days after series were forgotten for lack of space, a new series counts whole again. Series that
    are silent for so long are forgotten for their age in any case.
    """
    log = (await open_spool(max_series=1)).log
    await add(log, points=[point(100, at=NOON + 1)])
    clock.move(10)
    await add(log, points=[point(100, at=NOON + 1, series=b"t" * 16)])
    await log.run_retention()
    clock.move(31 * 86_400)
    await add(log, points=[point(9, at=NOON + 2, series=b"u" * 16)])
    assert [100, 100, 9] == [shown(record)[0] for record in await everything(log)]
