"""Counts by day, added to the stored counts of all processes."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from spool.errors import SpoolError

DAY_S = 86_400.0
KEEP_EVERY_S = 600.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class CounterByDay(Protocol[T]):
    """A counter by day, in memory. Days are numbered from 1970 on (UTC)."""

    @property
    def today(self) -> int: ...

    def take_counts(self) -> Mapping[int, T]: ...

    def put_back(self, counts_by_day: Mapping[int, T], /) -> None: ...


class DailyCountSaver(ABC, Generic[T]):
    """
    Adds the counts of a `CounterByDay` to the storage: before each query, every ten minutes, and at an orderly
    stop.

    `name` and `action` describe the counts in the log.
    """

    name: ClassVar[str]
    action: ClassVar[str]

    def __init__(self, counter: CounterByDay[T]) -> None:
        self.counter = counter

    @abstractmethod
    async def store_days(self, counts_by_day: Mapping[int, T]) -> None:
        """Add counts to the stored counts. Raises SpoolError."""

    async def store_pending(self) -> None:
        if counts_by_day := self.counter.take_counts():
            try:
                await self.store_days(counts_by_day)
            except SpoolError:
                self.counter.put_back(counts_by_day)
                raise

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(KEEP_EVERY_S)
                await self._try_to_store()
        finally:
            await self._try_to_store()

    async def _try_to_store(self) -> None:
        try:
            await self.store_pending()
        except SpoolError as error:
            message = "counts of %s could not be stored and are retried: %s"
            _log.warning(message, self.name, error, extra={"action": self.action})
