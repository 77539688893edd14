"""Waiting partial reports, on both engines: kept and forgotten with the books, replaced, found again in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spool.log.partial_reports import PartialReport
from spool.settings import SpoolSettings
from spool.sqlite import open_spool as open_sqlite
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, add, assert_books_balance, call, topic_terms

pytestmark = pytest.mark.asyncio

OLD, NEW = PartialReport(b"old", 1.0, b"\x00part"), PartialReport(b"new", 2.5, b"other part")


async def test_what_was_kept_is_loaded_oldest_first(open_spool: Opener) -> None:
    """In the order in which its time runs out, and the books say how many wait."""
    spool = await open_spool()
    await add(spool.log, keep=[NEW, OLD], pending=2)
    assert [OLD, NEW] == list(await spool.partial_reports.load())
    assert 2 == (await topic_terms(spool.log))["pending"]
    await assert_books_balance(spool.log)


async def test_a_later_report_replaces_the_one_before(open_spool: Opener) -> None:
    """One row a key, also when one submission forgets the report before and keeps the next."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    await add(spool.log, keep=[PartialReport(b"old", 3.0, b"more")])
    assert [PartialReport(b"old", 3.0, b"more")] == list(await spool.partial_reports.load())
    await add(spool.log, forget=[b"old"], keep=[OLD])
    assert [OLD] == list(await spool.partial_reports.load())


async def test_what_is_forgotten_is_gone_and_may_be_forgotten_again(open_spool: Opener) -> None:
    """Nothing to forget is no work."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD, NEW], pending=2)
    await add(spool.log, call(1), forget=[b"old", b"never"], pending=-1)
    await add(spool.log, forget=[b"old"])
    assert [NEW] == list(await spool.partial_reports.load())
    assert (1, 1) == ((await topic_terms(spool.log))["pending"], (await topic_terms(spool.log))["accepted"])
    await assert_books_balance(spool.log)


async def test_of_one_group_the_later_word_counts(open_spool: Opener) -> None:
    """Kept by one submission and forgotten by the next of the same commit: gone."""
    spool = await open_spool()
    await asyncio.gather(add(spool.log, keep=[OLD], pending=1), add(spool.log, forget=[b"old"], pending=-1))
    assert [] == list(await spool.partial_reports.load())


async def test_a_refused_submission_keeps_and_forgets_nothing(open_spool: Opener) -> None:
    """Halves, records and books are one commit: all of it, or nothing."""
    spool = await open_spool()
    await add(spool.log, keep=[OLD], pending=1)
    with pytest.raises(OverflowError):
        await add(spool.log, call(1, input_tokens=1 << 70), keep=[NEW], forget=[b"old"], pending=-1)
    assert [OLD] == list(await spool.partial_reports.load())
    assert 1 == (await topic_terms(spool.log))["pending"]


async def test_partial_reports_outlive_the_process(tmp_path: Path) -> None:
    """Opened again, the file still has them."""
    clock = MovedClock(NOON)
    spool = await open_sqlite(tmp_path, settings=SpoolSettings(), clock=clock)
    await add(spool.log, keep=[OLD], pending=1)
    await spool.close()
    spool = await open_sqlite(tmp_path, settings=SpoolSettings(), clock=clock)
    assert [OLD] == list(await spool.partial_reports.load())
    await spool.close()
