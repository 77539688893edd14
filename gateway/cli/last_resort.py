"""
A stop that does not end is ended from outside of the loop: the log says what still ran, and the process exits with 1.

What was kept is on disk and stays there, as after a kill; what was not acknowledged is sent again by whoever sent it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOP_WITHIN_S = 45.0  # all waits of a stop take 24 s at most, the rest is for closing files on a slow disk

_log = logging.getLogger(__name__)


@contextmanager
def bounded(loop: asyncio.AbstractEventLoop, *, within_s: float = STOP_WITHIN_S) -> Iterator[None]:
    """The body has that long, even when the loop does not turn."""
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
    _log.critical("the stop did not end within %g s; the process ends now", within_s, extra=extra)
    os._exit(1)


def _place(task: asyncio.Task[object]) -> str:
    """Its name, and the line of the coroutine at which it waits."""
    frames = task.get_stack(limit=1)
    return f"{task.get_name()}: {frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else task.get_name()
