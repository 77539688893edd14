"""The one task that commits: when it is gone, everybody hears it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from spool.errors import SpoolUnavailable
from spool.identity import Identity
from spool.log.duplicates import DuplicateIndex
from spool.log.plan import Planner
from spool.log.values import Receipt, Submission
from spool.record import Record
from spool.sqlite.log.writer import GroupWriter
from tests.integration.spool.conftest import Starter
from tests.spool.contract.examples import add, assert_books_balance, call, everything, submission

pytestmark = pytest.mark.asyncio


def end_of_commits() -> None:
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "group commit"]
    task.cancel()


async def test_whoever_waits_for_a_dead_writer_is_told() -> None:
    """Those in its hand, those behind them, and those that come later; closing it waits for nothing."""
    began = asyncio.Event()

    async def commit(_: Sequence[Submission]) -> Sequence[Receipt]:
        began.set()
        return await asyncio.Future()

    async def between() -> bool:
        return False

    writer = GroupWriter(commit, between)
    in_hand = asyncio.create_task(writer.append(submission([call(1)])))
    await began.wait()
    behind = asyncio.create_task(writer.append(submission([call(2)])))
    await asyncio.sleep(0)
    end_of_commits()
    for waiting in (in_hand, behind):
        with pytest.raises(SpoolUnavailable):
            await waiting
    with pytest.raises(SpoolUnavailable):
        await writer.append(submission([call(3)]))
    assert not writer.alive
    await writer.close()


async def test_a_log_whose_writer_died_says_so(start: Starter) -> None:
    """`alive` is what /livez asks; what was kept is there after the restart."""
    spool = await start()
    await add(spool.log, call(1))
    assert (await spool.log.stats()).alive
    end_of_commits()
    await asyncio.sleep(0)
    stats = await spool.log.stats()
    assert (False, False) == (stats.alive, stats.writable)


def unidentified(number: int) -> tuple[Record, Identity]:
    """A call that nobody would know again: kept twice, it would count twice."""
    record, known_as = call(number)
    return record, Identity(known_as.id, certain=False)


@pytest.mark.parametrize("fails", [Planner.apply, DuplicateIndex.add], ids=lambda method: method.__qualname__)
async def test_what_is_on_disk_is_never_committed_again(
    start: Starter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: Callable[..., None]
) -> None:
    """The memory does not follow a commit: its senders have their receipts, nothing else is kept, a start heals it."""
    spool = await start()
    await add(spool.log, call(0))

    def fail(*_: object) -> None:
        raise MemoryError

    owner = Planner if fails is Planner.apply else DuplicateIndex
    with monkeypatch.context() as broken:
        broken.setattr(owner, fails.__name__, fail)
        receipts = await asyncio.gather(*[add(spool.log, unidentified(number), call(9)) for number in (1, 2, 3)])
    assert [2, 2, 2] == [receipt.records for receipt in receipts]
    with pytest.raises(SpoolUnavailable):
        await add(spool.log, call(4))
    assert not (await spool.log.stats()).alive
    assert ["MemoryError"] == [line.error for line in caplog.records if line.name == "spool.sqlite.log.writer"]  # type: ignore[attr-defined]

    await spool.close()
    spool = await start()
    await add(spool.log, call(9), call(4))
    assert [call(number)[0] for number in (0, 1, 9, 2, 3, 4)] == await everything(spool.log)
    await assert_books_balance(spool.log)


async def test_a_receipt_that_cannot_be_made_undoes_the_commit(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made before the commit ends, so its sender repeats what was never kept."""
    spool = await start()
    with monkeypatch.context() as broken:
        broken.setattr("spool.log.receipts.Sealer.seal", None)
        with pytest.raises(TypeError):
            await add(spool.log, unidentified(1))
    await add(spool.log, unidentified(1))
    assert [call(1)[0]] == await everything(spool.log)
    await assert_books_balance(spool.log)
