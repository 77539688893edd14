"""Tasks under leases: they start when a lease is gained, and end in good order or at once when it is lost."""

from __future__ import annotations

import asyncio

import pytest

from spool import leases
from spool.errors import SpoolDamaged, SpoolError, SpoolFull, SpoolUnavailable
from spool.leases import LeaseTasks, SoleNode


class Endless:
    """Work that counts its starts and cancellations, and ends when requested."""

    def __init__(self) -> None:
        self.began = self.cut = 0
        self.running, self.asked = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        self.began += 1
        self.asked.clear()
        self.running.set()
        try:
            await self.asked.wait()
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.running.clear()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_work_runs_while_its_lease_is_held() -> None:
    """Work does not run before or after its lease, and starts again when the lease is gained again."""
    held, work = LeaseTasks(), Endless()
    task = asyncio.create_task(held.run_while_leased("ledger", work.run))
    await settled()
    assert work.began == 0
    assert held.wanted_leases == frozenset({"ledger"})
    held.gain_lease("ledger")
    await work.running.wait()
    held.lose_lease("ledger")
    await settled()
    assert work.began == 1
    assert work.cut == 1
    assert not task.done()
    held.gain_lease("ledger")
    await work.running.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert work.began == 2
    assert work.cut == 2
    assert held.wanted_leases == frozenset()


async def test_a_lease_is_let_go_when_its_work_has_ended() -> None:
    """
    When a lease is given back, work that can end by itself is requested to end, and other work is cancelled.
    The lease is free once all work under its name has ended.
    """
    held, polite, other = LeaseTasks(), Endless(), Endless()
    tasks = [
        asyncio.create_task(held.run_while_leased("route", polite.run, finish=polite.asked.set)),
        asyncio.create_task(held.run_while_leased("route", other.run)),
    ]
    await settled()
    held.gain_lease("route")
    await asyncio.gather(polite.running.wait(), other.running.wait())
    await held.finish_tasks_and_wait("route")
    assert (0, 1, False, False) == (polite.cut, other.cut, *(task.done() for task in tasks))
    held.gain_lease("route")
    await asyncio.gather(polite.running.wait(), other.running.wait())
    polite.asked.set()  # the polite work ends by itself
    await tasks[0]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("error", [ValueError("a defect"), SpoolDamaged("a page")])
async def test_supervisor_gets_the_error_of_failed_work(error: Exception) -> None:
    """If work under a lease fails, the supervisor of its task gets the error."""
    held = LeaseTasks()
    held.gain_lease("ledger")

    async def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await held.run_while_leased("ledger", fail)
    with pytest.raises(type(error)):
        await SoleNode().run_while_leased("ledger", fail)


async def test_work_begins_again_when_the_storage_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Work starts again after the database was unavailable or full for a while, even in a group of tasks. This
    is not a defect.
    """
    monkeypatch.setattr(leases, "AGAIN_S", 0.0)
    errors: list[Exception] = [
        SpoolUnavailable("gone"),
        SpoolFull("no room", retry_after_s=1),
        ExceptionGroup("all", [SpoolUnavailable("gone")]),
    ]
    held = LeaseTasks()
    held.gain_lease("ledger")

    async def fail() -> None:
        if errors:
            raise errors.pop()

    await held.run_while_leased("ledger", fail)
    assert [] == errors
    errors.append(ExceptionGroup("two", [SpoolUnavailable("gone"), SpoolError("a defect")]))
    with pytest.raises(ExceptionGroup):
        await held.run_while_leased("ledger", fail)
