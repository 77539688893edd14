"""Imports modules when they are first used: a start does not pay for what nobody asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")

_imported: dict[str, ModuleType] = {}
# Two threads that import parts of one package could each see an unfinished module of the other.
_one_at_a_time = threading.Lock()


async def imported(name: str) -> ModuleType:
    """The module of this name, imported in a thread if it was not before: other requests do not wait for it."""
    found = _imported.get(name)
    return await asyncio.to_thread(import_here, name) if found is None else found


def import_here(name: str) -> ModuleType:
    """
    Import a module in this thread. It waits for what another one imports, so the event loop calls it only for what
    it cannot await.
    """
    with _one_at_a_time:
        return _imported.setdefault(name, import_module(name))


class Once(Generic[T]):
    """What `make` makes when it is first asked for; `made` is None until then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.made: T | None = None
        self._make = make

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
