"""Supervised background tasks: a task that ends is logged by name and starts again."""

from __future__ import annotations

import asyncio

import pytest

from gateway.service import app
from gateway.service.app import TaskSupervisor
from spool.errors import OtherSchema


class Task:
    """A task that ends with each of some errors, and then runs until it is cancelled."""

    def __init__(self, *errors: BaseException | None) -> None:
        self._errors = list(errors)
        self.is_running = asyncio.Event()

    async def __call__(self) -> None:
        if not self._errors:
            self.is_running.set()
            await asyncio.Event().wait()
        error = self._errors.pop(0)
        if error is not None:
            raise error


async def test_a_task_that_ends_is_named_and_starts_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the type of the error is logged. A task that returns, or awaits a cancelled task, has ended as well."""
    monkeypatch.setattr(app, "RESTART_S", 0.0)
    clumsy = Task(RuntimeError("th_secret"), RecursionError(), None, asyncio.CancelledError())
    supervisor = TaskSupervisor()
    supervisor.start_task("clumsy", clumsy)
    await clumsy.is_running.wait()
    assert supervisor.failed is None
    records = [vars(record) for record in caplog.records]
    assert {"clumsy"} == {record["task"] for record in records}
    assert ["RuntimeError", "RecursionError", None, "CancelledError"] == [
        record["error"] for record in records
    ]
    assert "th_secret" not in str(records)
    await supervisor.stop()


async def test_another_schema_ends_the_process() -> None:
    """No task of this process can work on the storage of another build, so an operator must act."""
    supervisor = TaskSupervisor()
    supervisor.start_task("ledger", Task(OtherSchema("the schema has been upgraded")))
    assert "ledger" == await supervisor.wait_for_failure()
    await supervisor.stop()


async def test_a_stop_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    patient = Task()
    supervisor = TaskSupervisor()
    supervisor.start_task("patient", patient)
    await patient.is_running.wait()
    await supervisor.stop()
    assert supervisor.failed is None
    assert [] == caplog.records
