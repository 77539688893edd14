"""Background tasks by name: when one ends, the process stops and names it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from gateway.service.monitoring.logs import where

_log = logging.getLogger(__name__)


class Supervisor:
    """Starts tasks that must not end, and reports the first that did."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.failed: str | None = None  # the name of the first task that ended
        self._failure = asyncio.Event()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def failure(self) -> str:
        """Wait until a task ends, and return its name."""
        await self._failure.wait()
        assert self.failed is not None
        return self.failed

    async def stop(self) -> None:
        """Cancel all tasks and wait for them."""
        self._stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._stopping:
            return
        kind = type(error).__name__ if error else None
        extra = {"action": "task_died", "task": task.get_name(), "error": kind}
        _log.critical("a background task ended", extra={**extra, "where": where(error) if error else []})
        if self.failed is None:
            self.failed = task.get_name()
            self._failure.set()
