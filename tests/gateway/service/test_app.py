"""Background tasks: when one ends, the owner hears which."""

from __future__ import annotations

import asyncio

import pytest

from gateway.service.app import Supervisor


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> None:
    raise RuntimeError("th_secret")


async def test_a_task_that_fails_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The name of the first task that ended comes out, and its error's type goes to the log."""
    supervisor = Supervisor()
    supervisor.start("patient", forever())
    supervisor.start("clumsy", fails())
    assert "clumsy" == await supervisor.failure()
    record = vars(caplog.records[0])
    assert record["task"] == "clumsy"
    assert record["error"] == "RuntimeError"
    assert "th_secret" not in str(record)
    await supervisor.stop()


async def test_a_task_that_returns_is_a_failure_too() -> None:
    """A loop that ended without an error is just as gone."""
    supervisor = Supervisor()
    supervisor.start("short", asyncio.sleep(0))
    assert "short" == await supervisor.failure()
    await supervisor.stop()


async def test_a_stop_is_no_failure() -> None:
    """Tasks that are cancelled on purpose are not reported."""
    supervisor = Supervisor()
    supervisor.start("patient", forever())
    await supervisor.stop()
    assert supervisor.failed is None
