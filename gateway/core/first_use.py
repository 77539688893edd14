"""
Imports at first use, so that a start loads only what it needs.

The functions return no module, because its type would be unknown. Import the names that you need after the call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib import import_module, invalidate_caches
from typing import Generic, TypeVar

T = TypeVar("T")

TRIES, PAUSE_S = 20, 0.1
_imported: set[str] = set()
# With this lock, threads import one at a time. Otherwise, a thread could see a module that is only half
# imported.
_one_at_a_time = threading.Lock()


async def import_in_thread(name: str) -> None:
    """
    Import a module on a thread, so that other requests do not wait. Without a free descriptor the import
    fails, so it is tried again until an idle connection is closed.
    """
    if name in _imported:
        return
    for _ in range(TRIES - 1):
        try:
            await asyncio.to_thread(import_blocking, name)
        except (OSError, ImportError):
            # Python remembers a folder that could not be listed as empty, so forget that before the retry
            invalidate_caches()
            await asyncio.sleep(PAUSE_S)
        else:
            return
    await asyncio.to_thread(import_blocking, name)


def import_blocking(name: str) -> None:
    """
    Import a module. This may wait for imports by other threads, so code on the event loop calls this function
    only where it cannot await.
    """
    with _one_at_a_time:
        import_module(name)
        _imported.add(name)


class LazyValue(Generic[T]):
    """A value made at its first use. `made` is None until then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.made: T | None = None
        self._make = make

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
