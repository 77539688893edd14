"""An item that fails costs only itself: the next item runs, the state names the failed item, and the loop goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from spool.errors import NotAllowed, SpoolUnavailable, TotalsIncomplete
from spool.loops import ENOUGH, ITEM_RETRY_S, FailedItems, for_each_item, repeat
from tests.exporters.spools import StoppedClock


def deep() -> None:
    deep()


async def exhaust_stack(_: str) -> None:
    deep()


ERRORS = [
    ValueError("th_secret"),
    MemoryError(),
    NotAllowed("no"),
    SpoolUnavailable("away"),
    ExceptionGroup("all", [OSError()]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_the_next_item_runs_after_any_error(error: Exception) -> None:
    done: list[str] = []
    failures: list[tuple[str, Exception]] = []

    async def work(item: str) -> None:
        if item == "broken":
            raise error
        done.append(item)

    async def store(item: str, raised: Exception) -> None:
        failures.append((item, raised))

    assert 1 == await for_each_item(["first", "broken", "last"], work, store)
    assert ["first", "last"] == done
    assert [("broken", error)] == failures


async def test_an_exhausted_stack_is_a_failure_of_its_item() -> None:
    failed: list[str] = []

    async def store(item: str, _: Exception) -> None:
        failed.append(item)

    assert 2 == await for_each_item(["one", "two"], exhaust_stack, store)
    assert ["one", "two"] == failed


async def test_a_failure_that_cannot_be_stored_costs_no_other_item() -> None:
    tried: list[str] = []

    async def work(item: str) -> None:
        tried.append(item)
        raise ValueError

    async def store(item: str, _: Exception) -> None:
        raise SpoolUnavailable("the disk is full")

    assert 2 == await for_each_item(["one", "two"], work, store)
    assert ["one", "two"] == tried


async def test_a_cancellation_ends_the_loop() -> None:
    """Cancellation is no failure of an item, because the server stops or the lease is lost."""
    tried: list[str] = []

    async def work(item: str) -> None:
        tried.append(item)
        raise asyncio.CancelledError

    async def store(item: str, _: Exception) -> None:
        raise AssertionError("a cancellation is no failure")

    with pytest.raises(asyncio.CancelledError):
        await for_each_item(["one", "two"], work, store)
    assert ["one"] == tried


async def test_a_loop_goes_on_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    left = [*ERRORS, RecursionError("th_secret")]

    async def turn() -> object:
        if left:
            raise left.pop()
        return ENOUGH

    await repeat(turn, every_s=0.0, failed="it waits", action="it_waits")
    assert len(ERRORS) + 1 == len(caplog.records)
    assert {"it_waits"} == {vars(record)["action"] for record in caplog.records}
    assert not any("th_secret" in record.getMessage() for record in caplog.records)
    # an error of the storage says what to do, and an error in the code says where it was raised
    levels = [record.levelno for record in caplog.records if record.exc_info is None]
    assert [logging.WARNING] * 2 == levels


async def test_a_failed_item_is_named_and_tried_again_later() -> None:
    """The other items are tried in each turn. A restart tries all, because this state is in memory."""
    clock = StoppedClock()
    failed_items = FailedItems(clock)
    tried: list[str] = []
    is_broken = True

    async def work(item: str) -> None:
        tried.append(item)
        if item == "June" and is_broken:
            raise RecursionError

    items = {"May": "May", "June": "June"}
    await failed_items.work_on("bills", items, work)
    (failed,) = failed_items.all()
    assert ("bills", "June") == (failed.task, failed.item)
    assert "an internal error; see the log: RecursionError" == failed.reason
    assert (clock.at, clock.at + ITEM_RETRY_S) == (failed.at, failed.next_at)
    await failed_items.work_on("bills", items, work)
    assert ["May", "June", "May"] == tried
    clock.move(ITEM_RETRY_S)
    is_broken = False
    await failed_items.work_on("bills", items, work)
    assert ["May", "June", "May", "May", "June"] == tried
    assert [] == failed_items.all()


async def test_an_item_that_met_a_failed_storage_is_tried_in_the_next_turn() -> None:
    failed_items = FailedItems(StoppedClock())
    tried: list[str] = []

    async def work(item: str) -> None:
        tried.append(item)
        raise SpoolUnavailable("the disk is full")

    for _ in range(2):
        await failed_items.work_on("bills", {"May": "May"}, work)
    assert ["May", "May"] == tried
    assert ["the disk is full"] == [failed.reason for failed in failed_items.all()]


async def test_the_failure_of_a_removed_item_is_forgotten() -> None:
    failed_items = FailedItems(StoppedClock())

    async def fail(item: str) -> None:
        raise ValueError

    await failed_items.work_on("bills", {"May": "May"}, fail)
    await failed_items.work_on("rules", {"May": "May"}, fail)
    await failed_items.work_on("bills", {}, fail)
    assert ["rules"] == [failed.task for failed in failed_items.all()]


async def test_while_totals_are_incomplete_a_turn_waits_and_no_item_has_failed() -> None:
    failed_items = FailedItems(StoppedClock())
    tried: list[str] = []

    async def work(item: str) -> None:
        tried.append(item)
        raise TotalsIncomplete("5 of 10 records")

    with pytest.raises(TotalsIncomplete):
        await failed_items.work_on("bills", {"May": "May", "June": "June"}, work)
    assert ["May"] == tried
    assert [] == failed_items.all()
