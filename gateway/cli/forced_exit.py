"""
Ends the process with exit code 1 when stopping takes too long, and logs the tasks that were still running.

Committed data is on disk, as after a kill; senders repeat what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOP_WITHIN_S = 28.0  # all waits of a stop take 24 s at most, the rest is for closing files on a slow disk

_log = logging.getLogger(__name__)


@contextmanager
def exit_after(loop: asyncio.AbstractEventLoop, *, within_s: float = STOP_WITHIN_S) -> Iterator[None]:
    """Ends the process when the block takes longer than that, even if the event loop is blocked."""
    timer = threading.Timer(within_s, _give_up, [loop, within_s])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(loop: asyncio.AbstractEventLoop, within_s: float) -> None:
    running = sorted(_place(task) for task in asyncio.all_tasks(loop))
    extra = {"action": "stop_cut", "tasks": running}
    _log.critical("stopping took longer than %g s; the process ends now", within_s, extra=extra)
    os._exit(1)


def _place(task: asyncio.Task[object]) -> str:
    """Returns the task's name and the line of the coroutine at which it waits."""
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    return f"{task.get_name()}: {frames[0].f_code.co_qualname}:{frames[0].f_lineno}"
