"""
Waiting partial reports on both engines: stored and deleted with the accounting, replaced, and found in order.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spool.errors import Stale
from spool.log.partial_reports import (
    COUNTERS,
    NOTHING,
    PARTS,
    TOLD,
    ExpectedVersion,
    PartialReport,
    report_version,
)
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool as open_sqlite
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, add, assert_books_balance, call, topic_terms

OLD, NEW = PartialReport(b"old", 1.0, b"\x00part"), PartialReport(b"new", 2.5, b"other part")


async def test_waiting_partial_reports_are_loaded_in_deadline_order(open_spool: Opener) -> None:
    """
    Waiting partial reports are loaded in the order of their deadlines. The accounting counts the waiting reports.
    """
    spool = await open_spool()
    await add(spool.log, keep=[NEW, OLD], pending=2)
    assert [OLD, NEW] == list(await spool.partial_reports.load())
    assert 2 == (await topic_terms(spool.log))["pending"]
    await assert_books_balance(spool.log)


async def test_a_later_report_replaces_the_one_before(open_spool: Opener) -> None:
    """Each key has one row, even if one submission deletes the old partial report and stores the next."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    await add(spool.log, keep=[PartialReport(b"old", 3.0, b"more")])
    assert [PartialReport(b"old", 3.0, b"more")] == list(await spool.partial_reports.load())
    await add(spool.log, forget=[b"old"], keep=[OLD])
    assert [OLD] == list(await spool.partial_reports.load())


async def test_deleting_a_missing_partial_report_is_no_error(open_spool: Opener) -> None:
    """Deleting a partial report that does not exist is no error."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD, NEW], pending=2)
    await add(spool.log, call(1), forget=[b"old", b"never"], pending=-1)
    await add(spool.log, forget=[b"old"])
    assert [NEW] == list(await spool.partial_reports.load())
    assert (await topic_terms(spool.log))["pending"] == 1
    assert (await topic_terms(spool.log))["accepted"] == 1
    await assert_books_balance(spool.log)


async def test_of_one_group_the_later_word_counts(open_spool: Opener) -> None:
    """If one submission stores a partial report and the next in the commit deletes it, nothing is stored."""
    spool = await open_spool()
    await asyncio.gather(add(spool.log, keep=[OLD], pending=1), add(spool.log, forget=[b"old"], pending=-1))
    assert [] == list(await spool.partial_reports.load())


async def test_a_refused_submission_keeps_and_forgets_nothing(open_spool: Opener) -> None:
    """Partial reports, records and accounting are one commit, stored together or not at all."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    with pytest.raises(OverflowError):
        await add(spool.log, call(1, input_tokens=1 << 70), keep=[NEW], forget=[b"old"], pending=-1)
    assert [OLD] == list(await spool.partial_reports.load())
    assert 1 == (await topic_terms(spool.log))["pending"]


async def test_partial_reports_outlive_the_process(tmp_path: Path) -> None:
    clock = MovedClock(NOON)
    spool = await open_sqlite(tmp_path, settings=SpoolSettings(), clock=clock)
    await add(spool.log, keep=[OLD], pending=1)
    await spool.close()
    spool = await open_sqlite(tmp_path, settings=SpoolSettings(), clock=clock)
    assert [OLD] == list(await spool.partial_reports.load())
    await spool.close()


async def test_reports_are_found_by_key_and_by_kind(open_spool: Opener) -> None:
    """Partial reports are found by key, by prefix of keys, and as the oldest of a kind with their sizes."""
    spool = await open_spool()
    told = [PartialReport(TOLD + bytes([number]), float(number), bytes(number)) for number in (3, 1, 2, 255)]
    await add(spool.log, keep=[OLD, NEW, *told], pending=2)
    assert {b"old": OLD} == await spool.partial_reports.find_reports([b"old", b"never"])
    assert {b"new": NEW, told[3].key: told[3]} == await spool.partial_reports.find_reports(
        [b"new"], key_prefixes=[told[3].key, b"other/"]
    )
    assert {one.key for one in told} == set(await spool.partial_reports.find_reports([], key_prefixes=[TOLD]))
    assert [told[1], told[2]] == list(
        await spool.partial_reports.oldest_reports(TOLD, before_time=3.0, max_reports=2)
    )
    assert [told[1], told[2], told[0]] == list(
        await spool.partial_reports.oldest_reports(TOLD, before_time=3.0, max_reports=9)
    )
    assert [OLD] == list(await spool.partial_reports.oldest_reports(PARTS, before_time=2.0, max_reports=9))
    for kind, sizes in ((PARTS, (2, 15)), (TOLD, (4, 261)), (COUNTERS, (0, 0))):
        assert sizes == await spool.partial_reports.count_reports_and_bytes(kind)


async def test_submission_made_from_an_outdated_report_is_refused(open_spool: Opener) -> None:
    """
    Only the stale submission of a commit is refused, even if an earlier submission in the commit changed the
    report. The accounting does not count the refused submission.
    """
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    as_it_was, more = [ExpectedVersion(b"old", report_version(OLD))], PartialReport(b"old", 1.0, b"more")
    answers = await asyncio.gather(
        add(spool.log, call(1), keep=[more], expects=as_it_was),
        add(spool.log, call(2), forget=[b"old"], expects=as_it_was, pending=-1),
        add(spool.log, call(3)),
        add(
            spool.log,
            call(4),
            forget=[b"old"],
            expects=[ExpectedVersion(b"old", report_version(more))],
            pending=-1,
        ),
        add(spool.log, call(5), keep=[OLD], expects=as_it_was, pending=1),
        add(spool.log, call(6), keep=[OLD], expects=[ExpectedVersion(b"old", NOTHING)], pending=1),
        return_exceptions=True,
    )
    assert [False, True, False, False, True, False] == [isinstance(one, Stale) for one in answers]
    assert [OLD] == list(await spool.partial_reports.load())
    terms = await topic_terms(spool.log)
    assert terms["received"] == 5
    assert terms["accepted"] == 4
    assert terms["pending"] == 1
    await assert_books_balance(spool.log)


async def test_all_of_a_commit_may_be_stale(open_spool: Opener) -> None:
    """
    If all submissions of a commit are stale, the log continues. A submission that expects a key not to exist
    is then accepted.
    """
    spool = await open_spool()
    with pytest.raises(Stale, match="changed meanwhile"):
        await add(spool.log, call(1), expects=[ExpectedVersion(b"gone", 7)])
    await add(spool.log, call(1), expects=[ExpectedVersion(b"gone", NOTHING)])
    assert 1 == (await topic_terms(spool.log))["accepted"]
    await assert_books_balance(spool.log)


async def test_a_version_is_of_time_and_content(open_spool: Opener) -> None:
    """A report has the same version wherever it is read."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    found = (await spool.partial_reports.find_reports([b"old"]))[b"old"]
    assert report_version(OLD) == report_version(found) != NOTHING
    assert 3 == len(
        {report_version(OLD), report_version(OLD._replace(at=2.0)), report_version(OLD._replace(body=b""))}
    )
