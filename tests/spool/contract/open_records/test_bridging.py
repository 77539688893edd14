"""
Reports that match two records: while the later record is open, it becomes a shadow of the earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import spool.sqlite.spool
from spool.identity import RecordIdentity
from spool.ledger.verdicts import counted_amounts
from spool.record import AI_TELEMETRY, Correction, Inference, Record, record_to_json
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import Observed, add, assert_books_balance, call, everything, topic_terms

BY_TRACE, BY_CALL = b"trace-and-moment", b"call-and-moment-"
Report = tuple[Record, RecordIdentity]


def report(number: int, *also: bytes, **fields: Any) -> Report:
    record, known_as = call(number, **fields)
    return record, known_as._replace(also=also)


def linked(number: int, *links: tuple[bytes, bytes], **fields: Any) -> Report:
    record, known_as = call(number, **fields)
    return record, known_as._replace(links=links)


TRACE = report(1, BY_TRACE, user="ada")
CALL = report(2, BY_CALL, team="search")
BOTH = report(3, BY_TRACE, BY_CALL, session="s-1")


def counted(records: Sequence[Record | None]) -> list[Record | None]:
    return [record for record in records if record is not None and not record.shadow]


async def calls(log: Any) -> int:
    """Return the number of calls in the totals."""
    records = await everything(log)
    return sum(counted_amounts(record).calls for record in records if record is not None)


def in_every_order(*reports: Report) -> list[tuple[Report, ...]]:
    """Return each order of the reports, each for a different call."""
    orders = []
    for number, order in enumerate(permutations(reports), start=1):
        own = bytes([number])
        orders.append(tuple(call_again(one, own) for one in order))
    return orders


def call_again(one: Report, own: bytes) -> Report:
    """Return the same report for another call."""
    record, known_as = one
    assert isinstance(record, Inference)
    also = tuple(own + name for name in known_as.also)
    links = tuple((own + mine, own + other) for mine, other in known_as.links)
    id = own * 4 + record.id[4:]
    return replace(record, id=id), known_as._replace(id=id, also=also, links=links)


@pytest.mark.rule
@pytest.mark.parametrize("together", [False, True])
async def test_three_reports_are_one_call_in_every_order(
    open_spool: Opener, clock: MovedClock, together: bool
) -> None:
    """
    The first report names the trace, the second the call id, the third both. The counted record has the
    values of all three reports.
    """
    log = (await open_spool(hold=10)).log
    orders = in_every_order(TRACE, CALL, BOTH)
    for order in orders:
        for group in [order] if together else [[one] for one in order]:
            await add(log, *group)
            clock.move(1.5)
        for one in order:  # send all reports again; repeats add nothing
            await add(log, one)
    clock.move(11)

    found = counted(await everything(log))
    assert [order[0][0].id for order in orders] == [record.id for record in found if record is not None]
    told = {(one.user, one.team, one.session) for one in found if isinstance(one, Inference)}
    assert {("ada", "search", "s-1")} == told
    terms = await topic_terms(log)
    # Each of the six orders has one record, and one more in the two orders in which the report with both
    # names comes last.
    assert terms["accepted"] == 8
    assert terms["bridged"] == 2
    assert 0 == terms.get("bridged_late", 0) + terms.get("amended_late", 0)
    await assert_books_balance(log)


@pytest.mark.one_engine
@pytest.mark.parametrize("pause", [0, 11])
async def test_who_is_between_two_sides_joins_them(
    open_spool: Opener, clock: MovedClock, pause: float
) -> None:
    """
    A report of the program between caller and answerer joins their two reports, in any order, open or closed.
    """
    log = (await open_spool(hold=10)).log
    caller = linked(1, (b"made", b"answered"), user="ada")
    between = linked(2, (b"made on", b"answered on"), (b"answered", b"made"))
    answerer = linked(3, (b"answered on", b"made on"), team="search")
    orders = in_every_order(caller, between, answerer)
    for order in orders:
        for one in order:
            await add(log, one)
            clock.move(pause)
    clock.move(11)
    assert 6 == await calls(log)
    if not pause:
        found = counted(await everything(log))
        assert [("ada", "search")] * 6 == [
            (one.user, one.team) for one in found if isinstance(one, Inference)
        ]


async def test_the_shadow_says_who_counts_it(
    open_spool: Opener, clock: MovedClock, observed: Observed
) -> None:
    """The shadow keeps its own id and values. Values that disagree count as a conflict."""
    log = (await open_spool(hold=10)).log
    await add(log, TRACE)
    await add(log, report(2, BY_CALL, input_tokens=7, source="kong"))
    await add(log, report(3, BY_TRACE, BY_CALL, source="litellm"))
    clock.move(11)

    first, second = await everything(log)
    assert isinstance(first, Inference)
    assert isinstance(second, Inference)
    assert first.input_tokens == 100
    assert first.shadow is False
    assert first.counted_by is None
    assert second.input_tokens == 7
    assert second.shadow is True
    assert first.id == second.counted_by
    assert first.id.hex() == record_to_json(second)["counted_by"]
    assert "counted_by" not in record_to_json(first)
    assert 1 == observed.terms["bridged", "litellm"]
    assert 1 == observed.terms["conflict", "otel/kong"]


@pytest.mark.rule
@pytest.mark.parametrize("together", [False, True])
async def test_without_a_hold_one_request_is_one_write(open_spool: Opener, together: bool) -> None:
    """
    Without a waiting time, reports of one call in one request are one record, because no reader sees a part of a
    request. If the reports arrive in separate requests, corrections make them one call.
    """
    log = (await open_spool(hold=0)).log
    for group in [(TRACE, CALL, BOTH)] if together else [(TRACE,), (CALL,), (BOTH,)]:
        await add(log, *group)
    found = await everything(log)
    assert int(together) == sum(record.shadow for record in found if record is not None)
    assert 2 * (not together) == sum(isinstance(record, Correction) for record in found)
    terms = await topic_terms(log)
    assert 1 == terms.get("bridged", 0)
    assert 0 == terms.get("bridged_late", 0)
    await assert_books_balance(log)


async def test_four_records_of_one_call(open_spool: Opener, clock: MovedClock) -> None:
    """If a record with shadows becomes a shadow, its shadows and names lead to the record that counts."""
    log = (await open_spool(hold=10)).log
    names = [bytes([number]) * 16 for number in range(4)]
    for number in range(4):
        await add(log, report(number, names[number]))
    await add(log, report(10, names[2], names[3]))
    await add(log, report(11, names[1], names[2]))
    await add(log, report(12, names[0], names[3]))
    await add(log, report(3, names[3], user="ada"))
    await add(log, report(13, names[3], team="search"))
    clock.move(11)
    (found,) = counted(await everything(log))
    assert isinstance(found, Inference)
    assert call(0)[0].id == found.id
    assert found.user == "ada"
    assert found.team == "search"
    assert 3 == (await topic_terms(log))["bridged"]
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("pause", [0, 11])
@pytest.mark.parametrize("last", ["answered 1", "answered 2"])
async def test_two_attempts_stay_two_calls(
    open_spool: Opener, clock: MovedClock, last: str, pause: float
) -> None:
    """
    A gateway's log reports two attempts of one client call. Spans report the same attempts again, and only
    one attempt is joined with the client's report.
    """
    log = (await open_spool(hold=10)).log
    made, answered = (b"made", b"answered"), (b"answered", b"made")
    logs = {name: bytes([number]) * 16 for number, name in enumerate(["answered 1", "answered 2"])}
    await add(log, linked(1, made))
    for number, by_log in enumerate(logs.values(), start=2):
        await add(log, report(number, by_log))
    clock.move(pause)
    for number, name in enumerate(sorted(logs, key=lambda name: name == last), start=4):
        record, known_as = report(number, logs[name])
        for _ in range(2):
            await add(log, (record, known_as._replace(links=(answered,))))
            clock.move(pause)
    clock.move(11)
    assert 2 == await calls(log)
    assert 1 == (await topic_terms(log))["bridged"]


@pytest.mark.rule
async def test_two_answers_of_one_side_are_never_joined(open_spool: Opener, clock: MovedClock) -> None:
    """A report that could be the other side of two calls, because its end is near both, joins only one."""
    log = (await open_spool(hold=10)).log
    for number, own in enumerate((b"log 1", b"log 2")):
        await add(log, linked(number, (own, b"span 1"), (own, b"span 2")))
    await add(log, linked(3, (b"span 1", b"log 1"), (b"span 1", b"log 2")))
    clock.move(11)
    assert 2 == len(counted(await everything(log)))


@pytest.mark.rule
@pytest.mark.parametrize("pause", [0, 11])
async def test_a_rounded_time_that_fits_two_calls_joins_no_records(
    open_spool: Opener, clock: MovedClock, pause: float
) -> None:
    """
    If the rounded end of a report fits two calls of the other side, it joins neither, because either could be the
    same. If it is near only one call, it joins this one.
    """
    log = (await open_spool(hold=10)).log
    for ten, (own, logs) in enumerate(((b"A", (b"1", b"2")), (b"B", (b"1",)))):
        for number, one in enumerate(logs):
            spans = ((own + one, own + b"span 1"), (own + one, own + b"span 2"))
            await add(log, linked(10 * ten + number, *spans))
        await add(log, report(10 * ten + 2, own * 16))
        clock.move(pause)
        record, known_as = report(10 * ten + 3, own * 16)
        links = tuple((own + b"span 1", own + each) for each in (b"1", b"2"))
        await add(log, (record, known_as._replace(links=links)))
    clock.move(11)
    assert 3 + 1 == await calls(log)


@pytest.mark.rule
async def test_a_report_of_a_source_that_does_not_count_joins_nothing(
    open_spool: Opener, clock: MovedClock
) -> None:
    """A report that was stored as a shadow is never joined to a call."""
    log = (await open_spool(hold=10)).log
    await add(log, TRACE)
    await add(log, report(2, BY_CALL, shadow=True))
    await add(log, BOTH)
    await add(log, report(5, b"n" * 16))
    await add(log, report(6, BY_TRACE, b"n" * 16, shadow=True))
    clock.move(11)
    assert 0 == (await topic_terms(log)).get("bridged", 0)
    assert 2 == len(counted(await everything(log)))


@pytest.mark.parametrize("at", range(4))
async def test_a_bridge_outlives_a_kill(tmp_path: Path, clock: MovedClock, at: int) -> None:
    """Killed after any of four reports, the log still knows all names, even those of the shadow."""
    settings, directory = SpoolSettings(hold=10), tmp_path / "data"
    open_spools = [await spool.sqlite.spool.open_spool(directory, settings=settings, clock=clock)]
    for number, one in enumerate([TRACE, CALL, BOTH, report(2, BY_CALL, device="laptop")]):
        await add(open_spools[-1].log, one)
        if number == at:
            directory = killed(directory, tmp_path / "copy")
            open_spools.append(await spool.sqlite.spool.open_spool(directory, settings=settings, clock=clock))
    log = open_spools[-1].log
    await add(log, report(9, BY_CALL, region="global"))
    clock.move(11)
    (found,) = counted(await everything(log))
    assert isinstance(found, Inference)
    assert found.user == "ada"
    assert found.team == "search"
    assert found.session == "s-1"
    assert found.device == "laptop"
    assert found.region == "global"
    assert 2 == log.next_number(AI_TELEMETRY) - 1
    await assert_books_balance(log)
    for one_spool in open_spools:
        await one_spool.close()
