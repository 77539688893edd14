"""
Two nested reports of a call by one process, in traces of their own and without a common id: by an SDK, and by
the code around it.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import spool.sqlite.spool
from spool.identity import OF_SERVICE, RecordIdentity, build_nested_report
from spool.record import NS, Correction, Inference, Record
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import NOON, add, assert_books_balance, call, everything, topic_terms

Report = tuple[Record, RecordIdentity]
START = int(NOON) * NS


def nested(
    number: int, start: float, end: float, *, is_inner: bool, process: str = "desk", **fields: Any
) -> Report:
    """Return a report. Times are seconds after NOON."""
    times = START + int(start * NS), START + int(end * NS)
    fields = {"request_model": "claude-haiku-4-5", **fields}
    record, known_as = call(number, start_time=times[0], end_time=times[1], **fields)
    assert isinstance(record, Inference)
    return record, known_as._replace(
        nesting=build_nested_report(record, [process], *times, is_inner=is_inner)
    )


def by_sdk(number: int, start: float = 0.1, end: float = 0.9, **fields: Any) -> Report:
    return nested(number, start, end, is_inner=True, **fields)


def around(number: int, start: float = 0, end: float = 1, **fields: Any) -> Report:
    return nested(number, start, end, is_inner=False, **fields)


def counted(records: list[Record | None]) -> list[Inference]:
    return [record for record in records if isinstance(record, Inference) and not record.shadow]


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 20])
@pytest.mark.parametrize("is_first", [False, True])
async def test_two_reports_are_one_record(
    open_spool: Opener, clock: MovedClock, is_first: bool, wait_s: float
) -> None:
    """
    Two nested reports of one call are one record: the second joins the record of the first, open or closed, and
    repeats add nothing.
    """
    log = (await open_spool(hold=10)).log
    reports = [by_sdk(1), around(2, user="ada")]
    for one in [*reports, *reports] if is_first else [*reports[::-1], *reports]:
        await add(log, one)
        clock.move(wait_s)
    clock.move(11)
    [record] = counted(await everything(log))
    assert (None if is_first and wait_s else "ada") == record.user
    assert 3 == (await topic_terms(log))["duplicates"]
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 20])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("process", "other_key", "expected"),
    [(OF_SERVICE + "bot", "desk", 1), (OF_SERVICE + "bot", "laptop", 2), ("process bot", "laptop", 1)],
)
async def test_one_service_on_two_machines_is_two_processes(
    open_spool: Opener,
    clock: MovedClock,
    is_first: bool,
    wait_s: float,
    process: str,
    other_key: str,
    expected: int,
) -> None:
    """
    Two machines with the same service are two processes. A process without an id is only known by the name of its
    service, so both nested reports must be from one sender's key.
    """
    log = (await open_spool(hold=10)).log
    reports = [
        by_sdk(1, process=process, sender_key="desk"),
        around(2, process=process, sender_key=other_key),
    ]
    for one in reports if is_first else reports[::-1]:
        await add(log, one)
        clock.move(wait_s)
    clock.move(11)
    assert expected == len(counted(await everything(log)))
    await assert_books_balance(log)


@pytest.mark.rule
async def test_two_records_become_one(open_spool: Opener, clock: MovedClock) -> None:
    """
    If a call's two nested reports are two records, the provider's report with the SDK's id shows that they are one
    call, and the records are merged.
    """
    log = (await open_spool(hold=10)).log
    times = {"start_time": START - NS, "end_time": START + NS // 2}
    provider, known_as = call(1, request_model="claude-haiku-4-5", **times)
    for one in [(provider, known_as), around(2, user="ada"), by_sdk(1)]:
        await add(log, one)
    clock.move(11)
    [record] = counted(await everything(log))
    assert (provider.id, "ada") == (record.id, record.user)
    await add(log, by_sdk(3, 0.2, 0.8))
    clock.move(11)
    assert 2 == len(counted(await everything(log)))
    assert 1 == (await topic_terms(log))["bridged"]


@pytest.mark.rule
async def test_nested_report_joins_the_call_of_a_reversed_record(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    A nested report joins the call of a record that was taken back. Here the provider's reports came first, and
    showed later that the SDK's closed record is of their call.
    """
    log = (await open_spool(hold=10)).log
    times = {"start_time": START + NS // 5, "end_time": START + NS // 2}
    provider, known_as = call(5, request_model="claude-haiku-4-5", **times)
    sdk, sdk_known_as = by_sdk(1)
    both = known_as._replace(also=(sdk_known_as.id,))
    for one in [(provider, known_as), (sdk, sdk_known_as), (provider, both), around(2, user="ada")]:
        await add(log, one)
        clock.move(20)
    rows = await everything(log)
    taken_back = [row for row in rows if isinstance(row, Correction) and row.after.shadow]
    assert 1 == len(counted(rows)) - len(taken_back)


@pytest.mark.rule
async def test_a_model_and_its_dated_name_are_the_same(open_spool: Opener, clock: MovedClock) -> None:
    """
    A model and its dated name are the same in nested reports. An assistant named only the dated model, and its
    record has the SDK's report. The framework knows the alias.
    """
    log = (await open_spool(hold=10)).log
    dated = "claude-haiku-4-5-20251001"
    for one in [
        by_sdk(1, request_model=dated, response_model=dated),
        around(2),
        around(3, 5, 6, request_model="claude-haiku-4-6"),
        by_sdk(4, 5.1, 5.9, request_model=dated),
    ]:
        await add(log, one)
    clock.move(11)
    assert 3 == len(counted(await everything(log)))


@pytest.mark.rule
async def test_a_report_within_two_calls_joins_none(open_spool: Opener, clock: MovedClock) -> None:
    """If an SDK's report lies within two calls, it joins neither. A third call around it does not join it later."""
    log = (await open_spool(hold=10)).log
    for one in [around(1), around(2, 0, 1.1), by_sdk(3), around(4, 0.05, 1.2)]:
        await add(log, one)
    clock.move(11)
    assert 4 == len(counted(await everything(log)))


@pytest.mark.rule
async def test_a_call_has_one_report_of_an_sdk(open_spool: Opener, clock: MovedClock) -> None:
    """
    A call joins only one report of an SDK. Every order makes two records: the call with one report, and the other
    report.
    """
    for order in permutations([around(1), by_sdk(2), by_sdk(3, 0.2, 0.8)]):
        log = (await open_spool(hold=10)).log
        for one in order:
            await add(log, one)
        clock.move(11)
        assert 2 == len(counted(await everything(log)))


@pytest.mark.parametrize("is_first", [False, True])
async def test_after_a_kill(tmp_path: Path, clock: MovedClock, is_first: bool) -> None:
    """
    After a kill, the second nested report finds the record of the first. After another kill, its repeat finds it as
    well.
    """
    settings = SpoolSettings(hold=10)
    reports = [by_sdk(1), around(2)][:: 1 if is_first else -1]
    directory = tmp_path / "0"
    for place, one in enumerate([*reports, *reports], start=1):
        storage = await spool.sqlite.spool.open_spool(directory, settings=settings, clock=clock)
        await add(storage.log, one)
        directory = killed(directory, tmp_path / f"{place}")
        await storage.close()
    storage = await spool.sqlite.spool.open_spool(directory, settings=settings, clock=clock)
    clock.move(11)
    assert 1 == len(counted(await everything(storage.log)))
    await assert_books_balance(storage.log)
    await storage.close()
