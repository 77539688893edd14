from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TypeVar, cast

import pytest

from spool.errors import SpoolUnavailable
from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows, RegistryStore
from tests.moved_clock import MovedClock

T = TypeVar("T")


class FailingStore:
    """A store that fails once a test sets `fails`."""

    is_shared = False

    def __init__(self) -> None:
        self.fails = asyncio.Event()

    async def read(self, work: Callable[[RegistryRows], T]) -> T:
        raise AssertionError("nobody reads")

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        await self.fails.wait()
        raise SpoolUnavailable("no disk")


async def test_an_error_that_nobody_waits_for_is_no_defect() -> None:
    """
    If the caller of a change was cancelled before the change failed, asyncio must not report an unretrieved error.
    """
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: complaints.append(context["message"])
    )
    store = FailingStore()
    changes = RegistryChangeWriter(cast(RegistryStore, store), clock=MovedClock(), secret=b"s" * 32)
    asking = asyncio.create_task(changes.change_rows(lambda rows: None))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    del asking  # the task's traceback refers to the change
    store.fails.set()
    while changes._running:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)
    gc.collect()
    assert [] == complaints
