"""Supervised background tasks: a task that ends is reported by name."""

from __future__ import annotations

import asyncio

import pytest

from gateway.service.app import TaskSupervisor


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise RuntimeError("th_secret")


async def test_a_task_that_fails_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The supervisor returns the name of the first failed task, and logs only the type of its error."""
    supervisor = TaskSupervisor()
    supervisor.start_task("patient", forever())
    supervisor.start_task("clumsy", fails())
    assert "clumsy" == await supervisor.wait_for_failure()
    record = vars(caplog.records[0])
    assert record["task"] == "clumsy"
    assert record["error"] == "RuntimeError"
    assert "th_secret" not in str(record)
    await supervisor.stop()


async def test_a_task_that_returns_is_a_failure_too() -> None:
    """A background task that returns without an error is also a failure."""
    supervisor = TaskSupervisor()
    supervisor.start_task("short", asyncio.sleep(0))
    assert "short" == await supervisor.wait_for_failure()
    await supervisor.stop()


async def test_a_stop_is_no_failure() -> None:
    supervisor = TaskSupervisor()
    supervisor.start_task("patient", forever())
    await supervisor.stop()
    assert supervisor.failed is None
